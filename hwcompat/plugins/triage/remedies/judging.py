"""What came of a try: judged from its lines as the cell's own would be, and never as a measurement of the cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from generators.compatibility.expiry import Expiry
from generators.compatibility.grade import check_reason
from generators.compatibility.judge import judge_cell, required_checks
from generators.compatibility.verdict import Level, Verdict, Words
from hardware.cell import Cell
from hardware.changes import CHANGED
from hardware.evidence.record import CheckLine, Outcome, PlannedCell, RunLine

from .remedy import Step


class State(StrEnum):
    """What came of a try. `turned`: every check that was asked passed on the target that it ran on. `better`: a
    higher level than without it, but not that. `not_applicable`: it would have changed nothing here."""

    TURNED = "turned"
    BETTER = "better"
    FAILS = "fails"
    NOT_APPLICABLE = "not_applicable"
    NOT_RUN = "not_run"


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a child left: the run's line, the plan of its one cell, and its check lines; empty where it left none."""

    run: RunLine | None = None
    plan: PlannedCell | None = None
    lines: tuple[CheckLine, ...] = ()
    problem: str = ""

    @property
    def first_failure(self) -> CheckLine | None:
        """The first check, in the order of the suite, that was tried and didn't pass."""
        order = self.plan.checks if self.plan else ()
        failed = [line for line in self.lines if line.outcome.is_failure]
        return min(
            failed, key=lambda line: order.index(line.check_name) if line.check_name in order else 99, default=None
        )


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A try and what came of it. `error_type` and `why` tell of what still fails; `evidence` is the folder that it
    left, `run_id` the run in it."""

    step: Step
    state: State
    level: Level
    error_type: str
    why: str
    conditions: tuple[str, ...]
    evidence: str
    run_id: str
    seconds: float


def verdict_of_run(cell: Cell, run: Run, leaves_out: Sequence[str] = ()) -> Verdict:
    """The level that the lines of one run show for `cell`, by the rules of every cell.

    Checks in `leaves_out` are neither asked nor required. Lines under a changed condition make `medium` at most:
    `levels.toml` limits them.
    """
    if run.run is None or run.plan is None:
        return judge_cell(cell, (), (), expiry=Expiry(cell=cell, now={}, then={}))
    planned = [name for name in run.plan.checks if name not in leaves_out]
    return judge_cell(
        cell,
        planned,
        [line for line in run.lines if line.check_name not in leaves_out],
        expiry=Expiry.of_run(cell, run.run),
        weights_asked=run.plan.subject,
        required=[name for name in required_checks(cell) if name not in leaves_out],
    )


def judge_try(
    step: Step, run: Run, before: Level, check: str, *, evidence: str, seconds: float, words: Words
) -> Tried:
    """What a try showed, for a cell that had the level `before` and whose first failed check was `check`.

    It turned the cell only where its lines say under which condition they were measured, and where `check` was asked
    again: a target that can't be asked whether it decodes doesn't turn what failed in decoding.
    """
    verdict = verdict_of_run(step.cell, run, step.remedy.leaves_out)
    failure = run.first_failure
    skipped = next((line for line in run.lines if line.error_type == "not_applicable"), None)
    state = State.FAILS
    if not run.lines or all(line.outcome is Outcome.NOT_RUN for line in run.lines):
        state = State.NOT_RUN
    elif verdict.level in (Level.HIGH, Level.MEDIUM):
        state = _state_of_pass(step, run, check)
    elif failure is None and verdict.level is Level.UNKNOWN:
        state = State.NOT_APPLICABLE if skipped is not None else State.NOT_RUN
    elif (verdict.level.rank or 0) > (before.rank or 0):
        state = State.BETTER
    not_asked = f"{check} can't be asked there" if state is State.BETTER and failure is None else ""
    why = run.problem or not_asked or ("" if state is State.TURNED else _why(failure or skipped, verdict, words))
    return Tried(
        step=step,
        state=state,
        level=verdict.level,
        error_type=failure.error_type if failure else "",
        why=why,
        conditions=(*map(words, verdict.conditions), *_left_out(step, run)),
        evidence=evidence,
        run_id=run.run.run_id if run.run else "",
        seconds=seconds,
    )


def _left_out(step: Step, run: Run) -> tuple[str, ...]:
    planned = run.plan.checks if run.plan else ()
    return tuple(
        f"{name} was skipped: this fix gives up what it checks" for name in step.remedy.leaves_out if name in planned
    )


def _state_of_pass(step: Step, run: Run, check: str) -> State:
    if not _tells_its_change(step, run):
        return State.NOT_RUN
    asked = run.plan is not None and check in run.plan.checks
    return State.TURNED if asked else State.BETTER


def _tells_its_change(step: Step, run: Run) -> bool:
    changed = step.changes.text
    return all(line.conditions.get(CHANGED, "") == changed for line in run.lines)


def _why(line: CheckLine | None, verdict: Verdict, words: Words) -> str:
    if line is not None:
        return words(check_reason(line))
    return words(verdict.reasons[0]) if verdict.reasons else "it left no line of evidence"


def smallest(tried: Sequence[Tried]) -> Tried | None:
    """The smallest change that turned the cell; of two alike the one that was tried first."""
    turned = [one for one in tried if one.state is State.TURNED]
    return min(turned, key=lambda one: one.step.remedy.size, default=None)


def worth_trying(step: Step, tried: Sequence[Tried]) -> bool:
    """Once a change turned the cell, only a smaller one is worth a try."""
    found = smallest(tried)
    return found is None or step.remedy.size < found.step.remedy.size
