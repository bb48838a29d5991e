"""Read from evidence how a cell was run, so that it can be planned and run again in the same way."""

from __future__ import annotations

from generators.compatibility.verdict import Level
from hardware.cell import Cell
from hardware.evidence.store import Evidence
from hwcompat.plugins.study.refresh.expired_cells import ExpiredCell


def as_run_before(cell: Cell, evidence: Evidence | None, asked: str = "") -> ExpiredCell:
    """Return the cell with the runs that planned it, the newest first, and its lines; with `asked` those of that
    cell, whose model it is."""
    known = asked or cell.id
    lines = [line for line in evidence.checks if line.cell_id == known] if evidence else []
    runs = [run for run in evidence.runs if any(one.cell_id == known for one in run.plan)] if evidence else []
    newest = sorted(runs, key=lambda run: run.started_at, reverse=True)
    return ExpiredCell(cell=cell, level=Level.UNKNOWN, reasons=(), runs=tuple(newest), lines=tuple(lines))
