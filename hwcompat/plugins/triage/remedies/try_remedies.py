"""Try the remedies of a failing cell, each in a child process with an environment and a folder of its own.

The results are judged as the cell's own would be, and never count as a measurement of the cell. Run as a module, this
is the child: it measures one cell, unchanged or under the change that its environment names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from hwcompat.generators.compatibility.expiry import Expiry
from hwcompat.generators.compatibility.grade import check_reason
from hwcompat.generators.compatibility.judge import judge_cell
from hwcompat.generators.compatibility.required_checks import required_checks
from hwcompat.generators.compatibility.rules import load_rules
from hwcompat.generators.compatibility.verdict import Level, Verdict
from hwcompat.generators.run import suite_environment, write_suites
from hwcompat.hardware.applied_fix import CHANGED, VARIABLE
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.detection import detect
from hwcompat.hardware.errors import HwCompatError
from hwcompat.hardware.evidence.record import CheckLine, Outcome, PlannedCell, RunLine
from hwcompat.hardware.evidence.store import read_folder
from hwcompat.hardware.files import writing
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.process import NoAnswer, answer, ask, with_product
from hwcompat.hardware.testing.runner import Limits, default_memory_limit
from hwcompat.hardware.testing.session import run_session
from hwcompat.hardware.testing.suite_file import read_suite
from hwcompat.plugins.study.refresh.expired_cells import as_run_before
from hwcompat.plugins.study.refresh.locate_suite import plan_again
from hwcompat.reports.error_patterns import Around, identify
from hwcompat.reports.reason_text import reason_text

from .remedy import RemedyStep, failure_of, steps_for

BASELINE = "as_it_is"
"""The folder of the run without any change, with which each cell begins."""

_EVIDENCE, _LOG = "evidence", "log.txt"
_WORKS = (Level.HIGH, Level.MEDIUM)


class TrialState(StrEnum):
    """The result of a try. `FIXED`: every check passed on the target that it ran on. `BETTER`: a higher level than
    without the change, but not fixed. `NOT_APPLICABLE`: the change has no effect here."""

    FIXED = "turned"  # stored results have this name
    BETTER = "better"
    FAILS = "fails"
    NOT_APPLICABLE = "not_applicable"
    NOT_RUN = "not_run"


STATE_TEXT = {
    TrialState.FIXED: "fixed",
    TrialState.BETTER: "better, not fixed",
    TrialState.FAILS: "still fails",
    TrialState.NOT_APPLICABLE: "no effect here",
    TrialState.NOT_RUN: "not measured",
}


@dataclass(frozen=True, kw_only=True)
class RemedyRun:
    """Evidence that a child wrote: the run's line, the plan of its one cell, and its check lines; empty if it wrote
    none."""

    run: RunLine | None = None
    plan: PlannedCell | None = None
    lines: tuple[CheckLine, ...] = ()
    problem: str = ""

    @property
    def first_failure(self) -> CheckLine | None:
        """Return the first check, in the order of the suite, that ran and didn't pass."""
        order = {name: place for place, name in enumerate(self.plan.checks)} if self.plan else {}
        failed = [line for line in self.lines if line.outcome.is_failure]
        return min(failed, key=lambda line: order.get(line.check_name, len(order)), default=None)


