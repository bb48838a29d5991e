"""What must hold whatever comes in, checked for real: nothing is run, nothing is written elsewhere, nothing grows
without end, and a user reads one line."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import os
import pickle
import resource
import select
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from readers import check_terminal

from hardware.command_line import INTERNAL, run_command_line
from hardware.errors import HwCompatError
from hwcompat.cli.main_program import program

ROOT = Path(__file__).parents[2]

MEMORY = 700 * 1024 * 1024
"""What one input may make a process take, in bytes, beside what it had."""

DEADLINE_S = 60.0
"""By then a process is ended and the input has no end. It says nothing of speed: most take a thousandth."""

CODES = (0, 1, 4, 5)
"""Exit codes that an input may lead to; 3 is an internal error."""


class Sentinel:
    """The file that code from an input would make."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "code-was-run"

    def check(self) -> None:
        assert not self.path.exists(), "code from an input was run"


class Surroundings:
    """A folder as it is now, with everything below it but `but`: `check` fails where anything of it has changed."""

    def __init__(self, folder: Path, *but: Path) -> None:
        self.folder, self.but = folder, tuple(str(one) for one in but)
        self.before = self._listing()

    def check(self) -> None:
        after = self._listing()
        assert after == self.before, f"changed outside of the output folder: {set(after) ^ set(self.before)}"

    def _listing(self) -> dict[str, tuple[int, ...]]:
        found = {}
        for parent, folders, names in os.walk(self.folder):
            folders[:] = [one for one in folders if os.path.join(parent, one) not in self.but]
            for name in (*folders, *names):
                path = os.path.join(parent, name)
                if path not in self.but:
                    told = os.lstat(path)
                    kept = () if stat.S_ISDIR(told.st_mode) else (told.st_size, told.st_mtime_ns, told.st_ino)
                    found[path] = (told.st_mode, *kept)
        return found


def check_error(error: HwCompatError) -> None:
    """An error is one line on the terminal, whatever of the input stands in it."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = run_command_line(_raising(error), [], program="fuzz")
    assert code in CODES, f"exit code {code}: {error}"
    check_said(said.getvalue())


def check_said(text: str) -> None:
    """Standard error of a command: lines of notes, and one error; nothing of Python's own."""
    assert "Traceback" not in text
    assert "internal error" not in text
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    assert len(errors) <= 1
    check_terminal(text)


def _raising(error: HwCompatError) -> click.Command:
    def run() -> None:
        raise error

    return click.Command("fuzz", callback=run)


def refused_or(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What a call returns; None where it refused the input with an error for users, which is checked."""
    try:
        return call(*arguments, **named)
    except HwCompatError as error:
        check_error(error)
        return None


def invoked(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a line of `hwcompat`, in this process. Both are checked."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command_line(program, arguments, program="fuzz")
    assert code != INTERNAL, err.getvalue()
    assert code in CODES, f"exit code {code}: {err.getvalue()}"
    check_said(err.getvalue())
    return code, out.getvalue(), err.getvalue()


class Broke(AssertionError):
    """A process went beyond its limits, or ended by itself."""


def limited(
    call: Callable[..., Any], *arguments: Any, memory: int = MEMORY, seconds: float = DEADLINE_S, **named: Any
) -> Any:
    """What a call returns (None where it refuses), in a forked process that has little memory and time.

    Raises `Broke` where it takes more than that or dies, and `AssertionError` with the traceback of what it raised.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        _in_child(functools.partial(call, *arguments, **named), memory, writer)
    os.close(writer)
    try:
        answer = b"".join(_read(reader, seconds))
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if not answer:
        raise Broke(f"no answer in {seconds:.0f} s, or no memory: status {status}")
    kind, value = pickle.loads(answer)  # our own child's
    if kind == "memory":
        raise Broke(f"more than {memory >> 20} MiB of memory")
    assert kind == "value", value
    return value


def _in_child(call: Callable[[], Any], memory: int, writer: int) -> None:
    answer: tuple[str, Any]
    gc.freeze()  # sessions of runtimes in the parent's garbage would wait for threads that don't exist here
    try:
        have = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (have + memory, have + memory))
        try:
            answer = ("value", refused_or(call))
        except MemoryError:
            answer = ("memory", None)
        except BaseException:
            answer = ("raised", traceback.format_exc()[-4000:])
        data = pickle.dumps(answer)
        while data:
            data = data[os.write(writer, data) :]
    finally:
        os._exit(0)


def _read(reader: int, seconds: float) -> Iterator[bytes]:
    until = time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([reader], [], [], max(until - time.monotonic(), 0))
        part = os.read(reader, 1 << 20) if ready else b""
        if not part:
            return
        yield part


class Opened:
    """The files below a folder that this process opens while it is used as a context, and code that it compiles."""

    _active: Opened | None = None
    _installed = False

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder.resolve())
        self.names: set[str] = set()

    def __enter__(self) -> Opened:
        if not Opened._installed:
            sys.addaudithook(_heard)
            Opened._installed = True
        Opened._active = self
        return self

    def __exit__(self, *_: object) -> None:
        Opened._active = None

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.exec", "subprocess.Popen", "os.system", "import", "compile"):
            named = arguments[1] if event in ("compile",) else arguments[0]
            text = os.fsdecode(named) if isinstance(named, (str, bytes)) else ""
            if text.startswith(self.folder):
                self.names.add(f"{event} {os.path.relpath(text, self.folder)}")


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if Opened._active is not None:
        Opened._active.hear(event, arguments)
