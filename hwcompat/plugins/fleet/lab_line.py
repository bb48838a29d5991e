"""A lab machine that is asked over ssh: one command for each request, whose answers are lines of JSON.

What comes back was written by another machine: every length is limited, and nothing in it is believed here. A line
that breaks is told as that and tried again; every request may be made twice.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hardware.errors import BrokenInput, UsageError
from hardware.plain_text import one_line
from hardware.process import PIPED, Child
from hardware.untrusted import parsed_json

from .lab_host import LabHost

PATIENCE_S = 600.0
"""A reboot takes minutes, and so does a network that changes its mind."""
ANSWER_S = 60.0

_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_LONGEST_ANSWER = 16 * 1024 * 1024
_MOST_NOISE = 64 * 1024
"""What a login may print before anything answers."""
_AGENT = Path(__file__).with_name("lab_remote.py")

_REASONS = (
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "its key is another one than the one known here",
     "Find out why before you connect to it: it may be another machine."),
    ("Host key verification failed", "its key isn't known here",
     "Connect once by hand and look at the key: ssh {name}"),
    ("Permission denied", "it needs a password",
     "This must work first: ssh -o BatchMode=yes {name} true (ssh-copy-id, ssh-agent or ssh's configuration)."),
    ("Could not resolve hostname", "no machine is known by that name", "Look at the name, or at the configuration."),
    ("Connection refused", "nothing listens there", "Is sshd running there, and on that port?"),
    ("timed out", "it doesn't answer", "Is it on, and reachable from here?"),
    ("No route to host", "it can't be reached from here", "Is it on, and on a network that this machine reaches?"),
    ("user config file", "ssh can't read its configuration", "Look at HWCOMPAT_SSH."),
    ("command not found", "there is no such Python", "Name one with --host-python PATH."),
    ("No such file or directory", "there is no such Python", "Name one with --host-python PATH."),
)  # fmt: skip

Answer = Mapping[str, Any]


class LineDropped(Exception):
    """The connection broke, or was never made; the text says why. `told` is what ssh and the other side said."""

    def __init__(self, why: str, told: str = "") -> None:
        super().__init__(why)
        self.told = told


class LineLost(Exception):
    """The line broke and didn't come back in time; the text says why."""


@dataclass(kw_only=True)
class Traffic:
    """Bytes that were sent and received, over all connections."""

    sent: int = 0
    received: int = 0


class LabMachine:
    """Answers requests, over as many connections as it takes.

    A host that is never reached is a `UsageError` at once; one that was is tried again for `patience_s` seconds, each
    time a little later, and then it is `LineLost`. `on_note` is told of both.
    """

    def __init__(
        self, host: LabHost, *, patience_s: float = PATIENCE_S, on_note: Callable[[str], None] = lambda _text: None
    ) -> None:
        self.host = host
        self.traffic = Traffic()
        self._patience_s = patience_s
        self._on_note = on_note
        self._was_reached = False
        self._broke_at: float | None = None
        self._wait_s = _FIRST_WAIT_S

    def ask(self, verb: str, *, payload: bytes = b"", limit_s: float = ANSWER_S, **values: Any) -> Answer:
        """The answer to a request. Raises `UsageError` where the other side says that it can't be done, `BrokenInput`
        for what is no answer, and `LineLost`."""
        with contextlib.closing(self.answers(verb, lambda: (values, payload), limit_s=limit_s)) as answers:
            return next(answers)

    def answers(
        self, verb: str, request: Callable[[], tuple[Mapping[str, Any], bytes]], *, limit_s: float = ANSWER_S
    ) -> Generator[Answer, None, None]:
        """The answers to a request as they come, without end: `request` gives its values and payload, and is asked
        again where the line broke. `limit_s` is how long one answer may take, in seconds. Raises as `ask` does."""
        while True:
            values, payload = request()
            asked = {"verb": verb, "folder": self.host.folder, **values}
            try:
                with contextlib.closing(_answers(self.host, asked, payload, limit_s, self.traffic)) as answers:
                    for answer in answers:
                        self._is_reached()
                        if why := answer.get("refused"):
                            raise UsageError(f"{self.host.name} can't do that ({verb})", why=one_line(str(why)))
                        yield answer
            except LineDropped as error:
                self._wait(error)

    def _is_reached(self) -> None:
        self._was_reached = True
        if self._broke_at is not None:
            self._broke_at = None
            self._on_note(f"the line to {self.host.name} is back")

    def _wait(self, error: LineDropped) -> None:
        if not self._was_reached:
            raise refused(self.host, error) from error
        if self._broke_at is None and self._patience_s:
            self._broke_at, self._wait_s = time.monotonic(), _FIRST_WAIT_S
            self._on_note(
                f"the line to {self.host.name} broke ({error}); what runs there goes on. It is tried again for "
                f"{self._patience_s:.0f} s."
            )
        left_s = (self._broke_at or 0.0) + self._patience_s - time.monotonic()
        if left_s <= 0:
            raise LineLost(str(error)) from error
        time.sleep(min(self._wait_s, left_s))
        self._wait_s = min(self._wait_s * 2, _LONGEST_WAIT_S)


