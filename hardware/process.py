"""Child processes: their limits, deadlines, answers and termination.

`run` waits for a command and returns how it ended. `ask` sends a request to a module in a process of its own;
`answer` is the other side. `Child` and `Forked` are children that the caller controls while they run.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn

from . import errors
from .errors import HwCompatError
from .files import ROOT as ROOT
from .files import write_whole
from .plain_text import one_line

DROPPED, PIPED, MERGED = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
"""Where a stream of a child goes: dropped, to a pipe, or to standard output. None inherits the caller's stream."""

LONGEST_OUTPUT = 2**22
"""Bytes at the end of each stream of a command that are kept."""

_CHUNK, _MOST_CHUNKS = 1 << 16, 64
_PR_SET_PDEATHSIG = 1
_LEFT_S = 2.0  # seconds for the end of a pipe whose child has ended: its children may hold it forever
Stream = int | IO[bytes] | None


class Child(subprocess.Popen[bytes]):
    """A child process that the caller controls while it runs.

    It leads a session of its own, so that `end` reaches all that it started and Ctrl-C reaches only the caller. With
    `own_session=False` it stays in the caller's session. `memory_bytes` limits its data (0: only its core files,
    None: nothing).
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | str | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: Stream = DROPPED,
        stdout: Stream = None,
        stderr: Stream = None,
        own_session: bool = True,
        memory_bytes: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.own_session = own_session
        super().__init__(
            list(command),
            cwd=cwd,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=own_session,
            pass_fds=tuple(pass_fds),
            preexec_fn=None if memory_bytes is None else partial(limit_memory, memory_bytes),
        )

    def end(self) -> int:
        """Kill it, unless it has ended, with all that it started, and return its exit code."""
        if self.returncode is None:  # until it is waited for, its process id isn't reused
            if self.own_session and hasattr(os, "killpg"):  # Windows has no groups
                kill_group(self.pid)
            else:
                self.kill()
        return self.wait()

    def ended_in(self, limit_s: float | None) -> int | None:
        """Return its exit code; None if it and all that it started were killed after `limit_s` seconds."""
        try:
            return self.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.end()


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended: its exit code (negative for a signal, None if it took longer than `limit_s` seconds and
    was killed), the end of its output, and its duration in seconds."""

    returncode: int | None
    stdout: str
    stderr: str
    seconds: float
    limit_s: float | None

    @property
    def timed_out(self) -> bool:
        """Return whether it took longer than its limit."""
        return self.returncode is None

    @property
    def how(self) -> str:
        """Return how it ended, as a predicate: `ended with exit code 3`."""
        return (
            f"timed out after {self.limit_s:g} s"
            if self.returncode is None
            else f"ended with {ending_of(self.returncode)}"
        )

    @property
    def last_line(self) -> str:
        """Return the last line of its standard error, else of its standard output."""
        lines = self.stderr.strip().splitlines() or self.stdout.strip().splitlines() or ["it printed nothing"]
        return lines[-1]


def run(
    command: Sequence[str],
    *,
    limit_s: float | None,
    cwd: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    given: bytes = b"",
    stdout: Stream = PIPED,
    stderr: Stream = PIPED,
    own_session: bool = True,
    memory_bytes: int | None = None,
) -> Ended:
    """Run a command with the input `given` for at most `limit_s` seconds. Raises `OSError` if it can't be started.

    Its output is captured, unless `stdout` or `stderr` is a file, `DROPPED` or None. The other arguments are those of
    `Child`.
    """
    started = time.monotonic()
    child = Child(
        command,
        cwd=cwd,
        environment=environment,
        stdin=PIPED if given else DROPPED,
        stdout=stdout,
        stderr=stderr,
        own_session=own_session,
        memory_bytes=memory_bytes,
    )
    if child.stdin:
        threading.Thread(target=_write_input, args=(child.stdin, given), daemon=True).start()
    printed, complained = (_Captured(stream) for stream in (child.stdout, child.stderr))
    returncode = child.ended_in(limit_s)
    seconds = time.monotonic() - started
    output, complaint = printed.text(), complained.text()
    return Ended(returncode=returncode, stdout=output, stderr=complaint, seconds=seconds, limit_s=limit_s)


