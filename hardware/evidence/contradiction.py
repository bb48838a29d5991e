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

    `weights` are those that its run planned, empty if that isn't known.
    """
    cell = cell_named(line.cell_id)
    if cell is None:
        return f"its cell_id {echo(line.cell_id)} is not the id of a cell"
    if line.model != cell.model:
        return f"its model is {line.model!r}, and that of its cell is {cell.model!r}"
    if line.task != cell.task:
        return f"its task is {line.task!r}, and that of its cell is {cell.task!r}"
    if line.precision != cell.precision:
        return f"its precision is {line.precision!r}, and that of its cell is {cell.precision!r}"
    if not _means(line.requested_target, line.cell_id):
        return f"its requested_target is {line.requested_target!r}, and its cell's target is {str(cell.target)!r}"
    if weights and line.subject not in weights:
        return f"its weights are {line.subject!r}, and its run planned {' or '.join(map(repr, sorted(weights)))}"
    if line.max_rel_error is not None and line.max_rel_error < 0:
        return f"its max_rel_error is {line.max_rel_error}, and no error is negative"
    if line.native_ops and not any(line.native_ops.values()):
        return "its native_ops name operators, none of which ran"
    if line.outcome is Outcome.PASSED and (error := line.error_type or line.stage or line.traceback):
        return f"it passed, and has an error type, a stage or a traceback: {one_line(error, longest=40)}"
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
