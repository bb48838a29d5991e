"""A stress run as a page: a row for each device, its rates with limits, and curves over time as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.facts import Facts
from reports.html.page import render_page

from . import report as stress

WIDTH, HEIGHT = 640, 84
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 8, 8, 8
_CURVES = (
    ("rate", "Rate, {unit}"),
    ("temperature_c", "Temperature, °C"),
    ("power_w", "Power, W"),
    ("compute_percent", "Use, %"),
)

Point = Mapping[str, Any]


Phase = tuple[str, float, float]
"""A stretch of time under one kind of load: its name, and its place and width in the drawing."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One metric over time. `lines` are the points of unbroken pieces; the scale is from `least` to `most`."""

    label: str
    lines: tuple[str, ...]
    dots: tuple[tuple[float, float], ...]
    least: str
    most: str


@dataclass(frozen=True, kw_only=True)
class DeviceView:
    """What the page shows of one device. `throttled` are the places in time at which something held it down."""

    device: Mapping[str, Any]
    cells: tuple[str, ...]
    facts: Facts
    rates: Sequence[tuple[str, ...]]
    phases: tuple[Phase, ...]
    curves: tuple[Curve, ...]
    throttled: tuple[tuple[float, str], ...]
    seconds: str
    missing: str


def stress_html(run: stress.Run) -> str:
    """The text of the page, ending in a newline. Untrusted text is escaped throughout."""
    host = run["host"]
    facts = [
        ("started", str(run["started_at"])),
        ("system", f"{host.get('system', '')} {host.get('release', '')} on {host.get('machine', '')}"),
        ("processor", str(host.get("cpu", ""))),
        ("torch", str(run["versions"].get("torch", "not installed"))),
    ]
    return render_page(
        "stress.html.j2",
        (),
        facts=facts,
        devices=[device_view(one) for one in run["results"]],
        width=WIDTH,
        height=HEIGHT,
    )


def device_view(device: Mapping[str, Any]) -> DeviceView:
    """One device as the template shows it."""
    # One scale for the rate: the short loads are of other kinds.
    points = [{**one, "rate": None if one["phase"] == "short" else one["rate"]} for one in device["profile"]]
    unit = "TFLOPS" if device["bandwidth_gbps"] is None else "10⁹ bytes a second"
    end = max((float(one["elapsed_s"]) for one in points), default=0.0)
    curves = tuple(
        found for name, label in _CURVES if (found := _curve(points, name, label.format(unit=unit), end)) is not None
    )
    untold = [label.partition(",")[0].lower() for name, label in _CURVES if all(one[name] is None for one in points)]
    return DeviceView(
        device=device,
        cells=stress.summary(device),
        facts=_facts(device),
        rates=_rates(device),
        phases=_phases(points, end),
        curves=curves,
        throttled=tuple(
            (_x(float(one["elapsed_s"]), end), ", ".join(one["throttle_reasons"]))
            for one in points
            if one["throttle_reasons"]
        ),
        seconds=f"{end:.0f} s",
        missing=f"Not reported by the device: {', '.join(untold)}." if points and untold else "",
    )


def _facts(device: Mapping[str, Any]) -> Facts:
    efficiency = device["gflops_per_watt"]
    reasons = "; ".join(f"{name}: {why}" for name, why in device["telemetry_reasons"].items())
    facts = [
        ("load", f"{device['duration_s']:g} s after {device['warmup_s']:g} s of warm-up"),
        ("evenness", stress.evenness(device)),
        ("temperature", stress.span(device["temperature_c"], "°C")),
        ("power", stress.span(device["power_w"], "W")),
        ("throttled", stress.throttling(device)),
        ("efficiency", "–" if efficiency is None else f"{efficiency:g} GFLOPS/W"),
    ]
    return [*facts, ("not reported", reasons)] if reasons else facts


def _rates(device: Mapping[str, Any]) -> Sequence[tuple[str, ...]]:
    rows = [
        (
            one["precision"],
            "–" if one["size"] is None else f"{one['size']} × {one['size']}",
            stress.rate_text(one["tflops"]),
            stress.percent(one["limit_fraction"]),
            one["reason"] or one["limit"]["source"] or one["limit"]["reason"],
        )
        for one in device["rates"]
    ]
    rows += [
        (
            one["kernel"],
            f"{(one['array_bytes'] or 0) / 2**20:,.0f} MiB",
            stress.gigabytes(one["gbps"]),
            stress.percent(one["limit_fraction"]),
            one["reason"] or one["limit"]["source"] or one["limit"]["reason"],
        )
        for one in device["bandwidths"]
    ]
    return rows


def _x(seconds: float, end: float) -> float:
    return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * (seconds / end if end else 0.0), 1)


def _phases(points: Sequence[Point], end: float) -> tuple[Phase, ...]:
    found: list[Phase] = []
    start = 0
    for place in range(1, len(points) + 1):
        if place == len(points) or points[place]["phase"] != points[start]["phase"]:
            left = _x(float(points[start]["elapsed_s"]), end)
            last = points[min(place, len(points) - 1)]
            right = _x(float(last["elapsed_s"]), end)
            if points[start]["phase"]:
                found.append((points[start]["phase"], left, round(max(right - left, 1.0), 1)))
            start = place
    return tuple(found)


def _curve(points: Sequence[Point], name: str, label: str, end: float) -> Curve | None:
    """A metric's curve from 0 to its most; a gap where it wasn't told. None where it never was."""
    known = [float(one[name]) for one in points if one[name] is not None]
    if not known:
        return None
    # The rate's scale begins at 0, so that a sag isn't drawn larger than it is; heat's begins at its least.
    least = min(known) if name == "temperature_c" else 0.0
    most = max(max(known), least + 1e-9)
    lines: list[list[tuple[float, float]]] = [[]]
    for one in points:
        if one[name] is None:
            lines.append([])
            continue
        share = (float(one[name]) - least) / (most - least)
        y = round(HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * share, 1)
        lines[-1].append((_x(float(one["elapsed_s"]), end), y))
    return Curve(
        label=label,
        lines=tuple(" ".join(f"{x},{y}" for x, y in line) for line in lines if len(line) > 1),
        dots=tuple(line[0] for line in lines if len(line) == 1),
        least=f"{least:.4g}",
        most=f"{most:.4g}",
    )
