"""Charts of a report's page, and earlier runs: positions in drawings, with the figures as text beside them.

Only shapes are drawn, and scale with the page; all text is the page's own, so that it stays readable at any width.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC

from hwcompat.generators.compatibility.verdict import Level
from hwcompat.hardware.evidence.record import CheckLine, Outcome, Stage
from hwcompat.hardware.evidence.runs import History, PastRun

from ..cell_report import CellReport
from ..text import listed, moment_in_utc
from .page import moment

LAST_RUNS = 60
MEMORY_PARTS = ("weights", "gradients", "optimiser", "inputs", "cache", "activations", "workspace")
"""The fields of an estimate, each with a color of its own in a bar."""
_STRIP = 100.0
_DECADES_BELOW, _DECADES_ABOVE = 5.0, 2.0
_NAMED = 4


@dataclass(frozen=True, kw_only=True)
class ChartSpan:
    """The range of some figures with their median: positions from 0 to 100, and text.

    `beyond` says that the largest exceeds the limit.
    """

    name: str
    low: float
    middle: float
    high: float
    number: int
    words: tuple[str, ...]
    beyond: bool = False


def strip(error: float | None, allowed: float | None) -> float | None:
    """Return an error's position from 0 to 100, by its share of the limit on a log scale; `LIMIT` is the limit.

    None if there is nothing to draw; values that aren't finite are at the end.
    """
    if error is None or allowed is None or not allowed > 0:
        return None
    return _of_limit(error / allowed)


def _of_limit(share: float) -> float:
    if not math.isfinite(share):
        return _STRIP
    decades = math.log10(share) if share > 0 else -_DECADES_BELOW
    whole = _DECADES_BELOW + _DECADES_ABOVE
    return round(_STRIP * min(max(decades + _DECADES_BELOW, 0.0), whole) / whole, 1)


LIMIT = round(_STRIP * _DECADES_BELOW / (_DECADES_BELOW + _DECADES_ABOVE), 1)
DECADES = ("", "0.01 %", "0.1 %", "1 %", "10 %", "100 %", "10 times")
"""What an error is of its tolerance at the beginning of each seventh of a strip."""
TICKS = "".join(f"M{_STRIP * place / len(DECADES):.1f} 3V9" for place in range(1, len(DECADES)))


@dataclass(frozen=True, kw_only=True)
class TargetChart:
    """What cells of one target became: the number `reached` of each of `STEPS`, `levels`, and for each cell with an
    error over tolerance a point of one of the paths, `allowed` or `beyond`; `worst` is the cell with the largest."""

    target: str
    number: int
    levels: Mapping[str, int]
    reached: tuple[int, ...]
    measured: int = 0
    over: int = 0
    allowed: str = ""
    beyond: str = ""
    worst: str = ""
    largest: str = ""


_FAILED_AT = (
    (Stage.IMPORT, Stage.CONFIG, Stage.BUILD),
    (Stage.EXPORT, Stage.CONVERT, Stage.COMPILE),
    (Stage.LOAD, Stage.RUN),
    (Stage.COMPARE,),
)
STEPS = ("built", "exported", "ran", "right", "native")
"""What a cell reached: no check failed before it, and for the last one nothing ran elsewhere."""


def _reached(lines: Sequence[CheckLine]) -> int:
    """Return how many of `STEPS` a cell with results reached. A failure without a stage is one of running."""
    failed = [line.stage or Stage.RUN for line in lines if line.outcome.is_failure]
    if failed:
        return min(place for place, stages in enumerate(_FAILED_AT) if set(failed) & set(stages))
    ran = [line for line in lines if line.outcome is not Outcome.SKIPPED]
    if not any(line.outcome in (Outcome.PASSED, Outcome.PASSED_ON_FALLBACK) for line in ran):
        return 0
    elsewhere = any(line.outcome is not Outcome.PASSED or line.offloaded_ops for line in ran)
    return len(_FAILED_AT) if elsewhere else len(STEPS)


def by_target(cells: Sequence[CellReport]) -> list[TargetChart]:
    """Return a chart for each target, in the order of their names, of its cells with results."""
    grouped: dict[str, list[CellReport]] = {}
    for cell in cells:
        if cell.lines and cell.id.count("/") == 3:
            grouped.setdefault(cell.id.split("/")[2], []).append(cell)
    return [_of_target(name, own) for name, own in sorted(grouped.items())]


def _of_target(target: str, cells: Sequence[CellReport]) -> TargetChart:
    steps = Counter(_reached(cell.lines) for cell in cells)
    levels = Counter(str(cell.verdict.level) for cell in cells)
    errors = sorted((max(own), cell.id) for cell in cells if (own := shares(cell.lines)))
    points: tuple[set[str], set[str]] = set(), set()
    height: Counter[int] = Counter()
    for share, _ in errors:  # points at one place are stacked, up to five
        place = round(_of_limit(share) * 2)
        height[place] += 1
        points[share > 1.0].add(f"M{place / 2:g} {24 - 4 * min(height[place], 5)}h0")
    return TargetChart(
        target=target,
        number=len(cells),
        levels={str(one): levels[one] for one in Level if levels[one]},
        reached=tuple(sum(number for last, number in steps.items() if last > step) for step in range(len(STEPS))),
        measured=len(errors),
        over=sum(share > 1.0 for share, _ in errors),
        allowed="".join(sorted(points[False])),
        beyond="".join(sorted(points[True])),
        worst=errors[-1][1] if errors else "",
        largest=share_words(errors[-1][0]) if errors else "",
    )


def error_spans(checks: Iterable[CheckLine]) -> list[ChartSpan]:
    """Return how near each check came to its tolerance, over all cells."""
    lines: dict[str, list[CheckLine]] = {}
    for line in checks:
        lines.setdefault(line.check_name, []).append(line)
    measured = {name: own for name, of in lines.items() if (own := shares(of))}
    return [
        _span(name, own, _of_limit, share_words, beyond=max(own) > 1.0)
        for name, own in sorted(measured.items(), key=lambda pair: -max(pair[1]))
    ]


def shares(checks: Iterable[CheckLine]) -> list[float]:
    """Return the errors of the checks that measured one, relative to their tolerance; NaN is infinite."""
    return [
        share if (share := line.max_rel_error / line.tolerance) == share else math.inf
        for line in checks
        if line.max_rel_error is not None and line.tolerance
    ]


def share_words(share: float) -> str:
    """Return an error's share of its tolerance as text."""
    return f"{share * 100:.2g} %" if share <= 1.0 else f"{share:.3g} times" if math.isfinite(share) else "not finite"


