"""Tries the remedies of a failing cell, each in a child with an environment and a folder of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from generators.compatibility.grade import check_reason
from generators.compatibility.verdict import Level, Reason, Words
from hardware.cell import Cell
from hardware.changes import VARIABLE
from hardware.errors import HwCompatError, OutputError
from hardware.evidence.record import CheckLine
from hardware.evidence.store import read_folder
from hardware.plain_text import one_line
from hardware.process import NoAnswer, ask, with_product

from .attempt import EVIDENCE, Task
from .judging import Run, Tried, judge_try, smallest, verdict_of_run, worth_trying
from .remedy import Step, failure_of, steps_for

AS_IT_IS = "as_it_is"
"""The folder of the run without any change, with which each cell begins."""

ErrorTypeOf = Callable[[CheckLine], str]
_LOG = "log.txt"


@dataclass(frozen=True, kw_only=True)
class CellTried:
    """A cell that was asked for: its level and failure as it is now, and what each remedy came to, in order.

    `kind` is the failure's id in the data with its `reason`; empty where nothing failed. `problem` says why it could
    not be measured at all.
    """

    cell: Cell
    level: Level
    check: str = ""
    error_type: str = ""
    why: str = ""
    kind: str = ""
    kind_reason: str = ""
    problem: str = ""
    tried: tuple[Tried, ...] = ()
    not_tried: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Whether it works as it is, so that there was nothing to remedy."""
        return self.level in (Level.HIGH, Level.MEDIUM)

    @property
    def smallest(self) -> Tried | None:
        """The smallest change that turned it."""
        return smallest(self.tried)


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """Where and how children run: the `folder` of this run, the user's `evidence` folder (read only; None: none), the
    `command` that goes into evidence, seconds for one check (None: the target's own) and for one child."""

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
    error_type_of: ErrorTypeOf,
    on_note: Callable[[str], None] = lambda _text: None,
    known: Run | None = None,
    first_is_enough: bool = False,
    words: Words,
) -> CellTried:
    """Measure `cell` as it is, then under each remedy that applies, until no smaller one is left to try.

    `here` are the targets of this machine; `error_type_of` gives a failed line's error type. `known` is a run of the
    cell as it is that need not be repeated; with `first_is_enough` no smaller change is looked for after one that
    turned it. The environment and the files of the user stay as they are.
    """
    run, seconds = (known, 0.0) if known else _measured(cell, cell, place, AS_IT_IS, {})
    verdict = verdict_of_run(cell, run)
    failure = run.first_failure
    if failure is None or verdict.level in (Level.HIGH, Level.MEDIUM):
        problem = "" if verdict.level.is_supported else run.problem or _first(verdict.reasons, words)
        return CellTried(cell=cell, level=verdict.level, problem=problem)
    error_type = error_type_of(failure)
    on_note(f"{cell.id} as it is: {words(check_reason(failure))} ({seconds:.0f} s)")
    kind = failure_of(cell, failure, error_type, os.environ)
    tried: list[Tried] = []
    left: list[str] = []
    for step in steps_for(cell, failure, error_type, here=here, environment=os.environ):
        if not worth_trying(step, tried) or (first_is_enough and smallest(tried)):
            left.append(step.id)
            continue
        tried.append(_try(step, cell, place, verdict.level, failure.check_name, words))
        on_note(f"{cell.id} {step.id}: {tried[-1].state} {tried[-1].why} ({tried[-1].seconds:.0f} s)")
    return CellTried(
        cell=cell,
        level=verdict.level,
        check=failure.check_name,
        error_type=error_type,
        why=words(check_reason(failure)),
        kind=kind.id,
        kind_reason=kind.reason,
        tried=tuple(tried),
        not_tried=tuple(left),
    )


def _first(reasons: Sequence[Reason], words: Words) -> str:
    return words(reasons[0]) if reasons else "nothing was measured"


def _try(step: Step, asked: Cell, place: Workplace, before: Level, check: str, words: Words) -> Tried:
    variables = {**step.remedy.environment, VARIABLE: step.changes.text}
    name = step.id.replace(":", "_")
    run, seconds = _measured(step.cell, asked, place, name, variables)
    evidence = str(_folder(asked, place, name) / EVIDENCE)
    return judge_try(step, run, before, check, evidence=evidence, seconds=seconds, words=words)


def _folder(asked: Cell, place: Workplace, name: str) -> Path:
    return place.folder / asked.slug / name


def _measured(
    cell: Cell, asked: Cell, place: Workplace, name: str, variables: Mapping[str, str]
) -> tuple[Run, float]:
    """What a child left that measured `cell`, and its seconds."""
    folder = _folder(asked, place, name)
    task = Task(
        cell=cell.id,
        asked=asked.id,
        evidence=str(place.evidence.resolve()) if place.evidence else "",
        folder=str(folder.resolve()),
        command=place.command,
        timeout_s=place.timeout_s or 0.0,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder} cannot be written", why=error.strerror or str(error), fix="Name another with --output-dir."
        ) from error
    started = time.monotonic()
    problem = run_child(task, child_environment(os.environ, variables), folder / _LOG, place.child_s)
    return _left(cell, folder / EVIDENCE, problem), time.monotonic() - started


def child_environment(own: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """`own` with `variables` set, and those unset whose value is empty; a change that somebody left in it is gone."""
    found = {name: value for name, value in own.items() if name != VARIABLE and name not in variables}
    return with_product({**found, **{name: value for name, value in variables.items() if value}})


def run_child(task: Task, environment: Mapping[str, str], log: Path, limit_s: float) -> str:
    """Run a task to its end, or end it and all that it started after `limit_s`; why it came to nothing, or empty."""
    try:
        ask(f"{__package__}.attempt", asdict(task), limit_s=limit_s, environment=environment, log=log)
    except (NoAnswer, HwCompatError) as error:
        return one_line(str(error))
    return ""


def _left(cell: Cell, evidence: Path, problem: str) -> Run:
    """The evidence that a child left of `cell`, whether under a change or not."""
    try:
        found = read_folder(evidence)
    except HwCompatError:
        return Run(problem=problem or "it left no evidence")
    run = max((*found.runs, *found.other_runs), key=lambda one: one.started_at, default=None)
    if run is None:
        return Run(problem=problem or "it left no evidence")
    plan = next((one for one in run.plan if one.cell_id == cell.id), None)
    lines = (line for line in (*found.checks, *found.other_checks) if line.run_id == run.run_id)
    return Run(run=run, plan=plan, lines=tuple(line for line in lines if line.cell_id == cell.id), problem=problem)
