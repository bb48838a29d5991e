"""Drop replaced results of a folder in DuckDB, before any object is made.

The rules are those of `latest.latest_results`, which decides about the rest. Of a check in one place and on one
accelerator only the last consecutive results of one run can count, because a result of another run replaces all
before it. If all results only say that a check wasn't reached, the last one counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..cell import parsed
from .columns import PLAN_NAMES
from .record import Outcome, PlannedCell, latest_moment

if TYPE_CHECKING:
    import duckdb

SILENT = ("not_reached", "interrupted", "disk_full")
"""Error types of `not_run` that only mean that a check wasn't reached, or couldn't run at that time."""

SETUP = ("weights_missing", "missing_dependency")
"""Error types of a setup mistake, which doesn't concern the device: such a result hides no other."""

_IS_INCONCLUSIVE = f"(error_type IN {SETUP} OR outcome = 'not_run' AND error_type IN {SILENT})"

_LAST = 1 << 62
"""The number of results that were never written: they follow all others of the same moment."""

_PLAN = ", ".join(PLAN_NAMES)
_ONE_OF_PLAN = ", ".join(f"one.{name} AS {name}" for name in PLAN_NAMES)

Plans = dict[tuple[str, str, str], tuple[str, PlannedCell]]
"""The start of a run and its plan for a cell, by run, cell and check."""

_BROKE = (Outcome.FAILED, Outcome.CRASHED)
"""Outcomes that a cell causes by itself. Time and memory also run out on a machine with other work."""

_BOTH = f"bool_or(outcome = 'passed') AND bool_or(outcome IN {tuple(str(one) for one in _BROKE)})"

# Plans are joined only for cells with a check that both passed and broke, which are few.
_ALTERNATING = f"""
WITH mixed AS MATERIALIZED (
    SELECT DISTINCT cell_id FROM (SELECT cell_id FROM checks GROUP BY cell_id, check_name HAVING {_BOTH})),
results AS MATERIALIZED (
    SELECT place, cell_id, check_name, machine, suite_hash, outcome
    FROM (SELECT * FROM checks SEMI JOIN mixed USING (cell_id)) JOIN machines USING (run_id)
    JOIN (SELECT DISTINCT run_id, cell_id, suite_hash, unnest(checks) AS check_name
            FROM plans SEMI JOIN mixed USING (cell_id)) USING (run_id, cell_id, check_name)),
alternating AS (
    SELECT DISTINCT cell_id FROM (SELECT cell_id FROM results GROUP BY cell_id, check_name, machine, suite_hash
    HAVING {_BOTH}))
SELECT DISTINCT place FROM results SEMI JOIN alternating USING (cell_id) ORDER BY place
"""

_SUITES = f"""
CREATE OR REPLACE TEMP TABLE machines AS
    SELECT run_id, arg_max(machine, place) AS machine FROM runs GROUP BY run_id;
CREATE OR REPLACE TEMP TABLE plans AS
    SELECT run_id, started_at, place, position, {_ONE_OF_PLAN}
    FROM (SELECT run_id, started_at, place, unnest(plan) AS one, generate_subscripts(plan, 1) AS position FROM runs);
CREATE OR REPLACE TEMP TABLE counted AS
    SELECT run_id, cell_id, any_value(checks) AS checks, count(*) AS plans FROM plans GROUP BY run_id, cell_id;
CREATE OR REPLACE TEMP TABLE planned AS
    SELECT run_id, cell_id, checks FROM counted WHERE plans = 1 UNION ALL
    SELECT run_id, cell_id, list_distinct(flatten(list(plans.checks))) FROM plans
    SEMI JOIN (SELECT * FROM counted WHERE plans > 1) USING (run_id, cell_id) GROUP BY run_id, cell_id;
CREATE OR REPLACE TEMP TABLE suites AS
    SELECT *, coalesce(checks = names, false) AS is_whole FROM (
        SELECT run_id, cell_id, list(check_name) AS names, min(started_at) AS first, max(started_at) AS last,
            min(requested_target) AS target, min(requested_target) = max(requested_target) AS one_target,
            min(accelerator) AS accelerator,
            count(accelerator) = count(*) AND min(accelerator) = max(accelerator) AS one_accelerator,
            bool_or({_IS_INCONCLUSIVE}) AS is_unreached,
            coalesce(arg_max(accelerator, place) FILTER (WHERE accelerator <> ''), '') AS named
        FROM checks GROUP BY run_id, cell_id)
    LEFT JOIN planned USING (run_id, cell_id) LEFT JOIN machines USING (run_id);
"""

