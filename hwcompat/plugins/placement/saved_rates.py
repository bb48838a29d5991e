"""Rates of stress runs, saved on this machine: `hwcompat devices stress … --keep` writes them, placement reads them.

One file for each device. It counts only for the same device, driver and torch.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hwcompat.hardware.files import cache_folder, write_whole
from hwcompat.hardware.plain_text import json_text, one_line
from hwcompat.hardware.safe_read import read_json, reason_of
from hwcompat.plugins.stress.stress_result import Figure, StressEnding, StressRun

SCHEMA_VERSION = 1
_LONGEST = 100_000
_COPY = "copy"


@dataclass(frozen=True, kw_only=True)
class SavedRates:
    """Sustained rates of one device: TFLOPS by precision, 10^9 bytes a second; `date` is that of the run."""

    target: str
    device_name: str
    date: str
    torch: str
    driver: str
    tflops: Mapping[str, float] = field(default_factory=dict)
    bandwidth_gbps: float | None = None


def save_rates(run: StressRun, devices: Mapping[str, tuple[str, str]]) -> tuple[Path, ...]:
    """Save the rates of real devices, except TensorFlow's; return the files. `devices` are model and driver version
    by target (`cuda:0`) as in the inventory; other devices aren't saved."""
    written = []
    for result in run.results:
        # A target without an index is its first device.
        target = result.target if result.target in devices else f"{result.target}:0"
        measured = result.ending is StressEnding.MEASURED and not result.simulated
        if target not in devices or not measured or result.library.startswith("tensorflow"):
            continue
        model, driver = devices[target]
        known = {one.kernel: one.gbps for one in result.bandwidths if one.gbps is not None}
        kept = SavedRates(
            target=target,
            device_name=model,
            date=run.started_at[:10],
            torch=run.versions.get("torch", ""),
            driver=driver,
            tflops={one.precision: one.tflops for one in result.rates if one.tflops is not None},
            bandwidth_gbps=known.get(_COPY) or next(iter(known.values()), None),
        )
        path = _path(target, model)
        write_whole(path, json_text({"schema_version": SCHEMA_VERSION, **asdict(kept)}) + "\n")
        written.append(path)
    return tuple(written)


def _path(target: str, device_name: str) -> Path:
    digest = hashlib.sha256(f"{target}\n{device_name}".encode()).hexdigest()[:16]
    return cache_folder("rates") / f"{digest}.json"


def read_rates(target: str, device_name: str) -> tuple[SavedRates | None, str]:
    """Return the saved rates of a device, or None and why they can't be read (empty if there are none)."""
    path = _path(target, device_name)
    if not path.exists():
        return None, ""
    try:
        plain = read_json(path, longest=_LONGEST)
        if plain["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"its schema_version is {plain['schema_version']!r}")
        texts = {name: plain[name] for name in ("target", "device_name", "date", "torch", "driver")}
        if not all(isinstance(value, str) for value in texts.values()):
            raise TypeError("a name in it isn't a string")
        tflops = {str(name): _rate(value) for name, value in dict(plain["tflops"]).items()}
        bandwidth = plain["bandwidth_gbps"]
        rate = None if bandwidth is None else _rate(bandwidth)
        return SavedRates(**texts, tflops=tflops, bandwidth_gbps=rate), ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        return None, f"the saved rates can't be read: {one_line(reason_of(error), longest=120)}"


def _rate(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ValueError("a rate in it isn't a positive finite number")
    return float(value)


def measured_rate(
    target: str, device_name: str, *, torch: str, driver: str = ""
) -> tuple[Mapping[str, Figure], Figure]:
    """Return TFLOPS by precision and bandwidth of a device from its saved rates, as figures: with a reason if they
    can't be read or no longer count."""
    kept, why = read_rates(target, device_name)
    if kept is not None and (moved := _mismatch(kept, torch, driver)):
        why = f"the stress run of {kept.date} no longer counts: {moved}"
        kept = None
    if kept is None:
        missing = Figure(reason=why)
        return defaultdict(lambda: missing), missing
    source = f"measured by stress on {kept.date}"
    rates = defaultdict[str, Figure](lambda: Figure(reason="stress didn't measure it"))
    rates |= {name: Figure(value=rate, source=source) for name, rate in kept.tflops.items()}
    return rates, Figure(value=kept.bandwidth_gbps, source=source if kept.bandwidth_gbps else "")


def _mismatch(kept: SavedRates, torch: str, driver: str) -> str:
    found = [
        f"{name} changed from {then or 'none'} to {now or 'none'}"
        for name, then, now in (("torch", kept.torch, torch), ("the driver", kept.driver, driver))
        if then != now
    ]
    return " and ".join(found)
