"""Which lines of evidence speak now: the newest of each check, and a `not_run` for what never came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hardware.cell import Cell
from hardware.errors import HwCompatError
from hardware.evidence.record import CheckLine, Outcome, PlannedCell, RunLine
from hardware.evidence.store import Evidence

_SILENT = ("not_reached", "interrupted")


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a check was asked: a later line of the same place replaces an earlier one."""

    machine: str
    cell_id: str
    check_name: str


def current_checks(evidence: Evidence) -> tuple[CheckLine, ...]:
    """One line for each check, machine and accelerator: the newest that says something.

    A run that was cut off never hides what an earlier one showed. Order: that of the first lines.
    """
    machines = {run.run_id: run.machine for run in evidence.runs}
    accelerators = _accelerators(evidence.checks)
    places: dict[_Place, dict[str, CheckLine]] = {}
    for line in sorted((*evidence.checks, *_never_came(evidence)), key=lambda line: line.started_at):
        machine = machines.get(line.run_id, "")
        place = _Place(machine=machine, cell_id=line.cell_id, check_name=line.check_name)
        own = places.setdefault(place, {})
        if line.outcome is Outcome.NOT_RUN and line.error_type in _SILENT and own:
            continue
        accelerator = line.accelerator or accelerators.get((line.run_id, line.cell_id), "")
        for older in [name for name, kept in own.items() if not name or _is_silent(kept)]:
            del own[older]
        own[accelerator] = line
    return tuple(line for own in places.values() for line in own.values())


def _is_silent(line: CheckLine) -> bool:
    return line.outcome is Outcome.NOT_RUN and line.error_type in _SILENT


def _accelerators(checks: Iterable[CheckLine]) -> dict[tuple[str, str], str]:
    """The accelerator that a run's lines of a cell name: what a parent wrote for a dead child names none."""
    return {(line.run_id, line.cell_id): line.accelerator for line in checks if line.accelerator}


def _never_came(evidence: Evidence) -> list[CheckLine]:
    """Lines for what a run planned and nobody wrote, because the run was killed or its file is missing."""
    there = {(line.run_id, line.cell_id, line.check_name) for line in evidence.checks}
    return [
        line
        for run in evidence.runs
        for cell in run.plan
        for check in cell.checks
        if (run.run_id, cell.cell_id, check) not in there and (line := _not_run(run, cell, check)) is not None
    ]


def _not_run(run: RunLine, planned: PlannedCell, check: str) -> CheckLine | None:
    try:
        cell = Cell.parse(planned.cell_id)
    except HwCompatError:  # a plan that names no cell plans nothing; other lines of the run still count
        return None
    return CheckLine(
        run_id=run.run_id,
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
        started_at=run.started_at,
        duration_s=0.0,
        error_type="not_reached",
        error_message="no line of evidence tells what became of it",
    )
