"""Requests to a lab machine over ssh: one command for each request, with lines of JSON as answers.

A host's name is data, never code or an option of ssh. Answers come from another machine and are untrusted; every
length is limited. A broken connection is reported and tried again, so every request may be made twice.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import queue
import re
import secrets
import shlex
import shutil
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hwcompat.hardware.errors import BrokenInput, UsageError, echo
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.process import PIPED, Child
from hwcompat.hardware.safe_read import parsed_json
from hwcompat.hardware.values import data_file

SSH_VARIABLE = "HWCOMPAT_SSH"
"""A variable with the command that replaces `ssh`, in shell syntax: `ssh -F other_config`."""

DEFAULT_FOLDER = ".cache/hwcompat/lab"

_HOST = re.compile(r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9._+-]{0,63})@)?(?P<name>[A-Za-z0-9_][A-Za-z0-9._-]{0,252})")
_OPTIONS = (
    *("BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=10", "ServerAliveCountMax=3"),
    *("ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes", "RequestTTY=no", "LogLevel=ERROR"),
)
"""Never ask for passwords, end dead connections within half a minute, and forward no keys or ports of this machine.
The user's configuration decides everything else."""

_BOOT = "import sys; del sys.path[0]; exec(sys.stdin.buffer.read(int(sys.argv[1])))"
"""Removes the folder in which ssh starts from the import path."""

ANSWER_S = 60.0

_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_LONGEST_ANSWER = 16 * 1024 * 1024
_MOST_NOISE = 64 * 1024
"""The most bytes that a login may print before the first answer."""
_AGENT = Path(__file__).with_name("lab_remote.py")

_REASONS = Path(__file__).with_suffix(".toml")

Answer = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LabHost:
    """A machine that ssh reaches by `name`, our `folder` on it (relative to the home folder unless absolute), and the
    `python` that runs suites."""

    name: str
    folder: str = DEFAULT_FOLDER
    python: str = "python3"

    @classmethod
    def parse(cls, text: str, python: str = "python3") -> LabHost:
        """Return the host of `[user@]name[:folder]`. Raises `UsageError` for anything else."""
        name, _, folder = text.partition(":")
        folder = folder.removeprefix("~/").rstrip("/")
        if not _HOST.fullmatch(name):
            raise UsageError(
                f"{echo(text)} isn't a host",
                why="a name has letters, digits, '.', '_' and '-', and begins with a letter or a digit",
                fix="For example: --host user@lab or --host lab:/data/hwcompat. Configure ports, keys and jump hosts "
                "in ssh's configuration, under a host alias.",
            )
        if not _is_path(folder or DEFAULT_FOLDER) or ".." in folder.split("/"):
            raise UsageError(f"{echo(folder)} isn't a usable folder", fix="For example: --host lab:/data/hwcompat")
        python = python.removeprefix("~/")  # ssh starts in the home folder
        if not _is_path(python):
            raise UsageError(
                f"{echo(python)} isn't a path of Python", fix="For example: --host-python miniconda3/bin/python"
            )
        return cls(name=name, folder=folder or DEFAULT_FOLDER, python=python)

    def command(self, length: int, token: str) -> list[str]:
        """Return the command that runs a Python program of `length` bytes on that machine; the program is sent first.
        Raises `UsageError` if ssh isn't installed here."""
        try:
            own = shlex.split(os.environ.get(SSH_VARIABLE) or "ssh")
        except ValueError as error:
            raise UsageError(f"{SSH_VARIABLE} isn't valid shell syntax", why=str(error)) from error
        if not own or shutil.which(own[0]) is None:
            raise UsageError(
                f"{echo(own[0] if own else '')} isn't installed here",
                why="--host needs OpenSSH's client",
                fix=f"Install it (Debian, Ubuntu: openssh-client), or set {SSH_VARIABLE} to its path.",
            )
        options = [word for option in _OPTIONS for word in ("-o", option)]
        return [*own, *options, "--", self.name, shlex.join([self.python, "-c", _BOOT, str(length), token])]


def _is_path(text: str) -> bool:
    return bool(text) and text.isprintable() and not text.startswith("-") and len(text) <= 1000


class LineDropped(Exception):
    """The connection broke or failed; the text says why. `output` is that of ssh and the other side."""

    def __init__(self, why: str, output: str = "") -> None:
        super().__init__(why)
        self.output = output


class LineLost(Exception):
    """The connection broke and didn't come back in time; the text says why."""


