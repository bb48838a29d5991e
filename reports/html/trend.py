"""The share of each target's cells in which every check passed, by version or by day: positions in drawings."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from hwcompat.hardware.backends.factory import declarations_of
from hwcompat.hardware.evidence.record import Outcome
from hwcompat.hardware.evidence.runs import CellHistory, History, PastRun

from .page import moment

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 340.0, 46.0, 322.0, 24.0, 124.0
"""The width of a drawing, which is 164 high, and the edges of its plot."""
_CHARACTER = 7.6


@dataclass(frozen=True, kw_only=True)
class TrendPoint:
    """One version or day. `both` is the number of cells that it has in common with the point before.

    `row` are texts: the cells that passed, `both`, and of these the numbers that pass now and that no longer do.
    `middle` is where its texts are drawn, None if they have no room.
    """

    label: str
    share: str
    both: int
    row: tuple[str, ...]
    x: float
    y: float
    middle: float | None


@dataclass(frozen=True, kw_only=True)
class TargetTrend:
    """The trend of one target, by the versions of `library`, or by day if it is empty; `path` joins points that have
    at least half of their cells in common."""

    target: str
    library: str
    points: Sequence[TrendPoint]
    path: str


def trends(history: History) -> list[TargetTrend]:
    """Return the trend of each target that has results of the same cells in two versions, or on two days.

    The versions are those of transformers, or of the first other library of the target that has several.
    """
    by_target: dict[str, dict[str, CellHistory]] = {}
    for cell, runs in history.cells.items():
        if cell.count("/") == 3:
            by_target.setdefault(cell.split("/")[2], {})[cell] = runs
    found = [_of_target(history, target, cells) for target, cells in sorted(by_target.items())]
    return [one for one in found if any(point.both for point in one.points)]


def _of_target(history: History, target: str, cells: Mapping[str, CellHistory]) -> TargetTrend:
    used = [history.runs[place] for place in sorted({place for runs in cells.values() for place, _ in runs})]
    libraries = ("transformers", *declarations_of(target).EXPIRES_ON)
    library = next((one for one in libraries if len({run.versions.get(one) for run in used} - {None}) > 1), "")

    def label(run: PastRun) -> str:
        return run.versions.get(library, "") if library else moment(run.started_at)[:10]

    results: dict[str, dict[str, bool]] = {label(run): {} for run in used}
    for cell, runs in cells.items():
        for place, outcomes in runs:
            decided = outcomes.keys() - {Outcome.SKIPPED, Outcome.NOT_RUN}
            is_whole = Outcome.NOT_RUN not in outcomes and (cell, place) not in history.unfinished
            if decided and (is_whole or decided != {Outcome.PASSED}):
                results[label(history.runs[place])][cell] = decided == {Outcome.PASSED}
    labels = [one for one in results if one and results[one]]
    with contextlib.suppress(InvalidVersion):  # these, and days, are in the order of their runs
        labels.sort(key=Version)
    points, path = _points({one: results[one] for one in labels})
    return TargetTrend(target=target, library=library, points=points, path=path)


def _points(results: Mapping[str, Mapping[str, bool]]) -> tuple[list[TrendPoint], str]:
    step, width = (RIGHT - LEFT) / max(len(results), 1), _CHARACTER * max(map(len, results), default=0)
    points: list[TrendPoint] = []
    path, before = "", dict[str, bool]()
    for place, (label, now) in enumerate(results.items()):
        both, passed = before.keys() & now.keys(), sum(now.values())
        x, y = round(LEFT + step * (place + 0.5), 1), round(BOTTOM - (BOTTOM - TOP) * passed / len(now), 1)
        path += f"{'L' if 2 * len(both) >= max(len(before), len(now)) else 'M'}{x} {y}"
        counts = (len(both), *(sum(now[one] is new is not before[one] for one in both) for new in (True, False)))
        has_room = (len(results) - 1 - place) % (1 + width // step) == 0
        points.append(
            TrendPoint(
                label=label,
                share=f"{100 * passed / len(now):.3g} %",
                both=len(both),
                row=(f"{passed:,} of {len(now):,}", *(f"{one:,}" if place else "–" for one in counts)),
                x=x,
                y=y,
                middle=min(x, WIDTH - width / 2) if has_room else None,
            )
        )
        before = dict(now)
    return points, path
