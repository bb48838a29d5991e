"""What a report's page shows of earlier runs: outcomes over time, and how each cell fared by date and version."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hardware.evidence.history import CellHistory, History, PastRun

from .charts import LAST_RUNS, Bar, bars, moved
from .page import moment

_NAMED = 4


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run in words. `changes` are the versions that moved since the run before it on its machine."""

    run_id: str
    when: str
    machine: str
    changes: tuple[str, ...]
    outcomes: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The last runs of all, oldest first, as bars and as rows."""

    bars: Sequence[Bar]
    rows: Sequence[RunRow]
    total: int


def timeline(history: History) -> Timeline:
    """The last runs that have lines."""
    before: dict[str, PastRun] = {}
    rows, shown = [], []
    for run in history.runs:
        last = before.get(run.machine)
        before[run.machine] = run
        if run.outcomes:
            shown.append(run)
            rows.append(_row(run, last))
    return Timeline(bars=bars(shown[-LAST_RUNS:]), rows=rows[-LAST_RUNS:], total=len(rows))


def _row(run: PastRun, last: PastRun | None) -> RunRow:
    return RunRow(
        run_id=run.run_id,
        when=moment(run.started_at),
        machine=run.machine or "not recorded",
        changes=moved(last.versions, run.versions) if last else (),
        outcomes=run.outcomes,
    )


@dataclass(frozen=True, kw_only=True)
class Fared:
    """How a cell fared in one run: when and where, and its lines by outcome. `worst` is the class of its sign."""

    when: str
    words: str
    worst: str


class CellHistories:
    """The past of each cell in words; what many cells share is put into words once."""

    def __init__(self, history: History) -> None:
        self._runs = history.runs
        self._cells = history.cells
        self._when = functools.cache(self._in_words)
        self._said: dict[tuple[tuple[str, int], ...], tuple[str, str]] = {}

    def of(self, cell: str) -> list[Fared]:
        """The last runs of a cell, the newest first; empty where it has but one."""
        past: CellHistory = self._cells.get(cell, ())
        if len(past) < 2:
            return []
        found = []
        for number, (place, outcomes) in enumerate(past):
            words, worst = self._outcomes(outcomes)
            before = past[number - 1][0] if number else None
            found.append(Fared(when=self._when(before, place), words=words, worst=worst))
        return found[::-1]

    def _outcomes(self, outcomes: Mapping[str, int]) -> tuple[str, str]:
        key = tuple(outcomes.items())
        if key not in self._said:
            words = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in key)
            worst = next((name for name in _WORST_FIRST if name in outcomes), "not_run")
            self._said[key] = (words, worst)
        return self._said[key]

    def _in_words(self, before: int | None, place: int) -> str:
        run = self._runs[place]
        changes = moved(self._runs[before].versions, run.versions) if before is not None else ()
        more = f" and {len(changes) - _NAMED} more" if len(changes) > _NAMED else ""
        told = f"; {', '.join(changes[:_NAMED])}{more}" if changes else ""
        return f"{moment(run.started_at)}{f', {run.machine}' if run.machine else ''}{told}"


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
