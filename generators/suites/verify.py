"""Verify suites: each compiles, is collected, passes on CPU, and fails when its model is broken. Publish good suites.

A suite is verified as it is on disk, edited or not, because an edited suite may be unable to fail.
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hwcompat.generators.compatibility.vocabulary import not_computed
from hwcompat.generators.mutants.file_breaks import FILE_OPERATORS
from hwcompat.generators.mutants.model_anatomy import SMALLEST_CHANGE
from hwcompat.generators.mutants.mutation_operators import OPERATORS
from hwcompat.generators.mutants.orders import Made, MutantStatus, Order, judge_clean, judge_mutant
from hwcompat.generators.mutants.rounds import Ran, run_round
from hwcompat.generators.options import Options
from hwcompat.generators.suites.suite_files import PlannedSuite
from hwcompat.hardware.backends.factory import backend_class
from hwcompat.hardware.cell import GRAPH_TASK, Cell, label_of
from hwcompat.hardware.cell_selection import choose_cells
from hwcompat.hardware.errors import BrokenInput, HwCompatError, NothingMatched, OutputError
from hwcompat.hardware.evidence.record import CheckLine, Outcome, Stage
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.progress import Progress
from hwcompat.hardware.testing.runner import Limits, default_memory_limit
from hwcompat.hardware.testing.schedule import default_jobs
from hwcompat.hardware.testing.suite_file import SuiteFile, read_suite
from hwcompat.hardware.testing.tolerances import tolerance_for

from .suite_files import SuiteState, prepare_folder, state_of, write_suite

_CPU = Target(name="cpu")
_MARGIN = 2
"""In half precision, and of files, a break must move the outputs by this many times the tolerance: smaller faults
don't show."""


@dataclass(frozen=True, kw_only=True)
class VerifiedSuite:
    """The result for one file. A step is False if an earlier one failed; `problem` says what was wrong.

    `mutant` is the break and its place, `caught_by` the check that detected it. A suite that can't be verified here
    is `skipped` with the reason.
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
        """Whether all four steps succeeded."""
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
    """Verify the suites among these files, in order; `jobs` at a time, None for a suitable number.

    Files without a cell are a person's own tests and are ignored. `select` and `skip` are patterns of cells. Nothing
    that runs here becomes evidence. Raises `NothingMatched` if there is no suite.
    """
    read = [one for one in (_read(path) for path in paths) if one is not None]
    if not read:
        raise NothingMatched("no suites to verify", fix="Name the folder that --output-dir wrote to.")
    suites = {one.path: one for one in read if isinstance(one, SuiteFile)}
    if suites and (select or skip):
        kept = choose_cells([suite.cell.id for suite in suites.values()], select=select, skip=skip)
        suites = {path: suite for path, suite in suites.items() if suite.cell.id in kept}
    found = {one.path: one for one in read if isinstance(one, VerifiedSuite)}
    found |= {path: _started(suite) for path, suite in suites.items()}
    run = functools.partial(_run, limits=limits, jobs=jobs, progress=progress)
    with tempfile.TemporaryDirectory(prefix="hwcompat-verify-") as name:
        folder = Path(name).resolve()
        left = [suite for path, suite in suites.items() if not found[path].skipped]
        for suite, ran in run(left, {s.path: Order(on_cpu=True) for s in left}, folder):
            found[suite.path] = _unbroken(found[suite.path], suite, ran)
        left = [suite for suite in left if found[suite.path].passes]
        orders = {suite.path: order_for(suite.cell) for suite in left}
        for suite, ran in run(left, orders, folder):
            found[suite.path] = _broken(found[suite.path], suite, ran, orders[suite.path])
    return tuple(found[one.path] for one in read if one.path in found)


def order_for(cell: Cell) -> Order:
    """Return the breaks to try on a suite, ordered by the hash of the cell's id; the first that applies is made."""
    is_file = cell.task == GRAPH_TASK
    names = list(FILE_OPERATORS if is_file else OPERATORS)
    first = int.from_bytes(hashlib.sha256(cell.id.encode()).digest()[:8], "big") % len(names)
    least = SMALLEST_CHANGE
    if is_file or cell.precision != "float32":
        least = max(least, _MARGIN * tolerance_for(_CPU, cell.precision).limit)
    return Order(mutants=tuple(f"{name}@0" for name in names[first:] + names[:first]), least=least, on_cpu=True)


