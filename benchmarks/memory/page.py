"""Make docs/measured/memory.md: errors of estimates, and devices into which published configurations fit."""

from __future__ import annotations

import collections
import statistics
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from generators.compatibility.memory_fit import AvailableMemory, MemoryEstimate, fit
from generators.compatibility.prediction_scores import is_held_out
from generators.models.classifier import classify
from generators.recipes.memory_answer import memory_answer
from hardware.errors import ModelError
from hardware.plain_text import size_text
from reports.text import markdown_table

from .estimating import Point

CONFIGS = Path("test/fixtures/configs")
_SIZES = (8, 16, 24, 80)
"""Device sizes in GB in the table of published configurations."""
_UNDER = -0.01
_WORST = 10

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


def page_text(points: Sequence[Point]) -> str:
    """Return the page as Markdown."""
    known = [point for point in points if "parts" in point]
    versions = sorted({f"{name} {one}" for point in points for name, one in point["versions"].items()})
    without = collections.Counter(point["unknown"].partition(":")[0] for point in points if "unknown" in point)
    unknown = (
        f"\nNot estimated, with a reason: {sum(without.values())} points ({_counted(without)}).\n" if without else ""
    )
    return _HEAD.format(
        dates=" and ".join(sorted({point["date"] for point in points})),
        versions=", ".join(versions),
        cpu=", ".join(sorted({point["cpu"] for point in points})),
        count=len(known),
        median=_row("", known)[2],
        rival=_row("", known)[5],
        types=len({point["model_type"] for point in known}),
        unknown=unknown,
        tables=_tables(known),
        worst=_worst(known),
        fits=_fits(),
    )


def _counted(found: collections.Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in found.most_common())


def error_of(point: Point) -> float:
    """Return estimate / measured - 1."""
    return float(sum(point["parts"].values()) / point["measured"] - 1)


def rival_error(point: Point) -> float:
    """Return accelerate's estimate / measured - 1."""
    return float(point["rival"] / point["measured"] - 1)


def _row(name: str, points: Sequence[Point]) -> list[str]:
    cells = [name, str(len(points))]
    for error in (error_of, rival_error):
        off = [error(point) for point in points]
        size = sorted(map(abs, off))
        under = sum(one < _UNDER for one in off) / len(off)
        cells += [_percent(statistics.median(size)), _percent(size[int(0.95 * (len(size) - 1))]), _percent(under)]
    return cells


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _tables(points: Sequence[Point]) -> str:
    heads = ["", "points", "median", "95th", "under", "accelerate: median", "95th", "under"]
    groups: list[Callable[[Point], str]] = [
        lambda _: "all",
        lambda point: "held out" if is_held_out(point["model_type"]) else "not held out",
        lambda point: str(point["family"]),
        lambda point: str(point["precision"]),
        lambda point: str(point["mode"]),
        lambda point: "many weights" if point["wide"] else "many activations",
    ]
    rows = []
    for key in groups:
        for name in sorted({key(point) for point in points}):
            rows.append(_row(name, [point for point in points if key(point) == name]))
    return markdown_table(heads, rows)


def _worst(points: Iterable[Point]) -> str:
    """Return rows with the worst point of each type, and the operators at its measured peak."""
    by_type: dict[str, Point] = {}
    for point in points:
        known = by_type.get(point["model_type"])
        if known is None or abs(error_of(point)) > abs(error_of(known)):
            by_type[point["model_type"]] = point
    worst = sorted(by_type.values(), key=lambda point: -abs(error_of(point)))[:_WORST]
    rows = [
        [
            point["model_type"],
            f"{point['mode']}, {point['precision']}, {point['batch']} × {point['length']}",
            size_text(point["measured"]),
            f"{100 * error_of(point):+.1f} %",
            "held out" if is_held_out(point["model_type"]) else "",
            " in ".join(f"`{name.removeprefix('aten::')}`" for name in point["where"][:5]),
        ]
        for point in worst
    ]
    return markdown_table(["model type", "request", "measured", "error", "", "where the peak came"], rows)


def _fits() -> str:
    sources: dict[str, Any] = tomllib.loads((CONFIGS / "sources.toml").read_text(encoding="utf-8"))
    rows = []
    for name in sources:
        try:
            found = memory_answer(classify(str(CONFIGS / name)), {"least_room": _SIZES[0] * 10**9})
        except ModelError as error:
            rows.append([name, "", f"unknown: {error.why}", *[""] * len(_SIZES)])
            continue
        base, *others = found.estimates
        cells = [_cell(base, others, found.anatomy, size) for size in _SIZES]
        rows.append([name, str(base.request), f"{found.anatomy.parameters / 1e9:.2f}", size_text(base.total), *cells])
    heads = ["configuration", "request", "billion parameters", "needed", *(f"{size} GB" for size in _SIZES)]
    return markdown_table(heads, rows)


def _cell(base: MemoryEstimate, others: Sequence[MemoryEstimate], anatomy: Any, size: int) -> str:
    answer = fit(base, others, anatomy, AvailableMemory(name="", available=size * 10**9))
    if answer.fits:
        return "fits, tight" if answer.is_tight else "fits"
    change = f"{answer.change.what} ({size_text(answer.change.needed)})" if answer.change else "no single change"
    return f"{size_text(answer.missing)} missing: {change}"
