"""Main memory in bytes: what the host has, and what control groups leave of it to this process.

Linux tells by its own account; elsewhere psutil does. Programs of macOS and Windows tell of the modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ...errors import BackendUnavailable
from ...machine import Library, LiveMachine, Machine, SourceReading
from ...values import pairs, whole
from .processor_info import Totals, channels_of

_CGROUPS = "/sys/fs/cgroup"
_DEEPEST_GROUP = 64
_REGIONS = "/sys/bus/nd/devices"
_FIRMWARE = "/run/udev/data/+dmi:id"
_NO_LIMIT = 2**60
"""Control groups of version 1 write a number near 2^63 for "no limit"."""


@dataclass(frozen=True, kw_only=True)
class MemoryInfo:
    """Bytes throughout; `None` where the system doesn't tell, and `reason` where it tells no total.

    `kind` (DDR5), `speed_mts` (million transfers a second) and `channels` come from the firmware's table,
    which few virtual machines have. `persistent_bytes` is byte-addressable non-volatile memory.
    """

    total_bytes: int | None
    available_bytes: int | None
    swap_total_bytes: int | None
    swap_free_bytes: int | None
    cgroup_limit_bytes: int | None = None
    cgroup_used_bytes: int | None = None
    persistent_bytes: int | None = None
    kind: str | None = None
    speed_mts: int | None = None
    channels: int | None = None
    reason: str = ""

    @property
    def usable_bytes(self) -> int | None:
        """The most that this process can get: the host's memory, or the control group's limit if smaller."""
        return min(filter(None, (self.total_bytes, self.cgroup_limit_bytes)), default=None)


def free_bytes() -> int:
    """Main memory that this process can still get: what the host has free, or what its control group leaves.

    Raises `BackendUnavailable` where nothing tells.
    """
    memory = read_memory()
    if memory.available_bytes is None:
        raise BackendUnavailable("this machine's memory can't be read", why=memory.reason, fix="pip install psutil")
    if memory.cgroup_limit_bytes is None:
        return memory.available_bytes
    return min(memory.available_bytes, memory.cgroup_limit_bytes - (memory.cgroup_used_bytes or 0))


def read_memory(machine: Machine | None = None, *, modules: bool = False) -> MemoryInfo:
    """Memory of a machine, of this one where none is given. Never raises.

    `modules`: on macOS and Windows ask also for the kind of the modules, which starts a program.
    """
    machine = machine or LiveMachine()
    (total, available, swap_total, swap_free), reason = _totals(machine)
    limit, used = cgroup_memory(machine)
    kind, speed, channels = _modules(machine, modules)
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
        reason=reason if total is None else "",
    )


def _totals(machine: Machine) -> tuple[Totals, str]:
    """Memory in all, available, swap in all, free swap, in bytes; and why there is no total."""
    account = _from_account(machine.text("/proc/meminfo") or "")
    if None not in account:
        return account, ""
    told = machine.library(Psutil).ask("memory")
    if isinstance(told.value, list) and len(told.value) == 4:
        return tuple(whole(b) if a is None else a for a, b in zip(account, told.value, strict=True)), ""
    return account, told.reason


def programs(machine: Machine) -> ModuleType | None:
    """The module that asks the programs of macOS or of Windows; `None` on Linux."""
    system = machine.host().system
    if system not in ("Darwin", "Windows"):
        return None
    from . import _macos, _windows

    return _macos if system == "Darwin" else _windows


def _from_account(account: str) -> Totals:
    """The kernel's own, in kibibytes."""
    found = {name: whole(value.partition(" ")[0], most=2**50) for name, value in pairs(account.splitlines()).items()}
    names = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
    total, *others = (None if (kibibytes := found.get(name)) is None else kibibytes * 1024 for name in names)
    return total or None, *others


class Psutil(Library):
    """psutil: memory on systems that aren't Linux, and what the processor does now."""

    NAME = "psutil"

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        """`memory`: main memory in all and available, swap in all and free, in bytes. `times`: seconds that the
        processors spent working, and all of them. `frequency`: in MHz. `temperatures`: what the sensors of each chip
        read, in °C."""
        try:
            import psutil

            if function == "memory":
                memory, swap = psutil.virtual_memory(), psutil.swap_memory()
                return SourceReading(value=[memory.total, memory.available, swap.total, swap.free])
            if function == "times":
                spent = psutil.cpu_times()._asdict()
                # Guest time is in user time already.
                total = sum(spent.values()) - spent.get("guest", 0.0) - spent.get("guest_nice", 0.0)
                return SourceReading(value=[total - spent["idle"] - spent.get("iowait", 0.0), total])
            if function == "frequency":
                told = psutil.cpu_freq()
                return SourceReading(value=round(told.current, 1) if told and told.current else None)
            sensors = psutil.sensors_temperatures()  # neither macOS nor Windows has it
            return SourceReading(value={name: [one.current for one in chip] for name, chip in sensors.items()})
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            return SourceReading(value=None, reason=f"psutil: {type(error).__name__}: {error}")


