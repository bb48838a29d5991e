"""The main job: plan the suites, write them, run them, and judge the results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwcompat.generators.compatibility.expiry import is_untrusted
from hwcompat.generators.compatibility.judge import judge
from hwcompat.generators.compatibility.required_checks import required_checks
from hwcompat.generators.compatibility.rules import load_rules
from hwcompat.generators.compatibility.verdict import Level, Verdict, is_failing
from hwcompat.generators.compatibility.vocabulary import not_computed
from hwcompat.generators.model_profile import Profile
from hwcompat.generators.plan import (
    PlanChoice,
    PlannedSuite,
    ToleranceFor,
    choose_targets,
    plan_suite,
    predicted_for,
    refuse_uncomputed,
)
from hwcompat.generators.suites.suite_files import SuiteState, prepare_folder, write_suite
from hwcompat.generators.suites.suite_files import WrittenSuite as WrittenSuite
from hwcompat.generators.suites.suite_files import suite_environment as suite_environment
from hwcompat.hardware.applied_fix import refuse_changes
from hwcompat.hardware.cell import PRECISIONS, Cell
from hwcompat.hardware.cell_selection import Shard, choose_cells
from hwcompat.hardware.errors import OutputError, UsageError, echo
from hwcompat.hardware.evidence.latest import Latest, read_latest
from hwcompat.hardware.evidence.record import CheckLine, Outcome, PlannedCell, RunLine, WeightsKind
from hwcompat.hardware.evidence.store import Evidence, lines_by_cell, read_cells
from hwcompat.hardware.expected_targets import targets
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.progress import Progress
from hwcompat.hardware.testing.pytest_environment import environment_with
from hwcompat.hardware.testing.runner import Limits
from hwcompat.hardware.testing.session import Session, exit_code, run_session
from hwcompat.hardware.testing.suite_file import SuiteFile, read_suite
from hwcompat.hardware.testing.tolerances import OwnTolerance


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """One cell of a run: its results in the order of the plan, and its verdict.

    The verdict uses all evidence of the folder, as in every other command. `run_id` is the run of the results, empty
    for the job's own; `taken_from` is the same for an earlier run whose results were reused. `untrusted` means that
    the run's results don't count: its suite was edited, or its checking code was changed.
    """

    written: WrittenSuite
    checks: tuple[str, ...]
    lines: tuple[CheckLine, ...]
    verdict: Verdict
    run_id: str = ""
    taken_from: str = ""
    untrusted: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether checks were left out, such as by arguments for pytest, so that the cell has no verdict."""
        return self.verdict.level is Level.UNKNOWN and any(one.outcome is Outcome.NOT_RUN for one in self.lines)

    @property
    def substituted(self) -> str:
        """Why another target ran than the requested one; empty if it was the requested one."""
        return next((line.substitution_reason for line in self.lines if line.substitution_reason), "")


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """A finished run: its id, its cells, and the files of its evidence, with those that results were reused from.

    If nothing was left to resume, it is the earlier run. `own` is the evidence of these runs, `latest` the latest
    results of their cells, and `inventory` the machine that they are judged on.
    """

    run_id: str
    started_at: str
    cells: tuple[CellResult, ...]
    evidence: tuple[Path, ...]
    own: Evidence
    latest: Latest
    inventory: HardwareInfo

    def exit_code(self, *, allow_fallback: bool) -> int:
        """Return 0; 1 for a failure, an unsupported cell, a missing named device, or untrusted results; 5 if
        nothing ran."""
        missing = any(cell.substituted and cell.written.planned.required for cell in self.cells)
        code = exit_code([line for cell in self.cells for line in cell.lines], missing=missing and not allow_fallback)
        bad = any(cell.untrusted or cell.is_cut or is_failing(cell.verdict) for cell in self.cells)
        return 1 if code == 0 and bad else code


class JobInterrupted(KeyboardInterrupt):
    """A run was interrupted; `result` holds its results until then, `how` the cause, `next_step` what to do."""

    def __init__(
        self,
        result: JobResult,
        *,
        how: str = "interrupted",
        next_step: str = "Continue with the same command and --resume.",
    ) -> None:
        super().__init__("interrupted")
        self.result = result
        self.how = how
        self.next_step = next_step