@dataclass(frozen=True, kw_only=True)
class TriedRemedy:
    """A tried remedy and its result. `error_type` and `why` describe what still fails; `evidence` is the folder that
    it wrote, `run` the id of the run in it."""

    step: RemedyStep
    state: TrialState
    level: Level
    error_type: str
    why: str
    conditions: tuple[str, ...]
    evidence: str
    run: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CellTried:
    """A requested cell: its level and failure without a change, and the result of each remedy, in order.

    `failure` is the kind of failure, by its id in the data, with its `reason`; empty if nothing failed. `problem`
    says why it could not be measured at all.
    """

    cell: Cell
    level: Level
    check: str = ""
    error_type: str = ""
    why: str = ""
    failure: str = ""
    reason: str = ""
    problem: str = ""
    tried: tuple[TriedRemedy, ...] = ()
    not_tried: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Whether it works unchanged, so that no remedy is needed."""
        return self.level in _WORKS

    @property
    def smallest(self) -> TriedRemedy | None:
        """Return the smallest change that fixed it."""
        return smallest(self.tried)


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """How children run: the `folder` of this run, the user's `evidence` folder (read only; None: none), the `command`
    for evidence, seconds for one check (None: the target's own) and for one child."""

    folder: Path
    evidence: Path | None
    command: str
    timeout_s: float | None = None
    child_s: float = 1800.0


def try_cell(
    cell: Cell,
    place: Workplace,
    *,
    here: Sequence[str],
    on_note: Callable[[str], None] = lambda _text: None,
    known: RemedyRun | None = None,
    first_is_enough: bool = False,
) -> CellTried:
    """Measure `cell` unchanged, then with each remedy that applies, until no smaller remedy is left.

    `here` are the targets of this machine. `known` is an unchanged run of the cell that need not be repeated; with
    `first_is_enough` no smaller change is tried after one that fixed it. The environment and the files of the user
    stay unchanged.
    """
    started = time.monotonic()
    run = known or _run_cell(cell, cell, place, place.folder / cell.slug / BASELINE, {})
    verdict = verdict_of_run(cell, run)
    failure = run.first_failure
    if failure is None or verdict.level in _WORKS:
        problem = run.problem or (reason_text(verdict.reasons[0]) if verdict.reasons else "nothing was measured")
        return CellTried(cell=cell, level=verdict.level, problem="" if verdict.level.is_supported else problem)
    around = Around(
        check=failure.check_name,
        stage=failure.stage or "",
        target=failure.actual_target or failure.requested_target,
        precision=failure.precision,
    )
    error_type = identify(
        failure.error_message, recorded=failure.error_type, log=failure.traceback, around=around
    ).error_type
    why = reason_text(check_reason(failure))
    on_note(f"{cell.id} baseline: {why} ({time.monotonic() - started:.0f} s)")
    tried: list[TriedRemedy] = []
    left: list[str] = []
    for step in steps_for(cell, failure, error_type, here=here, environment=os.environ):
        if not worth_trying(step, tried) or (first_is_enough and smallest(tried)):
            left.append(step.id)
            continue
        tried.append(_try(step, cell, place, verdict.level, failure.check_name))
        on_note(f"{cell.id} {step.id}: {STATE_TEXT[tried[-1].state]} {tried[-1].why} ({tried[-1].seconds:.0f} s)")
    kind = failure_of(cell, failure, error_type, os.environ)
    return CellTried(
        cell=cell,
        level=verdict.level,
        check=failure.check_name,
        error_type=error_type,
        why=why,
        failure=kind.id,
        reason=kind.reason,
        tried=tuple(tried),
        not_tried=tuple(left),
    )


def smallest(tried: Sequence[TriedRemedy]) -> TriedRemedy | None:
    """Return the smallest change that fixed the cell; of two equal ones the one that was tried first."""
    fixed = [one for one in tried if one.state is TrialState.FIXED]
    return min(fixed, key=lambda one: one.step.remedy.size, default=None)


def worth_trying(step: RemedyStep, tried: Sequence[TriedRemedy]) -> bool:
    """Whether to try a remedy: after a change fixed the cell, only a smaller one is worth it."""
    found = smallest(tried)
    return found is None or step.remedy.size < found.step.remedy.size


# Running


def _try(step: RemedyStep, asked: Cell, place: Workplace, before: Level, check: str) -> TriedRemedy:
    folder = place.folder / asked.slug / step.id.replace(":", "_")
    started = time.monotonic()
    run = _run_cell(step.cell, asked, place, folder, {**step.remedy.environment, VARIABLE: step.changes.text})
    seconds = time.monotonic() - started
    return judge_try(step, run, before, check, evidence=str(folder / _EVIDENCE), seconds=seconds)


def _run_cell(cell: Cell, asked: Cell, place: Workplace, folder: Path, variables: Mapping[str, str]) -> RemedyRun:
    """Measure `cell` in a child and return its evidence."""
    with writing(f"{folder} cannot be written", fix="Run in another folder."):
        folder.mkdir(parents=True, exist_ok=True)
    task = {
        "cell": cell.id,
        "asked": asked.id,
        "evidence": str(place.evidence.resolve()) if place.evidence else "",
        "folder": str(folder.resolve()),
        "command": place.command,
        "timeout_s": place.timeout_s,
    }
    problem = run_child(task, child_environment(os.environ, variables), folder / _LOG, place.child_s)
    try:
        found = read_folder(folder / _EVIDENCE)
    except HwCompatError:
        return RemedyRun(problem=problem or "the child wrote no evidence")
    run = max((*found.runs, *found.other_runs), key=lambda one: one.started_at, default=None)
    if run is None:
        return RemedyRun(problem=problem or "the child wrote no evidence")
    plan = next((one for one in run.plan if one.cell_id == cell.id), None)
    lines = (line for line in (*found.checks, *found.other_checks) if line.run_id == run.run_id)
    return RemedyRun(
        run=run, plan=plan, lines=tuple(line for line in lines if line.cell_id == cell.id), problem=problem
    )


def child_environment(own: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return `own` with `variables` set, without those whose value is empty, and without an earlier change."""
    found = {name: value for name, value in own.items() if name != VARIABLE and name not in variables}
    return with_product({**found, **{name: value for name, value in variables.items() if value}})


def run_child(task: Mapping[str, Any], environment: Mapping[str, str], log: Path, limit_s: float) -> str:
    """Run `measure` in a child, which is killed with all its processes after `limit_s` seconds; return why it failed,
    or an empty text."""
    try:
        ask(__name__, task, limit_s=limit_s, environment=environment, log=log)
    except (NoAnswer, HwCompatError) as error:
        return one_line(str(error))
    return ""


def measure(*, cell: str, asked: str, evidence: str, folder: str, command: str, timeout_s: float | None) -> None:
    """Plan, write and run the suite of `cell` in `folder`, in the child.

    The path of the model is that of the requested cell `asked` in the user's `evidence` (empty: none). Raises
    `ModelError` and the like if there is none.
    """
    inventory = detect()
    known = as_run_before(Cell.parse(cell), read_folder(Path(evidence)) if evidence else None, asked)
    planned = plan_again(known, (), (), load_rules(), inventory)
    (written,) = write_suites([planned], Path(folder) / "suites", force=True)
    suite = read_suite(written.path)
    assert suite is not None  # it was rendered just now
    os.environ.update(suite_environment([written.planned]))
    run_session(
        [suite],
        [suite.planned(planned.verdict.to_dict())],
        inventory,
        evidence=Path(folder) / _EVIDENCE,
        command=command,
        limits=Limits(timeout_s=timeout_s, memory_bytes=default_memory_limit()),
        jobs=1,
    )


# Judging


def verdict_of_run(cell: Cell, run: RemedyRun, leaves_out: Sequence[str] = ()) -> Verdict:
    """Return the level of `cell` by the lines of one run and the rules of every cell.

    Checks in `leaves_out` are neither run nor required. Lines under a changed condition give `medium` at most:
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
    step: RemedyStep, run: RemedyRun, before: Level, check: str, *, evidence: str, seconds: float
) -> TriedRemedy:
    """Judge a try for a cell that had the level `before` and whose first failed check was `check`.

    It fixed the cell only if its lines name the condition under which they were measured, and if `check` ran again: a
    target that can't decode doesn't fix a failure in decoding.
    """
    verdict = verdict_of_run(step.cell, run, step.remedy.leaves_out)
    failure = run.first_failure
    skipped = next((line for line in run.lines if line.error_type == "not_applicable"), None)
    planned = run.plan.checks if run.plan else ()
    state = TrialState.FAILS
    if not run.lines or all(line.outcome is Outcome.NOT_RUN for line in run.lines):
        state = TrialState.NOT_RUN
    elif verdict.level in _WORKS:
        is_stated = all(line.conditions.get(CHANGED, "") == step.changes.text for line in run.lines)
        state = TrialState.NOT_RUN if not is_stated else TrialState.FIXED if check in planned else TrialState.BETTER
    elif failure is None and verdict.level is Level.UNKNOWN:
        state = TrialState.NOT_APPLICABLE if skipped is not None else TrialState.NOT_RUN
    elif (verdict.level.rank or 0) > (before.rank or 0):
        state = TrialState.BETTER
    why = run.problem
    if not why and state is TrialState.BETTER and failure is None:
        why = f"{check} can't run there"
    elif not why and state is not TrialState.FIXED:
        line = failure or skipped
        reasons = [check_reason(line)] if line else verdict.reasons
        why = reason_text(reasons[0]) if reasons else "the child wrote no result"
    left_out = [name for name in step.remedy.leaves_out if name in planned]
    return TriedRemedy(
        step=step,
        state=state,
        level=verdict.level,
        error_type=failure.error_type if failure else "",
        why=why,
        conditions=(
            *map(reason_text, verdict.conditions),
            *(f"{name} was skipped: this fix gives up what it checks" for name in left_out),
        ),
        evidence=evidence,
        run=run.run.run_id if run.run else "",
        seconds=round(seconds, 1),
    )


if __name__ == "__main__":
    answer(lambda task: measure(**task))
