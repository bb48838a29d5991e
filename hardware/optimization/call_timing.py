"""Whether a change makes calls faster, on a machine on which other things run too."""

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
"""What is there for speed stays only if a call takes at most this part of the time that it takes without it."""

ROUNDS, FASTER = 15, 12
"""In how many of the rounds a call must be faster. One as fast as before is so by chance in 2 of 100 cases."""

_WARM_UPS = 3
_CALLS = 5
_ROUND_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds of a call without and with a change, medians of the rounds, and for each round the ratio of the two."""

    before: float
    after: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The time of a call with the change over that without it, the median of the rounds."""
        return statistics.median(self.ratios)

    @property
    def pays(self) -> bool:
        """Whether calls are faster by more than noise."""
        return sum(one < 1 for one in self.ratios) >= FASTER and self.ratio <= WORTH_KEEPING


def clock_of(device: torch.device) -> Callable[[], float]:
    """What tells the time of calls on a device, in seconds.

    Where torch computes on one thread of the host, that is the time that this process had of a processor, to which
    other processes add nothing; else it is the time on the wall.
    """
    import torch

    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.process_time if alone else time.perf_counter


def compared(
    change: ModuleChange, call: Callable[[], None], clock: Callable[[], float] = time.perf_counter
) -> Timing:
    """Time calls with and without a change that is in force, and leave it in force.

    Both are timed in each round, in turns which comes first, so that what else the machine does meets both alike.
    It ends with the round after which the change can't pay any more.
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
            if once < _ROUND_SECONDS:  # what a switch does to caches doesn't show in longer calls
                call()
            times.append(_seconds(call, calls, clock))
    change.on()
    return Timing(
        before=statistics.median(before),
        after=statistics.median(after),
        ratios=tuple(a / b for b, a in zip(before, after, strict=True)),
    )


def _seconds(call: Callable[[], None], calls: int, clock: Callable[[], float]) -> float:
    """The time of the shortest of some calls: what else the machine does only ever adds to it."""
    shortest = math.inf
    for _ in range(calls):
        started = clock()
        call()
        shortest = min(shortest, clock() - started)
    return shortest
