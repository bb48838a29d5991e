"""The latest results of a folder of evidence: the newest conclusive result of each check, with the newest plans.

DuckDB drops replaced results before any object is made (`reduce.py`); `latest_results` decides about the rest.
Evidence in memory takes the same way.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..cell import Cell, parsed
from ..errors import HwCompatError
from ..plain_values import data_frame
from ..software import is_installed
from .damage import contradicting_places, damaged_cells, wrong_ids
from .evidence_table import EvidenceTable, UnusualEvidenceError, as_unicode
from .record import CheckLine, Line, Origin, Outcome, PlannedCell, RunLine, latest_moment
from .reduce import (
    SETUP,
    SILENT,
    LinePlace,
    Plans,
    Reduced,
    alternating_places,
    newest_plans,
    other_modeling,
    plans_of,
    reduce_checks,
)
from .runs import History, history_in
from .store import BrokenLine, Evidence, read_folder

if TYPE_CHECKING:
    import pandas

_TRIES = 5
_MACHINES = 20
"""The number of machines that are described: those with the newest runs."""


@dataclass(frozen=True, kw_only=True)
class Latest:
    """The evidence in a folder that still counts.

    `checks` are the latest results in the order in which they were written; `planned` are those that their runs
    planned, as run, cell and check. `cells` are the ids of all cells in results and plans, `plans` the newest plan of
    each, `other_modeling` the runs and cells that were planned with other modeling files than the newest plan.
    `versions` and `machines` are by run. `others` are results of other projects' tests, `imported` results that
    others measured. `broken` are lines that can't be used. `damaged` are the cells that lost results, each with their
    runs, unless a later run measured them completely. `alternating` are the results of checks that both passed and
    failed: some may be flaky. `ahead` is True if something is dated in the future, so that the answer may change.

    With details: `predictions` are the verdicts stored with each cell's newest plan, `unfinished` the runs without an
    end, `history` all runs and the last ones of each cell, `runs` the newest run of each machine, newest first.
    """

    cells: frozenset[str] = frozenset()
    checks: tuple[CheckLine, ...] = ()
    planned: Collection[tuple[str, str, str]] = frozenset()
    plans: Mapping[str, PlannedCell] = field(default_factory=lambda: MappingProxyType({}))
    other_modeling: Collection[tuple[str, str]] = frozenset()
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    machines: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    others: Evidence = field(default_factory=Evidence)
    imported: tuple[CheckLine, ...] = ()
    broken: tuple[BrokenLine, ...] = ()
    damaged: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    alternating: tuple[CheckLine, ...] = ()
    ahead: bool = False
    predictions: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: MappingProxyType({}))
    unfinished: tuple[str, ...] = ()
    history: History = field(default_factory=History)
    runs: tuple[RunLine, ...] = ()

    def to_frame(self) -> pandas.DataFrame:
        """Return a table with a row for each of `checks`: the fields of `CheckLine`, and the `machine` of the run."""
        rows = ({**vars(one), "machine": self.machines.get(one.run_id)} for one in self.checks)
        return data_frame(rows, [*(one.name for one in fields(CheckLine)), "machine"])

    @functools.cached_property
    def cleared(self) -> Mapping[tuple[str, str | None], tuple[str, str]]:
        """When a user last ended the quarantine of a flaky cell, and why, by cell and machine; not in the future."""
        runs = sorted(self.others.other_runs, key=lambda run: run.started_at)
        past = [run for run in runs if run.started_at <= latest_moment(ahead_days=0)]
        return {(cell, run.machine): (run.started_at, why) for run in past for cell, why in run.cleared.items()}


def read_latest(
    source: Path | Evidence,
    *,
    cells: Collection[str] | None = None,
    details: bool = False,
) -> Latest:
    """Return the latest results of a folder, or of evidence in memory.

    `cells` limits the results to some cells. Raises `BrokenInput` if there is no such folder.
    """
    if not is_installed("duckdb"):
        raise HwCompatError("evidence can't be read", why="duckdb is not installed", fix="pip install duckdb")
    import duckdb

    if isinstance(source, Path):
        try:
            with EvidenceTable(source) as table:
                return latest_in(table, cells=cells, details=details)
        except (UnusualEvidenceError, duckdb.Error):  # DuckDB can't parse a line that Python may
            source = read_folder(source)
    with EvidenceTable(source) as table:
        return latest_in(table, cells=cells, details=details)


def latest_in(table: EvidenceTable, *, cells: Collection[str] | None = None, details: bool = False) -> Latest:
    """Return the latest results in the tables of a folder, and remove results of other projects from the tables.

    Raises `UnusualEvidenceError` if the tables don't agree with the lines.
    """
    others = _take_others(table)
    versions, machines = _runs(table)
    wrong = wrong_ids(table)

    def is_wanted(cell: str) -> bool:
        return cell not in wrong and (cells is None or cell in cells)

    reduced, lines = _reduced(table, is_wanted)
    newest = {cell: found for cell, found in newest_plans(table.connection).items() if is_wanted(cell)}
    named = {cell for (cell,) in table.connection.execute("SELECT DISTINCT cell_id FROM suites").fetchall()}
    damaged = damaged_cells(table)
    own = plans_of(table.connection, {row.run_id for row in reduced if row.place is None})
    checks = latest_results(_placed(own, reduced, lines))
    fetched = _fetched(checks)
    checks = tuple(line for line in checks if line.cell_id not in fetched)
    plans = {cell: plan for cell, (_, plan) in newest.items() if cell not in fetched}
    planned = {(row.run_id, row.where.cell_id, row.where.check_name) for row in reduced if row.where.planned}
    perhaps = [line for _, line in sorted(table.lines(alternating_places(table.connection)).items())]
    found = Latest(
        cells=frozenset(cell for cell in {*named, *newest, *damaged} - fetched if is_wanted(cell)),
        checks=checks,
        planned=frozenset(key for line in checks if (key := (line.run_id, line.cell_id, line.check_name)) in planned),
        plans=plans,
        other_modeling=other_modeling(table.connection),
        versions=versions,
        machines=machines,
        others=Evidence(
            other_runs=tuple(run for run in others.other_runs if run.origin is not Origin.IMPORTED),
            other_checks=tuple(line for line in others.other_checks if line.origin is not Origin.IMPORTED),
        ),
        imported=tuple(line for line in others.other_checks if line.origin is Origin.IMPORTED),
        broken=tuple(dict.fromkeys(table.broken)),
        damaged={cell: runs for cell, runs in damaged.items() if is_wanted(cell)},
        alternating=tuple(one for one in perhaps if isinstance(one, CheckLine) and is_wanted(one.cell_id)),
        ahead=_is_ahead(table),
    )
    return _with_details(found, table, {cell: newest[cell][0] for cell in plans}) if details else found


def _reduced(table: EvidenceTable, is_wanted: Callable[[str], bool]) -> tuple[list[Reduced], dict[int, Line]]:
    """Return the results that may count, and their lines by place. Lines that contradict themselves leave the
    tables."""
    for _ in range(_TRIES):
        reduced = [row for row in reduce_checks(table.connection) if is_wanted(row.where.cell_id)]
        wanted = [row.place for row in reduced if row.place is not None]
        lines = table.lines(wanted)
        gone = [place for place in wanted if place not in lines]
        gone += contradicting_places(table, lines, is_wanted)
        if not gone:
            return reduced, lines
        table.remove_checks(gone)
    raise UnusualEvidenceError("too many broken lines")


def _fetched(checks: Sequence[CheckLine]) -> frozenset[str]:
    """Return the cells of checkpoints that were missing and have since run under the name with their weights'
    hash."""
    missing = missing_since(checks)
    newest: dict[Cell, str] = {}
    for line in checks if missing else ():
        if (cell := parsed(line.cell_id)) is not None and cell.model != cell.label:
            asked = replace(cell, model=cell.label)
            newest[asked] = max(newest.get(asked, ""), line.started_at)
    return frozenset(cell.id for cell, moment in missing.items() if newest.get(cell, "") > moment)


def missing_since(checks: Iterable[CheckLine]) -> dict[Cell, str]:
    """Return when the checkpoint of each cell was last missing, by the cell as it was requested."""
    found: dict[Cell, str] = {}
    for line in checks:
        missing = line.outcome is Outcome.NOT_RUN and line.error_type == SETUP[0]
        if missing and (cell := parsed(line.cell_id)) is not None:
            found[cell] = max(found.get(cell, ""), line.started_at)
    return found


def _with_details(found: Latest, table: EvidenceTable, places: Mapping[str, int]) -> Latest:
    newest = [
        place
        for (place,) in table.connection.execute(
            "SELECT place FROM runs QUALIFY row_number() OVER (PARTITION BY machine ORDER BY started_at DESC, place) "
            "= 1 ORDER BY started_at DESC, place LIMIT ?",
            [_MACHINES],
        ).fetchall()
    ]
    lines = table.lines({*places.values(), *newest})
    if len(lines) != len({*places.values(), *newest}):
        raise UnusualEvidenceError("a run line is broken")
    predictions: dict[str, Mapping[str, object]] = {}
    for place in dict.fromkeys(places.values()):
        run = lines[place]
        for planned in run.plan if isinstance(run, RunLine) else ():
            if planned.verdict is not None and places.get(planned.cell_id) == place:
                predictions.setdefault(planned.cell_id, planned.verdict)
    return replace(
        found,
        predictions=predictions,
        unfinished=_unfinished(table),
        history=history_in(table),
        runs=tuple(run for place in newest if isinstance(run := lines[place], RunLine)),
    )


def _unfinished(table: EvidenceTable) -> tuple[str, ...]:
    """Return the runs without an end that no later run resumes: they are running or were killed."""
    runs = table.connection.execute(
        "SELECT run_id FROM runs ANTI JOIN ended USING (run_id) "
        "ANTI JOIN (SELECT unnest(resumes) AS run_id FROM runs) USING (run_id) ORDER BY place"
    ).fetchall()
    return tuple(run_id for (run_id,) in runs)


def _is_ahead(table: EvidenceTable) -> bool:
    moments = "SELECT started_at FROM checks UNION ALL SELECT started_at FROM runs"
    (found,) = table.connection.execute(
        f"SELECT count(*) FROM ({moments}) WHERE started_at > ?", [latest_moment()]
    ).fetchone() or (0,)
    return bool(found)


def _take_others(table: EvidenceTable) -> Evidence:
    """Remove the runs and checks of other projects from the tables, and return them."""
    rows = [
        table.connection.execute(f"SELECT place FROM {name} WHERE origin <> 'hwcompat'").fetchall()
        for name in ("runs", "checks")
    ]
    runs, checks = ([place for (place,) in places] for places in rows)
    lines = [line for _, line in sorted(table.lines([*runs, *checks]).items())]
    others = {line.run_id for line in lines if isinstance(line, RunLine)}
    table.damaged = [one for one in table.damaged if not (one.whole and one.run_id in others)]
    table.connection.execute("DELETE FROM runs WHERE origin <> 'hwcompat'")
    table.remove_checks(checks)
    return Evidence(
        other_runs=tuple(one for one in lines if isinstance(one, RunLine)),
        other_checks=tuple(one for one in lines if isinstance(one, CheckLine)),
    )


def _runs(table: EvidenceTable) -> tuple[dict[str, Mapping[str, str]], dict[str, str]]:
    """Return versions and machine of each run. Several lines of one run agree."""
    rows = table.connection.execute("SELECT run_id, versions, machine FROM runs ORDER BY place").fetchall()
    versions: dict[str, Mapping[str, str]] = {}
    for run_id, text, _ in rows:
        versions[run_id] = json.loads(text)
        if not all(isinstance(value, str) for value in versions[run_id].values()):
            raise UnusualEvidenceError("a version of a run isn't a string")
    return versions, {run_id: machine for run_id, _, machine in rows}


def _placed(
    plans: Plans, reduced: Sequence[Reduced], lines: Mapping[int, Line]
) -> Iterator[tuple[Reduced, CheckLine]]:
    for row in reduced:
        line = _missing(plans, row) if row.place is None else lines[row.place]
        where = row.where
        expected = (row.run_id, where.cell_id, where.check_name, where.target)
        if not isinstance(line, CheckLine) or expected != tuple(
            as_unicode(text) for text in (line.run_id, line.cell_id, line.check_name, line.requested_target)
        ):
            raise UnusualEvidenceError("a line differs from its table row")
        if as_unicode(line.accelerator or "") not in ("", row.accelerator):
            raise UnusualEvidenceError("a line has a different accelerator than its table row")
        yield row, line


def _missing(plans: Plans, row: Reduced) -> CheckLine | None:
    started_at, plan = plans[row.run_id, row.where.cell_id, row.where.check_name]
    return missing_result(row.run_id, started_at, plan, row.where.check_name)


def missing_result(run_id: str, started_at: str, planned: PlannedCell, check: str) -> CheckLine | None:
    """Return a `not_run` result for a planned check without a line, or None if the plan names no valid cell."""
    cell = parsed(planned.cell_id)
    if cell is None:
        return None
    return CheckLine(
        run_id=run_id,
        cell_id=planned.cell_id,
        check_name=check,
        outcome=Outcome.NOT_RUN,
        subject=planned.subject,
        requested_target=str(cell.target),
        actual_target=None,
        precision=cell.precision,
        model=cell.model,
        task=cell.task,
        suite_hash=planned.suite_hash,
        started_at=started_at,
        duration_s=0.0,
        error_type="not_reached",
        error_message="no result was recorded",
    )


def latest_results(placed: Iterable[tuple[Reduced, CheckLine]]) -> tuple[CheckLine, ...]:
    """Return the results that no later one replaces, given results in the order in which they were written.

    One result stays for each check, machine, target and accelerator. An interrupted run never hides an earlier
    result, and of two results of one run the worse one stays. A later result of the requested device replaces one of
    a substitute.
    """
    places: dict[LinePlace, dict[str, tuple[int, CheckLine]]] = {}
    for number, (row, line) in enumerate(placed):
        own = places.setdefault(row.where, {})
        if is_silent(line) and not all(is_silent(kept) for _, kept in own.values()):
            continue
        _, before = own.get(row.accelerator, (0, None))
        if before is not None and before.run_id == line.run_id and severity(before) > severity(line):
            continue
        for older in [name for name, (_, kept) in own.items() if not name or is_silent(kept)]:
            del own[older]
        own[row.accelerator] = (number, line)
    kept = sorted((pair for own in places.values() for pair in _not_replaced(own.values())), key=lambda pair: pair[0])
    return tuple(line for _, line in kept)


def _not_replaced(lines: Collection[tuple[int, CheckLine]]) -> Iterator[tuple[int, CheckLine]]:
    """Yield the numbered results of one place, without those of a substitute that the device's own results follow."""
    own = [number for number, one in lines if not one.substitution_reason and one.outcome is not Outcome.NOT_RUN]
    for number, one in lines:
        if not one.substitution_reason or number > max(own, default=-1):
            yield number, one


def worst_of_runs(lines: Sequence[CheckLine]) -> list[CheckLine]:
    """Return the results without those for which the same check, run and accelerator has a worse one.

    A check has two results if it passed and then failed in its teardown.
    """
    found: dict[tuple[str, str, str | None], int] = {}
    for line in lines:
        key = (line.run_id, line.check_name, line.accelerator)
        found[key] = max(found.get(key, 0), severity(line))
    return [line for line in lines if severity(line) == found[line.run_id, line.check_name, line.accelerator]]


def severity(line: CheckLine) -> int:
    """Return how bad a result is, from 0 for an inconclusive one to 4 for a failure."""
    if line.outcome.is_failure:
        return 4
    if line.outcome in (Outcome.AMBIGUOUS, Outcome.PASSED_ON_FALLBACK):
        return 3
    if line.outcome is Outcome.PASSED:
        return 1
    return 0 if is_silent(line) else 2


def is_silent(line: CheckLine) -> bool:
    """Whether a result only means that its check wasn't reached, or that the setup was wrong."""
    return line.error_type in SETUP or (line.outcome is Outcome.NOT_RUN and line.error_type in SILENT)