# A suite that ran as planned is replaced by a later one with its checks on the same machine and accelerator:
# then each of its lines has a later one of another run. A suite is all lines of its run and cell.
_LATER = """
CREATE OR REPLACE TEMP TABLE newest AS
    SELECT machine, target, cell_id, accelerator, max(first) AS newest, arg_max(checks, first) AS newer_checks
    FROM suites
    WHERE is_whole AND one_target AND one_accelerator AND accelerator <> '' AND NOT is_unreached AND last <= $latest
    GROUP BY machine, target, cell_id, accelerator;
"""

_KEPT = """
CREATE OR REPLACE TEMP TABLE kept AS
    SELECT suites.* FROM suites LEFT JOIN newest USING (machine, target, cell_id, accelerator)
    WHERE newest IS NULL OR NOT (is_whole AND one_target AND one_accelerator AND last <= $latest AND last < newest
        AND list_has_all(newer_checks, suites.checks));
"""

_NEVER = """
CREATE OR REPLACE TEMP TABLE never AS
    SELECT plans.*, coalesce(named, '') AS named, unnest(list_filter(plans.checks,
        lambda one: names IS NULL OR NOT list_contains(names, one))) AS check_name
    FROM plans LEFT JOIN suites USING (run_id, cell_id)
    WHERE is_whole IS DISTINCT FROM true;
"""

_NUMBERED = f"""
CREATE OR REPLACE TEMP TABLE numbered AS
    SELECT *, row_number() OVER (ORDER BY dated, place) AS rank FROM (
        SELECT place, run_id, cell_id, check_name, requested_target AS target, coalesce(machine, '') AS machine,
            coalesce(list_contains(kept.checks, check_name), false) AS planned,
            CASE WHEN c.accelerator <> '' THEN c.accelerator ELSE named END AS accelerator,
            {_IS_INCONCLUSIVE} AS unreached,
            CASE WHEN started_at > $latest THEN '' ELSE started_at END AS dated
        FROM checks AS c JOIN kept USING (run_id, cell_id)
        UNION ALL
        SELECT {_LAST} + row_number() OVER (ORDER BY place, position, list_position(checks, check_name)), run_id,
            cell_id, check_name, target, coalesce(machine, ''), true, named, true,
            CASE WHEN started_at > $latest THEN '' ELSE started_at END
        FROM never JOIN targets USING (cell_id) LEFT JOIN machines USING (run_id));
"""

_REDUCED = """
CREATE OR REPLACE TEMP TABLE grouped AS
    SELECT *, max(last_any) OVER kind AS last_place, bool_or(is_conclusive) OVER kind AS place_is_conclusive
    FROM (SELECT machine, target, planned, cell_id, check_name, accelerator, min(rank) AS first_any,
            max(rank) AS last_any,
            bool_or(NOT unreached) AS is_conclusive, arg_max(run_id, rank) FILTER (WHERE NOT unreached) AS last_run
        FROM numbered GROUP BY machine, target, planned, cell_id, check_name, accelerator)
    WINDOW kind AS (PARTITION BY machine, target, planned, cell_id, check_name);
CREATE OR REPLACE TEMP TABLE candidates AS
    SELECT numbered.*, first_any, last_place, place_is_conclusive, last_run FROM numbered JOIN grouped
        USING (machine, target, planned, cell_id, check_name, accelerator);
CREATE OR REPLACE TEMP TABLE before AS
    SELECT first_any, max(rank) AS last_other FROM candidates WHERE NOT unreached AND run_id <> last_run
    GROUP BY first_any;
"""

_LATEST_RESULTS = """
SELECT place, run_id, cell_id, check_name, target, machine, planned, accelerator
FROM candidates LEFT JOIN before USING (first_any)
WHERE (NOT unreached AND rank > coalesce(last_other, -1)) OR (NOT place_is_conclusive AND rank = last_place)
ORDER BY rank
"""


