"""Which lines of evidence speak now: the newest of each check, and a `not_run` for what never came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hardware.cell import Cell
from hardware.errors import HwCompatError
from hardware.evidence.record import CheckLine, Outcome, PlannedCell, RunLine
from hardware.evidence.store import Evidence

_SILENT = ("not_reached", "interrupted")


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a check was asked: a later line of the same place replaces an earlier one.

    `planned` is False where the run didn't plan the check or its run line is missing: such lines are worth less, so
    they replace none that are whole. `target` has the device's index: cuda:1 speaks not of cuda:0.
    """

    machine: str
    target: str
    planned: bool
    cell_id: str
    check_name: str


def current_checks(evidence: Evidence) -> tuple[CheckLine, ...]:
    """One line for each check, machine and accelerator: the newest that says something.

    A run that was cut off never hides what an earlier one showed, and of two lines of one run the worse one
    stays. One that is dated after now replaces none. Order: that of the first lines.
    """
    machines = {run.run_id: run.machine for run in evidence.runs}
    planned = planned_checks(evidence)
    accelerators = _accelerators(evidence.checks)
    places: dict[_Place, dict[str, CheckLine]] = {}
    for line in sorted((*evidence.checks, *_never_came(evidence)), key=_spoken_at):
        place = _Place(
            machine=machines.get(line.run_id, ""),
            target=line.requested_target,
            planned=(line.run_id, line.cell_id, line.check_name) in planned,
            cell_id=line.cell_id,
            check_name=line.check_name,
        )
        own = places.setdefault(place, {})
        if line.outcome is Outcome.NOT_RUN and line.error_type in _SILENT and own:
            continue
        accelerator = line.accelerator or accelerators.get((line.run_id, line.cell_id), "")
        before = own.get(accelerator)
        if before is not None and before.run_id == line.run_id and severity(before) > severity(line):
            continue
        for older in [name for name, kept in own.items() if not name or _is_silent(kept)]:
            del own[older]
        own[accelerator] = line
    return tuple(line for own in places.values() for line in own.values())


def _spoken_at(line: CheckLine) -> str:
    return "" if line.is_to_come else line.started_at


def planned_checks(evidence: Evidence) -> frozenset[tuple[str, str, str]]:
    """What was planned: run, cell and check."""
    return frozenset(
        (run.run_id, cell.cell_id, check) for run in evidence.runs for cell in run.plan for check in cell.checks
    )


def worst_of_runs(lines: Sequence[CheckLine]) -> list[CheckLine]:
    """The lines without those that another line of the same check, run and accelerator is worse than.

    A check has two lines where it passed and then failed when it was torn down.
    """
    found: dict[tuple[str, str, str | None], int] = {}
    for line in lines:
        key = (line.run_id, line.check_name, line.accelerator)
        found[key] = max(found.get(key, 0), severity(line))
    return [line for line in lines if severity(line) == found[line.run_id, line.check_name, line.accelerator]]


def severity(line: CheckLine) -> int:
    """How much a line takes away from a pass; one that says nothing takes away nothing."""
    if line.outcome.is_failure:
        return 4
    if line.outcome in (Outcome.AMBIGUOUS, Outcome.PASSED_ON_FALLBACK):
        return 3
    if line.outcome is Outcome.PASSED:
        return 1
    return 0 if _is_silent(line) else 2


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
