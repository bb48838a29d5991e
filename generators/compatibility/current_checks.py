"""Which lines of evidence speak now: the newest of each check, and a `not_run` for what never came."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from hardware.cell import Cell
from hardware.errors import HwCompatError
from hardware.evidence.record import CheckLine, Outcome, PlannedCell
from hardware.evidence.store import Evidence

SILENT = ("not_reached", "interrupted", "disk_full")
"""Error types of `not_run` that tell only that a check wasn't come to, or couldn't be carried out here and now."""


@dataclass(frozen=True, kw_only=True)
class Place:
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
    stays. One that is dated after now replaces none. Order: that in which they were spoken.
    """
    machines = {run.run_id: run.machine for run in evidence.runs}
    planned = planned_checks(evidence)
    accelerators = _accelerators(evidence.checks)
    placed = (
        Placed(
            place=Place(
                machine=machines.get(line.run_id, ""),
                target=line.requested_target,
                planned=(line.run_id, line.cell_id, line.check_name) in planned,
                cell_id=line.cell_id,
                check_name=line.check_name,
            ),
            accelerator=line.accelerator or accelerators.get((line.run_id, line.cell_id), ""),
            line=line,
        )
        for line in sorted((*evidence.checks, *_never_came(evidence)), key=_spoken_at)
    )
    return speaking(placed)


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A line with its place, and the accelerator that it, or else its run's other lines of the cell, name."""

    place: Place
    accelerator: str
    line: CheckLine


def speaking(placed: Iterable[Placed]) -> tuple[CheckLine, ...]:
    """Of lines in the order in which they were spoken, those that none replaces.

    That a device isn't here is replaced by a later line of the same place that the device itself wrote.
    """
    places: dict[Place, dict[str, tuple[int, CheckLine]]] = {}
    for number, one in enumerate(placed):
        line, accelerator = one.line, one.accelerator
        own = places.setdefault(one.place, {})
        if is_silent(line) and own:
            continue
        _, before = own.get(accelerator, (0, None))
        if before is not None and before.run_id == line.run_id and severity(before) > severity(line):
            continue
        for older in [name for name, (_, kept) in own.items() if not name or is_silent(kept)]:
            del own[older]
        own[accelerator] = (number, line)
    kept = sorted((pair for own in places.values() for pair in _still_said(own.values())), key=lambda pair: pair[0])
    return tuple(line for _, line in kept)


def _still_said(lines: Collection[tuple[int, CheckLine]]) -> Iterator[tuple[int, CheckLine]]:
    """The numbered lines of one place without those of a substitute that an own line came after."""
    own = [number for number, one in lines if not one.substitution_reason and one.outcome is not Outcome.NOT_RUN]
    for number, one in lines:
        if not one.substitution_reason or number > max(own, default=-1):
            yield number, one


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
    return 0 if is_silent(line) else 2


def is_silent(line: CheckLine) -> bool:
    """Whether a line tells only that its check wasn't come to."""
    return line.outcome is Outcome.NOT_RUN and line.error_type in SILENT


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
        if (run.run_id, cell.cell_id, check) not in there
        and (line := never_ran(run.run_id, run.started_at, cell, check)) is not None
    ]


def never_ran(run_id: str, started_at: str, planned: PlannedCell, check: str) -> CheckLine | None:
    """The line for a planned check of which no line tells; None where the plan names no cell."""
    try:
        cell = Cell.parse(planned.cell_id)
    except HwCompatError:  # a plan that names no cell plans nothing; other lines of the run still count
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
        error_message="no line of evidence tells what became of it",
    )