@dataclass(frozen=True, kw_only=True)
class LinePlace:
    """Where a check ran: a later result of the same place replaces an earlier one.

    `planned` is False if the run didn't plan the check or its run line is missing: such results replace no planned
    ones. `target` includes the device's index: a result of `cuda:1` isn't one of `cuda:0`.
    """

    machine: str
    target: str
    planned: bool
    cell_id: str
    check_name: str


@dataclass(frozen=True, kw_only=True)
class Reduced:
    """One result that may count: `place` is the number of its line, None for a planned check without a line.
    `accelerator` is the one in the line, or else in the run's other results of the cell."""

    place: int | None
    run_id: str
    where: LinePlace
    accelerator: str


def reduce_checks(connection: duckdb.DuckDBPyConnection) -> list[Reduced]:
    """Return the results of the table `checks` that may count, over the plans of the table `runs`, as written."""
    latest = {"latest": latest_moment()}
    connection.execute(_SUITES)
    connection.execute(_LATER, latest)
    connection.execute(_KEPT, latest)
    connection.execute(_NEVER)
    cells = [cell for (cell,) in connection.execute("SELECT DISTINCT cell_id FROM never").fetchall()]
    targets = {id_: str(cell.target) for id_ in cells if (cell := parsed(id_))}
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE targets AS "
        "SELECT unnest(?::VARCHAR[]) AS cell_id, unnest(?::VARCHAR[]) AS target",
        [list(targets), list(targets.values())],
    )
    connection.execute(_NUMBERED, latest)
    connection.execute(_REDUCED)
    rows = connection.execute(_LATEST_RESULTS).fetchall()
    return [
        Reduced(
            place=place if place < _LAST else None,
            run_id=run_id,
            where=LinePlace(machine=machine, target=target, planned=planned, cell_id=cell_id, check_name=check),
            accelerator=accelerator,
        )
        for place, run_id, cell_id, check, target, machine, planned, accelerator in rows
    ]


def _planned(row: Sequence[Any]) -> PlannedCell:
    values = dict(zip(PLAN_NAMES, row, strict=True))
    return PlannedCell(**(values | {"checks": tuple(values["checks"]), "modeling": values["modeling"] or ""}))


def _newest() -> str:
    """Return the clause that keeps the newest plan of each cell. A run dated in the future comes after all others."""
    order = f"started_at > '{latest_moment()}', started_at DESC, place, position"
    return f"QUALIFY row_number() OVER (PARTITION BY cell_id ORDER BY {order}) = 1"


def newest_plans(connection: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, PlannedCell]]:
    """Return the newest plan of each cell, without its stored prediction, with the place of its run line; after
    `reduce_checks`."""
    rows = connection.execute(f"SELECT place, {_PLAN} FROM plans {_newest()} ORDER BY cell_id").fetchall()
    plans = [(place, _planned(values)) for place, *values in rows]
    return {plan.cell_id: (place, plan) for place, plan in plans}


def other_modeling(connection: duckdb.DuckDBPyConnection) -> frozenset[tuple[str, str]]:
    """Return the runs and cells that were planned with other modeling files than the cell's newest plan, as far as
    recorded; call it after `reduce_checks`."""
    newest = f"SELECT cell_id, modeling AS newest FROM plans {_newest()}"
    found = connection.execute(
        f"SELECT DISTINCT run_id, cell_id FROM plans JOIN ({newest}) "
        "USING (cell_id) WHERE modeling <> '' AND newest <> '' AND modeling <> newest"
    )
    return frozenset(found.fetchall())


def plans_of(connection: duckdb.DuckDBPyConnection, run_ids: Collection[str]) -> Plans:
    """Return, by run, cell and check, when some runs started and their first plan for the cell with the check; call
    it after `reduce_checks`."""
    rows = connection.execute(
        f"SELECT run_id, started_at, {_PLAN} FROM plans WHERE run_id IN (SELECT unnest(?)) ORDER BY place, position",
        [sorted(run_ids)],
    ).fetchall()
    found: Plans = {}
    for run_id, started_at, *values in rows:
        plan = _planned(values)
        for check in plan.checks:
            found.setdefault((run_id, plan.cell_id, check), (started_at, plan))
    return found


def alternating_places(connection: duckdb.DuckDBPyConnection) -> list[int]:
    """Return the places of planned results of cells that may be flaky, by their columns; after `reduce_checks`."""
    return [place for (place,) in connection.execute(_ALTERNATING).fetchall()]