def _read(path: Path) -> SuiteFile | VerifiedSuite | None:
    """Return the suite at `path`, the problem with it, or None if it isn't a suite."""
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
    is_file = suite.cell.task == GRAPH_TASK
    if suite.model_revision and not is_file:
        return replace(one, skipped="it needs weights that only `hwcompat run` provides")
    if is_file and not label_of(suite.cell.model).lower().endswith(".onnx"):
        return replace(one, skipped="only .onnx files run on the CPU")
    if not_computed(_CPU, suite.cell.precision, suite.cell.task):
        return replace(one, skipped=f"torch doesn't support {suite.cell.precision} on the CPU")
    return one


def _run(
    suites: Sequence[SuiteFile],
    orders: Mapping[Path, Order],
    folder: Path,
    *,
    limits: Limits,
    jobs: int | None,
    progress: Progress | None,
) -> list[tuple[SuiteFile, Ran]]:
    """Run all suites; suites of the same cell (an edited copy) run in separate rounds."""
    waiting, done = list(suites), []
    while waiting:
        by_cell = {suite.cell.id: suite for suite in reversed(waiting)}
        chosen = list(reversed(by_cell.values()))
        waiting = [suite for suite in waiting if suite not in chosen]
        ran = run_round(
            chosen,
            {suite.path: orders[suite.path] for suite in chosen},
            folder,
            limits=limits,
            jobs=jobs or default_jobs(chosen),
            progress=progress,
        )
        done += list(zip(chosen, ran, strict=True))
    return done


def _unbroken(one: VerifiedSuite, suite: SuiteFile, ran: Ran) -> VerifiedSuite:
    refused = next((line for line in ran.lines if _not_collected(line)), None)
    if refused is not None:
        return replace(one, problem=f"pytest doesn't collect it: {refused.error_message}")
    judgement = judge_clean(suite.checks, ran.lines)
    if judgement.status is not MutantStatus.CLEAN:
        return replace(one, collected=bool(suite.checks), problem=f"unbroken, {judgement.message}")
    return replace(one, collected=True, passes=True)


def _not_collected(line: CheckLine) -> bool:
    """Return whether a file can't be imported, or a check wasn't collected (defined twice, or renamed)."""
    return line.stage is Stage.IMPORT or (line.outcome is Outcome.NOT_RUN and line.error_type == "deselected")


def _broken(one: VerifiedSuite, suite: SuiteFile, ran: Ran, order: Order) -> VerifiedSuite:
    judgement = judge_mutant(suite.checks, ran.lines, ran.made, least=order.least)
    made = replace(one, mutant=_name(ran.made), site=ran.made.mutant.site if ran.made.mutant else "")
    if judgement.status is MutantStatus.KILLED:
        return replace(made, caught_by=judgement.caught_by)
    if judgement.status is MutantStatus.SURVIVED:
        return replace(
            made, problem=f"it can't fail: {judgement.message}, although the model was broken by {ran.made}"
        )
    return replace(made, problem=f"broken by {made.mutant or 'nothing'}, {judgement.message}")


def _name(made: Made) -> str:
    return made.mutant.name if made.mutant else ""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The results of all suites, in the order of their files."""

    suites: tuple[VerifiedSuite, ...]

    @property
    def exit_code(self) -> int:
        """0 if every suite that could be verified is good, 1 if one isn't, 5 if none could be verified."""
        tried = [one for one in self.suites if not one.skipped]
        return int(not all(one.is_good for one in tried)) if tried else NothingMatched.exit_code

    def text(self) -> str:
        """Return a table, the problems and skipped suites, and the counts."""
        rows: list[tuple[str, ...]] = [("suite", "compiles", "collected", "passes", "fails when broken")]
        rows += [_row(one) for one in self.suites]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        table = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        lines = [f"{one.path.name}: {one.problem}" for one in self.suites if one.problem]
        lines += [f"{one.path.name}: skipped, {one.skipped}" for one in self.suites if one.skipped]
        return "\n".join([*table, *([""] if lines else []), *lines, "", *self._counts()])

    def _counts(self) -> list[str]:
        tried = [one for one in self.suites if not one.skipped]
        elsewhere = sum(one.cell is not None and one.cell.target.name != "cpu" for one in tried)
        counts = [
            f"{len(tried)} suite(s): {sum(one.compiles for one in tried)} compile, "
            f"{sum(one.collected for one in tried)} are collected, {sum(one.passes for one in tried)} pass on CPU, "
            f"{sum(bool(one.caught_by) for one in tried)} fail when broken; {len(self.suites) - len(tried)} skipped"
        ]
        if elsewhere:
            counts.append(f"{elsewhere} are for other targets: the CPU verifies their numbers, not their placement")
        return counts


