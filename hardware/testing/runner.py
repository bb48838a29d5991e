"""Runs suites, each in a child of a warm parent, and sees to it that every planned check leaves a true line.

The parent imports torch and transformers but never computes a tensor: after one large matrix product a forked
child would hang in OpenMP. A crash, a hang or a kill costs one suite; what the child left open the parent writes.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..backends.factory import backend_class
from ..errors import HwCompatError
from ..evidence.record import CheckLine, EndLine, Outcome, RunLine, Stage
from ..evidence.store import read_file
from ..evidence.writer import EvidenceWriter, now
from ..target import Target
from .child import PYTEST_IS_OVER, ChildTask, command_for, run_child
from .suite_file import SuiteFile

DEFAULT_TIMEOUT_S = 300.0
_MEMORY_SHARE = 0.9
_GRACE_S = 0.3
_PYTEST_RAN = (0, 1, 5)
_PYTEST_INTERNAL = 3
_PROBE_TIMEOUT_S = 60.0
_LOG_TAIL = 12_000
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`timeout_s` for one check (loading and compiling count for the first), `memory_bytes` for one child, 0 none."""

    timeout_s: float = DEFAULT_TIMEOUT_S
    memory_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class _Ending:
    """How a child ended. `outcome` is None where it ended by itself, in order."""

    outcome: Outcome | None
    message: str
    running: str
    log: str
    deselecting: bool = False


Progress = Callable[[SuiteFile, str], None]


def default_memory_limit() -> int:
    """Nine tenths of what is available now, in bytes."""
    from ..system.memory import read_memory

    return int(read_memory().available_bytes * _MEMORY_SHARE)


_warmed_here = False


def _may_fork(target: Target) -> bool:
    """Whether a child may be forked: the target survives it, and torch came in through `warm_up` alone.

    A parent that has computed with torch would hand its children an OpenMP pool whose threads don't exist.
    """
    return _warmed_here and backend_class(target.name).FORK_SAFE


def warm_up(suites: Sequence[SuiteFile]) -> None:
    """Import what the suites will need, run pytest once on nothing, and freeze the garbage collector."""
    global _warmed_here
    _warmed_here = _warmed_here or "torch" not in sys.modules
    # Threads that spin while they wait would starve their siblings as soon as two processes share the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    names = {"torch", "transformers", "hardware.testing.plugin", "safetensors.numpy"}
    for target in {suite.cell.target for suite in suites}:
        with suppress(HwCompatError):  # the suite itself will say what the target lacks
            backend_class(target.name)(target)  # sets what its runtime reads when it is imported
        names.update(backend_class(target.name).WARM_IMPORTS)
    for name in sorted(names):
        with suppress(Exception):  # the suite itself will say what is missing or broken
            importlib.import_module(name)
    _import_classes(suites)
    _warm_pytest()
    gc.collect()
    gc.freeze()


@functools.cache
def _warm_pytest() -> None:
    """Run pytest once in this process: the first time costs seconds, and children inherit what it left."""
    import pytest

    with tempfile.TemporaryDirectory() as folder, _silenced():
        empty = Path(folder) / "test_nothing.py"
        empty.write_text("def test_nothing():\n    assert True\n", encoding="utf-8")
        pytest.main([str(empty), "-c", str(Path(__file__).with_name("suite.ini")), f"--rootdir={folder}"])


def _import_classes(suites: Sequence[SuiteFile]) -> None:
    """transformers imports a model's module when its class is first named: name them here, once."""
    with suppress(ImportError):
        library = importlib.import_module("transformers")
        for name in sorted({name for suite in suites for name in suite.transformers_names}):
            with suppress(Exception):  # whatever a class's module raises, the suite's own import will tell
                getattr(library, name)


