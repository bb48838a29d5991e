"""What a stress run measured, read back from its file, and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hardware.errors import BrokenInput, echo
from hardware.plain_text import one_line
from hardware.untrusted import read_json, reason_of
from reports.text import markdown, markdown_table

SCHEMA = Path(__file__).parents[3] / "hardware" / "schemas" / "stress.json"

_LARGEST = 64 * 1024 * 1024
_HEADINGS = (
    *("target", "device", "sustained", "of limit", "evenness", "temperature", "power", "throttled", "remark"),
)

Run = Mapping[str, Any]
Device = Mapping[str, Any]


def load_stress(path: Path) -> Run:
    """The run in a file that `python -m hardware stress --format json` wrote. Raises `BrokenInput`."""
    import jsonschema

    fix = "Write one with: python -m hardware stress cpu ram --format json --output FILE"
    try:
        data: Run = read_json(path, longest=_LARGEST)
    except OSError as error:
        raise BrokenInput(f"can't read {echo(str(path))}", why=reason_of(error), fix=fix) from error
    except ValueError as error:
        raise BrokenInput(f"{echo(str(path))} is no JSON", why=reason_of(error), fix=fix) from error
    schema = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    for wrong in schema.iter_errors(data):
        raise BrokenInput(f"{echo(str(path))} holds no stress run", why=one_line(wrong.message[:200]), fix=fix)
    return data


def stress_markdown(run: Run) -> str:
    """A table of devices; it ends in a newline."""
    rows = [[markdown(cell) for cell in summary(one)] for one in run["results"]]
    return f"# Stress run of {markdown(str(run['started_at']))}\n\n{markdown_table(_HEADINGS, rows)}\n"


def summary(device: Device) -> tuple[str, ...]:
    """A device's row: target, name, rate, share of the limit, evenness, temperature, power, throttling, remark."""
    return (
        device["target"],
        device["device_name"] or "–",
        sustained_rate(device),
        percent(sustained_fraction(device)),
        evenness(device),
        span(device["temperature_c"], "°C"),
        span(device["power_w"], "W"),
        throttling(device),
        remark(device),
    )


def rate_text(tflops: float | None) -> str:
    """TFLOPS, or GFLOPS below one of them; a dash where there is none."""
    if tflops is None:
        return "–"
    return f"{tflops:.4g} TFLOPS" if tflops >= 1 else f"{tflops * 1000:.4g} GFLOPS"


def gigabytes(gbps: float | None) -> str:
    """10^9 bytes a second; a dash where there is no rate."""
    return "–" if gbps is None else f"{gbps:.4g} GB/s"


def sustained_rate(device: Device) -> str:
    """The sustained rate with what it is a rate of."""
    if device["ending"] != "measured":
        return "–"
    rate = gigabytes(device["bandwidth_gbps"]) if device["tflops"] is None else rate_text(device["tflops"])
    return f"{rate} {device['sustained']}"


def sustained_fraction(device: Device) -> float | None:
    """The share of the limit that the sustained rate is."""
    for one in (*device["rates"], *device["bandwidths"]):
        if device["sustained"] in (one.get("precision"), one.get("kernel")):
            fraction: float | None = one["limit_fraction"]
            return fraction
    return None


def percent(fraction: float | None) -> str:
    """A share in percent; a dash where it isn't known."""
    return "–" if fraction is None else f"{100 * fraction:.1f} %"


def evenness(device: Device) -> str:
    """How much the rate varied and sagged."""
    found = device["stability"]
    if found is None or found["coefficient_of_variation"] is None:
        return "–"
    sag = "" if found["sag"] is None else f", sag {100 * found['sag']:.1f} %"
    return f"varies {100 * found['coefficient_of_variation']:.1f} %{sag}"


def span(found: Mapping[str, float] | None, unit: str) -> str:
    """Least to most; a dash where nothing was told."""
    return "–" if found is None else f"{found['least']:g} to {found['most']:g} {unit}"


def throttling(device: Device) -> str:
    """What held the device down and in how many looks."""
    told = device["throttled"]
    if told is None:
        return "–"
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in told.items()) or "no"


def remark(device: Device) -> str:
    """What to know of a device's figures; why there are none."""
    said = [] if device["ending"] == "measured" else [f"{device['ending'].replace('_', ' ')}: {device['reason']}"]
    if device["simulated"]:
        said.append("simulated: proves plumbing, never speed")
    share = device["processor_share"]
    if share is not None and share < 0.9:
        said.append(f"got {100 * share:.0f} % of the processor: other programs competed")
    return "; ".join(said) or "–"
