"""The runs of a folder of evidence: the results of selected runs, and the outcomes of all.

A folder may hold a million lines: DuckDB selects, and only selected lines become objects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, TypeVar, cast

from .evidence_table import EvidenceTable, UnusualEvidenceError
from .record import CheckLine, Origin, Outcome, RunLine
from .store import BrokenLine, read_folder

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, kw_only=True)
class OutcomeTally:
    """Whether all results of a run and a cell passed, and whether any failed; the judge decides what that proves."""

    passed: bool
    failed: bool


class RunEvidence:
    """A folder's own runs by id, in the order of files and lines. Use it as a context manager.

    `foreign` are the ids of other projects' runs, which give no level, `lost` those of runs with check lines and no
    run line. Raises `BrokenInput` if there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: dict[str, RunLine] = {}
        self.foreign: frozenset[str] = frozenset()
        self.lost: frozenset[str] = frozenset()
        self._table: EvidenceTable | None = None

    def __enter__(self) -> RunEvidence:
        try:
            runs, ids = self._ask(self._read)
        except BaseException:
            self.close()
            raise
        others = {run.run_id for run in runs if run.origin is not Origin.HWCOMPAT}
        self.foreign = frozenset(others | {name for name, origin in ids if origin != Origin.HWCOMPAT})
        self.runs = {run.run_id: run for run in runs if run.run_id not in self.foreign}
        self.lost = frozenset({name for name, _ in ids} - self.foreign - set(self.runs))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the tables."""
        if self._table is not None:
            self._table.close()
            self._table = None

    @property
    def broken(self) -> tuple[BrokenLine, ...]:
        """The unreadable lines found so far."""
        return tuple(dict.fromkeys(self._table.broken if self._table else ()))

    def checks(self, *, runs: Collection[str] | None = None, cells: Collection[str] | None = None) -> list[CheckLine]:
        """Return the results of these cells in these runs, by default of all.

        Results of runs without a run line and of other projects are left out.
        """
        wanted = set(self.runs) if runs is None else set(self.runs).intersection(runs)
        return self._ask(lambda table: self._lines(table, wanted, cells))

    def tallies(self, cells: Collection[str]) -> dict[str, dict[str, OutcomeTally]]:
        """Return the outcomes of some cells by cell and run, without making objects of results."""
        failures = [str(outcome) for outcome in Outcome if outcome.is_failure]
        asked = (
            "SELECT cell_id, run_id, bool_and(outcome = 'passed'), "
            "bool_or(outcome IN (SELECT unnest(?::VARCHAR[]))) FROM checks "
            "WHERE cell_id IN (SELECT unnest(?::VARCHAR[])) GROUP BY cell_id, run_id"
        )
        rows = self._ask(lambda table: table.connection.execute(asked, [failures, sorted(cells)]).fetchall())
        found: dict[str, dict[str, OutcomeTally]] = {}
        for cell, run_id, passed, failed in rows:
            if run_id in self.runs:
                found.setdefault(cell, {})[run_id] = OutcomeTally(passed=bool(passed), failed=bool(failed))
        return found

    def _ask(self, question: Callable[[EvidenceTable], _Answer]) -> _Answer:
        """Answer a question from the tables, or from lines that Python read if DuckDB can't parse one of them."""
        import duckdb

        try:
            self._table = self._table or EvidenceTable(self.folder).__enter__()
            return question(self._table)
        except (UnusualEvidenceError, duckdb.Error):
            self.close()
            self._table = EvidenceTable(read_folder(self.folder)).__enter__()
            return question(self._table)

    @staticmethod
    def _lines(table: EvidenceTable, runs: Collection[str], cells: Collection[str] | None) -> list[CheckLine]:
        those = "" if cells is None else "AND cell_id IN (SELECT unnest(?::VARCHAR[]))"
        rows = table.connection.execute(
            f"SELECT place FROM checks WHERE run_id IN (SELECT unnest(?::VARCHAR[])) {those}",
            [sorted(runs), *([] if cells is None else [sorted(cells)])],
        ).fetchall()
        found = table.lines([place for (place,) in rows])
        return [cast(CheckLine, line) for _, line in sorted(found.items())]

    @staticmethod
    def _read(table: EvidenceTable) -> tuple[list[RunLine], set[tuple[str, str]]]:
        found = table.run_lines()
        ids = table.connection.execute("SELECT DISTINCT run_id, origin FROM checks").fetchall()
        return [line for _, line in sorted(found.items()) if isinstance(line, RunLine)], set(ids)


