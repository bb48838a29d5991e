"""Verdicts from results that somebody else measured and published."""

from __future__ import annotations

from collections.abc import Iterable

from hardware.cell import Cell
from hardware.errors import HwCompatError
from hardware.evidence.record import CheckLine, Outcome
from hardware.evidence.store import lines_by_cell

from .fault import route_of
from .grade import check_reason
from .verdict import Basis, Level, Reason, Verdict, once


def imported_verdicts(lines: Iterable[CheckLine]) -> dict[str, Verdict]:
    """Return a verdict for each cell that imported results name: `medium` if all passed, since nobody compared the
    numbers with our reference; `unsupported` if all failed, `low` if some did. Other outcomes say nothing."""
    found: dict[str, Verdict] = {}
    for id_, own in lines_by_cell(lines).items():
        told = [line for line in own if line.outcome.is_failure or line.outcome is Outcome.PASSED]
        try:
            cell = Cell.parse(id_)
        except HwCompatError:  # reported as broken evidence
            continue
        if told:
            found[cell.id] = _verdict(cell, told)
    return found


def _verdict(cell: Cell, lines: list[CheckLine]) -> Verdict:
    failed = [line for line in lines if line.outcome.is_failure]
    level = Level.MEDIUM if not failed else Level.UNSUPPORTED if len(failed) == len(lines) else Level.LOW
    sources = once(
        Reason.of("imported", source=line.conditions.get("source"), accelerator_name=line.accelerator)
        for line in lines
    )
    return Verdict(
        cell=cell.id,
        level=level,
        basis=Basis.IMPORTED,
        route=route_of(cell, lines),
        weights_run=lines[0].subject,
        reasons=(*(check_reason(line) for line in failed), *sources),
        conditions=sources,
        evidence_ids=tuple(dict.fromkeys(line.evidence_id for line in lines)),
    )
