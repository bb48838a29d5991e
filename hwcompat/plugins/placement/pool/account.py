"""What one device holds, what may be added to it, and how close to its limits it is. Figures alone: no resource."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from threading import Condition

from .memory import Reading
from .sizes import Part


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Shares of a budget, and of a device's memory: where low-memory mode and memory pressure begin."""

    low_memory: float = 0.8
    pressure: float = 0.9


@dataclass(frozen=True, kw_only=True)
class Need:
    """A load that wants to start. `expected` is its size in bytes where that is known or claimed; `measured` says
    that it was measured in an earlier load."""

    expected: int | None
    measured: bool

    @property
    def reserved(self) -> int:
        """The bytes that are set aside for it."""
        return self.expected or 0


@dataclass(kw_only=True)
class Account:
    """The bytes of one device, used under the pool's lock alone.

    `held` are those of resources that are there, `reserved` those of loads under way, and what left the pool while
    somebody kept a part of it stays in `lingering` until it is gone. The promise: without one of the resources that
    are there or on their way, all others fit the budget. Who waits for memory waits at `room`, who waits until no
    other load of unknown size is under way at `turn`.
    """

    device: str
    budget: int | None
    budget_from: str
    room: Condition
    turn: Condition
    limits: Limits
    held: int = 0
    reserved: int = 0
    leaving: int = 0
    unmeasured: set[int] = field(default_factory=set)
    lingering: list[Part] = field(default_factory=list)
    peak: int = 0
    reading: Reading = field(default_factory=Reading)
    read_at: float | None = None
    machine_excess: int = 0
    low_memory: bool = False
    under_pressure: bool = False

    @property
    def total(self) -> int:
        """Bytes of everything that is there or on its way."""
        return self.held + self.reserved + self._lingering_bytes()

    def _lingering_bytes(self) -> int:
        if not self.lingering:
            return 0
        self.lingering = [part for part in self.lingering if part.is_alive()]
        return sum(part.bytes for part in self.lingering)

    def may_start(self, need: Need, own: frozenset[int] = frozenset()) -> bool:
        """Whether a load may start now.

        One whose size was measured before may where it fits. Any other, and one that doesn't fit, may be the one
        beyond the budget: everything else fits, and no second one of unknown size is under way (`own` are loads that
        this one is a part of).
        """
        if self.budget is None or (need.measured and self.fits(need)):
            return True
        return not self.unmeasured - own and self.total <= self.budget

    def fits(self, need: Need) -> bool:
        """Whether the budget holds it too, as far as its size is known."""
        return self.budget is None or self.total + need.reserved <= self.budget

    def start(self, load: int, need: Need) -> None:
        """A load is under way."""
        self.reserved += need.reserved
        if not need.measured:
            self.unmeasured.add(load)
        self.peak = max(self.peak, self.total)

    def end(self, load: int, need: Need) -> None:
        """It isn't any more, however it ended."""
        self.reserved -= need.reserved
        self.unmeasured.discard(load)

    def add(self, count: int) -> None:
        """A resource is there."""
        self.held += count
        self.peak = max(self.peak, self.total)

    def remove(self, count: int, left: list[Part]) -> None:
        """A resource has gone, but for the parts that somebody kept."""
        self.held -= count
        self.lingering += left

    def excess(self, coming: int = 0) -> int:
        """Bytes that idle resources should give back: what the budget, or the machine's memory, is filled beyond the
        beginning of low-memory mode, `coming` included. What is leaving already counts as given back."""
        over = 0 if self.budget is None else self.total + coming - self.leaving - self._mark(self.budget)
        return max(over, self.machine_excess - self.leaving)

    def _mark(self, of: int) -> int:
        """The most that is below the beginning of low-memory mode."""
        return max(0, math.ceil(self.limits.low_memory * of) - 1)

    def read(self, reading: Reading, at: float) -> None:
        """Take what the machine says of the device."""
        self.reading, self.read_at, self.machine_excess = reading, at, 0
        if reading.total_bytes and reading.free_bytes is not None:
            used = reading.total_bytes - reading.free_bytes
            self.machine_excess = max(0, used - self._mark(reading.total_bytes))

    def gave_back(self, count: int) -> None:
        """So much went back; what the machine says is asked anew before more is given for its sake."""
        self.machine_excess = max(0, self.machine_excess - count)

    def shares(self) -> tuple[float | None, float | None]:
        """How full the budget is and how full the device, from 0 to 1; `None` where there is no figure."""
        own = None if not self.budget else self.total / self.budget
        return own, self.reading.used_share

    def fullest(self) -> float:
        """The larger of the two, 0 where there is none."""
        return max((share for share in self.shares() if share is not None), default=0.0)
