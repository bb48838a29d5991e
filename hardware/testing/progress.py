"""What a runner tells while it works, and how a log that is no terminal shows it: a line for each suite that ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
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


class ProgressLines(Progress):
    """A line for each suite that ended, with what is left. Nothing moves, so that logs of CI stay readable."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._started = time.monotonic()
        self._done = self._all = 0

    def planned(self, suites: int) -> None:
        self._all += suites

    def ended(self, suite: SuiteFile, outcomes: Mapping[Outcome, int]) -> None:
        self._done += 1
        left = (time.monotonic() - self._started) / self._done * (self._all - self._done)
        place = f"{self._done}/{self._all}" + (f", {in_words(left)} left" if self._done < self._all else "")
        print(f"[{place}] {suite.cell.id}  {counted(outcomes)}", file=self._stream, flush=True)


def counted(outcomes: Mapping[Outcome, int]) -> str:
    """`8 passed, 1 failed`: in the order in which outcomes are listed everywhere."""
    return ", ".join(f"{outcomes[one]} {one}" for one in Outcome if outcomes.get(one)) or "nothing was run"


def in_words(seconds: float) -> str:
    """`40 s`, `3 min`, `2 h 5 min`: as exact as an estimate is."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