def duration_spans(checks: Iterable[CheckLine]) -> list[ChartSpan]:
    """Return how long each check took, over all cells in which something ran."""
    seconds: dict[str, list[float]] = {}
    for line in checks:
        if line.duration_s > 0:
            seconds.setdefault(line.check_name, []).append(line.duration_s)
    longest = max((max(own) for own in seconds.values()), default=1.0)
    shortest = max(min((min(own) for own in seconds.values()), default=1.0), 1e-4)
    whole = max(math.log10(longest / shortest), 1e-9)

    def place(value: float) -> float:
        return round(_STRIP * min(max(math.log10(value / shortest) / whole, 0.0), 1.0), 1)

    ordered = sorted(seconds.items(), key=lambda pair: -statistics.median(pair[1]))
    return [_span(name, own, place, lambda value: f"{value:.3g} s") for name, own in ordered]


def _span(
    name: str,
    values: Sequence[float],
    place: Callable[[float], float],
    words: Callable[[float], str],
    *,
    beyond: bool = False,
) -> ChartSpan:
    figures = (min(values), statistics.median(values), max(values))
    low, middle, high = map(place, figures)
    shown = tuple(map(words, figures))
    return ChartSpan(name=name, low=low, middle=middle, high=high, number=len(values), words=shown, beyond=beyond)


