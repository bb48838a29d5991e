"""Run suites in children of a warm parent, several at a time, and write a line for every planned check. A crash, a
hang or a kill costs one suite."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ..backends.factory import backend_class
from ..errors import OutputError
from ..evidence.error_types import current_name
from ..evidence.record import CheckLine, Outcome, RunLine, Stage
from ..evidence.store import lines_by_cell, read_file, read_run
from ..evidence.writer import EvidenceWriter
from ..inventory.system.processor import usable_cores
from ..step_times import is_measured
from ..target import Target
from .check_lines import DISK_FULL, is_full_disk, line_for
from .child_watch import ChildEnding, ChildWatch, wait_for_any
from .device_state import DeviceState, Probe, Probed
from .progress import Progress
from .pytest_environment import requested_device
from .schedule import SuiteGroup, groups_of, next_group, threads_for
from .suite_child import ChildTask
from .suite_file import SuiteFile
from .warm import may_fork, warm_up

_MEMORY_SHARE = 0.9
_LOOK_S = 0.05
_WELL = Probed(state=DeviceState.ANSWERS)
_HELD = {signal.SIGINT, signal.SIGTERM}
_NO_PROGRESS = Progress()


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`timeout_s` in seconds for one check (loading and compiling count for the first), `memory_bytes` for one child,
    0 for no limit. Without a timeout, the target's backend decides. `by_cell` are other timeouts in seconds by cell
    id."""

    timeout_s: float | None = None
    memory_bytes: int = 0
    by_cell: Mapping[str, float] = field(default_factory=dict)

    def timeout_of(self, suite: SuiteFile) -> float:
        """Return the seconds that one check of a suite may take."""
        asked = self.by_cell.get(suite.cell.id, self.timeout_s)
        return backend_class(suite.cell.target.name).DEADLINE_S if asked is None else asked


def default_memory_limit() -> int:
    """Return nine tenths of the available memory in bytes, or 0, no limit, if it is unknown."""
    from ..inventory.system.main_memory import read_memory

    return int((read_memory().available_bytes or 0) * _MEMORY_SHARE)


def run_suites(
    run: RunLine,
    suites: Sequence[SuiteFile],
    writer: EvidenceWriter,
    *,
    limits: Limits,
    jobs: int = 1,
    pytest_arguments: Sequence[str] = (),
    progress: Progress = _NO_PROGRESS,
) -> Counter[str]:
    """Write the plan, run every suite in a child, `jobs` at a time, and write the end. Return counts by outcome.

    An interruption ends all children, is recorded for unfinished checks, and is raised again as `KeyboardInterrupt`.
    """
    writer.write(run)
    progress.planned(len(suites))
    present = _without_missing(suites, writer, progress)
    reason = "aborted"
    with terminate_interrupts():
        try:
            with tempfile.TemporaryDirectory(prefix="hwcompat-", ignore_cleanup_errors=True) as folder:
                if present:
                    warm_up(present)
                task = ChildTask(
                    suites=(),
                    hashes=(),
                    evidence=str(writer.folder.resolve()),
                    run_id=writer.run_id,
                    log=folder,
                    pipe=-1,
                    memory_limit=limits.memory_bytes,
                    parent=os.getpid(),
                    pytest_arguments=tuple(pytest_arguments),
                    threads=threads_for(jobs, usable_cores(), os.environ.get("OMP_NUM_THREADS", "")),
                )
                _Loop(task=task, suites=present, writer=writer, jobs=jobs, limits=limits, progress=progress).run()
            reason = "finished"
        except KeyboardInterrupt:
            reason = "interrupted"
            raise
        except OSError as error:
            if is_full_disk(error):
                raise _no_room(error) from error
            raise
        finally:
            progress.closed()
            gc.unfreeze()  # so that imports can be freed at the end
            counts = close_missing_checks(writer, suites, reason)
            writer.end(reason, counts, run.resumes)
    return counts


