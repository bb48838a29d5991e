"""Starts the child of one suite, hears which check it is at, ends it when it hangs, and says how it ended."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..evidence.record import Outcome
from .child import PYTEST_IS_OVER, ChildTask, command_for, run_child

_GRACE_S = 0.3
_PYTEST_RAN = (0, 1, 5)
_PYTEST_INTERNAL = 3
_LOG_TAIL = 12_000
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a child ended. `outcome` is None where it ended by itself, in order; `running` is its last check.

    `pytest_ran` is False where pytest refused its arguments.
    """

    outcome: Outcome | None
    message: str
    running: str
    log: str
    pytest_ran: bool = True


class Watch:
    """One child, from its start to its end. It names each check that it starts, which sets the clock anew."""

    def __init__(self, task: ChildTask, *, fork: bool, timeout_s: float, on_check: Callable[[str], None]) -> None:
        self.log = Path(task.log)
        self.timeout_s = timeout_s
        self.on_check = on_check
        self.running = ""
        self.finished = False
        self.timed_out = False
        self._kills_before = _oom_kills()
        self._reader, pipe = os.pipe()
        self.pid = _start(replace(task, pipe=pipe), fork=fork, reader=self._reader)
        os.close(pipe)

    def wait(self) -> Ending:
        """Wait for the child and say how it ended."""
        try:
            status = self._wait()
        finally:
            os.close(self._reader)
        return self._ending(status)

    def kill(self) -> None:
        """End the child and all that it started."""
        _kill(self.pid)

    def _wait(self) -> int:
        deadline = time.monotonic() + self.timeout_s
        buffer = b""
        open_pipe = True
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if open_pipe and select.select([self._reader], [], [], 0 if ended else 0.05)[0]:
                data = os.read(self._reader, 65536)
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

    def _ending(self, status: int) -> Ending:
        log = _tail(self.log)

        def ending(outcome: Outcome | None, message: str = "", *, pytest_ran: bool = True) -> Ending:
            return Ending(outcome=outcome, message=message, running=self.running, log=log, pytest_ran=pytest_ran)

        if self.timed_out:
            where = self.running or "the start"
            return ending(Outcome.TIMEOUT, f"no sign of life for {self.timeout_s:g} s in {where}")
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            name = signal.Signals(number).name
            oom_killed = number == signal.SIGKILL and _oom_kills() > self._kills_before
            if oom_killed or "bad_alloc" in log:
                return ending(Outcome.OUT_OF_MEMORY, f"ended by {name} for want of memory")
            return ending(Outcome.CRASHED, f"ended by {name}")
        code = os.waitstatus_to_exitcode(status)
        if not self.finished or code == _PYTEST_INTERNAL:
            return ending(Outcome.CRASHED, f"ended with exit code {code} before pytest was over")
        return ending(None, pytest_ran=code in _PYTEST_RAN)


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


def _kill(pid: int) -> int:
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            send(pid, signal.SIGKILL)
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:  # the interruption came between its end and our noting it
        return 0


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
