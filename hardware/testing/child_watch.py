"""Start a child, follow which suite and check it runs, end it if it hangs, and report how each suite ended.

Nothing here blocks: one parent polls several children in turn.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..evidence.record import Outcome
from ..process import ROOT, Child, Forked, kill_group
from ..step_times import SPEED
from .suite_child import PYTEST_INTERNAL, ChildTask, Word, command_for, run_child

_GRACE_S = 0.3
_MOMENT_S = 0.005
_PYTEST_RAN = (0, 1, 5)
_LOG_TAIL = 12_000
_REMOVALS = 20


@dataclass(frozen=True, kw_only=True)
class ChildEnding:
    """How a suite ended. `outcome` is None after a normal end, and `not_run` if the child could no longer write.

    `running` is its last check, `step` the step of loading a model during which it ended, `number` its place in the
    task, and `pytest_ran` is False if pytest refused its arguments.
    """

    number: int
    outcome: Outcome | None
    message: str
    running: str
    log: str
    step: str = ""
    pytest_ran: bool = True


class ChildWatch:
    """One child, from its start to its end. Each suite and check that it names restarts the clock.

    Its temporary directory, beside its logs, is removed however it ends, with all that it and its own children left
    there. `timeouts_s` are the seconds that one check may take, by suite of the task. `on_check` is called with the
    suite's number and the check's name.
    """

    def __init__(
        self, task: ChildTask, *, fork: bool, timeouts_s: Sequence[float], on_check: Callable[[int, str], None]
    ) -> None:
        self.task = task
        self.timeouts_s = timeouts_s
        self.on_check = on_check
        self.over = False
        self._number = 0
        self._running = ""
        self._step = ""
        self._code: int | None = None
        self._timed_out = False
        self._full = ""
        self._buffer = b""
        self._kills_before = _oom_kills()
        self._reader, pipe = os.pipe()
        os.set_blocking(self._reader, False)
        self._is_open = True
        self._temporary = tempfile.mkdtemp(prefix="child-", dir=Path(task.log).absolute().parent)
        self._child = _start(replace(task, pipe=pipe, temporary=self._temporary), fork=fork, reader=self._reader)
        self.pid = self._child.pid
        os.close(pipe)
        self._deadline = time.monotonic() + self.timeout_s

    @property
    def timeout_s(self) -> float:
        """The seconds that one check of the current suite may take."""
        return self.timeouts_s[self._number]

    def poll(self) -> list[ChildEnding]:
        """Return the suites that have ended since the last call, without waiting."""
        status = self._status()
        endings = self._read_messages()
        if status is not None:
            endings.append(self._last(status))
            self._close()
        elif time.monotonic() > self._deadline:
            self._end_it()
        return endings

    def _status(self) -> int | None:
        """Return the child's exit code, or None while it runs.

        A child is waited for only after it was seen to have ended and its group was killed: until then the group's
        number is its own. One that ends just after that look is left for the next poll.
        """
        if self._child.returncode is None:
            ended = _has_ended(self.pid)
            if ended is False:
                return None
            if ended:
                kill_group(self.pid)  # processes that it started
        return self._child.poll()

    def kill(self) -> None:
        """End the child and all processes that it started."""
        if self._child.returncode is None:  # otherwise its number may be another process's
            kill_group(self.pid)
            self._child.wait()
        self._close()

    def _close(self) -> None:
        if not self.over:
            os.close(self._reader)
            _remove(self._temporary)
            self.over = True

    def _read_messages(self) -> list[ChildEnding]:
        endings: list[ChildEnding] = []
        while self._is_open:
            try:
                data = os.read(self._reader, 65536)
            except BlockingIOError:
                break
            self._is_open = bool(data)
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                word, _, text = line.decode(errors="replace").partition(" ")
                endings += self._handle(word, text)
        return endings

    def _handle(self, word: str, text: str) -> list[ChildEnding]:
        if self._timed_out:  # messages while it is being ended don't count
            return []
        if word == Word.STEP:  # no sign of life: a check has its time for all of its steps
            self._step = text
            return []
        self._deadline = time.monotonic() + self.timeout_s
        if word == Word.OVER:
            self._code = int(text)
        elif word == Word.CHECK:
            self._running, self._step = text, ""
            self.on_check(self._number, text)
        elif word == Word.FULL:
            self._full = text
        elif (number := int(text)) != self._number:
            before = self._ending(None, pytest_ran=self._code in _PYTEST_RAN)
            self._number, self._running, self._step, self._code = number, "", "", None
            self._deadline = time.monotonic() + self.timeout_s
            return [before]
        return []

    def _end_it(self) -> None:
        """Have the child write where it hangs, and kill it a moment later; `poll` sees its end."""
        if not self._timed_out:
            self._timed_out = True
            self._deadline = time.monotonic() + _GRACE_S
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGUSR1)  # faulthandler writes where it hangs
        else:
            kill_group(self.pid)

    def _last(self, status: int) -> ChildEnding:
        """Return how the current suite ended, given the child's exit code (a signal's number is negative)."""
        if self._full:
            return self._ending(Outcome.NOT_RUN, f"writing failed: {self._full}")
        if self._running == SPEED and self._code is None:  # all checks have their lines
            how = f"ended with {status}" if not self._timed_out else f"gave no sign of life for {self.timeout_s:g} s"
            return self._ending(None, f"the child {how} while it measured")
        if self._timed_out:
            where = self._running or "the start"
            return self._ending(Outcome.TIMEOUT, f"no sign of life for {self.timeout_s:g} s in {where}")
        if status < 0:
            name = _name_of(-status)
            oom_killed = -status == signal.SIGKILL and _oom_kills() > self._kills_before
            if oom_killed or "bad_alloc" in self._log():
                return self._ending(Outcome.OUT_OF_MEMORY, f"ended by {name}, out of memory")
            return self._ending(Outcome.CRASHED, f"ended by {name}")
        if self._code is None and "INTERNALERROR> MemoryError" in self._log():
            return self._ending(Outcome.OUT_OF_MEMORY, "pytest ended with MemoryError")
        if self._code is None:
            return self._ending(Outcome.CRASHED, f"ended with exit code {status} before pytest finished")
        return self._ending(None, pytest_ran=self._code in _PYTEST_RAN)

    def _ending(self, outcome: Outcome | None, message: str = "", *, pytest_ran: bool = True) -> ChildEnding:
        return ChildEnding(
            number=self._number,
            outcome=outcome,
            message=message,
            running=self._running,
            step=self._step,
            log=self._log(),
            pytest_ran=pytest_ran,
        )

    def _log(self) -> str:
        return _tail(Path(f"{self.task.log}{self._number}"))


def wait_for_any(watches: list[ChildWatch], longest_s: float) -> None:
    """Return when one of the children writes something or ends, at the latest after `longest_s` seconds."""
    living = [watch for watch in watches if not watch.over]
    talking = [watch._reader for watch in living if watch._is_open]
    if len(talking) < len(living):  # one has closed its end and is about to exit
        longest_s = min(longest_s, _MOMENT_S)
    if talking:
        select.select(talking, [], [], longest_s)
    else:
        time.sleep(longest_s)


def _start(task: ChildTask, *, fork: bool, reader: int) -> Forked | Child:
    if not fork or not hasattr(os, "fork"):
        return Child(command_for(task), pass_fds=(task.pipe,), cwd=ROOT)

    def work() -> int:
        try:
            os.close(reader)
            return run_child(task)
        except BaseException:
            traceback.print_exc()  # into its log
            return PYTEST_INTERNAL

    return Forked(work, own_session=True)


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _has_ended(pid: int) -> bool | None:
    """Whether a child that wasn't waited for has ended; None if the system doesn't tell."""
    with suppress(OSError, AttributeError):  # not every system has waitid
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return None


def _remove(folder: str) -> None:
    """Remove a child's files. Browsers end a moment after a child that was killed, and write until then."""
    for _ in range(_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not Path(folder).exists():
            return
        time.sleep(_MOMENT_S)


def _oom_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory since it started, or 0 if unknown."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _tail(path: Path) -> str:
    """Return the end of a child's log, without the list of loaded extension modules that follows a stack."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    kept = [line for line in text.splitlines(keepends=True) if not line.startswith("Extension modules: ")]
    return "".join(kept)[-_LOG_TAIL:]
