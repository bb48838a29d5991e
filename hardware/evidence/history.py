"""The outcomes of earlier runs: of each run as a whole, and of each cell in its last ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from .record import Outcome
from .table import EvidenceTable

LAST_RUNS = 12
"""Of each cell so many runs are kept, the newest."""

_ORDER = [str(outcome) for outcome in Outcome]

_Told = tuple[str, str, Mapping[str, str]]
"""When a run started, its machine and its versions."""

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


def _known(told: Mapping[str, _Told], first: Mapping[str, str]) -> dict[str, _Told]:
    """All runs, oldest first, also those of which there are only checks."""
    known: dict[str, _Told] = {run_id: (first[run_id], "", {}) for run_id in first} | dict(told)
    return {run_id: known[run_id] for run_id in sorted(known, key=lambda run_id: (known[run_id][0], run_id))}


def history_in(table: EvidenceTable) -> History:
    """Return the history of a folder that is in tables, once other people's results have left them."""
    ask = table.connection.execute
    told: dict[str, _Told] = {}
    for run_id, started_at, machine, versions in ask(
        "SELECT run_id, started_at, machine, versions FROM runs ORDER BY place"
    ).fetchall():
        told[run_id] = (started_at, machine, json.loads(versions))
    first = dict(ask("SELECT run_id, min(started_at) FROM checks GROUP BY run_id").fetchall())
    known = _known(told, first)
    ask(
        "CREATE OR REPLACE TEMP TABLE ordered AS SELECT unnest(?::VARCHAR[]) AS run_id, unnest(?::INTEGER[]) AS rank",
        [list(known), list(range(len(known)))],
    )
    ask(
        "CREATE OR REPLACE TEMP TABLE fared AS SELECT cell_id, rank, outcome, count(*) AS number "
        "FROM checks JOIN ordered USING (run_id) GROUP BY cell_id, rank, outcome"
    )
    totals = ask("SELECT rank, outcome, sum(number)::BIGINT FROM fared GROUP BY rank, outcome").fetchall()
    cells = ask(
        "SELECT cell_id, rank, outcome, number FROM fared "
        "QUALIFY dense_rank() OVER (PARTITION BY cell_id ORDER BY rank DESC) <= ?",
        [LAST_RUNS],
    ).fetchall()
    return _history(known, totals, cells)


def _history(
    known: Mapping[str, _Told], totals: Iterable[tuple[int, str, int]], cells: Iterable[tuple[str, int, str, int]]
) -> History:
    """`totals` and `cells` are counted by place of the run and outcome."""
    in_all: list[Counter[str]] = [Counter() for _ in known]
    for place, outcome, number in totals:
        in_all[place][outcome] += number
    fared: dict[str, dict[int, dict[str, int]]] = {}
    for cell, place, outcome, number in cells:
        fared.setdefault(cell, {}).setdefault(place, {})[outcome] = number
    return History(
        runs=tuple(
            PastRun(
                run_id=run_id,
                started_at=started_at,
                machine=machine,
                versions=versions,
                outcomes=_in_order(in_all[place]),
            )
            for place, (run_id, (started_at, machine, versions)) in enumerate(known.items())
        ),
        cells={
            cell: tuple((place, _in_order(by_run[place])) for place in sorted(by_run)[-LAST_RUNS:])
            for cell, by_run in sorted(fared.items())
        },
    )


def _in_order(outcomes: Mapping[str, int]) -> Mapping[str, int]:
    if len(outcomes) == 1:  # nearly always, and there are many
        return outcomes
    return {name: outcomes[name] for name in _ORDER if name in outcomes}