def _without_missing(suites: Sequence[SuiteFile], writer: EvidenceWriter, progress: Progress) -> list[SuiteFile]:
    """Return the suites whose models are available; write `not_run` for the checks of the others."""
    for suite in suites:
        if suite.missing:
            lines = close(suite, [], writer, "weights_missing", suite.missing)
            progress.ended(suite, Counter(line.outcome for line in lines))
    return [suite for suite in suites if not suite.missing]


def _no_room(error: OSError) -> OutputError:
    return OutputError(
        f"the temporary folder {tempfile.gettempdir()} is not writable",
        why=error.strerror or str(error),
        fix="Free disk space, or set TMPDIR to another folder, and continue with --resume.",
    )


@contextmanager
def terminate_interrupts() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that the record is closed."""

    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread, which handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _interruptions_held() -> Iterator[None]:
    """Delay interruptions until the end of this block, so that every started child is noted."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(kw_only=True)
class _Working:
    """A running group: its child, and the probe of the device on which one of its suites broke down, if any."""

    group: SuiteGroup
    watch: ChildWatch
    broke: ChildEnding | None = None
    probe: Probe | None = None


@dataclass(kw_only=True)
class _Loop:
    """A parent's loop over its children: start groups, read messages, and write the lines of ended suites."""

    task: ChildTask
    suites: Sequence[SuiteFile]
    writer: EvidenceWriter
    jobs: int
    limits: Limits
    progress: Progress
    working: list[_Working] = field(default_factory=list)
    lost: dict[Target, str] = field(default_factory=dict)
    started: int = 0

    def __post_init__(self) -> None:
        targets = {suite.cell.target for suite in self.suites}
        self.waiting = groups_of(self.suites, {target for target in targets if may_fork(target)})

    def run(self) -> None:
        """Return when every suite has ended; an exception ends all children."""
        try:
            while self.waiting or self.working:
                self._start_ready()
                wait_for_any([one.watch for one in self.working], _LOOK_S)
                for one in tuple(self.working):
                    self._poll(one)
                self.progress.waiting()
        finally:
            for one in self.working:
                one.watch.kill()
                if one.probe is not None:
                    one.probe.kill()

    def _start_ready(self) -> None:
        while len(self.working) < self.jobs:
            taken = frozenset[str]().union(*(one.group.places for one in self.working))
            number = next_group(self.waiting, taken)
            if number is None:
                return
            group = self._without_lost(self.waiting.pop(number))
            if group.suites:
                with _interruptions_held():
                    self.working.append(_Working(group=group, watch=self._start(group)))

    def _without_lost(self, group: SuiteGroup) -> SuiteGroup:
        for suite in group.suites:
            if suite.cell.target in self.lost:
                why = f"the device was lost in an earlier suite: {self.lost[suite.cell.target]}"
                self._report_end(suite, close(suite, [], self.writer, "device_lost", why))
        return replace(group, suites=tuple(one for one in group.suites if one.cell.target not in self.lost))

    def _start(self, group: SuiteGroup) -> ChildWatch:
        self.started += 1
        task = replace(
            self.task,
            suites=tuple(str(suite.path.resolve()) for suite in group.suites),
            hashes=tuple(suite.suite_hash for suite in group.suites),
            log=f"{self.task.log}{os.sep}{self.started}-",
            ends_on_failure=group.ends_on_failure,
        )
        return ChildWatch(
            task,
            fork=group.fork,
            timeouts_s=[self.limits.timeout_of(suite) for suite in group.suites],
            on_check=lambda number, check: self.progress.began(group.suites[number], check),
        )

    def _poll(self, one: _Working) -> None:
        if one.broke is not None and one.probe is not None:
            device = one.probe.poll()
            if device is not None:
                self._end(one, one.broke, device)
            return
        endings = one.watch.poll()
        for ending in endings:
            target = one.group.suites[ending.number].cell.target
            if ending.outcome is not None and ending.outcome.is_breakdown:
                one.broke, one.probe = ending, Probe(requested_device(target))
            elif one.watch.over and ending is endings[-1]:
                self._end(one, ending, _WELL)
            else:
                self._complete_suite(one, ending, _WELL)

    def _end(self, one: _Working, ending: ChildEnding, device: Probed) -> None:
        """Write the lines of the last suite of an ended child; the rest of its group gets a new child, next."""
        self._complete_suite(one, ending, device)
        if device.state is DeviceState.LOST:
            self.lost[one.group.suites[ending.number].cell.target] = device.reason
        if left := one.group.suites[ending.number + 1 :]:
            self.waiting.insert(0, replace(one.group, suites=left))
        self.working.remove(one)

    def _complete_suite(self, one: _Working, ending: ChildEnding, device: Probed) -> None:
        suite = one.group.suites[ending.number]
        selected = bool(self.task.pytest_arguments)
        lines = complete_suite(suite, one.watch.pid, ending, device, self.writer, selected=selected)
        self._report_end(suite, lines)
        if is_measured() and not any(line.speed.get("ms") for line in lines):
            left = [why for line in lines for why in line.speed.get("left_out", {}).values()]
            reason = ending.message or "; ".join(left) or "not all of its checks passed"
            self.progress.unmeasured(suite, reason)

    def _report_end(self, suite: SuiteFile, lines: Sequence[CheckLine]) -> None:
        self.progress.ended(suite, Counter(line.outcome for line in lines))