def group_folders(machine: Machine, controller: str) -> Iterator[tuple[str, int]]:
    """Folder and version of each group that limits this process, its own before its parents."""
    for line in (machine.text("/proc/self/cgroup") or "").splitlines():
        _, _, named = line.partition(":")
        controllers, _, group = named.partition(":")
        parts = [part for part in group.split("/") if part and part != ".."][:_DEEPEST_GROUP]
        # Inside a container the group's own path is often not mounted; its root then stands for it.
        inside = ["/".join(["", *parts[:length]]) for length in range(len(parts), -1, -1)]
        if controllers == "":
            for base in (_CGROUPS, f"{_CGROUPS}/unified"):
                yield from ((base + path, 2) for path in inside)
        elif controller in controllers.split(","):
            yield from ((f"{_CGROUPS}/{controller}{path}", 1) for path in inside)


def cgroup_memory(machine: Machine | None = None) -> tuple[int | None, int | None]:
    """Smallest limit over this process's control group and its parents, and that group's use."""
    machine = machine or LiveMachine()
    limit, folder, version = _tightest_group(machine)
    return limit, None if limit is None else whole(machine.text(f"{folder}/{_OF_GROUP[version][1]}"))


def cgroup_files_bytes(machine: Machine | None = None) -> int:
    """Of what the group with the smallest limit uses, pages of files that the kernel takes back when memory is short
    (`inactive_file`); 0 where it doesn't tell. Who reads a large file fills a group with them."""
    machine = machine or LiveMachine()
    limit, folder, version = _tightest_group(machine)
    if limit is None:
        return 0
    lines = (machine.text(f"{folder}/memory.stat") or "").splitlines()
    told = dict(line.split(maxsplit=1) for line in lines if " " in line)
    return whole(told.get("inactive_file" if version == 2 else "total_inactive_file")) or 0


_OF_GROUP = {2: ("memory.max", "memory.current"), 1: ("memory.limit_in_bytes", "memory.usage_in_bytes")}
"""By version of control groups, the files with a group's limit and use."""


def _tightest_group(machine: Machine) -> tuple[int | None, str, int]:
    """Limit, folder and version of the group with the smallest limit; no limit where none has one."""
    smallest: tuple[int | None, str, int] = (None, "", 2)
    for folder, version in group_folders(machine, "memory"):
        limit = whole(
            machine.text(f"{folder}/{_OF_GROUP[version][0]}"), most=_NO_LIMIT
        )  # absent, or the word "max": no limit here
        if limit is not None and (smallest[0] is None or limit < smallest[0]):
            smallest = (limit, folder, version)
    return smallest


def _persistent(machine: Machine) -> int | None:
    """Sum over the regions of the kernel's libnvdimm that are of the type pmem."""
    names = machine.names(_REGIONS)
    if names is None:
        return None
    regions = [f"{_REGIONS}/{name}" for name in names if name.startswith("region")]
    persistent = [region for region in regions if machine.text(f"{region}/devtype") == "nd_pmem"]
    sizes = [whole(machine.text(f"{region}/size")) for region in persistent]
    return sum(size for size in sizes if size is not None)


def _modules(machine: Machine, ask: bool) -> tuple[str | None, int | None, int | None]:
    """Kind, speed and channels of the modules, from systemd's `dmi_memory_id`; needs no root."""
    firmware = machine.text(_FIRMWARE)
    if firmware is None:
        asked = programs(machine) if ask else None
        return asked.modules(machine) if asked else (None, None, None)
    fields = dict(re.findall(r"(?m)^E:MEMORY_DEVICE_(\d+_\w+)=(.*)$", firmware))
    present = [
        key.partition("_")[0] for key, size in fields.items() if key.endswith("_SIZE") and whole(size, least=1)
    ]
    kinds = {fields[f"{number}_TYPE"] for number in present if f"{number}_TYPE" in fields}
    names = ("CONFIGURED_SPEED_MTS", "SPEED_MTS")
    speeds = [
        next((speed for name in names if (speed := whole(fields.get(f"{number}_{name}"), least=1))), None)
        for number in present
    ]
    places = [[fields.get(f"{number}_{name}", "") for number in present] for name in ("BANK_LOCATOR", "LOCATOR")]
    return " + ".join(sorted(kinds)) or None, min(filter(None, speeds), default=None), channels_of(places)
