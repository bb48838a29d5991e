"""Main memory in bytes: that of the host, and the part that control groups leave to this process.

On Linux it comes from the kernel's files, elsewhere from psutil; modules on macOS and Windows from system programs.
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
"""Control groups of version 1 use a number near 2^63 for "no limit"."""


@dataclass(frozen=True, kw_only=True)
class MemoryInfo:
    """Main memory in bytes; None for unknown values, and `reason` if the total is unknown.

    `kind` (DDR5), `speed_mts` (million transfers per second) and `channels` come from the firmware's table, which few
    virtual machines have. `persistent_bytes` is byte-addressable non-volatile memory.
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
        """Return the memory available to this process: that of the host, or the control group's limit if smaller."""
        return min(filter(None, (self.total_bytes, self.cgroup_limit_bytes)), default=None)


def free_bytes() -> int:
    """Return the free main memory for this process: that of the host, or what its control group leaves.

    Raises `BackendUnavailable` if it is unknown.
    """
    memory = read_memory()
    if memory.available_bytes is None:
        raise BackendUnavailable(
            "the memory of this machine can't be read", why=memory.reason, fix="pip install psutil"
        )
    if memory.cgroup_limit_bytes is None:
        return memory.available_bytes
    return min(memory.available_bytes, memory.cgroup_limit_bytes - (memory.cgroup_used_bytes or 0))


def read_memory(machine: Machine | None = None, *, modules: bool = False) -> MemoryInfo:
    """Return the memory of a machine, by default this one. Never raises.

    `modules` also reads the kind of the modules on macOS and Windows, which starts a program.
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
    """Return total memory, available memory, total swap and free swap in bytes, and the reason if there is no
    total."""
    account = _from_account(machine.text("/proc/meminfo") or "")
    if None not in account:
        return account, ""
    reading = machine.library(Psutil).ask("memory")
    if isinstance(reading.value, list) and len(reading.value) == 4:
        return tuple(whole(b) if a is None else a for a, b in zip(account, reading.value, strict=True)), ""
    return account, reading.reason


def programs(machine: Machine) -> ModuleType | None:
    """Return the module for the programs of macOS or Windows; None on Linux."""
    system = machine.host().system
    if system not in ("Darwin", "Windows"):
        return None
    from . import _macos, _windows

    return _macos if system == "Darwin" else _windows


def _from_account(account: str) -> Totals:
    """Return the values of the kernel's file, which are in KiB."""
    found = {name: whole(value.partition(" ")[0], most=2**50) for name, value in pairs(account.splitlines()).items()}
    names = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
    total, *others = (None if (kibibytes := found.get(name)) is None else kibibytes * 1024 for name in names)
    return total or None, *others


class Psutil(Library):
    """psutil: memory on systems other than Linux, and processor telemetry."""

    NAME = "psutil"

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        """Return for `memory` total and available memory, total and free swap, in bytes; for `times` the seconds
        that the processors worked, and all seconds; for `frequency` MHz; for `temperatures` the readings of
        each chip's sensors in °C."""
        try:
            import psutil

            if function == "memory":
                memory, swap = psutil.virtual_memory(), psutil.swap_memory()
                return SourceReading(value=[memory.total, memory.available, swap.total, swap.free])
            if function == "times":
                spent = psutil.cpu_times()._asdict()
                # Guest time is part of user time.
                total = sum(spent.values()) - spent.get("guest", 0.0) - spent.get("guest_nice", 0.0)
                return SourceReading(value=[total - spent["idle"] - spent.get("iowait", 0.0), total])
            if function == "frequency":
                frequency = psutil.cpu_freq()
                return SourceReading(value=round(frequency.current, 1) if frequency and frequency.current else None)
            sensors = psutil.sensors_temperatures()  # macOS and Windows lack it
            return SourceReading(value={name: [one.current for one in chip] for name, chip in sensors.items()})
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            return SourceReading(value=None, reason=f"psutil: {type(error).__name__}: {error}")


def group_folders(machine: Machine, controller: str) -> Iterator[tuple[str, int]]:
    """Yield folder and version of each control group that limits this process, its own before its parents."""
    for line in (machine.text("/proc/self/cgroup") or "").splitlines():
        _, _, named = line.partition(":")
        controllers, _, group = named.partition(":")
        parts = [part for part in group.split("/") if part and part != ".."][:_DEEPEST_GROUP]
        # Inside a container the path of the group is often not mounted; its root is used instead.
        inside = ["/".join(["", *parts[:length]]) for length in range(len(parts), -1, -1)]
        if controllers == "":
            for base in (_CGROUPS, f"{_CGROUPS}/unified"):
                yield from ((base + path, 2) for path in inside)
        elif controller in controllers.split(","):
            yield from ((f"{_CGROUPS}/{controller}{path}", 1) for path in inside)


def cgroup_memory(machine: Machine | None = None) -> tuple[int | None, int | None]:
    """Return the smallest limit of this process's control group and its parents, and the usage of that group."""
    machine = machine or LiveMachine()
    limit, folder, version = _tightest_group(machine)
    return limit, None if limit is None else whole(machine.text(f"{folder}/{_OF_GROUP[version][1]}"))


def cgroup_files_bytes(machine: Machine | None = None) -> int:
    """Return the bytes of file pages (`inactive_file`) in the usage of the group with the smallest limit; 0 if
    unknown. The kernel reclaims them when memory is short; reading a large file fills a group with them."""
    machine = machine or LiveMachine()
    limit, folder, version = _tightest_group(machine)
    if limit is None:
        return 0
    lines = (machine.text(f"{folder}/memory.stat") or "").splitlines()
    values = dict(line.split(maxsplit=1) for line in lines if " " in line)
    return whole(values.get("inactive_file" if version == 2 else "total_inactive_file")) or 0


_OF_GROUP = {2: ("memory.max", "memory.current"), 1: ("memory.limit_in_bytes", "memory.usage_in_bytes")}
"""The files with a group's limit and usage, by version of control groups."""


def _tightest_group(machine: Machine) -> tuple[int | None, str, int]:
    """Return limit, folder and version of the group with the smallest limit, without a limit if no group has one."""
    smallest: tuple[int | None, str, int] = (None, "", 2)
    for folder, version in group_folders(machine, "memory"):
        limit = whole(machine.text(f"{folder}/{_OF_GROUP[version][0]}"), most=_NO_LIMIT)  # absent or "max": no limit
        if limit is not None and (smallest[0] is None or limit < smallest[0]):
            smallest = (limit, folder, version)
    return smallest


def _persistent(machine: Machine) -> int | None:
    """Return the sum of the regions of type pmem of the kernel's libnvdimm."""
    names = machine.names(_REGIONS)
    if names is None:
        return None
    regions = [f"{_REGIONS}/{name}" for name in names if name.startswith("region")]
    persistent = [region for region in regions if machine.text(f"{region}/devtype") == "nd_pmem"]
    sizes = [whole(machine.text(f"{region}/size")) for region in persistent]
    return sum(size for size in sizes if size is not None)


def _modules(machine: Machine, ask: bool) -> tuple[str | None, int | None, int | None]:
    """Return the kind, speed and channels of the modules from systemd's `dmi_memory_id`, which needs no root."""
    firmware = machine.text(_FIRMWARE)
    if firmware is None:
        system = programs(machine) if ask else None
        return system.modules(machine) if system else (None, None, None)
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
