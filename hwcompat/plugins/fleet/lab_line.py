"""One connection to a lab machine: requests go there, answers come back, and a line that breaks is told as that.

What comes back was written by another machine: every length is limited, and nothing in it is believed here.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hardware.errors import BrokenInput, UsageError
from hardware.plain_text import one_line
from hardware.process import PIPED, Child
from hardware.untrusted import parsed_json

from .lab_host import LabHost

CONNECT_S = 60.0
ANSWER_S = 60.0
MOST_BYTES = 16 * 1024 * 1024
"""Of one answer, behind its line."""

_LONGEST_LINE = 1024 * 1024
_MOST_NOISE = 64 * 1024
"""What a login may print before anything answers."""
_MOST_TOLD = 4096
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


class LineDropped(Exception):
    """The connection broke, or was never made; the text says why. `told` is what ssh and the other side said."""

    def __init__(self, why: str, told: str = "") -> None:
        super().__init__(why)
        self.told = told


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back: the values of its line, and the bytes behind it."""

    values: Mapping[str, Any]
    body: bytes = b""


@dataclass(kw_only=True)
class Traffic:
    """Bytes that were sent and received, over all connections."""

    sent: int = 0
    received: int = 0


class Line:
    """A connection to one host, made when this is made. Raises `LineDropped` where it can't be."""

    def __init__(self, host: LabHost, traffic: Traffic) -> None:
        self._host = host
        self._traffic = traffic
        self._token = f"hwcompat-{secrets.token_hex(8)}"
        self._number = 0
        self._told: list[bytes] = []
        self._answers: queue.Queue[Answer | str] = queue.Queue(maxsize=2)
        source = _AGENT.read_bytes()
        # In a session of its own: Ctrl-C is for us to hear, and the line is still needed then.
        command = host.command(len(source), self._token)
        self._process = Child(command, stdin=PIPED, stdout=PIPED, stderr=PIPED)
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._listen, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        try:
            self._send(source)
            self._next(CONNECT_S)
        except BaseException:
            self.close()
            raise

    def ask(self, verb: str, *, payload: bytes = b"", limit_s: float = ANSWER_S, **values: Any) -> Answer:
        """Ask and wait for the answer. Raises `LineDropped`; `BrokenInput` for an answer that is none, and
        `UsageError` where the other side says that it can't be done."""
        self._number += 1
        number = self._number
        asked = {"verb": verb, "folder": self._host.folder, "number": number, "bytes": len(payload), **values}
        self._send(json.dumps(asked).encode() + b"\n" + payload)
        while (answer := self._next(limit_s)).values.get("number") != number:
            pass  # an answer that an interruption kept us from waiting for
        if why := answer.values.get("refused"):
            raise UsageError(f"{self._host.name} can't do that ({verb})", why=one_line(str(why)))
        return answer

    def close(self) -> None:
        """End the connection; whatever runs there goes on."""
        if self._process.stdin:
            with contextlib.suppress(OSError):  # what was left to be flushed goes nowhere
                self._process.stdin.close()
        self._process.end()
        self._drain()
        for thread in self._threads:
            thread.join(timeout=1)
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()

    def _drain(self) -> None:
        while not self._answers.empty():
            self._answers.get_nowait()

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except OSError as error:
            raise self._dropped("the line broke") from error
        self._traffic.sent += len(data)

    def _next(self, limit_s: float) -> Answer:
        try:
            found = self._answers.get(timeout=limit_s)
        except queue.Empty:
            raise self._dropped(f"nothing came for {limit_s:.0f} s") from None
        if found == "":
            raise self._dropped("the line broke")
        if isinstance(found, str):
            raise BrokenInput(f"what {self._host.name} answered can't be used", why=found)
        return found

    def _dropped(self, why: str) -> LineDropped:
        self._process.end()
        self._threads[1].join(timeout=1)
        told = b"".join(self._told).decode(errors="replace")
        last = next((line for line in reversed(told.splitlines()) if line.strip()), "")
        return LineDropped(one_line(last) or why, told)

    def _listen(self) -> None:
        """Keep the end of what ssh and the other side complain about."""
        assert self._process.stderr is not None
        while data := os.read(self._process.stderr.fileno(), 1024):
            self._told.append(data)
            while sum(map(len, self._told)) > _MOST_TOLD:
                self._told.pop(0)

    def _read(self) -> None:
        """Hand on each whole answer; an empty text when the line is over, another one for what is no answer."""
        assert self._process.stdout is not None
        try:
            self._skip_noise(self._process.stdout)
            self._answers.put(Answer(values={}))
            while found := self._read_answer(self._process.stdout):
                self._answers.put(found)
            self._answers.put("")
        except (ValueError, TypeError, AttributeError) as error:
            self._answers.put(one_line(str(error), longest=160) or "it is no answer")
        except (OSError, EOFError):
            self._answers.put("")

    def _skip_noise(self, stream: IO[bytes]) -> None:
        left = _MOST_NOISE
        while (line := stream.readline(_MOST_NOISE)).strip() != self._token.encode():
            left -= len(line)
            if not line:
                raise EOFError
            if left < 0:
                raise ValueError("more than 64 KiB were printed before anything answered")

    def _read_answer(self, stream: IO[bytes]) -> Answer | None:
        line = stream.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            if len(line) >= _LONGEST_LINE:
                raise ValueError("its line is longer than 1 MiB")
            return None
        values = parsed_json(line)
        size = values.get("bytes")
        if not isinstance(size, int) or not 0 <= size <= MOST_BYTES:
            raise ValueError("it says that more than 16 MiB follow, or less than nothing")
        body = stream.read(size)
        if len(body) < size:
            return None
        self._traffic.received += len(line) + size
        return Answer(values=values, body=body)


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
