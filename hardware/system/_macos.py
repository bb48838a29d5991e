"""What macOS's own programs say: `sysctl`, `vm_stat` and `system_profiler`, each started once for a machine."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from ..machine import Machine, Reading
from ..values import from_json, pairs, table

SYSCTL = ("sysctl", "hw", "machdep.cpu", "vm.swapusage")
PROFILER = ("system_profiler", "-json", "SPMemoryDataType", "SPNVMeDataType", "SPSerialATADataType")

_said: WeakKeyDictionary[Machine, dict[str, Any]] = WeakKeyDictionary()


def is_macos(machine: Machine) -> bool:
    """Whether it is a Mac."""
    return machine.host().system == "Darwin"


def sysctl(machine: Machine) -> Reading[dict[str, str]]:
    """The kernel's variables on hardware by name."""
    told = machine.run(*SYSCTL)
    return Reading(value=None if told.value is None else pairs(told.value.splitlines()), reason=told.reason)


def profiler(machine: Machine) -> dict[str, Any]:
    """What `system_profiler` says of memory modules and disks; empty where it says nothing."""
    kept = _said.get(machine)
    if kept is None:
        kept = table(from_json(machine.run(*PROFILER).value))
        _said[machine] = kept
    return kept
