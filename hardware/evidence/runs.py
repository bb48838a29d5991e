"""The runs of a folder of evidence, and the results of a few of them: a folder may hold a million lines.

DuckDB tells lines apart, and only those that are asked for become objects.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from .record import CheckLine, Origin, Outcome, RunLine
from .store import BrokenLine, read_folder
from .table import EvidenceTable, UnusualEvidenceError


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Whether all results of a run and a cell passed, and whether any failed; the judge says what that proves."""

    passed: bool
    failed: bool


class RunEvidence:
    """A folder's own runs by id, each once, in the order of files and lines; used as a context.

    `foreign` are the ids of others' tests, which make no level, `lost` those of runs of which there are lines of
    checks and none of the run itself. Raises `BrokenInput` where there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: dict[str, RunLine] = {}
        self.foreign: frozenset[str] = frozenset()
        self.lost: frozenset[str] = frozenset()
        self._table: EvidenceTable | None = None

    def __enter__(self) -> RunEvidence:
        import duckdb

        try:
            try:
                self._table = EvidenceTable(self.folder).__enter__()
                runs, ids = self._read(self._table)
            except (UnusualEvidenceError, duckdb.Error):
                runs, ids = self._read(self._as_objects())
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
        """Give back what the tables hold."""
        if self._table is not None:
            self._table.close()
            self._table = None

    @property
    def broken(self) -> tuple[BrokenLine, ...]:
        """The unreadable lines that were met so far."""
        return tuple(dict.fromkeys(self._table.broken if self._table else ()))

    def checks(self, *, runs: Collection[str] | None = None, cells: Collection[str] | None = None) -> list[CheckLine]:
        """Return the results of these cells in these runs; None stands for all.

        Results of runs without a line of their own, and of other people's tests, are left out.
        """
        import duckdb

        wanted = set(self.runs) if runs is None else set(self.runs).intersection(runs)
        try:
            return self._lines(self._open(), wanted, cells)
        except (UnusualEvidenceError, duckdb.Error):
            return self._lines(self._as_objects(), wanted, cells)

    def tallies(self, cells: Collection[str]) -> dict[str, dict[str, Tally]]:
        """Return how the results of some cells came out, by cell and run, without making objects of them."""
        failures = [str(outcome) for outcome in Outcome if outcome.is_failure]
        rows = (
            self._open()
            .connection.execute(
                "SELECT cell_id, run_id, bool_and(outcome = 'passed'), "
                "bool_or(outcome IN (SELECT unnest(?::VARCHAR[]))) FROM checks "
                "WHERE cell_id IN (SELECT unnest(?::VARCHAR[])) GROUP BY cell_id, run_id",
                [failures, sorted(cells)],
            )
            .fetchall()
        )
        found: dict[str, dict[str, Tally]] = {}
        for cell, run_id, passed, failed in rows:
            if run_id in self.runs:
                found.setdefault(cell, {})[run_id] = Tally(passed=bool(passed), failed=bool(failed))
        return found

    def _open(self) -> EvidenceTable:
        if self._table is None:
            raise RuntimeError("the evidence was closed")
        return self._table

    @staticmethod
    def _lines(table: EvidenceTable, runs: Collection[str], cells: Collection[str] | None) -> list[CheckLine]:
        those = "" if cells is None else "AND cell_id IN (SELECT unnest(?::VARCHAR[]))"
        rows = table.connection.execute(
            f"SELECT place FROM checks WHERE run_id IN (SELECT unnest(?::VARCHAR[])) {those}",
            [sorted(runs), *([] if cells is None else [sorted(cells)])],
        ).fetchall()
        found = table.lines([place for (place,) in rows])
        return [line for _, line in sorted(found.items()) if isinstance(line, CheckLine)]

    @staticmethod
    def _read(table: EvidenceTable) -> tuple[list[RunLine], set[tuple[str, str]]]:
        found = table.run_lines()
        ids = table.connection.execute("SELECT DISTINCT run_id, origin FROM checks").fetchall()
        return [line for _, line in sorted(found.items()) if isinstance(line, RunLine)], set(ids)

    def _as_objects(self) -> EvidenceTable:
        """Fill the tables from lines that Python read: DuckDB can't parse one of them."""
        self.close()
        self._table = EvidenceTable(read_folder(self.folder)).__enter__()
        return self._table
