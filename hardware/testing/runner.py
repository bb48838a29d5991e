"""Runs suites, each in a child of a warm parent, and sees to it that every planned check leaves a true line.

A crash, a hang or a kill costs one suite; what the child left open the parent writes.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..evidence.record import CheckLine, EndLine, Outcome, RunLine, Stage
from ..evidence.store import read_file, read_run
from ..evidence.writer import EvidenceWriter, now
from ..target import Target
from .child import ChildTask
from .device_state import DeviceState, Probed, state_of_device
from .lines import line_for
from .suite_file import SuiteFile
from .warm import may_fork, warm_up
from .watch import Ending, Watch

DEFAULT_TIMEOUT_S = 300.0
_MEMORY_SHARE = 0.9
_WELL = Probed(state=DeviceState.ANSWERS)

Progress = Callable[[SuiteFile, str], None]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`timeout_s` for one check (loading and compiling count for the first), `memory_bytes` for one child, 0 none."""

    timeout_s: float = DEFAULT_TIMEOUT_S
    memory_bytes: int = 0


def default_memory_limit() -> int:
    """Nine tenths of what is available now, in bytes."""
    from ..system.memory import read_memory

    return int(read_memory().available_bytes * _MEMORY_SHARE)


def run_suites(
    run: RunLine,
    suites: Sequence[SuiteFile],
    writer: EvidenceWriter,
    *,
    limits: Limits,
    pytest_arguments: Sequence[str] = (),
    on_progress: Progress = lambda _suite, _check: None,
) -> Counter[str]:
    """Write the plan, run every suite in a child of its own, and write the end. Returns counts by outcome.

    An interruption is recorded for what it cut off and raised again as `KeyboardInterrupt`.
    """
    writer.write(run)
    lost: dict[Target, str] = {}
    reason = "aborted"
    with _terminate_interrupts():
        try:
            warm_up(suites)
            for suite in suites:
                if suite.cell.target in lost:
                    why = f"the device was lost in an earlier suite: {lost[suite.cell.target]}"
                    _close(suite, [], writer, "device_lost", why)
                    continue
                device = _run_one(suite, writer, limits, pytest_arguments, on_progress)
                if device.state is DeviceState.LOST:
                    lost[suite.cell.target] = device.reason
            reason = "finished"
        except KeyboardInterrupt:
            reason = "interrupted"
            raise
        finally:
            counts = _settle(writer, suites, reason)
            writer.write(EndLine(run_id=run.run_id, ended_at=now(), reason=reason, counts=dict(counts)))
    return counts


@contextmanager
def _terminate_interrupts() -> Iterator[None]:
    """A polite request to end is treated like Ctrl-C, so that the record is closed."""

    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread: whoever owns it handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run_one(
    suite: SuiteFile,
    writer: EvidenceWriter,
    limits: Limits,
    pytest_arguments: Sequence[str],
    on_progress: Progress,
) -> Probed:
    """Run one suite and account for all its checks. Returns what became of the device."""
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as folder:
        task = ChildTask(
            suite=str(suite.path.resolve()),
            evidence=str(writer.folder.resolve()),
            run_id=writer.run_id,
            log=str(Path(folder) / "log"),
            pipe=-1,
            memory_limit=limits.memory_bytes,
            parent=os.getpid(),
            pytest_arguments=tuple(pytest_arguments),
        )
        watch = Watch(
            task,
            fork=may_fork(suite.cell.target),
            timeout_s=limits.timeout_s,
            on_check=lambda check: on_progress(suite, check),
        )
        try:
            ending = watch.wait()
        except KeyboardInterrupt:
            watch.kill()
            raise
    lines = _lines_of(writer, watch.pid, suite)
    device = _WELL if ending.outcome is None else state_of_device(suite.cell.target)
    if ending.outcome is not None and suite.checks:
        lines = [*lines, _victim(suite, lines, ending, device, writer)]
    if ending.outcome is not None:
        error_type, reason = "not_reached", f"{ending.message} before it"
    elif pytest_arguments and ending.pytest_ran:
        error_type, reason = "deselected", "the arguments for pytest left it out"
    else:
        error_type, reason = "not_reached", f"pytest did not run it: {ending.log[-300:]}"
    _close(suite, lines, writer, error_type, reason)
    return device


def _victim(
    suite: SuiteFile, lines: Sequence[CheckLine], ending: Ending, device: Probed, writer: EvidenceWriter
) -> CheckLine:
    """Write the line of the check that a child was at when it broke down.

    Where every check has its line already, the last one is said to have ended badly as well.
    """
    done = {line.check_name for line in lines}
    left = [check for check in suite.checks if check not in done]
    victim = ending.running if ending.running in left or not left else left[0]
    outcome = ending.outcome or Outcome.CRASHED
    message = f"{ending.message}; {device.reason}" if device.reason else ending.message
    line = line_for(
        suite,
        writer.run_id,
        victim or suite.checks[-1],
        outcome,
        stage=Stage.RUN,
        error_type=str(outcome),
        error_message=message,
        traceback=ending.log,
        actual_target=None if device.state is DeviceState.ABSENT else str(suite.cell.target),
    )
    writer.write(line)
    return line


def _close(
    suite: SuiteFile, lines: Sequence[CheckLine], writer: EvidenceWriter, error_type: str, reason: str
) -> None:
    """Write `not_run` for each planned check that has no line among `lines`."""
    done = {line.check_name for line in lines}
    for check in suite.checks:
        if check not in done:
            writer.write(
                line_for(suite, writer.run_id, check, Outcome.NOT_RUN, error_type=error_type, error_message=reason)
            )


def _lines_of(writer: EvidenceWriter, pid: int, suite: SuiteFile) -> list[CheckLine]:
    path = writer.folder / f"{writer.run_id}-{pid}.jsonl"
    if not path.is_file():
        return []
    return [line for line in read_file(path)[0] if isinstance(line, CheckLine) and line.cell_id == suite.cell.id]


def _settle(writer: EvidenceWriter, suites: Sequence[SuiteFile], reason: str) -> Counter[str]:
    """Outcomes of all checks of this run; planned ones that have no line yet are closed with the reason."""
    for suite in suites:
        own = [line for line in read_run(writer.folder, writer.run_id).checks if line.cell_id == suite.cell.id]
        _close(suite, own, writer, reason, f"the run was {reason}")
    return Counter(line.outcome for line in read_run(writer.folder, writer.run_id).checks)