@contextmanager
def _silenced() -> Iterator[None]:
    """Standard output and error go nowhere, at the level of the file descriptors."""
    kept = [os.dup(1), os.dup(2)]
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        yield
    finally:
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(nothing)


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
    counts: Counter[str] = Counter()
    lost: set[Target] = set()
    reason = "aborted"
    with _terminate_interrupts():
        try:
            warm_up(suites)
            for suite in suites:
                if suite.cell.target in lost:
                    lines = _close(suite, [], writer, "device_lost", "the device was lost in an earlier suite")
                else:
                    lines, device = _run_one(run, suite, writer, limits, pytest_arguments, on_progress)
                    if device is _Device.LOST:
                        lost.add(suite.cell.target)
                counts.update(line.outcome for line in lines)
            reason = "finished"
        except KeyboardInterrupt:
            reason = "interrupted"
            raise
        finally:
            if reason == "interrupted":
                counts = _count_all(writer, suites)
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
    run: RunLine,
    suite: SuiteFile,
    writer: EvidenceWriter,
    limits: Limits,
    pytest_arguments: Sequence[str],
    on_progress: Progress,
) -> tuple[list[CheckLine], _Device]:
    """Run one suite. Returns its lines and, where the child broke down, what became of the device."""
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as folder:
        reader, pipe = os.pipe()
        task = ChildTask(
            suite=str(suite.path.resolve()),
            evidence=str(writer.folder.resolve()),
            run_id=run.run_id,
            log=str(Path(folder) / "log"),
            pipe=pipe,
            memory_limit=limits.memory_bytes,
            parent=os.getpid(),
            pytest_arguments=tuple(pytest_arguments),
        )
        kills = _oom_kills()
        pid = _start(task, fork=_may_fork(suite.cell.target), reader=reader)
        os.close(pipe)
        watch = _Watch(pid, reader, limits.timeout_s, lambda check: on_progress(suite, check))
        try:
            status = watch.wait()
        except KeyboardInterrupt:
            _kill(pid)
            done = _lines_of(writer, run.run_id, pid, suite)
            _close(suite, done, writer, "interrupted", "the run was interrupted")
            raise
        finally:
            os.close(reader)
        oom_killed = _oom_kills() > kills
        ending = _ending(status, watch, _tail(Path(task.log)), oom_killed, limits, arguments=bool(pytest_arguments))
        lines = _lines_of(writer, run.run_id, pid, suite)
        broken = ending.outcome is not None
        device = _state_of_device(suite.cell.target) if broken else _Device.ANSWERS
        actual = None if device is _Device.ABSENT or not broken else str(suite.cell.target)
        lines += _account_for(suite, lines, ending, writer, actual)
    return lines, device


def _start(task: ChildTask, *, fork: bool, reader: int) -> int:
    if not fork or not hasattr(os, "fork"):
        return subprocess.Popen(
            command_for(task),
            pass_fds=(task.pipe,),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            cwd=_ROOT,
        ).pid
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:
        os.close(reader)
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        code = run_child(task)
    finally:
        os._exit(code)


class _Watch:
    """Waits for a child, hears which check it starts, and ends it when one takes too long."""

    def __init__(self, pid: int, reader: int, timeout_s: float, on_check: Callable[[str], None]) -> None:
        self.pid = pid
        self.reader = reader
        self.timeout_s = timeout_s
        self.on_check = on_check
        self.running = ""
        self.finished = False
        self.timed_out = False

    def wait(self) -> int:
        """The child's wait status."""
        deadline = time.monotonic() + self.timeout_s
        buffer = b""
        open_pipe = True
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if open_pipe and select.select([self.reader], [], [], 0 if ended else 0.05)[0]:
                data = os.read(self.reader, 65536)
                open_pipe = bool(data)
                *names, buffer = (buffer + data).split(b"\n")
                for name in names:
                    self._hear(name.decode(errors="replace"))
                    deadline = time.monotonic() + self.timeout_s
            elif not open_pipe and not ended:
                time.sleep(0.01)
            if ended:
                return status
            if time.monotonic() > deadline:
                self.timed_out = True
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGUSR1)  # faulthandler writes where it hangs
                time.sleep(_GRACE_S)
                return _kill(self.pid)

    def _hear(self, name: str) -> None:
        self.finished = name == PYTEST_IS_OVER
        if not self.finished:
            self.running = name
            self.on_check(name)


def _kill(pid: int) -> int:
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            send(pid, signal.SIGKILL)
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:  # the interruption came between its end and our noting it
        return 0


def _ending(status: int, watch: _Watch, log: str, oom_killed: bool, limits: Limits, *, arguments: bool) -> _Ending:
    running = watch.running
    if watch.timed_out:
        message = f"no sign of life for {limits.timeout_s:.0f} s in {running or 'the start'}"
        return _Ending(outcome=Outcome.TIMEOUT, message=message, running=running, log=log)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name
        if (number == signal.SIGKILL and oom_killed) or "bad_alloc" in log:
            message = f"ended by {name} for want of memory"
            return _Ending(outcome=Outcome.OUT_OF_MEMORY, message=message, running=running, log=log)
        return _Ending(outcome=Outcome.CRASHED, message=f"ended by {name}", running=running, log=log)
    code = os.waitstatus_to_exitcode(status)
    if not watch.finished or code == _PYTEST_INTERNAL:
        message = f"ended with exit code {code} before pytest was over"
        return _Ending(outcome=Outcome.CRASHED, message=message, running=running, log=log)
    deselecting = arguments and code in _PYTEST_RAN
    return _Ending(outcome=None, message="", running=running, log=log, deselecting=deselecting)


def _oom_kills() -> int:
    """Kills by the kernel for want of memory since it started; 0 where it doesn't tell."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _tail(path: Path) -> str:
    """The end of a child's log, without the list of loaded extension modules that follows a stack."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    kept = [line for line in text.splitlines(keepends=True) if not line.startswith("Extension modules: ")]
    return "".join(kept)[-_LOG_TAIL:]


