"""What of a folder of evidence still counts: the lines that speak now, the newest plan of each cell, versions of
runs.

There are two ways to it that come to the same: `standing_of` goes over all lines as objects, `standing_in` lets
DuckDB leave out what later lines replace before any object is made.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from hardware.evidence.record import CheckLine, Line, PlannedCell, RunLine, latest_moment
from hardware.evidence.store import BrokenLine, Evidence, read_folder
from hardware.evidence.table import EvidenceTable, UnusualEvidenceError

from .current_checks import Placed, current_checks, never_ran, planned_checks, speaking
from .flaky import flaky_cells, perhaps_flaky
from .reduction import Reduced, newest_plans, plan_of, reduce_checks

_TRIES = 5


@dataclass(frozen=True, kw_only=True)
class Standing:
    """`checks` are the lines that speak now, `planned` names those that their runs planned: run, cell and check.

    `cells` are all cells that lines or plans name, `plans` the newest of each without what was sealed in it;
    `versions` and `machines` are by run. `others` holds what others' tests showed, and nothing else. `broken` are the
    broken lines that were come across: all of them, but those that later ones replace and whose columns are whole.
    `flaky` names the runs in which a cell passed and failed though nothing differed, by cell.
    `ahead` says that something is dated so far ahead that it isn't believed yet, and may be another day.
    """

    cells: frozenset[str]
    checks: tuple[CheckLine, ...]
    planned: Collection[tuple[str, str, str]]
    plans: Mapping[str, PlannedCell]
    versions: Mapping[str, Mapping[str, str]]
    machines: Mapping[str, str]
    others: Evidence
    broken: tuple[BrokenLine, ...] = ()
    flaky: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    ahead: bool = False


def standing_of(evidence: Evidence, checks: Sequence[CheckLine] | None = None) -> Standing:
    """What still counts of evidence; `checks` are the lines that speak now, where somebody found them already."""
    plans: dict[str, PlannedCell] = {}
    for run in sorted(evidence.runs, key=lambda run: run.started_at, reverse=True):
        for one in run.plan:
            plans.setdefault(one.cell_id, one)
    planned = planned_checks(evidence)
    speaking_now = tuple(current_checks(evidence) if checks is None else checks)
    versions = {run.run_id: run.versions for run in evidence.runs}
    machines = {run.run_id: run.machine for run in evidence.runs}
    return Standing(
        cells=frozenset({line.cell_id for line in evidence.checks} | set(plans)),
        checks=speaking_now,
        planned=frozenset(key for line in speaking_now if (key := _key(line)) in planned),
        plans={cell: replace(plan, verdict=None, selection=None) for cell, plan in plans.items()},
        versions=versions,
        machines=machines,
        others=_others(evidence.other_runs, evidence.other_checks),
        broken=evidence.broken,
        flaky=flaky_cells((line for line in evidence.checks if _key(line) in planned), versions, machines),
        ahead=any(moment > latest_moment() for moment in _moments(evidence)),
    )


def _moments(evidence: Evidence) -> Iterator[str]:
    yield from (line.started_at for line in evidence.checks)
    yield from (run.started_at for run in evidence.runs)


def _key(line: CheckLine) -> tuple[str, str, str]:
    return line.run_id, line.cell_id, line.check_name


def _others(runs: Sequence[RunLine], checks: Sequence[CheckLine]) -> Evidence:
    return Evidence(runs=(), checks=(), ends=(), broken=(), other_runs=tuple(runs), other_checks=tuple(checks))


def standing_in(folder: Path) -> Standing:
    """What still counts of a folder's evidence. Raises `BrokenInput` where there is no such folder."""
    import duckdb

    try:
        with EvidenceTable(folder) as table:
            return standing_from(table)
    except (UnusualEvidenceError, duckdb.Error):  # what DuckDB takes otherwise than Python: then Python has it
        return standing_of(read_folder(folder))


