"""The share of each target's cells in which every check passed, by version or by day: positions in drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from hwcompat.hardware.backends.factory import declarations_of
from hwcompat.hardware.evidence.record import Outcome
from hwcompat.hardware.evidence.runs import CellHistory, History

from .page import moment

MOST_POINTS = 12
WIDTH = 340.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 322.0, 24.0, 124.0
"""The edges of the plot in a drawing that is `WIDTH` by 164."""
_CHARACTER = 7.6
_UNDECIDED = {Outcome.SKIPPED, Outcome.NOT_RUN}


@dataclass(frozen=True, kw_only=True)
class TrendPoint:
    """The cells with results in one version or day, and the number that `passed`.

    Of the cells that the point before has too (`both`), `gained` pass now and `lost` no longer do. `middle` is where
    its texts are drawn, None if they have no room.
    """

    label: str
    number: int
    passed: int
    both: int
    gained: int
    lost: int
    x: float
    y: float
    middle: float | None

    @property
    def share(self) -> str:
        """The share that passed, as text."""
        return f"{100 * self.passed / self.number:.3g} %"


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
    found = (_of_target(history, target, cells) for target, cells in sorted(by_target.items()))
    return [one for one in found if any(point.both for point in one.points)]


def _of_target(history: History, target: str, cells: Mapping[str, CellHistory]) -> TargetTrend:
    used = [history.runs[place] for place in sorted({place for runs in cells.values() for place, _ in runs})]
    libraries = ("transformers", *declarations_of(target).EXPIRES_ON)
    library = next((one for one in libraries if len({run.versions.get(one) for run in used} - {None}) > 1), "")
    results: dict[str, dict[str, bool]] = {}
    for run in used:  # the labels in the order of their first runs
        results.setdefault(run.versions.get(library, "") if library else moment(run.started_at)[:10], {})
    for cell, runs in cells.items():
        for place, outcomes in runs:
            run = history.runs[place]
            passed = _passed(outcomes, is_whole=(cell, place) not in history.unfinished)
            if passed is not None:
                results[run.versions.get(library, "") if library else moment(run.started_at)[:10]][cell] = passed
    named = {label: results[label] for label in _in_order(results, library) if label and results[label]}
    return _drawn(target, library, dict(list(named.items())[-MOST_POINTS:]))


def _passed(outcomes: Mapping[str, int], *, is_whole: bool) -> bool | None:
    """Whether every check passed; None if nothing was decided, or if planned checks have no result."""
    decided = set(outcomes) - _UNDECIDED
    if decided - {Outcome.PASSED}:
        return False
    return True if decided and is_whole and Outcome.NOT_RUN not in outcomes else None


def _in_order(labels: Mapping[str, object], library: str) -> list[str]:
    try:
        return sorted(filter(None, labels), key=Version if library else str)
    except InvalidVersion:
        return list(labels)


def _drawn(target: str, library: str, results: Mapping[str, Mapping[str, bool]]) -> TargetTrend:
    step = (RIGHT - LEFT) / max(len(results), 1)
    width = _CHARACTER * max(map(len, results), default=0)
    points: list[TrendPoint] = []
    path, before = "", dict[str, bool]()
    for place, (label, now) in enumerate(results.items()):
        both = before.keys() & now.keys()
        x, y = LEFT + step * (place + 0.5), BOTTOM - (BOTTOM - TOP) * sum(now.values()) / len(now)
        path += f"{'L' if 2 * len(both) >= max(len(before), len(now)) else 'M'}{x:.1f} {y:.1f}"
        points.append(
            TrendPoint(
                label=label,
                number=len(now),
                passed=sum(now.values()),
                both=len(both),
                gained=sum(now[cell] and not before[cell] for cell in both),
                lost=sum(before[cell] and not now[cell] for cell in both),
                x=round(x, 1),
                y=round(y, 1),
                middle=min(x, WIDTH - width / 2) if (len(results) - 1 - place) % (1 + width // step) == 0 else None,
            )
        )
        before = dict(now)
    return TargetTrend(target=target, library=library, points=points, path=path)