class _Captured:
    """The end of a stream, read by a thread so that the child never blocks."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True) if stream else None
        if self._thread:
            self._thread.start()

    def text(self) -> str:
        """Return the data as text."""
        if self._thread:
            self._thread.join(timeout=_LEFT_S)
        return self._kept.decode(errors="replace")

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while data := os.read(stream.fileno(), _CHUNK):
                self._kept += data
                del self._kept[: max(0, len(self._kept) - LONGEST_OUTPUT)]


def _write_input(stream: IO[bytes], given: bytes) -> None:
    with contextlib.suppress(OSError), stream:  # it may end before it has read all
        stream.write(given)


class NoAnswer(Exception):
    """A child ended before it answered, or took too long. The text names the cause; `ended` has the output."""

    def __init__(self, ended: Ended) -> None:
        if ended.returncode is None:
            text = f"no answer within {ended.limit_s:g} s"
        elif ended.returncode < 0:
            text = f"the process was ended by signal {-ended.returncode}"
        else:
            text = f"the process ended with code {ended.returncode}: {one_line(ended.last_line)}"
        super().__init__(text)
        self.ended = ended


def ask(
    module: str,
    request: Any,
    *,
    limit_s: float | None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Any:
    """Return the answer of `module` to `request`, from a process with this `environment` (None: ours).

    Request and answer are JSON values. The output of the child goes to `log`, if given. Raise the `HwCompatError`
    that the module raised, or `NoAnswer`.
    """
    with contextlib.ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hwcompat-"))) / "answer.json"
        out = stack.enter_context(log.open("w+b")) if log else None
        ended = run(
            # -P: no file of the current folder shadows a library.
            [sys.executable, "-P", "-m", module, str(file), str(os.getpid())],
            limit_s=limit_s,
            environment=with_product(environment),
            given=json.dumps(request).encode(),
            stdout=out or PIPED,
            stderr=MERGED if out else PIPED,
        )
        if not file.is_file():
            raise NoAnswer(replace(ended, stderr=end_of(out)) if out else ended)
        reply = json.loads(file.read_text(encoding="utf-8"))
    if "error" in reply:
        raise getattr(errors, reply["class"])(**reply["error"])
    return reply["answer"]


def answer(respond: Callable[[Any], Any]) -> None:
    """Answer the request of `ask` with the return value of `respond`, or with the `HwCompatError` that it raises.

    A module calls this when it is run. Its process ends with the parent.
    """
    file, parent = sys.argv[1:]
    die_with_parent(int(parent))
    request = json.load(sys.stdin)
    try:
        reply = {"answer": respond(request)}
    except HwCompatError as error:
        print(f"problem: {one_line(str(error))}", file=sys.stderr)  # for readers of the log
        reply = _plain(error)
    write_whole(Path(file), json.dumps(reply))


def _plain(error: HwCompatError) -> dict[str, Any]:
    known = next(one.__name__ for one in type(error).__mro__ if one.__module__ == errors.__name__)  # to both sides
    kind = {"error_type": error.error_type} if isinstance(error, errors.ModelRefused) else {}
    return {"class": known, "error": {"what": error.what, "why": error.why, "fix": error.fix, **kind}}


class Forked:
    """A forked child that runs `work` and exits with its result, or with 1 if it raises. It is controlled like a
    `Child`. With `own_session` it leads a session of its own, and signals end it as usual."""

    def __init__(self, work: Callable[[], int], *, own_session: bool = False) -> None:
        self.own_session = own_session
        self.returncode: int | None = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the child needs no thread of the parent
            self.pid = os.fork()
        if not self.pid:
            self._run_work(work)

    def _run_work(self, work: Callable[[], int]) -> NoReturn:
        code = 1
        gc.freeze()  # sessions of runtimes in the parent's garbage would wait for threads that don't exist here
        try:
            if self.own_session:
                os.setsid()
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_DFL)
            code = work()
        finally:
            os._exit(code)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self) -> int:
        """Wait for its end and return the exit code."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def end(self) -> int:
        """Kill it, unless it has ended, and return its exit code."""
        if self.returncode is None:  # until it is waited for, its process id isn't reused
            if self.own_session:
                kill_group(self.pid)
            else:
                os.kill(self.pid, signal.SIGKILL)
        return self.wait()


class Answering(Forked):
    """A forked child whose `work` returns bytes. `reader` can be passed to `select`; `heard` holds the received
    bytes."""

    def __init__(self, work: Callable[[], bytes]) -> None:
        self.heard = b""
        self.reader, writer = os.pipe()

        def tell() -> int:
            os.close(self.reader)
            data = work()
            while data:
                data = data[os.write(writer, data) :]
            return 0

        super().__init__(tell)
        os.close(writer)

    def heard_all(self) -> bool:
        """Read what is available without waiting; return whether it is complete."""
        for _ in range(_MOST_CHUNKS):
            if not select.select([self.reader], [], [], 0)[0]:
                return False
            data = os.read(self.reader, _CHUNK)
            self.heard += data
            if not data:
                return True
        return False

    def answer_in(self, limit_s: float, longest: int) -> bytes:
        """Return what it sent within `limit_s` seconds, not much more than `longest` bytes, and end it."""
        until = time.monotonic() + limit_s
        try:
            while not self.heard_all() and len(self.heard) <= longest:
                if not select.select([self.reader], [], [], max(until - time.monotonic(), 0))[0]:
                    break
        finally:
            self.end()
        return self.heard

    def end(self) -> int:
        """Kill it, unless it has ended, close the pipe, and return its exit code."""
        if self.reader >= 0:
            os.close(self.reader)
            self.reader = -1
        return super().end()


def with_product(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment (None: ours) in which Python finds this product first on `PYTHONPATH`."""
    own = os.environ if environment is None else environment
    return {**own, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), own.get("PYTHONPATH")]))}


def end_of(log: IO[bytes], longest: int = LONGEST_OUTPUT) -> str:
    """Return the last bytes of a log of child processes as text."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - longest))
    return log.read().decode(errors="replace")


def ending_of(returncode: int) -> str:
    """Return how a process ended, in words, from its exit code."""
    return f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}"


def kill_group(pid: int) -> None:
    """Kill a process that leads a session, and all that it started, if they exist."""
    for send in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, signal.SIGKILL)


def limit_memory(memory_bytes: int) -> None:
    """Disable core files of this process, and limit its data to `memory_bytes` (0: no limit)."""
    with contextlib.suppress(ImportError):  # Windows has no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory_bytes:
            resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


def die_with_parent(parent: int) -> None:
    """Make Linux end this process when its parent ends; on other systems it runs to its end."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError, TypeError):  # TypeError: Windows
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.name == "posix" and os.getppid() != parent:  # the parent ended before Linux was told
        os._exit(1)