def _lines_of(writer: EvidenceWriter, run_id: str, pid: int, suite: SuiteFile) -> list[CheckLine]:
    path = writer.folder / f"{run_id}-{pid}.jsonl"
    if not path.is_file():
        return []
    lines, _broken = read_file(path)
    return [line for line in lines if isinstance(line, CheckLine) and line.cell_id == suite.cell.id]


def _account_for(
    suite: SuiteFile,
    lines: Sequence[CheckLine],
    ending: _Ending,
    writer: EvidenceWriter,
    actual_target: str | None,
) -> list[CheckLine]:
    """Write a line for each planned check that the child left without one."""
    done = {line.check_name for line in lines}
    written: list[CheckLine] = []
    left = [check for check in suite.checks if check not in done]
    if ending.outcome is not None and suite.checks:
        # Where every check has its line already, the last one is said to have ended badly as well.
        victim = ending.running if ending.running in left or not left else left[0]
        victim = victim or suite.checks[-1]
        outcome = ending.outcome
        written.append(
            _line(
                suite,
                victim,
                writer,
                outcome,
                str(outcome),
                ending.message,
                log=ending.log,
                actual_target=actual_target,
            )
        )
    if ending.outcome is not None:
        error_type, reason = "not_reached", f"{ending.message} before it"
    elif ending.deselecting:
        error_type, reason = "deselected", "the arguments for pytest left it out"
    else:
        error_type, reason = "not_reached", f"pytest did not run it: {ending.log[-300:]}"
    return [*written, *_close(suite, [*lines, *written], writer, error_type, reason)]


def _close(
    suite: SuiteFile, lines: Sequence[CheckLine], writer: EvidenceWriter, error_type: str, reason: str
) -> list[CheckLine]:
    done = {line.check_name for line in lines}
    return [
        _line(suite, check, writer, Outcome.NOT_RUN, error_type, reason)
        for check in suite.checks
        if check not in done
    ]


def _line(
    suite: SuiteFile,
    check: str,
    writer: EvidenceWriter,
    outcome: Outcome,
    error_type: str,
    message: str,
    *,
    log: str = "",
    actual_target: str | None = None,
) -> CheckLine:
    line = CheckLine(
        run_id=writer.run_id,
        cell_id=suite.cell.id,
        check_name=check,
        outcome=outcome,
        stage=None if outcome is Outcome.NOT_RUN else Stage.RUN,
        error_type=error_type,
        error_message=message,
        traceback=log,
        requested_target=str(suite.cell.target),
        actual_target=actual_target,
        precision=suite.cell.precision,
        model=suite.cell.model,
        task=suite.cell.task,
        subject=suite.subject,
        model_revision=suite.model_revision,
        config_hash=suite.config_hash,
        architecture=suite.architecture,
        suite_hash=suite.suite_hash,
        started_at=now(),
        duration_s=0.0,
    )
    writer.write(line)
    return line


def _count_all(writer: EvidenceWriter, suites: Sequence[SuiteFile]) -> Counter[str]:
    """Outcomes of every planned check of this run; those without a line are closed as interrupted."""
    lines = [
        line
        for path in sorted(writer.folder.glob(f"{writer.run_id}-*.jsonl"))
        for line in read_file(path)[0]
        if isinstance(line, CheckLine)
    ]
    for suite in suites:
        own = [line for line in lines if line.cell_id == suite.cell.id]
        lines += _close(suite, own, writer, "interrupted", "the run was interrupted")
    return Counter(line.outcome for line in lines)


class _Device(StrEnum):
    """What a probe after a breakdown found."""

    ANSWERS = "answers"
    LOST = "lost"
    ABSENT = "absent"


def _state_of_device(target: Target) -> _Device:
    """Whether the target still computes the known answer; it is reset once where its backend can do that."""
    state = _probe_in_child(target, reset=False)
    return _probe_in_child(target, reset=True) if state is _Device.LOST else state


def _probe_in_child(target: Target, *, reset: bool) -> _Device:
    code = (
        "import sys\n"
        "from hardware.backends.factory import get_backend\n"
        "from hardware.known_answer import agrees\n"
        f"backend = get_backend({str(target)!r})\n"
        "if backend.unavailable(): sys.exit(7)\n"
        f"if {reset!r} and not backend.reset(): sys.exit(1)\n"
        "sys.exit(0 if agrees(backend.known_answer()) else 1)\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            timeout=_PROBE_TIMEOUT_S,
            capture_output=True,
            check=False,
            cwd=_ROOT,
        )
    except subprocess.TimeoutExpired:
        return _Device.LOST
    return {0: _Device.ANSWERS, 7: _Device.ABSENT}.get(done.returncode, _Device.LOST)
