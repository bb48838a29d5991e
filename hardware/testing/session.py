"""One run from its plan to its evidence: results of an earlier run are reused, the rest is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..applied_fix import current_changes
from ..errors import NothingMatched, OutputError
from ..evidence.record import CheckLine, Origin, Outcome, PlannedCell, RunLine
from ..evidence.versions import versions_of
from ..evidence.writer import EvidenceWriter, machine_label, new_run_id, now
from ..inventory.hardware_info import HardwareInfo
from .progress import Progress
from .resume import Resumable, close_run, find_resumable
from .runner import Limits, run_suites
from .schedule import default_jobs
from .suite_file import SuiteFile


@dataclass(frozen=True, kw_only=True)
class Session:
    """The result of a run: its id (an earlier one's if nothing was left to run), and the reused results."""

    run_id: str
    taken_over: Resumable
    interrupted: bool = False

    def run_of(self, cell_id: str) -> str:
        """Return the run whose lines hold for a cell."""
        return self.taken_over.done.get(cell_id, self.run_id)


def exit_code(lines: Sequence[CheckLine], *, missing: bool) -> int:
    """Return 1 for a failed check, a check that wasn't reached, or a required device that is `missing`; 5 if nothing
    ran. A check that pytest's arguments left out isn't a failure."""
    unreached = [line for line in lines if line.outcome is Outcome.NOT_RUN]
    failed = any(line.outcome.is_failure for line in lines) or any(
        line.error_type != "deselected" for line in unreached
    )
    if failed or missing:
        return 1
    return NothingMatched.exit_code if len(unreached) == len(lines) else 0


def run_session(
    suites: Sequence[SuiteFile],
    plan: Sequence[PlannedCell],
    inventory: HardwareInfo,
    *,
    evidence: Path,
    command: str,
    machine: str = "",
    node: str = "",
    limits: Limits,
    jobs: int | None = None,
    resume: bool = False,
    pytest_arguments: Sequence[str] = (),
    progress: Progress | None = None,
    on_note: Callable[[str], None] = lambda _text: None,
) -> Session:
    """Run `suites`, planned by `plan` in the same order, and keep their evidence: `jobs` at a time, or a suitable
    number. With `resume`, run only what the newest run didn't finish; `on_note` gets the reasons. Raises
    `OutputError`."""
    machine = machine or machine_label()
    versions = versions_of(inventory)
    found = find_resumable(evidence, suites, versions, machine) if resume else Resumable()
    for note in found.notes() if resume else ():
        on_note(note)
    left = [suite for suite in suites if suite.cell.id not in found.done]
    if not left:
        close_run(evidence, found.run_ids[0])
        return Session(run_id=found.run_ids[0], taken_over=found)
    run = RunLine(
        run_id=new_run_id(),
        started_at=now(),
        command=command,
        machine=machine,
        node=node,
        inventory=inventory.to_dict(),
        versions=versions,
        plan=tuple(cell for suite, cell in zip(suites, plan, strict=True) if suite.cell.id not in found.done),
        resumes=found.run_ids,
        jobs=jobs or default_jobs(left),
        origin=Origin.CHANGED if current_changes().text else Origin.HWCOMPAT,
    )
    writer = EvidenceWriter(evidence, run.run_id)
    interrupted = False
    try:
        run_suites(
            *(run, left, writer),
            limits=limits,
            jobs=run.jobs,
            pytest_arguments=pytest_arguments,
            progress=progress or Progress(),
        )
    except KeyboardInterrupt:
        interrupted = True
    finally:
        writer.close()
    if not writer.path.exists():
        why = f"{writer.path} was removed during the run"
        raise OutputError(f"the evidence of run {writer.run_id} is missing", why=why)
    return Session(run_id=run.run_id, taken_over=found, interrupted=interrupted)
