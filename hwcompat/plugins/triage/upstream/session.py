"""From a checkout to evidence: the tests of one model type on one target, written as a run of another origin."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardware.cell import Cell
from hardware.detection import HardwareInfo
from hardware.errors import NothingMatched
from hardware.evidence.record import CheckLine, Origin, Outcome, PlannedCell, RunLine, Subject
from hardware.evidence.versions import versions_of
from hardware.evidence.writer import EvidenceWriter, machine_label, new_run_id, now
from hardware.target import Target

from .checkout import Checkout
from .children import FileRun, UpstreamTest, run_file

TASK = "upstream-tests"
"""Stands for a task in the ids of cells: transformers tests all classes of a type in one file."""

UNSEEN = "where it computed: transformers' tests don't prove placement; they only read which device to use"

_RAN = frozenset({Outcome.PASSED, Outcome.FAILED})


@dataclass(frozen=True, kw_only=True)
class UpstreamResult:
    """What the tests of a model type came to on a target, and the evidence that holds it."""

    model: str
    target: Target
    run_id: str
    evidence: Path
    tests: tuple[UpstreamTest, ...]
    library: str
    device: str
    interrupted: bool = False

    @property
    def counts(self) -> Counter[Outcome]:
        """How many tests came to each outcome."""
        return Counter(test.outcome for test in self.tests)

    @property
    def failures(self) -> tuple[UpstreamTest, ...]:
        """The tests that failed, in their order."""
        return tuple(test for test in self.tests if test.outcome.is_failure)

    @property
    def exit_code(self) -> int:
        """1 where a test failed or wasn't reached, 5 where none passed or failed, else 0."""
        unreached = ("not_reached", "device_lost", "interrupted")
        if self.failures or any(test.error_type in unreached for test in self.tests):
            return 1
        return 0 if self.counts[Outcome.PASSED] else NothingMatched.exit_code


def run_upstream(
    checkout: Checkout,
    path: Path,
    model: str,
    target: Target,
    inventory: HardwareInfo,
    *,
    evidence: Path,
    command: str,
    machine: str = "",
    timeout_s: float,
    pytest_arguments: Sequence[str] = (),
    on_test: Callable[[str], None] = lambda _name: None,
) -> UpstreamResult:
    """Run the tests of `path`, those of the type `model`, and leave their outcomes in the folder `evidence`.

    Raises what `run_file` does, then without a line of evidence; `OutputError` where the folder can't be written.
    """
    cell = Cell(model=model, task=TASK, target=target)
    writer = EvidenceWriter(evidence, new_run_id())
    started_at = now()
    try:
        run = run_file(
            checkout, path, target, timeout_s=timeout_s, pytest_arguments=pytest_arguments, on_test=on_test
        )
    except BaseException:
        writer.close()
        writer.path.unlink(missing_ok=True)
        raise
    _record(writer, run, cell, target, path, checkout, inventory, started_at, command, machine or machine_label())
    return UpstreamResult(
        model=model,
        target=target,
        run_id=writer.run_id,
        evidence=writer.path,
        tests=run.tests,
        library=f"transformers {checkout.version}",
        device=run.session.get("torch_device", ""),
        interrupted=run.interrupted,
    )


def _record(
    writer: EvidenceWriter,
    run: FileRun,
    cell: Cell,
    target: Target,
    path: Path,
    checkout: Checkout,
    inventory: HardwareInfo,
    started_at: str,
    command: str,
    machine: str,
) -> None:
    """Write the run, a line for each test, and the end."""
    suite_hash = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    planned = PlannedCell(
        cell_id=cell.id,
        checks=tuple(test.name for test in run.tests),
        suite=path.name,
        suite_hash=suite_hash,
        subject=Subject.TINY,
    )
    writer.write(
        RunLine(
            run_id=writer.run_id,
            started_at=started_at,
            command=command,
            machine=machine,
            inventory=inventory.to_dict(),
            versions=versions_of(inventory),
            plan=(planned,),
            isolation="the tests of a file share a process; after a crash or a timeout a new one goes on",
            origin=Origin.TRANSFORMERS,
        )
    )
    for test in run.tests:
        writer.write(_line(test, cell, target, run, writer.run_id, suite_hash, checkout))
    counts = Counter(str(test.outcome) for test in run.tests)
    reason = "interrupted" if run.interrupted else "done"
    writer.end(reason, counts)
    writer.close()


def _line(
    test: UpstreamTest, cell: Cell, target: Target, run: FileRun, run_id: str, suite_hash: str, checkout: Checkout
) -> CheckLine:
    ran: dict[str, Any] = {"actual_target": None}
    if test.outcome in _RAN:
        ran = {"actual_target": str(cell.target), "accelerator": run.session.get("device_name"), "unseen": UNSEEN}
    return CheckLine(
        run_id=run_id,
        cell_id=cell.id,
        check_name=test.name,
        outcome=test.outcome,
        subject=Subject.TINY,
        requested_target=str(target),
        precision=cell.precision,
        model=cell.model,
        task=cell.task,
        suite_hash=suite_hash,
        started_at=now(),
        duration_s=test.duration_s,
        conditions={"tests of": f"transformers {checkout.version}", "torch_device": run.session["torch_device"]},
        error_type=test.error_type,
        error_message=test.message,
        traceback=test.traceback,
        origin=Origin.TRANSFORMERS,
        **ran,
    )
