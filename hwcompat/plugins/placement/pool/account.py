"""Resources and loads, what of them one device holds, what may be added to it, and how close to its limits it is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from hardware.plain_text import one_line

from .device_memory import MemoryReading
from .resource_sizes import Size, SizePart

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
    dismissed: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether no lease holds it."""
        return not self.leases

    def to_dict(self, at: float) -> dict[str, Any]:
        """What there is to tell of it at a moment, as JSON values."""
        return {
            **asdict(self.key),
            "bytes_by_device": dict(self.size.bytes_by_device),
            "measured_by": self.size.measured_by,
            "resident_change_bytes": self.resident_change,
            "allocator_change_bytes": self.allocator_change,
            "leases": self.leases.total(),
            "uses": self.uses,
            "age_s": at - self.loaded_at,
            "idle_s": at - self.last_used,
            "load_s": self.load_seconds,
            "dismissed": self.dismissed,
        }


@dataclass(kw_only=True, eq=False)
class PoolLoad:
    """What a caller asks for, and its load where it isn't there.

    `build` makes it, with nothing of the pool's held meanwhile. `claimed` are the bytes that the caller or its files
    say. Of a load that has begun, `own` are those that it is a part of,
    `expected` its bytes where they are known or claimed, `measured` whether an earlier load measured them, and
    `waiting` the threads that get a lease when it ends.
    """

    key: Key
    build: Callable[[], Any]
    claimed: int | None = None
    number: int = 0
    owner: int = 0
    own: frozenset[int] = frozenset()
    expected: int | None = None
    measured: bool = False
    is_done: bool = False
    waiting: Counter[int] = field(default_factory=Counter)
    dismissed: bool = False
    entry: Entry | None = None
    error: BaseException | None = None

    @property
    def reserved(self) -> int:
        """The bytes that are set aside for it."""
        return self.expected or 0


@dataclass(kw_only=True)
class Account:
    """The bytes of one device, used under the pool's lock.

    `held` are those of resources that are there, `loads` the loads under way, and what left the pool while somebody
    kept a part of it stays in `lingering` until it is gone. `low_share` and `pressure_share` are the shares of the
    budget, and of the device's memory, where low-memory mode and memory pressure begin. The promise: without one of
    the resources that are there or on their way, all others fit the budget.
    """

    device: str
    budget: int | None
    budget_from: str
    low_share: float
    pressure_share: float
    held: int = 0
    loads: set[PoolLoad] = field(default_factory=set)
    lingering: list[SizePart] = field(default_factory=list)
    peak: int = 0
    reading: MemoryReading = field(default_factory=MemoryReading)
    read_at: float | None = None
    machine_excess: int = 0
    low_memory: bool = False
    under_pressure: bool = False

    @property
    def total(self) -> int:
        """Bytes of everything that is there or on its way."""
        return self.held + self.reserved + self.lingering_bytes

    @property
    def reserved(self) -> int:
        """Bytes that are set aside for loads under way."""
        return sum(load.reserved for load in self.loads)

    @property
    def lingering_bytes(self) -> int:
        """Bytes of what left the pool, as far as somebody still holds them."""
        if self.lingering:
            self.lingering = [part for part in self.lingering if part.is_alive()]
        return sum(part.bytes for part in self.lingering)

    def unknown_beside(self, load: PoolLoad) -> list[PoolLoad]:
        """Loads under way whose sizes weren't measured, but for those that this one is a part of."""
        return [one for one in self.loads if not one.measured and one.number not in load.own]

    def is_turn_of(self, load: PoolLoad) -> bool:
        """Whether no other load of unknown size is under way, where that matters."""
        return load.measured or self.budget is None or not self.unknown_beside(load)

    def may_start(self, load: PoolLoad) -> bool:
        """Whether a load may start now.

        One whose size was measured before may where it fits. Any other, and one that doesn't fit, may be the one
        beyond the budget: everything else fits, and no second one of unknown size is under way.
        """
        if self.budget is None or (load.measured and self.fits(load)):
            return True
        return not self.unknown_beside(load) and self.total <= self.budget

    def fits(self, load: PoolLoad) -> bool:
        """Whether the budget holds it too, as far as its size is known."""
        return self.budget is None or self.total + load.reserved <= self.budget

    def start(self, load: PoolLoad) -> None:
        """Note that a load is under way."""
        self.loads.add(load)
        self.peak = max(self.peak, self.total)

    def add(self, count: int) -> None:
        """Count the bytes of a resource."""
        self.held += count
        self.peak = max(self.peak, self.total)

    def remove(self, count: int, left: list[SizePart]) -> None:
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
        return max(0, math.ceil(self.low_share * of) - 1)

    def read(self, reading: MemoryReading, at: float) -> None:
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
            parts.append(f"{self.budget_used:.0%} of the pool's budget of {_megabytes(self.budget)} is in use")
        share, total = self.reading.used_share, self.reading.total_bytes
        if share is not None and total is not None:
            parts.append(f"{share:.0%} of the {_megabytes(total)} of the device")
        return ", ".join(parts).replace("%", " %") or "how full it is isn't known"

    def to_dict(self) -> dict[str, Any]:
        """What there is to tell of it now, as JSON values."""
        return {
            "budget_bytes": self.budget,
            "budget_from": self.budget_from,
            "held_bytes": self.held,
            "loading_bytes": self.reserved,
            "lingering_bytes": self.lingering_bytes,
            "peak_bytes": self.peak,
            "budget_used": self.budget_used,
            "device_total_bytes": self.reading.total_bytes,
            "device_free_bytes": self.reading.free_bytes,
            "device_used": self.reading.used_share,
            "device_reason": self.reading.reason,
            "low_memory_mode": self.low_memory,
            "memory_pressure": self.under_pressure,
        }


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
