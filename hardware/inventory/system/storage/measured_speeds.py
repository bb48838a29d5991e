"""Speeds of this machine's disks that a stress test measured, kept in one file."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ....files import cache_folder, write_whole
from ....plain_text import json_text
from ....safe_read import read_json

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


def _key(device_path: str, model: str | None, serial: str | None) -> str:
    return hashlib.sha256(f"{device_path}\n{model}\n{serial}".encode()).hexdigest()[:16]


def _kept() -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = read_json(_file(), longest=_LONGEST)
        return found if isinstance(found, dict) else {}
    return {}


def _rate(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ValueError("a rate isn't a positive finite number")
    return float(value)


def save_speed(device_path: str, model: str | None, serial: str | None, speed: MeasuredSpeed) -> None:
    """Keep the speed of a disk; a later one replaces it."""
    kept = {**_kept(), _key(device_path, model, serial): asdict(speed)}
    write_whole(_file(), json_text(kept) + "\n")


def measured_speed(device_path: str, model: str | None, serial: str | None) -> MeasuredSpeed | None:
    """Return the kept speed of a disk; None if there is none or it can't be read."""
    if not _file().exists():
        return None
    entry = _kept().get(_key(device_path, model, serial))
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
