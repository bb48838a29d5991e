"""The main job: plan the suites, write them, run them, and conclude from what they left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from generators.compatibility.conclude import conclude
from generators.compatibility.current import relevant_versions
from generators.compatibility.required import required_checks
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Verdict
from generators.models.profile import Profile
from generators.plan import PlannedSuite, choose_targets, plan_suite
from generators.suites.files import State, prepare_folder, write_suite
from hardware.cell import Cell
from hardware.detection import HardwareInfo, targets
from hardware.errors import NothingMatched, OutputError, UsageError, echo
from hardware.evidence.machine import machine_label
from hardware.evidence.record import CheckLine, Outcome, PlannedCell, RunLine
from hardware.evidence.store import read_run
from hardware.evidence.versions import versions_of
from hardware.evidence.writer import EvidenceWriter, new_run_id, now
from hardware.testing.checkpoints import CHECKPOINTS_VARIABLE
from hardware.testing.devices import DEVICES_VARIABLE
from hardware.testing.runner import Limits, Progress, run_suites
from hardware.testing.suite_file import SuiteFile, read_suite


@dataclass(frozen=True, kw_only=True)
class WrittenSuite:
    """A planned suite on disk. With the state `edited` the file holds a person's text, not the planned one."""

    planned: PlannedSuite
    path: Path
    state: State


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """What a run says of one cell: its lines in the order of the plan, and the verdict measured from them."""

    written: WrittenSuite
    checks: tuple[str, ...]
    lines: tuple[CheckLine, ...]
    verdict: Verdict

    @property
    def substituted(self) -> str:
        """Why another target ran than the one asked for; empty where it was the one."""
        return next((line.substitution_reason for line in self.lines if line.substitution_reason), "")

    @property
    def failed(self) -> bool:
        """Whether a check failed, or wasn't run although nobody left it out with arguments for pytest."""
        return any(
            line.outcome.is_failure or (line.outcome is Outcome.NOT_RUN and line.error_type != "deselected")
            for line in self.lines
        )


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """A finished run: its id, its cells, and the evidence files that it wrote."""

    run_id: str
    started_at: str
    cells: tuple[CellResult, ...]
    evidence: tuple[Path, ...]

    def exit_code(self, *, allow_fallback: bool) -> int:
        """0; 1 for a failure or for a device that was asked for by name and isn't there; 5 where nothing ran."""
        missing = any(cell.substituted and cell.written.planned.required for cell in self.cells)
        if any(cell.failed for cell in self.cells) or (missing and not allow_fallback):
            return 1
        nothing = all(line.outcome is Outcome.NOT_RUN for cell in self.cells for line in cell.lines)
        return NothingMatched.exit_code if nothing else 0


class JobInterrupted(KeyboardInterrupt):
    """A run was interrupted; `result` is what it had shown by then."""

    def __init__(self, result: JobResult) -> None:
        super().__init__("interrupted")
        self.result = result


def plan_job(
    profiles: Sequence[Profile],
    devices: Sequence[str],
    precisions: Sequence[str],
    inventory: HardwareInfo,
    *,
    select: Sequence[str] = (),
    skip: Sequence[str] = (),
    template_folder: Path | None = None,
) -> tuple[PlannedSuite, ...]:
    """Every suite that was asked for. Raises `NothingMatched` where selection leaves none."""
    rules = load_rules()
    statuses = targets(inventory)
    planned: dict[str, PlannedSuite] = {}
    for profile in profiles:
        for precision in precisions:
            for choice in choose_targets(devices, profile, precision, statuses):
                suite = plan_suite(profile, choice, precision, rules, inventory, template_folder=template_folder)
                other = planned.setdefault(suite.cell.id, suite)
                if other.profile is not profile:
                    raise _same_cell(other, suite)
    kept = [suite for suite in planned.values() if _chosen(suite.cell, select, skip)]
    if not kept:
        raise NothingMatched(
            f"nothing is left of {len(planned)} cell(s)",
            why=f"--select {' '.join(select) or '*'}, --skip {' '.join(skip) or 'nothing'}",
            fix=f"The cells are: {', '.join(sorted(planned)[:6])}.",
        )
    return tuple(kept)