class LabMachine:
    """Sends requests over as many connections as necessary.

    If the first connection fails, it raises `UsageError` at once. A later failure is tried again for `patience_s`
    seconds, with growing pauses, before it raises `LineLost`. `on_note` gets notes on both.
    """

    def __init__(
        self, host: LabHost, *, patience_s: float = 600.0, on_note: Callable[[str], None] = lambda _text: None
    ) -> None:
        self.host = host
        self.sent = self.received = 0
        """Bytes, over all connections."""
        self._patience_s = patience_s
        self._on_note = on_note
        self._was_reached = False
        self._broke_at: float | None = None
        self._wait_s = _FIRST_WAIT_S

    def ask(self, verb: str, *, payload: bytes = b"", limit_s: float = ANSWER_S, **values: Any) -> Answer:
        """Return the answer to a request. Raises `UsageError` if the other side refuses it, `BrokenInput` for an
        invalid answer, and `LineLost`."""
        with contextlib.closing(self.answers(verb, lambda: (values, payload), limit_s=limit_s)) as answers:
            return next(answers)

    def answers(
        self, verb: str, request: Callable[[], tuple[Mapping[str, Any], bytes]], *, limit_s: float = ANSWER_S
    ) -> Generator[Answer, None, None]:
        """Yield the answers to a request, endlessly: `request` returns its values and payload, and is called again
        after the connection broke. `limit_s` is the time limit of one answer in seconds. Raises as `ask` does."""
        while True:
            values, payload = request()
            asked = {"verb": verb, "folder": self.host.folder, **values}
            try:
                with contextlib.closing(self._answers(asked, payload, limit_s)) as answers:
                    for answer in answers:
                        self._was_reached = True
                        if self._broke_at is not None:
                            self._broke_at = None
                            self._on_note(f"connected to {self.host.name} again")
                        if why := answer.get("refused"):
                            raise UsageError(f"{self.host.name} can't do that ({verb})", why=one_line(str(why)))
                        yield answer
            except LineDropped as error:
                self._wait(error)

    def _wait(self, error: LineDropped) -> None:
        if not self._was_reached:
            raise _refused(self.host, error) from error
        if self._broke_at is None and self._patience_s:
            self._broke_at, self._wait_s = time.monotonic(), _FIRST_WAIT_S
            self._on_note(
                f"the connection to {self.host.name} broke ({error}); the run continues there. Trying again for "
                f"{self._patience_s:.0f} s."
            )
        left_s = (self._broke_at or 0.0) + self._patience_s - time.monotonic()
        if left_s <= 0:
            raise LineLost(str(error)) from error
        time.sleep(min(self._wait_s, left_s))
        self._wait_s = min(self._wait_s * 2, _LONGEST_WAIT_S)

    def _answers(self, asked: Mapping[str, Any], payload: bytes, limit_s: float) -> Generator[Answer, None, None]:
        """Run one command of ssh and yield its answers until the connection ends, which is always `LineDropped`."""
        source, token = _AGENT.read_bytes(), f"hwcompat-{secrets.token_hex(8)}"
        process = Child(self.host.command(len(source), token), stdin=PIPED, stdout=PIPED, stderr=PIPED)
        data = source + json.dumps(asked).encode() + b"\n" + payload
        output: collections.deque[bytes] = collections.deque(maxlen=4)
        lines: queue.Queue[bytes] = queue.Queue(maxsize=4)
        writer, _, listener = (
            _start_thread(_write_input, process.stdin, data),
            _start_thread(_read, process.stdout, lines),
            _start_thread(_read_errors, process.stderr, output),
        )
        writer.join(timeout=limit_s)
        self.sent += len(data)
        reason, noise, is_greeted = "the connection broke", 0, False
        try:
            while line := lines.get(timeout=limit_s):
                if is_greeted:
                    if not line.endswith(b"\n") and len(line) < _LONGEST_ANSWER:
                        break
                    self.received += len(line)
                    yield _answer(self.host, line)
                elif line.strip() == token.encode():
                    is_greeted = True
                elif (noise := noise + len(line)) > _MOST_NOISE:
                    raise _no_answer(self.host, "the login printed more than 64 KiB before the first answer")
        except queue.Empty:
            reason = f"no answer for {limit_s:.0f} s"
        finally:
            process.end()
            listener.join(timeout=1)
        text = b"".join(output).decode(errors="replace")
        last = next((one for one in reversed(text.splitlines()) if one.strip()), "")
        raise LineDropped(one_line(last) or reason, text)


def _start_thread(work: Callable[..., None], *given: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=given, daemon=True)
    thread.start()
    return thread


def _write_input(stream: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError), stream:  # ssh may end before it has read everything
        stream.write(data)


def _read(stream: IO[bytes], lines: queue.Queue[bytes]) -> None:
    """Put each line into the queue as it arrives, and an empty one at the end."""
    with contextlib.suppress(OSError, ValueError), stream:
        while line := stream.readline(_LONGEST_ANSWER):
            lines.put(line)
    lines.put(b"")


def _read_errors(stream: IO[bytes], output: collections.deque[bytes]) -> None:
    """Keep the end of the error output of ssh and the other side."""
    with contextlib.suppress(OSError, ValueError), stream:
        while data := os.read(stream.fileno(), 1024):
            output.append(data)


def _answer(host: LabHost, line: bytes) -> Answer:
    try:
        if not line.endswith(b"\n"):
            raise ValueError("its line is longer than 16 MiB")
        found = parsed_json(line)
        if not isinstance(found, dict):
            raise ValueError("it isn't an object")
    except ValueError as error:
        raise _no_answer(host, one_line(str(error), longest=160)) from error
    return found


def _no_answer(host: LabHost, why: str) -> BrokenInput:
    return BrokenInput(f"the answer of {host.name} is invalid", why=why)


def _refused(host: LabHost, error: LineDropped) -> UsageError:
    """Return the error for a host that was never reached: why, and what to do."""
    why, fix = str(error), "This must work first: ssh -o BatchMode=yes {name} true"
    for one in data_file(_REASONS)["reason"]:
        if line := next((line for line in error.output.splitlines() if one["sign"] in line), ""):
            why, fix = f"{one['reason']} ({one_line(line, longest=160)})", one["fix"]
            break
    return UsageError(f"{host.name} cannot be used", why=why, fix=fix.format(name=host.name))
