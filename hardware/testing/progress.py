"""What a runner tells while it works, and how a log that is no terminal shows it: a line for each suite that ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from ..evidence.record import Outcome
from .suite_file import SuiteFile


class Progress:
    """Is told what a run does. This one listens to nothing; others show it."""

    def planned(self, suites: int) -> None:
        """So many suites will run, beside those that were planned before."""

    def began(self, suite: SuiteFile, check: str) -> None:
        """A check of a suite begins."""

    def ended(self, suite: SuiteFile, outcomes: Mapping[Outcome, int]) -> None:
        """A suite is over; `outcomes` counts all of its checks."""

    def closed(self) -> None:
        """Nothing more is to come."""


class Pace:
    """How far a run is: what runs and since when, and how long the rest takes, where that can be told."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._began: dict[str, float] = {}
        self._at_a_time = 1
        self.done = self.all = 0

    def now(self) -> float:
        """The time in seconds, by the clock that all of this is told by."""
        return self._clock()

    def began(self, cell: str) -> bool:
        """A check of a cell begins; returns whether it is the cell's first."""
        first = cell not in self._began
        self._began.setdefault(cell, self._clock())
        self._at_a_time = max(self._at_a_time, len(self._began))
        return first

    def ended(self, cell: str) -> None:
        """A cell is over."""
        self._began.pop(cell, None)
        self.done += 1

    @property
    def left(self) -> str:
        """How long what is left takes at the pace so far; empty for the last cells, which all run at once: one of
        them may take longer than all others."""
        rest = self.all - self.done
        if not self.done or rest <= self._at_a_time:
            return ""
        return in_words((self._clock() - self._started) / self.done * rest)

    @property
    def running(self) -> dict[str, str]:
        """By the cells that run, for how long they have."""
        return {cell: in_words(self._clock() - began) for cell, began in self._began.items()}


class ProgressLines(Progress):
    """A line for each suite that ended, with what is left, and for each of the last ones that begins. Nothing moves,
    so that logs of CI stay readable. Of more than `MANY` suites those that passed are told every `EVERY_S` seconds
    alone; whatever else ends is always told."""

    MANY = 60
    EVERY_S = 10.0

    def __init__(self, stream: TextIO | None = None, pace: Pace | None = None) -> None:
        self._stream = stream or sys.stderr
        self._pace = pace or Pace()
        self._said = float("-inf")

    def planned(self, suites: int) -> None:
        self._pace.all += suites

    def began(self, suite: SuiteFile, check: str) -> None:
        if self._pace.began(suite.cell.id) and self._pace.done and not self._pace.left:
            self._say(f"{suite.cell.id} runs")

    def ended(self, suite: SuiteFile, outcomes: Mapping[Outcome, int]) -> None:
        self._pace.ended(suite.cell.id)
        if set(outcomes) <= {Outcome.PASSED} and self._may_wait():
            return
        running = ", ".join(f"{cell} for {time}" for cell, time in self._pace.running.items())
        self._say(f"{suite.cell.id}  {counted(outcomes)}" + (f"; still running: {running}" if running else ""))

    def _may_wait(self) -> bool:
        is_last = self._pace.done == self._pace.all
        return self._pace.all > self.MANY and not is_last and self._pace.now() - self._said < self.EVERY_S

    def _say(self, text: str) -> None:
        self._said = self._pace.now()
        left = f", about {self._pace.left} left" if self._pace.left else ""
        print(f"[{self._pace.done}/{self._pace.all}{left}] {text}", file=self._stream, flush=True)


def counted(outcomes: Mapping[Outcome, int]) -> str:
    """`8 passed, 1 failed`: in the order in which outcomes are listed everywhere."""
    return ", ".join(f"{outcomes[one]} {one}" for one in Outcome if outcomes.get(one)) or "nothing was run"


def in_words(seconds: float) -> str:
    """`40 s`, `3 min`, `2 h 5 min`: as exact as an estimate is."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