def _answers(
    host: LabHost, asked: Mapping[str, Any], payload: bytes, limit_s: float, traffic: Traffic
) -> Generator[Answer, None, None]:
    """Run one command of ssh and give its answers until the line is over, which is always `LineDropped`."""
    source, token = _AGENT.read_bytes(), f"hwcompat-{secrets.token_hex(8)}"
    told: collections.deque[bytes] = collections.deque(maxlen=4)
    process = Child(host.command(len(source), token), stdin=PIPED, stdout=PIPED, stderr=PIPED)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    listener = threading.Thread(target=_listen, args=(process.stderr, told), daemon=True)
    listener.start()
    try:
        data = source + json.dumps(asked).encode() + b"\n" + payload
        with _killed_after(limit_s, process), contextlib.suppress(OSError):
            process.stdin.write(data)
            process.stdin.close()
        traffic.sent += len(data)
        is_late = _skip_noise(process, token, limit_s, host)
        while not is_late:
            with _killed_after(limit_s, process) as late:
                line = process.stdout.readline(_LONGEST_ANSWER)
            is_late = late.is_set()
            if not line.endswith(b"\n") and len(line) < _LONGEST_ANSWER:
                break
            traffic.received += len(line)
            yield _answer(host, line)
        process.end()
        listener.join(timeout=1)
        text = b"".join(told).decode(errors="replace")
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        silent = f"nothing came for {limit_s:.0f} s" if is_late else "the line broke"
        raise LineDropped(one_line(last) or silent, text)
    finally:
        process.end()
        listener.join(timeout=1)
        for stream in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):  # what was left to be flushed goes nowhere
                stream.close()


@contextlib.contextmanager
def _killed_after(limit_s: float, process: Child) -> Iterator[threading.Event]:
    """End a process that takes longer than the block may; the event says so."""
    late = threading.Event()

    def end() -> None:
        late.set()
        process.end()

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


def _listen(stream: IO[bytes], told: collections.deque[bytes]) -> None:
    """Keep the end of what ssh and the other side complain about."""
    with contextlib.suppress(OSError, ValueError):
        while data := os.read(stream.fileno(), 1024):
            told.append(data)


def _skip_noise(process: Child, token: str, limit_s: float, host: LabHost) -> bool:
    """Read until something answers, or the line is over; returns whether it was silent for too long."""
    assert process.stdout
    left = _MOST_NOISE
    with _killed_after(limit_s, process) as late:
        while (line := process.stdout.readline(_MOST_NOISE)).strip() != token.encode() and line:
            left -= len(line)
            if left < 0:
                raise _no_answer(host, "more than 64 KiB were printed before anything answered")
    return late.is_set()


def _answer(host: LabHost, line: bytes) -> Answer:
    try:
        if not line.endswith(b"\n"):
            raise ValueError("its line is longer than 16 MiB")
        found = parsed_json(line)
        if not isinstance(found, dict):
            raise ValueError("it is no table")
    except ValueError as error:
        raise _no_answer(host, one_line(str(error), longest=160)) from error
    return found


def _no_answer(host: LabHost, why: str) -> BrokenInput:
    return BrokenInput(f"what {host.name} answered can't be used", why=why)


def refused(host: LabHost, error: LineDropped) -> UsageError:
    """The error for a host that was never reached: why, and what to do."""
    what = f"{host.name} cannot be used"
    for sign, why, fix in _REASONS:
        if sign in error.told:
            return UsageError(what, why=f"{why} ({one_line(_line_with(error.told, sign), longest=160)})",
                              fix=fix.format(name=host.name))  # fmt: skip
    return UsageError(what, why=str(error), fix=f"This must work first: ssh -o BatchMode=yes {host.name} true")


def _line_with(text: str, sign: str) -> str:
    return next(line for line in text.splitlines() if sign in line)