def _same_cell(one: PlannedSuite, other: PlannedSuite) -> UsageError:
    return UsageError(
        f"{echo(one.profile.asked)} and {echo(other.profile.asked)} would be the same cell {one.cell}",
        why="evidence of one would pass for the other",
        fix="Name one of them, or rename a checkpoint's folder.",
    )


def _chosen(cell: Cell, select: Sequence[str], skip: Sequence[str]) -> bool:
    wanted = not select or any(cell.matches(pattern) for pattern in select)
    return wanted and not any(cell.matches(pattern) for pattern in skip)


def write_suites(planned: Sequence[PlannedSuite], folder: Path, *, force: bool) -> tuple[WrittenSuite, ...]:
    """Write the suites into `folder`; files that were edited by hand stay as they are unless `force`."""
    prepare_folder(folder)
    return tuple(
        WrittenSuite(
            planned=suite,
            path=folder / suite.file_name,
            state=write_suite(folder, suite.file_name, suite.text, force=force),
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
    pytest_arguments: Sequence[str] = (),
    on_progress: Progress = lambda _suite, _check: None,
) -> JobResult:
    """Run suites that were written and conclude for each cell.

    Raises `OutputError` where evidence can't be written, `JobInterrupted` after an interruption was recorded.
    """
    writer = EvidenceWriter(evidence, new_run_id())
    suites = [_read(one) for one in written]
    versions = versions_of(inventory)
    run = RunLine(
        run_id=writer.run_id,
        started_at=now(),
        command=command,
        machine=machine or machine_label(),
        inventory=inventory.to_dict(),
        versions=versions,
        plan=tuple(_planned(suite, one.planned) for suite, one in zip(suites, written, strict=True)),
    )
    interrupted = False
    with _environment(_suite_environment(written)):
        try:
            run_suites(
                run,
                suites,
                writer,
                limits=limits,
                pytest_arguments=pytest_arguments,
                on_progress=on_progress,
            )
        except KeyboardInterrupt:
            interrupted = True
        finally:
            writer.close()
    found = read_run(evidence, run.run_id)
    result = JobResult(
        run_id=run.run_id,
        started_at=run.started_at,
        cells=tuple(
            _result(one, suite, found.checks, versions, run.run_id)
            for one, suite in zip(written, suites, strict=True)
        ),
        evidence=tuple(sorted(evidence.glob(f"{run.run_id}-*.jsonl"))),
    )
    if interrupted:
        raise JobInterrupted(result)
    return result


def _planned(suite: SuiteFile, planned: PlannedSuite) -> PlannedCell:
    selection = planned.selection.to_dict() if planned.selection else None
    return suite.planned(planned.verdict.to_dict(), selection)


def _read(written: WrittenSuite) -> SuiteFile:
    suite = read_suite(written.path)
    planned = written.planned.cell
    if suite is None or suite.cell != planned:
        raise OutputError(
            f"{written.path} is not the suite of {planned}",
            why="it names no CELL" if suite is None else f"it names {suite.cell}",
            fix="Generate it again with --force.",
        )
    return suite


def _result(
    written: WrittenSuite,
    suite: SuiteFile,
    checks: Sequence[CheckLine],
    versions: Mapping[str, str],
    run_id: str,
) -> CellResult:
    own = [line for line in checks if line.cell_id == suite.cell.id]
    own.sort(key=lambda line: suite.checks.index(line.check_name) if line.check_name in suite.checks else 99)
    relevant = relevant_versions(suite.cell, versions)
    return CellResult(
        written=written,
        checks=suite.checks,
        lines=tuple(own),
        verdict=conclude(
            suite.cell,
            suite.checks,
            own,
            current_versions=relevant,
            run_versions={run_id: versions},
            subject_required=suite.subject,
            required_checks=required_checks(suite.cell),
        ),
    )


def _suite_environment(written: Sequence[WrittenSuite]) -> dict[str, str]:
    """What suites read beside their own text: device indices that were named, and where checkpoints lie."""
    devices = [str(one.planned.device) for one in written if one.planned.device.index is not None]
    folders = {str(one.planned.profile.folder.resolve()) for one in written if one.planned.profile.folder}
    before = os.environ.get(CHECKPOINTS_VARIABLE)
    return {
        DEVICES_VARIABLE: ",".join(dict.fromkeys(devices)),
        CHECKPOINTS_VARIABLE: os.pathsep.join([*sorted(folders), *([before] if before else [])]),
    }


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