def verify_asked(asked: Options, paths: Sequence[Path], progress: Progress, *, choose: bool) -> Verification:
    """Verify these files under a command line's options, whose patterns apply if `choose` is true.

    Raises `NothingMatched` if none of them is a suite.
    """
    limits = Limits(timeout_s=asked.timeout, memory_bytes=default_memory_limit())
    found = verify_suites(
        paths,
        limits=limits,
        select=asked.select if choose else (),
        skip=asked.skip if choose else (),
        jobs=asked.jobs,
        progress=progress,
    )
    return Verification(suites=found)


def _row(one: VerifiedSuite) -> tuple[str, ...]:
    if one.skipped:
        return (one.path.name, "yes", "-", "-", "-")
    steps = [one.compiles, one.collected, one.passes]
    texts = ["-" if number and not steps[number - 1] else "yes" if ok else "NO" for number, ok in enumerate(steps)]
    seen = f"{one.mutant}: {one.caught_by or 'NO'}" if one.mutant else "NO" if one.passes else "-"
    return (one.path.name, *texts, seen)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """The result of publishing suites: `folder` holds those in `published`, and none in `kept_back`.

    `taken_away` names files that were in the folder under the name of a suite that is kept back. Files in `edited`
    were edited by a person; they were verified and stay.
    """

    folder: Path
    verification: Verification
    published: tuple[str, ...]
    kept_back: tuple[str, ...]
    taken_away: tuple[str, ...]
    edited: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """The exit code of the verification; 1 also if a suite is kept back because it can't be verified here."""
        return self.verification.exit_code or int(bool(self.kept_back))

    def text(self) -> str:
        """Return the verification, followed by what was written and kept back."""
        lines = [self.verification.text(), f"{len(self.published)} published in {self.folder}"]
        if self.kept_back:
            lines.append(f"{len(self.kept_back)} not published: {', '.join(self.kept_back)}")
        if self.taken_away:
            lines.append(f"removed, because it no longer passes verification: {', '.join(self.taken_away)}")
        return "\n".join(lines)


def publish_suites(
    planned: Sequence[PlannedSuite],
    folder: Path,
    *,
    force: bool,
    verify: Callable[[Sequence[Path]], Verification],
) -> Publication:
    """Write the suites that `verify` finds good into `folder`, after all were verified in another folder.

    An interruption before that leaves the folder unchanged. A file that was edited by hand is verified in place and
    kept unless `force`. Raises `OutputError`.
    """
    texts = {suite.file_name: suite.text for suite in planned}
    edited = [
        name for name, text in texts.items() if state_of(folder / name, text) is SuiteState.EDITED and not force
    ]
    with tempfile.TemporaryDirectory(prefix="hwcompat-publish-") as name:
        staged = Path(name).resolve()
        for suite in planned:
            write_suite(staged, suite.file_name, suite.text)
        paths = [(folder if name in edited else staged) / name for name in texts]
        try:
            found = {one.path.name: one for one in verify(paths).suites}
        except NothingMatched:  # none of them has a cell
            found = {}
    verification = Verification(suites=tuple(_of_cell(suite, found.get(suite.file_name)) for suite in planned))
    judged = {one.path.name: one for one in verification.suites if one.path.name not in edited}
    published = [name for name, one in judged.items() if one.is_good]
    kept_back = [name for name in judged if name not in published]
    if published:
        prepare_folder(folder)
    for name in published:
        write_suite(folder, name, texts[name], force=force)
    return Publication(
        folder=folder,
        verification=verification,
        published=tuple(published),
        kept_back=tuple(kept_back),
        taken_away=tuple(name for name in kept_back if _taken_away(folder / name, texts[name])),
        edited=tuple(edited),
    )


def _of_cell(suite: PlannedSuite, found: VerifiedSuite | None) -> VerifiedSuite:
    """Return the result for a suite; a problem if it is of another cell or, by its template, of none."""
    if found is None:
        return VerifiedSuite(path=Path(suite.file_name), compiles=True, problem="it has no CELL, so it isn't a suite")
    if found.cell is not None and found.cell != suite.cell:
        return replace(found, problem=f"it is the suite of {found.cell}, not of {suite.cell}")
    return found


def _taken_away(path: Path, text: str) -> bool:
    """Remove what was generated there earlier; what a person edited stays."""
    if state_of(path, text) in (SuiteState.NEW, SuiteState.EDITED):
        return False
    try:
        path.unlink()
    except OSError as error:
        raise OutputError(f"{path} can't be removed", why=error.strerror or str(error)) from error
    return True
