"""What came before: how the runs of a folder ended, and how each cell fared in its last ones.

As with what still counts there are two ways that come to the same: over objects, and in DuckDB.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from hardware.evidence.record import Outcome
from hardware.evidence.store import Evidence
from hardware.evidence.table import EvidenceTable

LAST_RUNS = 12
"""Of each cell so many runs are kept, the newest."""

_ORDER = [str(outcome) for outcome in Outcome]

_Told = tuple[str, str, Mapping[str, str]]
"""When a run began, its machine and its versions."""

CellHistory = tuple[tuple[int, Mapping[str, int]], ...]
"""The place of each run among all runs, and how many lines of the cell have each outcome there."""


@dataclass(frozen=True, kw_only=True)
class PastRun:
    """One run: when, where, with which versions, and how many lines of evidence have each outcome.

    A run without a line of its own has neither machine nor versions; its first check says when it began.
    """

    run_id: str
    started_at: str
    machine: str
    versions: Mapping[str, str]
    outcomes: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class History:
    """`runs` are all runs, oldest first. `cells` has, by cell, its last runs, oldest first."""

    runs: tuple[PastRun, ...] = ()
    cells: Mapping[str, CellHistory] = field(default_factory=lambda: MappingProxyType({}))


def history_of(evidence: Evidence) -> History:
    """The history that evidence tells, by objects."""
    counted: Counter[tuple[str, str, str]] = Counter()
    first: dict[str, str] = {}
    for line in evidence.checks:
        counted[line.cell_id, line.run_id, str(line.outcome)] += 1
        first[line.run_id] = min(line.started_at, first.get(line.run_id, line.started_at))
    told = {run.run_id: (run.started_at, run.machine, run.versions) for run in evidence.runs}
    return _history(told, first, ((*key, number) for key, number in counted.items()))


def history_in(table: EvidenceTable) -> History:
    """The same of a folder that stands in tables, once others' lines have left them."""
    told: dict[str, _Told] = {}
    for run_id, started_at, machine, versions in table.connection.execute(
        "SELECT run_id, started_at, machine, versions FROM runs ORDER BY place"
    ).fetchall():
        told[run_id] = (started_at, machine, json.loads(versions))
    first = dict(table.connection.execute("SELECT run_id, min(started_at) FROM checks GROUP BY run_id").fetchall())
    counted = table.connection.execute(
        "SELECT cell_id, run_id, outcome, count(*) FROM checks GROUP BY cell_id, run_id, outcome"
    )
    return _history(told, first, counted.fetchall())


def _history(
    told: Mapping[str, _Told],
    first: Mapping[str, str],
    counted: Iterable[tuple[str, str, str, int]],
) -> History:
    known: dict[str, _Told] = {run_id: (first[run_id], "", {}) for run_id in first} | dict(told)
    ordered = sorted(known, key=lambda run_id: (known[run_id][0], run_id))
    places = {run_id: place for place, run_id in enumerate(ordered)}
    totals: list[Counter[str]] = [Counter() for _ in ordered]
    cells: defaultdict[str, defaultdict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for cell, run_id, outcome, number in counted:
        place = places[run_id]
        totals[place][outcome] += number
        cells[cell][place][outcome] = number
    return History(
        runs=tuple(
            PastRun(
                run_id=run_id,
                started_at=known[run_id][0],
                machine=known[run_id][1],
                versions=known[run_id][2],
                outcomes=_in_order(totals[place]),
            )
            for place, run_id in enumerate(ordered)
        ),
        cells={
            cell: tuple((place, _in_order(by_run[place])) for place in sorted(by_run)[-LAST_RUNS:])
            for cell, by_run in sorted(cells.items())
        },
    )


def _in_order(outcomes: Mapping[str, int]) -> Mapping[str, int]:
    if len(outcomes) == 1:  # nearly always, and there are many
        return outcomes
    return {name: outcomes[name] for name in _ORDER if name in outcomes}