# The outcomes of earlier runs

LAST_RUNS = 12
"""The number of runs that are kept for each cell, the newest."""

CellHistory = tuple[tuple[int, Mapping[str, int]], ...]
"""The place of each run among all runs, and the number of lines of the cell by outcome."""


@dataclass(frozen=True, kw_only=True)
class PastRun:
    """One run: date, machine, versions, and the number of lines of evidence by outcome.

    A run without a run line has neither machine nor versions, and the date of its first check.
    """

    run_id: str
    started_at: str
    machine: str
    versions: Mapping[str, str]
    outcomes: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class History:
    """`runs` are all runs, oldest first. `cells` has, by cell, its last runs, oldest first. `unfinished` are cells,
    each with the place of a run in which a planned check has no result."""

    runs: tuple[PastRun, ...] = ()
    cells: Mapping[str, CellHistory] = field(default_factory=lambda: MappingProxyType({}))
    unfinished: frozenset[tuple[str, int]] = frozenset()


_KNOWN = """
CREATE OR REPLACE TEMP TABLE known AS SELECT *, row_number() OVER (ORDER BY started_at, run_id) - 1 AS rank FROM (
    SELECT run_id, arg_max(started_at, place) AS started_at, arg_max(machine, place) AS machine,
        arg_max(versions, place)::VARCHAR AS versions FROM runs GROUP BY run_id
    UNION ALL SELECT run_id, min(started_at), '', '{}' FROM checks ANTI JOIN runs USING (run_id) GROUP BY run_id);
CREATE OR REPLACE TEMP TABLE fared AS SELECT cell_id, rank, outcome, count(*) AS number
    FROM checks JOIN known USING (run_id) GROUP BY cell_id, rank, outcome;
"""

_CELLS = """
SELECT (cell_id, rank), outcome, number FROM fared
QUALIFY dense_rank() OVER (PARTITION BY cell_id ORDER BY rank DESC) <= $last
ORDER BY cell_id, rank, list_position($outcomes::VARCHAR[], outcome)
"""

_TOTALS = """
SELECT rank, outcome, sum(number)::BIGINT FROM fared GROUP BY rank, outcome
ORDER BY list_position($outcomes::VARCHAR[], outcome)
"""

_UNFINISHED = "SELECT cell_id, rank FROM suites JOIN known USING (run_id) WHERE NOT list_has_all(names, checks)"


def history_in(table: EvidenceTable) -> History:
    """Return the history of a folder in tables from which other projects' results were removed, after
    `reduce_checks`."""
    ask = table.connection.execute
    order = {"outcomes": [str(outcome) for outcome in Outcome]}
    ask(_KNOWN)
    totals = _counted(ask(_TOTALS, order).fetchall())
    runs = ask("SELECT rank, run_id, started_at, machine, versions FROM known ORDER BY rank").fetchall()
    cells: dict[str, list[tuple[int, Mapping[str, int]]]] = {}
    for (cell, rank), outcomes in _counted(ask(_CELLS, order | {"last": LAST_RUNS}).fetchall()).items():
        cells.setdefault(cell, []).append((rank, outcomes))
    return History(
        runs=tuple(
            PastRun(
                run_id=run_id,
                started_at=started_at,
                machine=machine,
                versions=json.loads(versions),
                outcomes=totals.get(rank, {}),
            )
            for rank, run_id, started_at, machine, versions in runs
        ),
        cells={cell: tuple(own) for cell, own in cells.items()},
        unfinished=frozenset(ask(_UNFINISHED).fetchall()),
    )


def _counted(rows: Iterable[tuple[Any, str, int]]) -> dict[Any, dict[str, int]]:
    """Return counts by outcome for each key, in the order of the rows."""
    found: dict[Any, dict[str, int]] = {}
    for key, outcome, number in rows:
        found.setdefault(key, {})[outcome] = number
    return found
