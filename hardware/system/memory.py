"""Main memory in bytes: what the host has, and what control groups leave of it to this process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import BackendUnavailable
from ..machine import Library, LiveMachine, Machine, Reading

_GROUPS = "/sys/fs/cgroup"
_REGIONS = "/sys/bus/nd/devices"
_FIRMWARE = "/run/udev/data/+dmi:id"
_NO_LIMIT = 2**60
"""Control groups of version 1 write a number near 2^63 for "no limit"."""


@dataclass(frozen=True, kw_only=True)
class MemoryInfo:
    """Bytes throughout; `None` where the system doesn't tell.

    `kind` (DDR5), `speed_mts` (million transfers a second) and `channels` come from the firmware's table,
    which few virtual machines have. `persistent_bytes` is byte-addressable non-volatile memory.
    """

    total_bytes: int
    available_bytes: int
    swap_total_bytes: int
    swap_free_bytes: int
    cgroup_limit_bytes: int | None = None
    cgroup_used_bytes: int | None = None
    persistent_bytes: int | None = None
    kind: str | None = None
    speed_mts: int | None = None
    channels: int | None = None

    @property
    def usable_bytes(self) -> int:
        """The most that this process can get: the host's memory, or the control group's limit if smaller."""
        return self.total_bytes if self.cgroup_limit_bytes is None else min(self.total_bytes, self.cgroup_limit_bytes)


def free_bytes() -> int:
    """Main memory that this process can still get: what the host has free, or what its control group leaves."""
    memory = read_memory()
    if memory.cgroup_limit_bytes is None:
        return memory.available_bytes
    return min(memory.available_bytes, memory.cgroup_limit_bytes - (memory.cgroup_used_bytes or 0))


def read_memory(machine: Machine | None = None) -> MemoryInfo:
    """Memory of a machine, of this one where none is given.

    Raises `BackendUnavailable` where neither Linux's own account nor psutil is there to tell.
    """
    machine = machine or LiveMachine()
    total, available, swap_total, swap_free = _totals(machine)
    limit, used = cgroup_memory(machine)
    kind, speed, channels = _modules(machine)
    return MemoryInfo(
        total_bytes=total,
        available_bytes=available,
        swap_total_bytes=swap_total,
        swap_free_bytes=swap_free,
        cgroup_limit_bytes=limit,
        cgroup_used_bytes=used,
        persistent_bytes=_persistent(machine),
        kind=kind,
        speed_mts=speed,
        channels=channels,
    )


def _totals(machine: Machine) -> tuple[int, int, int, int]:
    """Memory in all, available, swap in all, free swap, in bytes: the kernel's account, elsewhere psutil's."""
    lines = (machine.text("/proc/meminfo") or "").splitlines()
    try:
        found = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return found["MemTotal"], found["MemAvailable"], found["SwapTotal"], found["SwapFree"]
    except (ValueError, KeyError, IndexError):
        told = machine.library(PsutilMemory).ask("memory")
    if told.value is None:
        raise BackendUnavailable("this machine's memory cannot be read", why=told.reason, fix="pip install psutil")
    total, available, swap_total, swap_free = told.value
    return total, available, swap_total, swap_free


class PsutilMemory(Library):
    """psutil, for systems that aren't Linux."""

    NAME = "psutil_memory"

    def ask(self, function: str, *arguments: Any) -> Reading[Any]:
        """`memory`: main memory in all and available, swap in all and free, in bytes."""
        try:
            import psutil

            memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        except (ImportError, OSError, RuntimeError) as error:
            return Reading(value=None, reason=f"psutil: {type(error).__name__}: {error}")
        return Reading(value=[memory.total, memory.available, swap.total, swap.free])


def cgroup_memory(machine: Machine | None = None) -> tuple[int | None, int | None]:
    """Smallest limit over this process's control group and its parents, and that group's use."""
    machine = machine or LiveMachine()
    smallest: tuple[int | None, int | None] = (None, None)
    for folder, limit_file, used_file in _groups(machine.text("/proc/self/cgroup") or ""):
        limit = machine.number(f"{folder}/{limit_file}")  # absent, or the word "max": no limit here
        if limit is not None and limit < _NO_LIMIT and (smallest[0] is None or limit < smallest[0]):
            smallest = (limit, machine.number(f"{folder}/{used_file}"))
    return smallest


def _groups(membership: str) -> Iterator[tuple[str, str, str]]:
    for line in membership.splitlines():
        _, _, named = line.partition(":")
        controllers, _, group = named.partition(":")
        parts = [part for part in group.split("/") if part and part != ".."]
        # Inside a container the group's own path is often not mounted; its root then stands for it.
        inside = ["/".join(["", *parts[:length]]) for length in range(len(parts), -1, -1)]
        if controllers == "":
            for base in (_GROUPS, f"{_GROUPS}/unified"):
                yield from ((base + path, "memory.max", "memory.current") for path in inside)
        elif "memory" in controllers.split(","):
            yield from (
                (f"{_GROUPS}/memory{path}", "memory.limit_in_bytes", "memory.usage_in_bytes") for path in inside
            )


def _persistent(machine: Machine) -> int | None:
    """Sum over the regions of the kernel's libnvdimm that are of the type pmem."""
    names = machine.names(_REGIONS)
    if names is None:
        return None
    regions = [f"{_REGIONS}/{name}" for name in names if name.startswith("region")]
    sizes = [machine.number(f"{region}/size") for region in regions if machine.text(f"{region}/devtype") == "nd_pmem"]
    return sum(size for size in sizes if size is not None)


def _modules(machine: Machine) -> tuple[str | None, int | None, int | None]:
    """Kind, speed and channels of the modules, from systemd's `dmi_memory_id`; needs no root."""
    text = machine.text(_FIRMWARE)
    if text is None:
        return None, None, None
    fields = dict(re.findall(r"(?m)^E:MEMORY_DEVICE_(\d+_\w+)=(.*)$", text))
    present = [key.partition("_")[0] for key, size in fields.items() if key.endswith("_SIZE") and int(size or 0)]
    kinds = {fields[f"{number}_TYPE"] for number in present if f"{number}_TYPE" in fields}
    speeds = [
        int(speed)
        for number in present
        if (speed := fields.get(f"{number}_CONFIGURED_SPEED_MTS") or fields.get(f"{number}_SPEED_MTS"))
    ]
    places = " ".join(
        fields.get(f"{number}_{name}", "") + "\n" for number in present for name in ("LOCATOR", "BANK_LOCATOR")
    )
    channels = {match.upper() for match in re.findall(r"(?i)channel[ _-]?([a-z0-9])\b", places)}
    return " + ".join(sorted(kinds)) or None, min(speeds, default=None), len(channels) or None
