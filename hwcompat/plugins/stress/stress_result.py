"""Results of a stress run: plain values, in the shape of `schemas/stress.json`, and their statistics."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 1


class StressEnding(StrEnum):
    """How the load of a device ended. Only `measured` is good."""

    MEASURED = "measured"
    WRONG_RESULT = "wrong_result"
    OFFLOADED = "offloaded"
    FAILED = "failed"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number and its `source`, or `None` and the `reason`."""

    value: float | None = None
    source: str = ""
    reason: str = ""

    def fraction(self, rate: float | None) -> float | None:
        """Return a rate as a share of the limit."""
        return None if rate is None or not self.value else round(rate / self.value, 4)


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Matrix products in one precision. `size` is the width of the square matrices; `limit` is that of the hardware,
    in TFLOPS; `reason` says why there is no rate.

    Every checked product was right, or the device's ending isn't `measured`.
    """

    precision: str
    tflops: float | None = None
    size: int | None = None
    products: int = 0
    seconds: float = 0.0
    limit: Figure = field(default_factory=Figure)
    limit_fraction: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """Memory traffic of one kernel, as STREAM counts it: bytes read and written, 10^9 a second."""

    kernel: str
    gbps: float | None = None
    array_bytes: int | None = None
    passes: int = 0
    seconds: float = 0.0
    limit: Figure = field(default_factory=Figure)
    limit_fraction: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Stability:
    """The stability of the sustained rate over `slices` parts of the run.

    `coefficient_of_variation` is standard deviation over mean. `sag` is the drop from the first quarter to the last,
    as a share of the first: negative if the last was faster.
    """

    slices: int
    coefficient_of_variation: float | None
    sag: float | None


@dataclass(frozen=True, kw_only=True)
class Range:
    """Minimum, mean and maximum of the samples under sustained load."""

    least: float
    mean: float
    most: float


@dataclass(frozen=True, kw_only=True)
class ProfilePoint:
    """One sample under load. `rate` is TFLOPS, or 10^9 bytes a second for memory; `None` between loads."""

    elapsed_s: float
    phase: str
    rate: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    compute_percent: float | None = None
    memory_used_bytes: int | None = None
    throttle_reasons: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceResult:
    """The result of one device. `tflops` or `bandwidth_gbps` is the sustained rate, of what `sustained` names;
    `library` is what computed, with its version."""

    target: str
    ending: StressEnding
    reason: str = ""
    device_name: str = ""
    library: str = ""
    simulated: bool = False
    sustained: str = ""
    tflops: float | None = None
    bandwidth_gbps: float | None = None
    warmup_s: float = 0.0
    duration_s: float = 0.0
    processor_share: float | None = None
    """For a load of the host: its share of the time of all usable threads under sustained load. Less than 1 if other
    programs compete, which lowers the rate."""

    rates: tuple[Rate, ...] = ()
    bandwidths: tuple[Bandwidth, ...] = ()
    stability: Stability | None = None
    gflops_per_watt: float | None = None
    temperature_c: Range | None = None
    power_w: Range | None = None
    throttled: Mapping[str, float] | None = None
    """By reason, the share of samples under sustained load that showed it; `None` if the device doesn't report it."""

    telemetry_reasons: Mapping[str, str] = field(default_factory=dict)
    profile: tuple[ProfilePoint, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StressRun:
    """One run over several devices. `results` are in the order in which the targets were named."""

    started_at: str
    host: Mapping[str, Any]
    versions: Mapping[str, str]
    interval_s: float
    results: tuple[DeviceResult, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}


def stability_of(rates: Sequence[float]) -> Stability:
    """Return the stability of rates in the order of time; `None` in it if there are too few."""
    mean = statistics.fmean(rates) if rates else 0.0
    variation = round(statistics.stdev(rates) / mean, 4) if len(rates) > 1 and mean else None
    quarter = len(rates) // 4
    sag = None
    if quarter:
        first, last = statistics.fmean(rates[:quarter]), statistics.fmean(rates[-quarter:])
        sag = round((first - last) / first, 4) if first else None
    return Stability(slices=len(rates), coefficient_of_variation=variation, sag=sag)


def range_of(values: Sequence[float | None]) -> Range | None:
    """Return minimum, mean and maximum of the known values; `None` if none is known."""
    known = [one for one in values if one is not None]
    if not known:
        return None
    return Range(least=min(known), mean=round(statistics.fmean(known), 2), most=max(known))


def throttled_share(points: Sequence[ProfilePoint]) -> dict[str, float] | None:
    """Return by reason the share of points that show it; `None` if no point reports any."""
    known = [set(one.throttle_reasons) for one in points if one.throttle_reasons is not None]
    if not known:
        return None
    names = sorted(set().union(*known))
    return {name: round(sum(name in one for one in known) / len(known), 4) for name in names}