def moved(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return the versions that differ between two runs, as `torch 2.1 → 2.2`."""
    return tuple(
        f"{name} {before.get(name, 'absent')} → {after.get(name, 'absent')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    )


def timeline(history: History) -> list[tuple[PastRun, tuple[str, ...]]]:
    """Return the runs that have lines, oldest first, each with the versions that changed since the machine's previous
    run."""
    before: dict[str, PastRun] = {}
    rows = []
    for run in history.runs:
        last = before.get(run.machine)
        before[run.machine] = run
        if run.outcomes:
            rows.append((run, moved(last.versions, run.versions) if last else ()))
    return rows


Fared = tuple[str, str, str]
"""A cell in one run: when and where, its lines by outcome as text, and the class of their sign."""


_WORST_FIRST = (
    "crashed",
    "out_of_memory",
    "timeout",
    "failed",
    "ambiguous",
    "passed_on_fallback",
    "not_run",
    "passed",
    "skipped",
)


@dataclass(frozen=True, kw_only=True)
class RunTimes:
    """When the cells of a run ran. `shapes` has a path for each outcome, 100 wide and `workers` high. `longest` are
    cell, worker, seconds after the first check, seconds that it took, and outcome."""

    seconds: float
    workers: int
    shapes: Mapping[str, str]
    longest: Sequence[tuple[str, int, float, float, str]]


def run_times(checks: Iterable[CheckLine], most: int) -> RunTimes | None:
    """Return when the cells of a run ran, with the `most` longest ones; None if fewer than two have times.

    Evidence doesn't name workers: a cell is drawn at the first one that is free when it starts.
    """
    times: dict[str, list[tuple[float, float, str]]] = {}
    for line in checks:
        if (began := moment_in_utc(line.started_at)) is not None:
            start = began.replace(tzinfo=began.tzinfo or UTC).timestamp()
            times.setdefault(line.cell_id, []).append((start, start + line.duration_s, str(line.outcome)))
    if len(times) < 2:
        return None
    first = min(start for own in times.values() for start, _, _ in own)
    seconds = max(max(end for own in times.values() for _, end, _ in own) - first, 1e-3)
    free: list[float] = []
    shapes: dict[str, list[str]] = {}
    cells = []
    for cell, own in sorted(times.items(), key=lambda pair: min(pair[1])):
        start, end = min(own)[0], max(end for _, end, _ in own)
        worker = next((place for place, until in enumerate(free) if until <= start), len(free))
        free[worker : worker + 1] = [end]
        outcome = min((name for _, _, name in own), key=_WORST_FIRST.index)
        width = max(_STRIP * (end - start) / seconds, 0.1)
        height = 0.5 if outcome in _WORST_FIRST[-2:] else 0.8  # color alone doesn't tell passes from the others
        at = f"M{_STRIP * (start - first) / seconds:.2f} {worker + 0.9 - height:g}"
        shapes.setdefault(outcome, []).append(f"{at}h{width:.2f}v{height}h-{width:.2f}z")
        cells.append((cell, worker + 1, start - first, end - start, outcome))
    return RunTimes(
        seconds=seconds,
        workers=len(free),
        shapes={name: "".join(own) for name, own in shapes.items()},
        longest=sorted(cells, key=lambda one: -one[3])[:most],
    )


def past_of(history: History) -> Callable[[str], list[Fared]]:
    """Return a function from a cell to its last runs, the newest first; none if it has only one."""

    @functools.cache  # many cells share runs
    def in_words(before: int | None, place: int) -> str:
        run = history.runs[place]
        changes = moved(history.runs[before].versions, run.versions) if before is not None else ()
        moved_words = f"; {listed(changes, _NAMED)}" if changes else ""
        return f"{moment(run.started_at)}{f', {run.machine}' if run.machine else ''}{moved_words}"

    def past(cell: str) -> list[Fared]:
        runs = history.cells.get(cell, ())
        before = (None, *(place for place, _ in runs))
        return [
            (in_words(last, place), *_outcomes_in_words(tuple(outcomes.items())))
            for last, (place, outcomes) in zip(before, runs if len(runs) > 1 else (), strict=False)
        ][::-1]

    return past


@functools.cache
def _outcomes_in_words(outcomes: tuple[tuple[str, int], ...]) -> tuple[str, str]:
    words = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in outcomes)
    return words, next((name for name in _WORST_FIRST if name in dict(outcomes)), "not_run")
