"""Speeds of this machine's disks that a stress test measured, kept in one file."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ....files import cache_folder, write_whole
from ....plain_text import json_text
from ....safe_read import read_json
from .storage_device import SPEEDS, StorageDeviceInfo

_LONGEST = 100_000


@dataclass(frozen=True, kw_only=True)
class MeasuredSpeed:
    """MB/s of reads and writes in order (None if nothing was written), random reads per second, and the date."""

    max_read_mbps: float
    max_write_mbps: float | None
    max_iops: int
    date: str


def _file() -> Path:
    return cache_folder("rates") / "disks.json"


def _key(disk: StorageDeviceInfo) -> str:
    facts = (platform.node(), disk.device_path, disk.model, disk.serial, disk.capacity_bytes)
    return hashlib.sha256("\n".join(map(str, facts)).encode()).hexdigest()[:16]


def _kept() -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = read_json(_file(), longest=_LONGEST)
        return found if isinstance(found, dict) else {}
    return {}


def _rate(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ValueError("a rate isn't a positive finite number")
    return float(value)


def save_speed(disk: StorageDeviceInfo, speed: MeasuredSpeed) -> None:
    """Keep the speed of a disk of this machine; a later one replaces it, but not writes if nothing was written."""
    earlier = measured_speed(disk)
    if speed.max_write_mbps is None and earlier is not None:
        speed = replace(speed, max_write_mbps=earlier.max_write_mbps)
    write_whole(_file(), json_text({**_kept(), _key(disk): asdict(speed)}) + "\n")


def measured_speed(disk: StorageDeviceInfo) -> MeasuredSpeed | None:
    """Return the kept speed of a disk; None if there is none or it can't be read."""
    if not _file().exists():
        return None
    entry = _kept().get(_key(disk))
    if not isinstance(entry, Mapping):
        return None
    with contextlib.suppress(KeyError, TypeError, ValueError):
        writes = entry["max_write_mbps"]
        return MeasuredSpeed(
            max_read_mbps=_rate(entry["max_read_mbps"]),
            max_write_mbps=None if writes is None else _rate(writes),
            max_iops=int(_rate(entry["max_iops"])),
            date=str(datetime.date.fromisoformat(entry["date"])),
        )
    return None


def with_measured_speed(device: StorageDeviceInfo) -> StorageDeviceInfo:
    """Return a disk of this machine with the speeds that a stress test measured here; others stay the maker's."""
    measured = measured_speed(device)
    if measured is None:
        return device
    speeds = {name: value for name in SPEEDS if (value := getattr(measured, name)) is not None}
    source = f"{', '.join(speeds)}: hwcompat devices stress on {measured.date}"
    return replace(
        device,
        **speeds,
        reasons={name: reason for name, reason in device.reasons.items() if name not in speeds},
        extra_info={**device.extra_info, "measured_speeds": source},
    )
