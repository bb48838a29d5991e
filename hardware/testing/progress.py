"""Progress of a run: the calls that a runner makes, and a log with a line for each suite that ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from ..evidence.record import Outcome
from .suite_file import SuiteFile


class Progress:
    """The calls of a runner. This class ignores them; others show them."""

    def planned(self, suites: int) -> None:
        """Add to the number of suites that will run."""

    def began(self, suite: SuiteFile, check: str) -> None:
        """Report that a check of a suite starts."""

    def waiting(self) -> None:
        """Show how long checks have been running. A runner calls it every few moments."""

    def ended(self, suite: SuiteFile, outcomes: Mapping[Outcome, int]) -> None:
        """Report that a suite is over; `outcomes` counts all of its checks."""

    def unmeasured(self, suite: SuiteFile, why: str) -> None:
        """Report that the speed of a suite's cell wasn't measured although it was asked for."""

    def closed(self) -> None:
        """Report that the run is over."""


class Pace:
    """The pace of a run: which cells run and since when, and the estimated time left."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._began: dict[str, float] = {}
        self._at_a_time = 1
        self.done = self.all = 0

    def now(self) -> float:
        """Return the time in seconds by the clock of all estimates."""
        return self._clock()

    def began(self, cell: str) -> bool:
        """Note that a check of a cell starts. Return whether it is the cell's first."""
        first = cell not in self._began
        self._began.setdefault(cell, self._clock())
        self._at_a_time = max(self._at_a_time, len(self._began))
        return first

    def ended(self, cell: str) -> None:
        """Note that a cell is over."""
        self._began.pop(cell, None)
        self.done += 1

    @property
    def left(self) -> str:
        """Return the estimated time left. It is empty for the last cells, which all run at once: one of them may take
        longer than all others."""
        rest = self.all - self.done
        if not self.done or rest <= self._at_a_time:
            return ""
        return in_words((self._clock() - self._started) / self.done * rest)

    @property
    def running(self) -> dict[str, str]:
        """Return how long each running cell has run: `40 s` or `2 min 5 s`."""
        times = {cell: int(self._clock() - began) for cell, began in self._began.items()}
        return {cell: f"{s // 60} min {s % 60} s" if s >= 60 else f"{s} s" for cell, s in times.items()}


LOADING = "loading torch"
"""What a run does before its first check."""


class ProgressLines(Progress):
    """A line for each suite that ended, with the time left, for each of the last ones that starts, and for what runs
    after `QUIET_S` seconds without a line; during one long check a line follows every `STILL_S` seconds. Nothing is
    overwritten, so that CI logs stay readable. With more than `MANY` suites, those that passed are summarized every
    `EVERY_S` seconds; other outcomes always have a line."""

    MANY = 60
    EVERY_S = 10.0
    QUIET_S = 3.0
    STILL_S = 30.0

    def __init__(self, stream: TextIO | None = None, pace: Pace | None = None) -> None:
        self._stream = stream or sys.stderr
        self._pace = pace or Pace()
        self._written = float("-inf")

    def planned(self, suites: int) -> None:
        self._pace.all += suites
        self._write(LOADING)

    def began(self, suite: SuiteFile, check: str) -> None:
        is_last = self._pace.began(suite.cell.id) and self._pace.done and not self._pace.left
        if is_last or (self._pace.all <= self.MANY and self._pace.now() - self._written >= self.QUIET_S):
            self._write(f"{suite.cell.id} runs {check}")

    def waiting(self) -> None:
        if self._pace.running and self._pace.now() - self._written >= self.STILL_S:
            self._write(self._still_running())

    def ended(self, suite: SuiteFile, outcomes: Mapping[Outcome, int]) -> None:
        self._pace.ended(suite.cell.id)
        if set(outcomes) <= {Outcome.PASSED} and self._may_wait():
            return
        running = f"; {self._still_running()}" if self._pace.running else ""
        self._write(f"{suite.cell.id}  {counted(outcomes)}{running}")

    def unmeasured(self, suite: SuiteFile, why: str) -> None:
        self._write(f"{suite.cell.id}  speed not measured: {why}")

    def _still_running(self) -> str:
        return f"still running: {', '.join(f'{cell} for {time}' for cell, time in self._pace.running.items())}"

    def _may_wait(self) -> bool:
        is_first_or_last = self._pace.done in (1, self._pace.all)
        return self._pace.all > self.MANY and not is_first_or_last and self._pace.now() - self._written < self.EVERY_S

    def _write(self, text: str) -> None:
        self._written = self._pace.now()
        left = f", about {self._pace.left} left" if self._pace.left else ""
        print(f"[{self._pace.done}/{self._pace.all}{left}] {text}", file=self._stream, flush=True)


def counted(outcomes: Mapping[Outcome, int]) -> str:
    """Return counts such as `8 passed, 1 failed`, in the usual order of outcomes."""
    return ", ".join(f"{outcomes[one]} {one}" for one in Outcome if outcomes.get(one)) or "nothing was run"


def in_words(seconds: float) -> str:
    """Return a duration such as `40 s`, `3 min` or `2 h 5 min`, as exact as an estimate is."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