def standing_from(table: EvidenceTable) -> Standing:
    """What still counts of a folder that stands in tables; what others' tests showed leaves them.

    Raises `UnusualEvidenceError` where the tables can't be believed.
    """
    others = _others(*_taken_out(table))
    versions, machines = _runs(table)
    for _ in range(_TRIES):
        reduced = reduce_checks(table.connection)
        wanted = [row.place for row in reduced if row.place is not None]
        lines = table.lines(wanted)
        if len(lines) == len(wanted):
            break
        table.remove_checks([place for place in wanted if place not in lines])
    else:
        raise UnusualEvidenceError("line upon line is broken")
    plans = newest_plans(table.connection)
    named = table.connection.execute("SELECT DISTINCT cell_id FROM suites").fetchall()
    checks = _speaking(table, reduced, lines)
    planned = {(row.run_id, row.where.cell_id, row.where.check_name) for row in reduced if row.where.planned}
    perhaps = table.lines(perhaps_flaky(table.connection)).values()
    flaky = flaky_cells((line for line in perhaps if isinstance(line, CheckLine)), versions, machines)
    return Standing(
        cells=frozenset({cell for (cell,) in named} | set(plans)),
        checks=checks,
        planned=frozenset(key for line in checks if (key := _key(line)) in planned),
        plans=plans,
        versions=versions,
        machines=machines,
        others=others,
        broken=tuple(table.broken),
        flaky=flaky,
        ahead=_any_ahead(table),
    )


def _any_ahead(table: EvidenceTable) -> bool:
    moments = "SELECT started_at FROM checks UNION ALL SELECT started_at FROM runs"
    (found,) = table.connection.execute(
        f"SELECT count(*) FROM ({moments}) WHERE started_at > ?", [latest_moment()]
    ).fetchone() or (0,)
    return bool(found)


def _taken_out(table: EvidenceTable) -> tuple[list[RunLine], list[CheckLine]]:
    """The runs and checks of others' tests, which leave the table."""
    table.connection.execute(
        "CREATE TEMP TABLE others AS SELECT DISTINCT run_id FROM (SELECT run_id, origin FROM runs UNION ALL "
        "SELECT run_id, origin FROM checks) WHERE origin <> 'hwcompat'"
    )
    runs, checks = (
        [
            place
            for (place,) in table.connection.execute(
                f"SELECT place FROM {name} SEMI JOIN others USING (run_id)"
            ).fetchall()
        ]
        for name in ("runs", "checks")
    )
    found = table.lines([*runs, *checks])
    table.connection.execute("DELETE FROM runs WHERE run_id IN (SELECT run_id FROM others)")
    table.remove_checks(checks)
    lines = [line for _, line in sorted(found.items())]
    return [one for one in lines if isinstance(one, RunLine)], [one for one in lines if isinstance(one, CheckLine)]


def _runs(table: EvidenceTable) -> tuple[dict[str, Mapping[str, str]], dict[str, str]]:
    """Versions and machine of each run; of two lines of one run the last counts."""
    rows = table.connection.execute("SELECT run_id, versions, machine FROM runs ORDER BY place").fetchall()
    versions: dict[str, Mapping[str, str]] = {}
    for run_id, text, _ in rows:
        versions[run_id] = json.loads(text)
        if not all(isinstance(value, str) for value in versions[run_id].values()):
            raise UnusualEvidenceError("the versions of a run are no texts")
    return versions, {run_id: machine for run_id, _, machine in rows}


def _speaking(table: EvidenceTable, reduced: Sequence[Reduced], lines: Mapping[int, Line]) -> tuple[CheckLine, ...]:
    placed: list[Placed] = []
    for row in reduced:
        line = _never(table, row) if row.place is None else lines[row.place]
        if not isinstance(line, CheckLine) or not _is_said_of(row, line):
            raise UnusualEvidenceError("a line isn't what the table says")
        placed.append(Placed(place=row.where, accelerator=row.accelerator, line=line))
    return speaking(placed)


def _is_said_of(row: Reduced, line: CheckLine) -> bool:
    where = row.where
    said = (row.run_id, where.cell_id, where.check_name, where.target)
    accelerator = line.accelerator in (None, "", row.accelerator)
    return accelerator and said == (line.run_id, line.cell_id, line.check_name, line.requested_target)


def _never(table: EvidenceTable, row: Reduced) -> CheckLine | None:
    started_at, plan = plan_of(table.connection, row.run_id, row.where.cell_id, row.where.check_name)
    return never_ran(row.run_id, started_at, plan, row.where.check_name)
