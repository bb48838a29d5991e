"""Find lines that contradict themselves, and the cells that lost results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from ..cell import Cell, parsed
from ..errors import UsageError, echo
from ..plain_text import one_line
from ..target import Target
from .record import CheckLine, Line, Outcome, latest_moment
from .store import Damage

if TYPE_CHECKING:
    from .evidence_table import EvidenceTable

_BEGAN = "(SELECT run_id, min(started_at) AS began FROM runs GROUP BY run_id)"

_DAMAGED = f"""
WITH given AS (
    SELECT unnest($runs::VARCHAR[]) AS run_id, unnest($until::VARCHAR[]) AS until,
        unnest($cells::VARCHAR[][]) AS cells, unnest($whole::BOOLEAN[]) AS whole),
named AS (
    SELECT run_id, until, unnest(cells) AS cell_id FROM given UNION
    SELECT run_id, until, cell_id FROM given JOIN plans USING (run_id) WHERE whole UNION
    SELECT run_id, until, cell_id FROM given JOIN suites USING (run_id) WHERE whole),
lost AS (
    SELECT run_id, cell_id, max(greatest(until, coalesce(began, ''))) AS until
    FROM named LEFT JOIN {_BEGAN} USING (run_id) GROUP BY run_id, cell_id),
measured AS (
    SELECT cell_id, first, machine FROM suites ANTI JOIN lost USING (run_id, cell_id)
    WHERE list_has_all(names, checks) AND NOT is_unreached AND last <= $latest)
SELECT cell_id, list(run_id ORDER BY run_id) FROM lost LEFT JOIN machines USING (run_id)
WHERE NOT EXISTS (SELECT 1 FROM measured WHERE measured.cell_id = lost.cell_id AND first > until
    AND (machines.machine IS NULL OR measured.machine = machines.machine))
GROUP BY cell_id ORDER BY cell_id
"""


def damaged_cells(table: EvidenceTable) -> dict[str, tuple[str, ...]]:
    """Return the cells that lost results, each with the runs that lost them.

    A cell that a later run of the same machine measured completely, as planned, isn't damaged.
    """
    given = table.damaged
    if not given:
        return {}
    values = {
        "runs": [one.run_id for one in given],
        "until": [one.until for one in given],
        "cells": [sorted(one.cells) for one in given],
        "whole": [one.whole for one in given],
        "latest": latest_moment(),
    }
    return {cell: tuple(runs) for cell, runs in table.connection.execute(_DAMAGED, values).fetchall()}


def wrong_ids(table: EvidenceTable) -> frozenset[str]:
    """Return the cell ids that aren't in canonical form: their lines are broken, and their plans are ignored."""
    rows = table.connection.execute(
        "SELECT cell_id, min(place) FROM (SELECT cell_id, place FROM checks UNION ALL "
        "SELECT unnest(plan).cell_id, place FROM runs) GROUP BY cell_id ORDER BY cell_id"
    ).fetchall()
    wrong = {str(cell): place for cell, place in rows if cell_named(str(cell)) is None}
    for cell, place in wrong.items():
        table.note(place, f"{echo(cell)} is not the id of a cell")
    return frozenset(wrong)


def contradicting_places(
    table: EvidenceTable, lines: Mapping[int, Line], is_wanted: Callable[[str], bool]
) -> list[int]:
    """Return the places of lines that contradict themselves, their cell or their run, and note the lost results.

    `lines` are the results that may count. A cell with one such line is read completely, since more may be hidden
    below it; so is a cell with a result that is dated before its run.
    """
    dated_back = table.connection.execute(
        f"SELECT DISTINCT cell_id FROM checks JOIN {_BEGAN} USING (run_id) WHERE started_at < began"
    ).fetchall()
    doubtful = {line.cell_id for _, line, _ in _contradicting(table, lines)}
    doubtful |= {cell for (cell,) in dated_back if is_wanted(cell)}
    if not doubtful:
        return []
    table.connection.execute(
        "CREATE OR REPLACE TEMP TABLE doubtful AS SELECT unnest(?::VARCHAR[]) AS cell_id", [sorted(doubtful)]
    )
    places = table.connection.execute("SELECT place FROM checks SEMI JOIN doubtful USING (cell_id)").fetchall()
    found = list(_contradicting(table, table.lines(place for (place,) in places)))
    for place, line, why in found:
        table.note(place, f"{line.evidence_id}: {why}")
        lost = Damage(run_id=line.run_id, until=line.started_at, cells=frozenset({line.cell_id}), whole=False)
        table.damaged.append(lost)
    return [place for place, _, _ in found]


def _contradicting(table: EvidenceTable, lines: Mapping[int, Line]) -> Iterator[tuple[int, CheckLine, str]]:
    """Yield each line that contradicts itself, with its place and the reason."""
    ask = table.connection.execute
    began = dict(ask(f"FROM {_BEGAN}").fetchall())
    least = "SELECT run_id, min(subject) AS least, max(subject) AS most FROM plans GROUP BY run_id"
    by_run = {run_id: (one, other) for run_id, one, other in ask(least).fetchall()}
    mixed = ask(  # few plans have several weights
        "SELECT run_id, cell_id, min(subject), max(subject) FROM plans "
        f"SEMI JOIN (FROM ({least}) WHERE least <> most) USING (run_id) GROUP BY run_id, cell_id"
    ).fetchall()
    by_cell = {(run_id, cell): (one, other) for run_id, cell, one, other in mixed}
    for place, line in lines.items():
        if isinstance(line, CheckLine):
            weights = by_run.get(line.run_id, ())
            if by_cell:
                weights = by_cell.get((line.run_id, line.cell_id), weights)
            if why := contradiction(line, weights=weights, run_started_at=began.get(line.run_id, "")):
                yield place, line, why


# One line


cell_named = functools.lru_cache(maxsize=4096)(parsed)
"""Return the cell of an id, or None if the id isn't in canonical form: `cpu:0` is parsed as `cpu`."""


def contradiction(line: CheckLine, *, weights: Collection[str] = (), run_started_at: str = "") -> str:
    """Return how a line contradicts itself, its cell or its run, or an empty text.

    `weights` are the weights that its run planned, empty if unknown.
    """
    cell = cell_named(line.cell_id)
    if cell is None:
        return f"its cell_id {echo(line.cell_id)} is not the id of a cell"
    for name in ("model", "task", "precision"):
        if (own := getattr(line, name)) != (its := getattr(cell, name)):
            return f"its {name} is {own!r}, but its cell's {name} is {its!r}"
    if not _means(line.requested_target, line.cell_id):
        return f"its requested_target is {line.requested_target!r}, but its cell's target is {str(cell.target)!r}"
    if weights and line.subject not in weights:
        return f"its weights are {line.subject!r}, but its run planned {' or '.join(map(repr, sorted(weights)))}"
    if line.max_rel_error is not None and line.max_rel_error < 0:
        return f"its max_rel_error is negative: {line.max_rel_error}"
    if line.native_ops and not any(line.native_ops.values()):
        return "its native_ops list operators, but all counts are 0"
    if line.outcome is Outcome.PASSED and (error := line.error_type or line.stage or line.traceback):
        return f"it passed, but has an error type, a stage or a traceback: {one_line(error, longest=40)}"
    if line.started_at < run_started_at:
        return f"it is dated {line.started_at}, before the start of its run at {run_started_at}"
    return ""


@functools.lru_cache(maxsize=4096)
def _means(requested: str, cell_id: str) -> bool:
    """Whether a requested target is that of a cell, with any device index."""
    try:
        return Target.parse(requested).kind == Cell.parse(cell_id).target
    except UsageError:
        return False
