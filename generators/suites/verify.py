"""Verifies suites: each compiles, is collected, passes on CPU, and fails when its model is broken.

A suite is taken as it lies there, edited or not: one that can't fail any more is what this is meant to find.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from generators.mutants.made import Made
from generators.mutants.operators import OPERATORS
from generators.mutants.order import Order
from generators.mutants.outcome import Status, judge_clean, judge_mutant
from generators.mutants.probe import SMALLEST_CHANGE
from generators.mutants.rounds import Ran, run_round
from hardware.backends.factory import backend_class
from hardware.cell import Cell
from hardware.cells import choose_cells
from hardware.errors import BrokenInput, HwCompatError, NothingMatched
from hardware.evidence.record import CheckLine, Outcome, Stage
from hardware.target import Target
from hardware.testing.progress import Progress
from hardware.testing.runner import Limits
from hardware.testing.schedule import default_jobs
from hardware.testing.suite_file import SuiteFile, read_suite
from hardware.testing.tolerances import tolerance_for

_CPU = Target(name="cpu")
_MARGIN = 2
"""In half precision a break has to move the outputs by so many times the tolerance: only big faults show there."""


@dataclass(frozen=True, kw_only=True)
class VerifiedSuite:
    """What came of one file. A later step is False where an earlier one failed; `problem` says what was wrong.

    `mutant` is the break that was made and where, `caught_by` the check that saw it. A suite that can't be verified
    here is `skipped` with the reason.
    """

    path: Path
    cell: Cell | None = None
    checks: int = 0
    compiles: bool = False
    collected: bool = False
    passes: bool = False
    mutant: str = ""
    site: str = ""
    caught_by: str = ""
    skipped: str = ""
    problem: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it did all four."""
        return bool(self.compiles and self.collected and self.passes and self.caught_by and not self.problem)


def verify_suites(
    paths: Iterable[Path],
    *,
    limits: Limits,
    select: Sequence[str] = (),
    skip: Sequence[str] = (),
    jobs: int | None = None,
    progress: Progress | None = None,
) -> tuple[VerifiedSuite, ...]:
    """Verify the suites among these files, in their order; `jobs` of them at a time, None for as many as suit.

    Files that hold no cell are a person's own tests and aren't looked at. `select` and `skip` are patterns of cells.
    Nothing of what runs here becomes evidence. Raises `NothingMatched` where there is no suite.
    """
    read = [one for one in (_read(path) for path in paths) if one is not None]
    if not read:
        raise NothingMatched("there are no suites to verify", fix="Name the folder that --output-dir wrote to.")
    suites = {one.path: one for one in read if isinstance(one, SuiteFile)}
    if suites and (select or skip):
        kept = choose_cells([suite.cell.id for suite in suites.values()], select=select, skip=skip)
        suites = {path: suite for path, suite in suites.items() if suite.cell.id in kept}
    found = {one.path: one for one in read if isinstance(one, VerifiedSuite)}
    found |= {path: _started(suite) for path, suite in suites.items()}
    asked = _Asked(limits=limits, jobs=jobs, progress=progress)
    with tempfile.TemporaryDirectory(prefix="hwcompat-verify-") as name:
        folder = Path(name).resolve()
        left = [suite for path, suite in suites.items() if not found[path].skipped]
        for suite, ran in _run(left, {s.path: Order(on_cpu=True) for s in left}, folder, asked):
            found[suite.path] = _unbroken(found[suite.path], suite, ran)
        left = [suite for suite in left if found[suite.path].passes]
        orders = {suite.path: order_for(suite.cell) for suite in left}
        for suite, ran in _run(left, orders, folder, asked):
            found[suite.path] = _broken(found[suite.path], suite, ran, orders[suite.path])
    return tuple(found[one.path] for one in read if one.path in found)


