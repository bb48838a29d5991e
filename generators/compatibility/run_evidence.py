"""The runs of a folder of evidence, and the lines of a few of them: a folder may hold a million.

DuckDB tells lines apart, and only those that are asked for become objects; what it takes otherwise than Python is
read as objects, as in `standing`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from hardware.evidence.record import CheckLine, Origin, Outcome, RunLine
from hardware.evidence.store import BrokenLine, Evidence, read_folder
from hardware.evidence.table import EvidenceTable, UnusualEvidenceError


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Whether all lines of a run and a cell are of passes, and whether any is of a failure: what they prove is for
    `showings` to say."""

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
        self._objects: Evidence | None = None

    def __enter__(self) -> RunEvidence:
        import duckdb

        try:
            self._table = EvidenceTable(self.folder).__enter__()
            runs, ids = self._in_table(self._table)
        except (UnusualEvidenceError, duckdb.Error):
            runs, ids = self._in_objects(self._as_objects())
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
        """The broken lines that were come across so far."""
        found = self._objects.broken if self._objects else self._table.broken if self._table else ()
        return tuple(dict.fromkeys(found))

    def checks(self, *, runs: Collection[str] | None = None, cells: Collection[str] | None = None) -> list[CheckLine]:
        """The lines of these cells in these runs; None stands for all. Those of runs without a line of their own, and
        of others' tests, are left out."""
        import duckdb

        wanted = set(self.runs) if runs is None else set(self.runs).intersection(runs)
        if self._table is not None:
            try:
                return self._lines(self._table, wanted, cells)
            except (UnusualEvidenceError, duckdb.Error):
                self._as_objects()
        found = [line for line in self._as_objects().checks if line.run_id in wanted]
        return found if cells is None else [line for line in found if line.cell_id in cells]

    def tallies(self, cells: Collection[str]) -> dict[str, dict[str, Tally]]:
        """How the lines of each run tell of some cells, by cell and run, without a line becoming an object."""
        failures = [str(outcome) for outcome in Outcome if outcome.is_failure]
        if self._table is not None:
            rows = self._table.connection.execute(
                "SELECT cell_id, run_id, bool_and(outcome = 'passed'), "
                "bool_or(outcome IN (SELECT unnest(?::VARCHAR[]))) FROM checks "
                "WHERE cell_id IN (SELECT unnest(?::VARCHAR[])) GROUP BY cell_id, run_id",
                [failures, sorted(cells)],
            ).fetchall()
            told = {
                (cell, run_id): Tally(passed=bool(passed), failed=bool(failed))
                for cell, run_id, passed, failed in rows
            }
        else:
            told = {}
            for line in self._as_objects().checks:
                if line.cell_id in cells:
                    key = (line.cell_id, line.run_id)
                    before = told.get(key, Tally(passed=True, failed=False))
                    told[key] = Tally(
                        passed=before.passed and line.outcome is Outcome.PASSED,
                        failed=before.failed or line.outcome.is_failure,
                    )
        found: dict[str, dict[str, Tally]] = {}
        for (cell, run_id), tally in told.items():
            if run_id in self.runs:
                found.setdefault(cell, {})[run_id] = tally
        return found

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
    def _in_table(table: EvidenceTable) -> tuple[list[RunLine], set[tuple[str, str]]]:
        found = table.run_lines()
        ids = table.connection.execute("SELECT DISTINCT run_id, origin FROM checks").fetchall()
        return [line for _, line in sorted(found.items()) if isinstance(line, RunLine)], set(ids)

    @staticmethod
    def _in_objects(evidence: Evidence) -> tuple[list[RunLine], set[tuple[str, str]]]:
        ids = {(line.run_id, str(line.origin)) for line in (*evidence.checks, *evidence.other_checks)}
        return [*evidence.runs, *evidence.other_runs], ids

    def _as_objects(self) -> Evidence:
        self.close()
        if self._objects is None:
            self._objects = read_folder(self.folder)
        return self._objects