def plan_job(
    profiles: Sequence[Profile],
    devices: Sequence[str],
    precisions: Sequence[str],
    inventory: HardwareInfo,
    *,
    select: Sequence[str] = (),
    skip: Sequence[str] = (),
    shard: Shard | None = None,
    template_folder: Path | None = None,
    tolerance_for: ToleranceFor = lambda _cell: None,
    suites: Path | None = None,
    on_note: Callable[[str], None] = lambda _text: None,
) -> tuple[PlannedSuite, ...]:
    """Return all requested suites. Raises `NothingMatched` if patterns or the shard leave none.

    A target among several that doesn't compute in a precision is left out, and `on_note` is called with the reason;
    if it is the only named target, that is a `UsageError`.
    """
    rules = load_rules()
    statuses = targets(inventory)
    planned: dict[str, PlannedSuite] = {}
    uncomputed: list[tuple[PlanChoice, str]] = []
    for profile in profiles:
        for precision in precisions:
            predicted = predicted_for(profile, precision, rules, inventory)
            for choice in choose_targets(devices, profile, precision, statuses, predicted):
                if not_computed(choice.target, precision, profile.task_in(precision)):
                    uncomputed.append((choice, precision))
                    continue
                suite = plan_suite(
                    profile,
                    choice,
                    precision,
                    rules,
                    inventory,
                    template_folder=template_folder,
                    tolerance_for=tolerance_for,
                    suites=suites,
                )
                other = planned.setdefault(suite.cell.id, suite)
                if other.profile is not profile:
                    raise _same_cell(other, suite)
    named_alone = len(devices) == 1 and all(choice.required for choice, _ in uncomputed)
    for why in refuse_uncomputed(uncomputed, alone=named_alone or not planned):
        on_note(why)
    return tuple(planned[id_] for id_ in choose_cells(tuple(planned), select=select, skip=skip, shard=shard))


def _same_cell(one: PlannedSuite, other: PlannedSuite) -> UsageError:
    return UsageError(
        f"{echo(one.profile.asked)} and {echo(other.profile.asked)} have the same cell {one.cell}",
        why="evidence doesn't distinguish them",
        fix="Name only one of them, or rename a checkpoint's folder.",
    )


def write_suites(planned: Sequence[PlannedSuite], folder: Path, *, force: bool) -> tuple[WrittenSuite, ...]:
    """Write the suites into `folder`; files that were edited by hand stay unless `force`. A missing model has no
    suite and no file."""
    prepare_folder(folder)
    return tuple(
        WrittenSuite(
            planned=suite,
            path=folder / suite.file_name,
            state=write_suite(folder, suite.file_name, suite.text, force=force) if suite.text else SuiteState.NEW,
        )
        for suite in planned
    )


def run_job(
    written: Sequence[WrittenSuite],
    inventory: HardwareInfo,
    *,
    evidence: Path,
    command: str,
    machine: str,
    limits: Limits,
    jobs: int | None = None,
    resume: bool = False,
    pytest_arguments: Sequence[str] = (),
    progress: Progress | None = None,
    on_note: Callable[[str], None] = lambda _text: None,
) -> JobResult:
    """Run written suites, and judge each cell.

    `jobs` suites run at a time, None for a suitable number. With `resume` only those run that the newest run in the
    folder of evidence didn't finish; `on_note` is called with what is reused and why. Raises `OutputError` if
    evidence can't be written, `JobInterrupted` after an interruption was recorded, `UsageError` under a changed
    condition.
    """
    refuse_changes()

    def run(some: Sequence[WrittenSuite], suites: Sequence[SuiteFile], **more: Any) -> Session:
        return run_session(
            suites,
            [_planned(suite, one.planned) for suite, one in zip(suites, some, strict=True)],
            inventory,
            evidence=evidence,
            command=command,
            machine=machine,
            limits=limits,
            jobs=jobs,
            progress=progress,
            **more,
        )

    suites = [_read(one) for one in written]
    with environment_with(suite_environment([one.planned for one in written])):
        session = run(written, suites, resume=resume, pytest_arguments=pytest_arguments, on_note=on_note)
        pairs = list(zip(written, suites, strict=True))
        result = _session_result(session, pairs, evidence, inventory)
        interrupted = session.interrupted
        if not interrupted and (asked := reference_suites(result)):
            on_note(f"running {len(asked)} cell(s) on the CPU to find out whose fault the failures are")
            interrupted = run(asked, [_read(one) for one in asked]).interrupted
            result = _session_result(session, pairs, evidence, inventory)
    if interrupted:
        raise JobInterrupted(result)
    return result


def reference_suites(result: JobResult) -> tuple[WrittenSuite, ...]:
    """Write CPU suites of the failed cells that have no CPU result yet, so that the fault can be located."""
    asked: dict[str, PlannedSuite] = {}
    cpu = Target(name="cpu")
    for one in result.cells:
        planned = one.written.planned
        failed = any(line.outcome.is_failure for line in one.lines)
        if failed and one.verdict.fault is None and not not_computed(cpu, planned.cell.precision, planned.cell.task):
            choice = PlanChoice(target=cpu, required=False)
            suite = plan_suite(
                planned.profile,
                choice,
                planned.cell.precision,
                load_rules(),
                result.inventory,
                tolerance_for=functools.partial(_own_tolerance, planned),
                suites=one.written.path.parent,
            )
            asked[suite.cell.id] = suite
    own = {one.written.planned.cell.id for one in result.cells}
    left = [suite for id_, suite in asked.items() if id_ not in own]
    found = write_suites(left, result.cells[0].written.path.parent, force=False) if left else ()
    return tuple(one for one in found if one.state is not SuiteState.EDITED)


