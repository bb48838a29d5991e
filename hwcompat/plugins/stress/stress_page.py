"""A stress run as a page, with curves as inline SVG; `hwcompat devices show-stress FILE` shows a saved run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hwcompat.hardware.plain_text import json_text
from hwcompat.reports.delivery import print_or_write
from hwcompat.reports.formats import suffix_of
from hwcompat.reports.html.page import render_page
from hwcompat.reports.report_request import Request

from .stress_report import Device, Run, facts, load_stress, rates, stress_markdown, summary

WIDTH, HEIGHT = 640, 84
_MARGIN = 8
_CURVES = (
    ("rate", "Rate, {unit}"),
    ("temperature_c", "Temperature, °C"),
    ("power_w", "Power, W"),
    ("compute_percent", "Use, %"),
)

Point = Mapping[str, Any]


def show_stress(request: Request, path: Path) -> int:
    """Print or write the run in a file, and return the exit code: 1 if a load ended badly. Raises what `load_stress`
    raises."""
    run = load_stress(path)
    if request.format == "html":
        text = stress_html(run)
    else:
        text = stress_markdown(run) if request.format == "markdown" else json_text(run, ascii_alone=True) + "\n"
    print_or_write(text, request.output_dir, f"stress_run.{suffix_of(request.format)}")
    return int(any(one["ending"] not in ("measured", "skipped") for one in run["results"]))


def stress_html(run: Run) -> str:
    """Return the text of the page, ending in a newline. Untrusted text is escaped throughout."""
    host = run["host"]
    about = [
        ("started", str(run["started_at"])),
        ("system", f"{host.get('system', '')} {host.get('release', '')} on {host.get('machine', '')}"),
        ("processor", str(host.get("cpu", ""))),
        ("torch", str(run["versions"].get("torch", "not installed"))),
    ]
    devices = [device_view(one) for one in run["results"]]
    return render_page("stress.html.j2", (), facts=about, devices=devices, width=WIDTH, height=HEIGHT)


def device_view(device: Device) -> dict[str, Any]:
    """Return one device as the template shows it. `throttled` are the positions in time at which it was throttled."""
    # The scale of the rate is that of the sustained load: short loads may have other units.
    points = [{**one, "rate": None if one["phase"] == "short" else one["rate"]} for one in device["profile"]]
    unit = "TFLOPS" if device["bandwidth_gbps"] is None else "10⁹ bytes a second"
    end = max((float(one["elapsed_s"]) for one in points), default=0.0)
    known = {name for name, _ in _CURVES if any(one[name] is not None for one in points)}
    unknown = [label.partition(",")[0].lower() for name, label in _CURVES if name not in known]
    return {
        "device": device,
        "cells": summary(device),
        "facts": facts(device),
        "rates": rates(device),
        "phases": _phases(points, end),
        "curves": [_curve(points, name, label.format(unit=unit), end) for name, label in _CURVES if name in known],
        "throttled": [
            (_x(one, end), ", ".join(one["throttle_reasons"])) for one in points if one["throttle_reasons"]
        ],
        "seconds": f"{end:.0f} s",
        "missing": f"Not reported by the device: {', '.join(unknown)}." if points and unknown else "",
    }


def _x(point: Point, end: float) -> float:
    return round(_MARGIN + (WIDTH - 2 * _MARGIN) * (float(point["elapsed_s"]) / end if end else 0.0), 1)


def _phases(points: Sequence[Point], end: float) -> list[tuple[str, float, float]]:
    """Return the periods of each kind of load: the name, and its position and width in the drawing."""
    found = []
    starts = [place for place, one in enumerate(points) if not place or one["phase"] != points[place - 1]["phase"]]
    for start, after in zip(starts, [*starts[1:], len(points) - 1], strict=False):
        left, right = _x(points[start], end), _x(points[after], end)
        if points[start]["phase"]:
            found.append((points[start]["phase"], left, round(max(right - left, 1.0), 1)))
    return found


def _curve(points: Sequence[Point], name: str, label: str, end: float) -> dict[str, Any]:
    """Return a metric's curve: `lines` and `dots` are its unbroken pieces, with gaps for unknown values."""
    known = [float(one[name]) for one in points if one[name] is not None]
    # The rate's scale begins at 0, so that a drop isn't exaggerated; temperature's begins at its minimum.
    least = min(known) if name == "temperature_c" else 0.0
    most = max(max(known), least + 1e-9)
    pieces: list[list[tuple[float, float]]] = [[]]
    for one in points:
        if one[name] is None:
            pieces.append([])
            continue
        share = (float(one[name]) - least) / (most - least)
        pieces[-1].append((_x(one, end), round(HEIGHT - _MARGIN - (HEIGHT - 2 * _MARGIN) * share, 1)))
    return {
        "label": label,
        "lines": [" ".join(f"{x},{y}" for x, y in piece) for piece in pieces if len(piece) > 1],
        "dots": [piece[0] for piece in pieces if len(piece) == 1],
        "least": f"{least:.4g}",
        "most": f"{most:.4g}",
    }
