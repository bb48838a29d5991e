"""A lab machine that is asked again when the line to it breaks: every request may be made twice."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from .lab_host import LabHost
from .lab_line import Answer, Line, LineDropped, Traffic, refused

PATIENCE_S = 600.0
"""A reboot takes minutes, and so does a network that changes its mind."""

_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0


class LineLost(Exception):
    """The line broke and didn't come back in time; the text says why."""


class LabMachine:
    """Answers as `Line.ask` does, over as many connections as it takes.

    A host that is never reached is a `UsageError` at once; one that was is tried again for `patience_s` seconds, each
    time a little later, and then it is `LineLost`. `on_note` is told of both.
    """

    def __init__(
        self, host: LabHost, *, patience_s: float = PATIENCE_S, on_note: Callable[[str], None] = lambda _text: None
    ) -> None:
        self.host = host
        self.traffic = Traffic()
        self.breaks = 0
        self._patience_s = patience_s
        self._on_note = on_note
        self._line: Line | None = None

    def __enter__(self) -> LabMachine:
        try:
            self._line = Line(self.host, self.traffic)
        except LineDropped as error:
            raise refused(self.host, error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._hang_up()

    def ask(self, verb: str, **values: Any) -> Answer:
        """The answer to a request, over a new connection where the one that was there broke."""
        while True:
            try:
                if self._line is None:
                    self._line = Line(self.host, self.traffic)
                return self._line.ask(verb, **values)
            except LineDropped as error:
                self._hang_up()
                self._reconnect(str(error))

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            with contextlib.suppress(OSError):
                line.close()

    def _reconnect(self, why: str) -> None:
        self.breaks += 1
        if not self._patience_s:
            raise LineLost(why)
        self._on_note(
            f"the line to {self.host.name} broke ({why}); what runs there goes on. It is tried again for "
            f"{self._patience_s:.0f} s."
        )
        until = time.monotonic() + self._patience_s
        wait = _FIRST_WAIT_S
        while time.monotonic() < until:
            time.sleep(min(wait, max(0.0, until - time.monotonic())))
            try:
                self._line = Line(self.host, self.traffic)
            except LineDropped as error:
                why, wait = str(error), min(wait * 2, _LONGEST_WAIT_S)
                continue
            self._on_note(f"the line to {self.host.name} is back")
            return
        raise LineLost(why)
