"""The interface of storage: devices, the sources that list them, and mounts.

Unknown values are None, and `reasons` explains them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from ....machine import LiveMachine, Machine
from ....redaction import redact
from ....values import data_file

NOTSPEEDS = "not measured (hwcompat devices stress storage --keep), and no known value for this model"
SMART_NOT_ASKED = "SMART wasn't read: hwcompat devices list --smart"

_CODES = Path(__file__).with_name("disk_codes.toml")
_SPEEDS = _CODES.with_name("disk_speeds.toml")
SPEEDS = ("max_read_mbps", "max_write_mbps", "max_iops")
SMART_FIELDS = ("health_status", "temperature_celsius", "wear_level_percent", "power_on_hours")
_SERIAL, _HOST, _BUCKET = "<serial>", "<host>", "<bucket>"


@dataclass(frozen=True, kw_only=True)
class StorageDeviceInfo:
    """One physical disk, or one mounted place in a network.

    Of the types, `ssd` is one behind SAS, USB or UFS; `flash` an SD card or eMMC; `virtual` a disk of a hypervisor or
    a RAID controller, whose medium is unknown.

    `wear_level_percent` is the used part of the rated endurance, and may exceed 100. `max_*` hold only measured or
    sourced values; the limit of a link is in `extra_info`. `reasons` explains by field why it is None, and a health
    that isn't good.
    """

    device_path: str
    model: str | None = None
    serial: str | None = None
    firmware: str | None = None
    device_type: str | None = None
    bus_type: str | None = None
    capacity_bytes: int | None = None
    max_read_mbps: float | None = None
    max_write_mbps: float | None = None
    max_iops: int | None = None
    health_status: str | None = None
    temperature_celsius: float | None = None
    wear_level_percent: float | None = None
    power_on_hours: int | None = None
    mount_points: tuple[str, ...] = ()
    filesystem: str | None = None
    extra_info: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def capacity_gb(self) -> float | None:
        """Return the capacity in 10^9 bytes, as disks are sold, with two decimals."""
        return None if self.capacity_bytes is None else round(self.capacity_bytes / 1e9, 2)

    def shareable(self) -> StorageDeviceInfo:
        """Return a copy without names of the device, a server, a bucket or a person, to be printed and stored."""
        return replace(
            self,
            device_path=_without_names(self.device_path, self.device_type),
            serial=None if self.serial is None else _SERIAL,
            mount_points=tuple(map(without_user, self.mount_points)),
        )


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One mounted filesystem. `device` is `major:minor`, `root` is the mounted folder of the filesystem."""

    device: str
    root: str
    point: str
    filesystem: str
    source: str


def codes(name: str) -> dict[str, Any]:
    """Return the meaning of numbers and names of tools: a table of `disk_codes.toml`."""
    found: dict[str, Any] = data_file(_CODES)[name]
    return found


def read_mounts(machine: Machine) -> tuple[Mount, ...]:
    """Return the mounts that this process sees; empty if unknown."""
    account = machine.text("/proc/self/mountinfo")
    if account is not None:
        return tuple(mount for line in account.splitlines() if (mount := _from_line(line)) is not None)
    if machine.host().system == "Darwin":
        lines = (machine.run("mount").value or "").splitlines()
        return tuple(mount for line in lines if (mount := _from_macos(line)) is not None)
    return ()


def _from_line(line: str) -> Mount | None:
    """Return the mount of a line as in the kernel's Documentation/filesystems/proc.rst, section 3.5."""
    before, dash, after = line.partition(" - ")
    left, right = before.split(" "), after.split(" ")
    if not dash or len(left) < 6 or len(right) < 2:
        return None
    return Mount(
        device=left[2],
        root=_unescaped(left[3]),
        point=_unescaped(left[4]),
        filesystem=right[0],
        source=_unescaped(right[1]),
    )


def _from_macos(line: str) -> Mount | None:
    """Return a mount from a line such as `/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)`."""
    match = re.match(r"(.+?) on (/.*) \((\w+)", line)
    return match and Mount(device="", root="/", point=match[2], filesystem=match[3], source=match[1])


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8) & 0xFF), field)


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """Return each value once, in order."""
    return tuple(dict.fromkeys(values))


class StorageBackend(ABC):
    """One kind of storage. A file in this folder holds one subclass.

    `smart` allows to start programs that read the disks themselves. Reading never raises.
    """

    NAME: ClassVar[str]

    def __init__(
        self,
        machine: Machine | None = None,
        *,
        mounts: tuple[Mount, ...] | None = None,
        smart: bool = False,
    ) -> None:
        self.machine = machine or LiveMachine()
        self.mounts = read_mounts(self.machine) if mounts is None else mounts
        self.smart = smart

    @abstractmethod
    def list_devices(self) -> tuple[StorageDeviceInfo, ...]:
        """Return the devices of this kind, each once."""

    def is_available(self) -> bool:
        """Return whether there is a device of this kind."""
        return bool(self.list_devices())

    def reason(self) -> str:
        """Return why nothing can be listed; empty if it can, even if there is no device."""
        return ""


def with_reasons(device: StorageDeviceInfo, reasons: Mapping[str, str] | None = None) -> StorageDeviceInfo:
    """Return `device` with the speeds of `disk_speeds.toml`, and a reason for each field that is None: the given one
    or a default."""
    if listed := listed_speeds(device.model):
        source = {"speed_source": str(listed["source"])}
        device = replace(
            device, **{name: listed[name] for name in SPEEDS}, extra_info={**device.extra_info, **source}
        )
    given = dict.fromkeys(SPEEDS, NOTSPEEDS) | dict(reasons or {}) | dict(device.reasons)
    fields = (*_REPORTED, *SPEEDS, *SMART_FIELDS)
    missing = {
        name: given.get(name, "the system doesn't report it") for name in fields if getattr(device, name) is None
    }
    kept = {name: reason for name, reason in device.reasons.items() if name not in missing}
    return replace(device, reasons=missing | kept)


def listed_speeds(model: str | None) -> Mapping[str, Any] | None:
    """Return the maker's speeds of a model with their source; None if the table doesn't have it."""
    return next((one for one in data_file(_SPEEDS)["disk"] if model in one["models"]), None)


_REPORTED = ("model", "serial", "firmware", "device_type", "bus_type", "capacity_bytes", "filesystem")


def without_user(path: str) -> str:
    """Return a mount point without the name of the user who mounted it."""
    return redact(re.sub(r"^((?:/run)?/media/|/run/user/)[^/]+", r"\1<user>", path))


def _without_names(path: str, device_type: str | None) -> str:
    """Return the source of a mount without the server, bucket or user that it names."""
    if device_type == "object":
        return _BUCKET
    if device_type != "network" or re.match(r"/(?!/)", path):
        return path
    if path.startswith(("//", "\\\\")):
        return re.sub(r"^([/\\]{2})[^/\\]+", rf"\1{_HOST}", path)
    if "://" in path:
        return re.sub(r"://[^/]+", f"://{_HOST}", path)
    host, colon, folder = path.partition(":/") if ":/" in path else path.rpartition(":")
    return f"{_HOST}{colon}{folder}" if host else path
