"""A stress run as text: a table for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

from hardware.plain_text import columns, folded, size_text

from .result import DeviceResult, Ending, Range, StressRun

_OWN_SHARE = 0.9


def stress_text(run: StressRun) -> str:
    """The run as a table; it ends in a newline."""
    lines = []
    for result in run.results:
        lines += [*_device(result), ""]
    return "\n".join(lines)


def rate_text(tflops: float | None) -> str:
    """TFLOPS in a unit that leaves at least 1, `-` where there is none."""
    if tflops is None:
        return "-"
    return f"{tflops:.4g} TFLOPS" if tflops >= 1 else f"{tflops * 1000:.4g} GFLOPS"


def _device(result: DeviceResult) -> Iterator[str]:
    title = f"{result.target}: {result.device_name}" if result.device_name else result.target
    yield from folded("", title)
    yield "-" * min(len(title), 80)
    if result.simulated:
        yield "  Simulated: it proves plumbing, never speed."
    if result.ending is not Ending.MEASURED:
        yield from folded(f"  {result.ending.replace('_', ' ')}: ", result.reason)
        return
    yield from _sustained(result)
    if result.rates:
        yield ""
        rows = [
            (
                f"  {one.precision}",
                "" if one.size is None else str(one.size),
                rate_text(one.tflops),
                _percent(one.limit_fraction),
                one.reason,
            )
            for one in result.rates
        ]
        yield from columns(("  products", "size", "rate", "of limit", ""), rows, right=(1, 2, 3))
    if result.bandwidths:
        yield ""
        rows = [
            (
                f"  {one.kernel}",
                size_text(one.array_bytes),
                f"{one.gbps:.4g} GB/s" if one.gbps is not None else "-",
                _percent(one.limit_fraction),
                one.reason,
            )
            for one in result.bandwidths
        ]
        yield from columns(("  memory", "array", "rate", "of limit", ""), rows, right=(1, 2, 3))
    yield from _sources(result)


def _sustained(result: DeviceResult) -> Iterator[str]:
    rate = rate_text(result.tflops) if result.bandwidth_gbps is None else f"{result.bandwidth_gbps:.4g} GB/s"
    told = f"{rate} in {result.sustained} over {result.duration_s:g} s after {result.warmup_s:g} s of warm-up"
    rows = [("Sustained", f"{told}; every piece was checked and right")]
    if result.stability is not None:
        even, sag = result.stability.coefficient_of_variation, result.stability.sag
        varies = "not known" if even is None else f"varies by {100 * even:.1f} % (standard deviation over mean)"
        sags = (
            ""
            if sag is None
            else f", last quarter {abs(100 * sag):.1f} % {'below' if sag >= 0 else 'above'} the first"
        )
        rows.append(("Stability", f"{varies}{sags}, over {result.stability.slices} pieces"))
    why = result.telemetry_reasons
    everything = why.get("all", "the device doesn't report it")
    if result.processor_share is not None and result.processor_share < _OWN_SHARE:
        share = f"the load got {100 * result.processor_share:.0f} % of the processor: other programs compete for it"
        rows.append(("Disturbed", share))
    rows += [
        ("Temperature", _range(result.temperature_c, "°C", why.get("temperature_c", everything))),
        ("Power", _range(result.power_w, "W", why.get("power_w", everything))),
        ("Throttled", _throttled(result, why.get("throttle_reasons", everything))),
    ]
    if result.gflops_per_watt is not None:
        rows.append(("Efficiency", f"{result.gflops_per_watt:g} GFLOPS/W"))
    for label, text in rows:
        yield from folded(f"  {label + ':':<13} ", text)


def _range(found: Range | None, unit: str, reason: str) -> str:
    if found is None:
        return f"unknown: {reason}"
    return f"{found.least:g} to {found.most:g} {unit}, {found.mean:g} {unit} on average"


def _throttled(result: DeviceResult, reason: str) -> str:
    if result.throttled is None:
        return f"unknown: {reason}"
    if not result.throttled:
        return "no"
    return ", ".join(f"{name} in {100 * share:.0f} % of looks" for name, share in result.throttled.items())


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:.1f} %"


def _sources(result: DeviceResult) -> Iterator[str]:
    known: dict[str, list[str]] = {}
    for name, limit in (
        *((one.precision, one.limit) for one in result.rates if not one.reason),
        *((one.kernel, one.limit) for one in result.bandwidths),
    ):
        known.setdefault(limit.source or f"unknown: {limit.reason}", []).append(name)
    yield ""
    for said, names in known.items():
        yield from folded("  Limit ", f"of {', '.join(names)}: {said}", indent=4)