def _own_tolerance(planned: PlannedSuite, _cell: Cell) -> OwnTolerance | None:
    """Return the device's tolerance: the CPU is held to the same."""
    return planned.tolerance


def _session_result(
    session: Session,
    suites: Sequence[tuple[WrittenSuite, SuiteFile]],
    evidence: Path,
    inventory: HardwareInfo,
) -> JobResult:
    runs = {suite.cell.id: session.run_of(suite.cell.id) for _, suite in suites}
    names = dict.fromkeys([session.run_id, *(one for one in session.taken_over.run_ids if one in runs.values())])
    return _job_result(
        suites,
        runs,
        evidence,
        inventory,
        run_ids=tuple(names),
        earlier=frozenset(session.taken_over.run_ids) - {session.run_id},
    )


def result_of_runs(
    written: Sequence[WrittenSuite],
    runs: Mapping[str, str],
    evidence: Path,
    inventory: HardwareInfo,
    *,
    earlier: Collection[str] = (),
) -> JobResult:
    """Return the result of several runs of written suites.

    `runs` maps each cell's id to its run, and `earlier` are the runs whose results were reused. Their evidence is in
    the folder `evidence`; the result's own id is that of the newest.
    """
    names = tuple(sorted(set(runs.values()), reverse=True))
    suites = [(one, _read(one)) for one in written]
    return _job_result(suites, runs, evidence, inventory, run_ids=names, earlier=earlier)


def _job_result(
    suites: Sequence[tuple[WrittenSuite, SuiteFile]],
    runs: Mapping[str, str],
    evidence: Path,
    inventory: HardwareInfo,
    *,
    run_ids: Sequence[str],
    earlier: Collection[str],
) -> JobResult:
    run_id = run_ids[0]
    own = read_cells(evidence, runs, also=[run_id])
    cells = [suite.cell for _, suite in suites]
    on_cpu = {replace(cell, target=Target(name="cpu"), precision=name).id for cell in cells for name in PRECISIONS}
    in_float32 = {replace(cell, precision="float32").id for cell in cells}  # half precision rests on it
    latest = read_latest(evidence, cells={*runs, *on_cpu, *in_float32}, details=True)
    limits = {one.planned.cell.id: one.planned.tolerance.limit for one, _ in suites if one.planned.tolerance}
    verdicts = {one.cell: one for one in judge(latest, inventory, own_limits=limits, cells=runs)}
    by_id = {run.run_id: run for run in own.runs}
    by_cell = lines_by_cell(own.checks)
    found = []
    for written, suite in suites:
        run = by_id[runs[suite.cell.id]]
        lines = by_cell.get(suite.cell.id, ())
        found.append(
            CellResult(
                written=_as_stored(written, run),
                checks=suite.checks,
                lines=tuple(sorted(lines, key=functools.partial(_place, suite))),
                verdict=verdicts[suite.cell.id],
                run_id="" if run.run_id == run_id else run.run_id,
                taken_from=run.run_id if run.run_id in earlier else "",
                untrusted=is_untrusted(suite.cell, run, lines),
            )
        )
    return JobResult(
        run_id=run_id,
        started_at=by_id[run_id].started_at,
        cells=tuple(found),
        evidence=tuple(path for name in run_ids for path in sorted(evidence.glob(f"{name}-*.jsonl"))),
        own=own,
        latest=latest,
        inventory=inventory,
    )


def _place(suite: SuiteFile, line: CheckLine) -> int:
    return suite.checks.index(line.check_name) if line.check_name in suite.checks else len(suite.checks)


def _as_stored(written: WrittenSuite, run: RunLine) -> WrittenSuite:
    """Return the suite with the prediction that was stored before the run of its results."""
    stored = next((one.verdict for one in run.plan if one.cell_id == written.planned.cell.id), None)
    if stored is None:
        return written
    return replace(written, planned=replace(written.planned, verdict=Verdict.from_dict(stored)))


def _planned(suite: SuiteFile, planned: PlannedSuite) -> PlannedCell:
    selection = planned.selection.to_dict() if planned.selection else None
    return suite.planned(planned.verdict.to_dict(), selection)


def _read(written: WrittenSuite) -> SuiteFile:
    if missing := written.planned.profile.missing:
        cell = written.planned.cell
        checks = required_checks(cell)
        weights = str(WeightsKind.CHECKPOINT)
        return SuiteFile(path=written.path, cell=cell, subject=weights, checks=checks, suite_hash="", missing=missing)
    return read_written(written)


def read_written(written: WrittenSuite) -> SuiteFile:
    """Return the content of a suite's file. Raises `OutputError` if it is of another cell."""
    suite = read_suite(written.path)
    planned = written.planned.cell
    if suite is None or suite.cell != planned:
        raise OutputError(
            f"{written.path} isn't the suite of {planned}",
            why="it has no CELL" if suite is None else f"it is the suite of {suite.cell}",
            fix="Generate it again with --force.",
        )
    return suite
