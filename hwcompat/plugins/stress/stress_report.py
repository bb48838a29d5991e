"""Read a stress run from its file, and make the rows that text, Markdown and the page share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hwcompat.hardware.command_names import as_runnable
from hwcompat.hardware.files import PRODUCT
from hwcompat.hardware.plain_text import columns, folded, size_text
from hwcompat.reports.saved_reports import read_kept
from hwcompat.reports.text import markdown, markdown_table

from .stress_targets import is_storage

SCHEMA = PRODUCT / "hardware" / "schemas" / "stress.json"

NOTHING = "–"
_OWN_SHARE = 0.9
_HEADINGS = (
    *("target", "device", "sustained", "of limit", "stability", "temperature", "power", "throttled", "remark"),
)

Run = Mapping[str, Any]
Device = Mapping[str, Any]


def load_stress(path: Path) -> Run:
    """Read the run from a file of `hwcompat devices stress --format json`. Raises `BrokenInput`."""
    fix = as_runnable("Write one: hwcompat devices stress cpu ram --format json --output FILE")
    return read_kept(path, SCHEMA, "stress run", fix)


def stress_markdown(run: Run) -> str:
    """Return a table of devices that ends in a newline."""
    rows = [[markdown(cell) for cell in summary(one)] for one in run["results"]]
    return f"# Stress run of {markdown(str(run['started_at']))}\n\n{markdown_table(_HEADINGS, rows)}\n"


def stress_text(run: Run) -> str:
    """Return the run for a terminal of 80 columns; ends in a newline."""
    return "".join(f"{line}\n" for device in run["results"] for line in (*_text_of(device), ""))


def _text_of(device: Device) -> Iterator[str]:
    title = f"{device['target']}: {device['device_name']}" if device["device_name"] else device["target"]
    yield from folded("", title)
    yield "-" * min(len(title), 80)
    if (said := remark(device)) != NOTHING:
        yield from folded("  Remark: ", said, indent=4)
    if device["ending"] != "measured":
        return
    for label, text in facts(device):
        yield from folded(f"  {label + ':':<13} ", text)
    yield ""
    rows = rates(device)
    shown = [(f"  {name}", *figures, why) for name, *figures, why, _ in rows]
    yield from columns(("  load", "size", "rate", "of limit", ""), shown, right=(1, 2, 3))
    yield ""
    limits: dict[str, list[str]] = {}
    for name, _, rate, _, _, limit in rows:
        if rate != NOTHING:
            limits.setdefault(limit, []).append(name)
    for limit, names in limits.items():
        yield from folded("  Limit ", f"of {', '.join(names)}: {limit}", indent=4)


def summary(device: Device) -> tuple[str, ...]:
    """Return a device's row: target, name, rate, share of the limit, stability, telemetry, remark."""
    return (
        device["target"],
        device["device_name"] or NOTHING,
        _sustained_rate(device) if device["ending"] == "measured" else NOTHING,
        _percent(_sustained_fraction(device)),
        _stability(device),
        _span(device["temperature_c"], "°C"),
        _span(device["power_w"], "W"),
        _throttling(device),
        remark(device),
    )


def facts(device: Device) -> list[tuple[str, str]]:
    """Return a measured device's figures under load, as label and text, and why others are unknown."""
    reasons = device["telemetry_reasons"]

    def unknown(name: str) -> str:
        return f"unknown: {reasons.get(name) or reasons.get('all') or 'not reported by the device'}"

    by = f" by {device['library']}" if device.get("library") else ""
    checked = "the size of each block was checked" if is_storage(device["target"]) else "every result was checked"
    load = f"over {device['duration_s']:g} s after {device['warmup_s']:g} s of warm-up{by}"
    found = [
        ("Sustained", f"{_sustained_rate(device)} {load}; {checked}"),
        ("Stability", _stability(device)),
        ("Temperature", _span(device["temperature_c"], "°C", unknown("temperature_c"))),
        ("Power", _span(device["power_w"], "W", unknown("power_w"))),
        ("Throttled", _throttling(device, unknown("throttle_reasons"))),
    ]
    efficiency = device["gflops_per_watt"]
    return found if efficiency is None else [*found, ("Efficiency", f"{efficiency:g} GFLOPS/W")]


def rates(device: Device) -> list[tuple[str, ...]]:
    """Return a row for each precision and kernel: its name, size, rate, share of the limit, a remark or why it has no
    rate, and the source of the limit."""
    loads = [
        (one["precision"], f"{one['size']} × {one['size']}" if one["size"] else "", rate_text(one["tflops"]), one)
        for one in device["rates"]
    ] + [
        (one["kernel"], size_text(one["array_bytes"], NOTHING), _gigabytes(one["gbps"]), one)
        for one in device["bandwidths"]
    ]
    return [(*said, _percent(one["limit_fraction"]), one["reason"], _source(one["limit"])) for *said, one in loads]


def _source(limit: Mapping[str, str]) -> str:
    return limit["source"] or f"unknown: {limit['reason']}"


def rate_text(tflops: float | None) -> str:
    """Return TFLOPS, or GFLOPS below one of them; a dash without a rate."""
    if tflops is None:
        return NOTHING
    return f"{tflops:.4g} TFLOPS" if tflops >= 1 else f"{tflops * 1000:.4g} GFLOPS"


def _gigabytes(gbps: float | None) -> str:
    return NOTHING if gbps is None else f"{gbps:.4g} GB/s"


def _sustained_rate(device: Device) -> str:
    rate = _gigabytes(device["bandwidth_gbps"]) if device["tflops"] is None else rate_text(device["tflops"])
    return f"{rate} in {device['sustained']}"


def _sustained_fraction(device: Device) -> float | None:
    for one in (*device["rates"], *device["bandwidths"]):
        if device["sustained"] in (one.get("precision"), one.get("kernel")):
            fraction: float | None = one["limit_fraction"]
            return fraction
    return None


def _percent(fraction: float | None) -> str:
    return NOTHING if fraction is None else f"{100 * fraction:.1f} %"


def _stability(device: Device) -> str:
    """Return how much the rate varied, and how much it fell."""
    found = device["stability"]
    if found is None or found["coefficient_of_variation"] is None:
        return NOTHING
    varies = f"varies by {100 * found['coefficient_of_variation']:.1f} % (standard deviation over mean)"
    if (sag := found["sag"]) is None:
        return varies
    return f"{varies}, last quarter {abs(100 * sag):.1f} % {'below' if sag >= 0 else 'above'} the first"


def _span(found: Mapping[str, float] | None, unit: str, missing: str = NOTHING) -> str:
    if found is None:
        return missing
    return f"{found['least']:g} to {found['most']:g} {unit}, {found['mean']:g} {unit} on average"


def _throttling(device: Device, missing: str = NOTHING) -> str:
    """Return the reasons for throttling and the share of samples of each."""
    if (shares := device["throttled"]) is None:
        return missing
    return ", ".join(f"{name} in {100 * share:.0f} % of samples" for name, share in shares.items()) or "no"


def remark(device: Device) -> str:
    """Return a remark on a device's figures, or why there are none."""
    said = [] if device["ending"] == "measured" else [f"{device['ending'].replace('_', ' ')}: {device['reason']}"]
    if device["simulated"]:
        said.append("simulated: the rate says nothing about a real device")
    share = device["processor_share"]
    if share is not None and share < _OWN_SHARE:
        said.append(f"the load got {100 * share:.0f} % of the processor; other programs used the rest")
    return "; ".join(said) or NOTHING
