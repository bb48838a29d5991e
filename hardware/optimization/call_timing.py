"""Decide whether a change makes calls faster, on a machine that runs other things too."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .optimization_steps import ModuleChange

if TYPE_CHECKING:
    import torch

WORTH_KEEPING = 0.97
"""A change for speed is kept only if a call takes at most this share of its time without it."""

ROUNDS, FASTER = 15, 12
"""Rounds, and how many must be faster. Without any gain that happens by chance in 2 of 100 cases."""

_WARM_UPS = 3
_CALLS = 5
_ROUND_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds of a call without and with a change (medians of the rounds), and their ratio in each round."""

    before: float
    after: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Time of a call with the change over that without it, as the median of the rounds."""
        return statistics.median(self.ratios)

    @property
    def pays(self) -> bool:
        """Whether calls are faster by more than noise."""
        return sum(one < 1 for one in self.ratios) >= FASTER and self.ratio <= WORTH_KEEPING


def clock_of(device: torch.device) -> Callable[[], float]:
    """Return a clock for calls on a device, in seconds.

    If torch computes on one thread of the host, it is the processor time of this process, to which other processes
    add nothing; else it is wall-clock time.
    """
    import torch

    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.process_time if alone else time.perf_counter


def compared(
    change: ModuleChange, call: Callable[[], None], clock: Callable[[], float] = time.perf_counter
) -> Timing:
    """Time calls with and without a change that is in force, and leave it in force.

    Both are timed in each round, in alternating order, so that other load affects both alike. It stops after the
    round from which on the change can't pay.
    """
    for _ in range(_WARM_UPS):
        call()
    once = _seconds(call, 1, clock)
    calls = max(1, min(_CALLS, int(_ROUND_SECONDS / max(once, 1e-9))))
    before: list[float] = []
    after: list[float] = []
    while len(before) < ROUNDS and sum(b <= a for b, a in zip(before, after, strict=True)) <= ROUNDS - FASTER:
        sides = [(change.off, before), (change.on, after)]
        for switch, times in sides if len(before) % 2 == 0 else sides[::-1]:
            switch()
            if once < _ROUND_SECONDS:  # effects of a switch on caches don't show in longer calls
                call()
            times.append(_seconds(call, calls, clock))
    change.on()
    return Timing(
        before=statistics.median(before),
        after=statistics.median(after),
        ratios=tuple(a / b for b, a in zip(before, after, strict=True)),
    )


def _seconds(call: Callable[[], None], calls: int, clock: Callable[[], float]) -> float:
    """Return the time of the fastest of some calls: other load only adds to it."""
    shortest = math.inf
    for _ in range(calls):
        started = clock()
        call()
        shortest = min(shortest, clock() - started)
    return shortest
