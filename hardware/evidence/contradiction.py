"""What no check writes: a line that contradicts itself, its cell or its run."""

from __future__ import annotations

import functools
from collections.abc import Collection

from ..cell import Cell
from ..errors import HwCompatError, UsageError, echo
from ..plain_text import one_line
from ..target import Target
from .record import CheckLine, Outcome


@functools.lru_cache(maxsize=4096)
def cell_named(cell_id: str) -> Cell | None:
    """Return the cell of an id; None if its id is written otherwise: `cpu:0` is read as `cpu`, and no id has it."""
    try:
        cell = Cell.parse(cell_id)
    except HwCompatError:
        return None
    return cell if cell.id == cell_id else None


def contradiction(line: CheckLine, *, weights: Collection[str] = (), run_started_at: str = "") -> str:
    """Return how a line contradicts itself, its cell or its run; empty if it doesn't.

    `weights` are those that the run planned the cell with, empty if it planned none.
    """
    cell = cell_named(line.cell_id)
    if cell is None:
        return f"its cell_id {echo(line.cell_id)} is not the id of a cell"
    for name, value, own in (
        ("model", line.model, cell.model),
        ("task", line.task, cell.task),
        ("precision", line.precision, cell.precision),
    ):
        if value != own:
            return f"its {name} is {value!r}, and that of its cell is {own!r}"
    if not _means(line.requested_target, line.cell_id):
        return (
            f"its requested_target is {line.requested_target!r}, and the target of its cell is {str(cell.target)!r}"
        )
    if weights and line.subject not in weights:
        return f"its weights are {line.subject!r}, and its run planned {' or '.join(map(repr, sorted(weights)))}"
    for name, number in (("max_rel_error", line.max_rel_error), ("max_abs_error", line.max_abs_error)):
        if number is not None and number < 0:
            return f"its {name} is {number}, and none is negative"
    if line.native_ops and not any(line.native_ops.values()):
        return "its native_ops name operators, none of which ran"
    if line.outcome is Outcome.PASSED:
        for name in ("error_type", "stage", "traceback"):
            if getattr(line, name):
                return f"it passed, and its {name} is {one_line(getattr(line, name), longest=40)!r}"
    if line.started_at < run_started_at:
        return f"it is dated {line.started_at}, before its run, which started at {run_started_at}"
    return ""


@functools.lru_cache(maxsize=4096)
def _means(requested: str, cell_id: str) -> bool:
    """Whether a target is a cell's, on any of its devices."""
    try:
        return Target.parse(requested).kind == Cell.parse(cell_id).target
    except UsageError:
        return False
