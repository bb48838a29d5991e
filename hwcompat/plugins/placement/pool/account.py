"""Resources, what of them one device holds, what may be added to it, and how close to its limits it is."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from cachetools import LRUCache

from hardware.plain_text import one_line

from .memory import Reading
from .sizes import Part, Size

_LONGEST_NAME = 120


@dataclass(frozen=True, kw_only=True)
class Key:
    """What is loaded once. `kind` is `model`, `tokenizer` or `resource`; the same on another device is another."""

    kind: str
    type: str
    id: str
    device: str
    precision: str = ""

    def __str__(self) -> str:
        name = f"{self.type}/{self.id}" if self.id else self.type
        precision = f" in {self.precision}" if self.precision else ""
        return f"{self.kind} {one_line(name, longest=_LONGEST_NAME)} on {self.device}{precision}"


@dataclass(kw_only=True, eq=False)
class Entry:
    """One resource that is there. `leases` counts its users by thread. `dismissed`: it goes with the last of them."""

    key: Key
    resource: Any
    size: Size
    loaded_at: float
    last_used: float
    order: int = 0
    load_seconds: float = 0.0
    resident_change: int | None = None
    allocator_change: int | None = None
    uses: int = 0
    leases: Counter[int] = field(default_factory=Counter)
    kept_until: float = 0.0
    dismissed: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether no lease holds it."""
        return not self.leases


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
    """The bytes of one device, used under the pool's lock.

    `held` are those of resources that are there, `reserved` those of loads under way, and what left the pool while
    somebody kept a part of it stays in `lingering` until it is gone. `idle` are the resources without a lease. The
    promise: without one of the resources that are there or on their way, all others fit the budget.
    """

    device: str
    budget: int | None
    budget_from: str
    limits: Limits
    held: int = 0
    reserved: int = 0
    idle: LRUCache[Key, Entry] = field(init=False)
    unmeasured: set[int] = field(default_factory=set)
    lingering: list[Part] = field(default_factory=list)
    peak: int = 0
    reading: Reading = field(default_factory=Reading)
    read_at: float | None = None
    machine_excess: int = 0
    low_memory: bool = False
    under_pressure: bool = False

    def __post_init__(self) -> None:
        # Admission keeps the budget, since more than idle resources count: the cache keeps their order.
        self.idle = LRUCache(math.inf, getsizeof=lambda entry: entry.size.bytes_by_device[self.device])

    @property
    def total(self) -> int:
        """Bytes of everything that is there or on its way."""
        return self.held + self.reserved + self.lingering_bytes

    @property
    def lingering_bytes(self) -> int:
        """Bytes of what left the pool, as far as somebody still holds them."""
        if self.lingering:
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
        """Note that a load is under way."""
        self.reserved += need.reserved
        if not need.measured:
            self.unmeasured.add(load)
        self.peak = max(self.peak, self.total)

    def end(self, load: int, need: Need) -> None:
        """Note that a load has ended, with or without a result."""
        self.reserved -= need.reserved
        self.unmeasured.discard(load)

    def add(self, count: int) -> None:
        """Count the bytes of a resource."""
        self.held += count
        self.peak = max(self.peak, self.total)

    def remove(self, count: int, left: list[Part]) -> None:
        """Count a resource as gone, but for the parts that somebody kept. The machine's figures are as old as its
        last reading: what went since counts against them."""
        self.held -= count
        self.lingering += left
        self.machine_excess = max(0, self.machine_excess - count)

    def excess(self, coming: int = 0) -> int:
        """Bytes that idle resources should give back: what the budget, or the machine's memory, is filled beyond the
        beginning of low-memory mode, `coming` included."""
        over = 0 if self.budget is None else self.total + coming - self._mark(self.budget)
        return max(over, self.machine_excess)

    def _mark(self, of: int) -> int:
        """The most that is below the beginning of low-memory mode."""
        return max(0, math.ceil(self.limits.low_memory * of) - 1)

    def read(self, reading: Reading, at: float) -> None:
        """Take what the machine says of the device."""
        self.reading, self.read_at, self.machine_excess = reading, at, 0
        if reading.total_bytes and reading.free_bytes is not None:
            used = reading.total_bytes - reading.free_bytes
            self.machine_excess = max(0, used - self._mark(reading.total_bytes))

    @property
    def budget_used(self) -> float | None:
        """How full the budget is, from 0 to 1; `None` where there is none."""
        return self.total / self.budget if self.budget else None

    def fullest(self) -> float:
        """How full the budget or the device is, whichever is more; 0 where neither is known."""
        return max(self.budget_used or 0.0, self.reading.used_share or 0.0)

    def fullness(self) -> str:
        """`93 % of the pool's budget of 96.0 MB is in use`, and the same of the device where that is known."""
        parts = []
        if self.budget_used is not None and self.budget is not None:
            parts.append(
                f"{100 * self.budget_used:.0f} % of the pool's budget of {_megabytes(self.budget)} is in use"
            )
        share, total = self.reading.used_share, self.reading.total_bytes
        if share is not None and total is not None:
            parts.append(f"{100 * share:.0f} % of the {_megabytes(total)} of the device")
        return ", ".join(parts) or "how full it is isn't known"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