def order_for(cell: Cell) -> Order:
    """The breaks to try on a suite, the first one by the hash of the cell's id: the first that applies is made."""
    names = list(OPERATORS)
    first = int.from_bytes(hashlib.sha256(cell.id.encode()).digest()[:8], "big") % len(names)
    least = SMALLEST_CHANGE
    if cell.precision != "float32":
        least = max(least, _MARGIN * tolerance_for(_CPU, cell.precision).limit)
    return Order(mutants=tuple(f"{name}@0" for name in names[first:] + names[:first]), least=least, on_cpu=True)


def _read(path: Path) -> SuiteFile | VerifiedSuite | None:
    """The suite at `path`, or what is wrong with it; None where it is none."""
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        return read_suite(path)
    except BrokenInput as error:
        return VerifiedSuite(path=path, compiles=True, problem=str(error))
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as error:
        return VerifiedSuite(path=path, problem=f"it doesn't compile: {type(error).__name__}: {error}")


def _started(suite: SuiteFile) -> VerifiedSuite:
    one = VerifiedSuite(path=suite.path, cell=suite.cell, checks=len(suite.checks), compiles=True)
    try:
        backend_class(suite.cell.target.name)
    except HwCompatError as error:
        return replace(one, problem=str(error))
    if suite.model_revision:
        return replace(one, skipped="it needs weights or a file that lie elsewhere, and only --run finds those")
    if suite.cell.precision not in backend_class(_CPU.name).PRECISIONS:
        return replace(one, skipped=f"torch on CPU computes nothing in {suite.cell.precision}")
    return one


@dataclass(frozen=True, kw_only=True)
class _Asked:
    limits: Limits
    jobs: int | None
    progress: Progress | None


def _run(
    suites: Sequence[SuiteFile], orders: Mapping[Path, Order], folder: Path, asked: _Asked
) -> list[tuple[SuiteFile, Ran]]:
    """Run all suites; those of one cell (an edited copy beside the suite) in rounds of their own."""
    waiting, done = list(suites), []
    while waiting:
        by_cell = {suite.cell.id: suite for suite in reversed(waiting)}
        turn = list(reversed(by_cell.values()))
        waiting = [suite for suite in waiting if suite not in turn]
        ran = run_round(
            turn,
            {suite.path: orders[suite.path] for suite in turn},
            folder,
            limits=asked.limits,
            jobs=asked.jobs or default_jobs(turn),
            progress=asked.progress,
        )
        done += list(zip(turn, ran, strict=True))
    return done


def _unbroken(one: VerifiedSuite, suite: SuiteFile, ran: Ran) -> VerifiedSuite:
    refused = next((line for line in ran.lines if _not_collected(line)), None)
    if refused is not None:
        return replace(one, problem=f"pytest doesn't collect it: {refused.error_message}")
    judgement = judge_clean(suite.checks, ran.lines)
    if judgement.status is not Status.CLEAN:
        return replace(one, collected=bool(suite.checks), problem=f"unbroken, {judgement.message}")
    return replace(one, collected=True, passes=True)


def _not_collected(line: CheckLine) -> bool:
    """A file that can't be imported, or one of whose checks pytest never heard: defined twice, or renamed at work."""
    return line.stage is Stage.IMPORT or (line.outcome is Outcome.NOT_RUN and line.error_type == "deselected")


def _broken(one: VerifiedSuite, suite: SuiteFile, ran: Ran, order: Order) -> VerifiedSuite:
    judgement = judge_mutant(suite.checks, ran.lines, ran.made, least=order.least)
    made = replace(one, mutant=_name(ran.made), site=ran.made.mutant.site if ran.made.mutant else "")
    if judgement.status is Status.KILLED:
        return replace(made, caught_by=judgement.caught_by)
    if judgement.status is Status.SURVIVED:
        return replace(made, problem=f"it can't fail: {judgement.message} although it was broken by {ran.made}")
    return replace(made, problem=f"broken by {made.mutant or 'nothing'}, {judgement.message}")


def _name(made: Made) -> str:
    return made.mutant.name if made.mutant else ""