# Lines that the parent writes for its children


def complete_suite(
    suite: SuiteFile,
    pid: int,
    ending: ChildEnding,
    device: Probed,
    writer: EvidenceWriter,
    *,
    selected: bool,
) -> list[CheckLine]:
    """Write the missing lines of a suite that ran in the child `pid`, and return all its lines.

    `device` is the state of the device after a breakdown; `selected` is True if pytest's arguments may have left
    checks out.
    """
    path = writer.folder / f"{writer.run_id}-{pid}.jsonl"
    lines = [one for one in read_file(path)[0] if isinstance(one, CheckLine) and one.cell_id == suite.cell.id]
    if ending.outcome is Outcome.NOT_RUN:
        return [*lines, *close(suite, lines, writer, DISK_FULL, ending.message)]
    if ending.outcome is not None and suite.checks:
        lines = [*lines, _breakdown_line(suite, lines, ending, device, writer)]
    if ending.outcome is not None:
        error_type, reason = "not_reached", f"{ending.message} before it"
    elif selected and ending.pytest_ran:
        error_type, reason = "deselected", "deselected by the pytest arguments"
    else:
        error_type, reason = "not_reached", f"pytest did not run it: {ending.log[-300:]}"
    return [*lines, *close(suite, lines, writer, error_type, reason)]


def _breakdown_line(
    suite: SuiteFile, lines: Sequence[CheckLine], ending: ChildEnding, device: Probed, writer: EvidenceWriter
) -> CheckLine:
    """Write the line of the check during which a child broke down.

    If every check has its line, the last one gets a second, bad one.
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
        stage=Stage(ending.step) if ending.step in list(Stage) else Stage.RUN,
        error_type=current_name(str(outcome)),
        error_message=message,
        traceback=ending.log,
        actual_target=None if device.state is DeviceState.ABSENT else str(suite.cell.target),
    )
    writer.write(line)
    return line


def close(
    suite: SuiteFile, lines: Sequence[CheckLine], writer: EvidenceWriter, error_type: str, reason: str
) -> list[CheckLine]:
    """Write `not_run` for each planned check without a line among `lines`, and return what was written."""
    done = {line.check_name for line in lines}
    written = [
        line_for(suite, writer.run_id, check, Outcome.NOT_RUN, error_type=error_type, error_message=reason)
        for check in suite.checks
        if check not in done
    ]
    for line in written:
        writer.write(line)
    return written


def close_missing_checks(writer: EvidenceWriter, suites: Sequence[SuiteFile], reason: str) -> Counter[str]:
    """Return the outcomes of all checks of this run, after planned ones without a line were closed with the
    reason."""
    written = read_run(writer.folder, writer.run_id)
    lines = [*written.checks, *written.other_checks]  # the others are of a changed condition
    by_cell = lines_by_cell(lines)
    error_type = "not_reached" if reason == "finished" else "interrupted"
    for suite in suites:
        lines += close(suite, by_cell.get(suite.cell.id, ()), writer, error_type, f"the run was {reason}")
    return Counter(line.outcome for line in lines)
