"""The memory account of one device: resources and loads, what may be added, and how full the device is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from hwcompat.hardware.plain_text import one_line

from .device_memory import MemoryReading
from .resource_sizes import Size, SizePart

_LONGEST_NAME = 120


@dataclass(frozen=True, kw_only=True)
class Key:
    """The identity of a resource, of which the device is a part. `kind` is `model`, `tokenizer` or `resource`."""

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
    """One loaded resource. `leases` counts users by thread. `dismissed`: it is released with its last lease."""

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
        """Return its statistics at time `at` (seconds) as JSON values."""
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
    """A request, and its load if the resource isn't loaded.

    `build` constructs it without a lock of the pool. `claimed` is the size in bytes by the caller or the files. When
    the load has started, `own` are the loads that it is a part of, `expected` its bytes if known or claimed,
    `measured` whether an earlier load measured them, and `waiting` the threads that get a lease when it ends.
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
        """Bytes that are reserved for it."""
        return self.expected or 0


@dataclass(kw_only=True)
class Account:
    """The bytes of one device, used under the pool's lock.

    `held` are the loaded resources, `loads` the loads in progress, and `lingering` the parts of released resources
    that are still referenced. `low_share` and `pressure_share` are the shares of the budget, and of the device's
    memory, at which low-memory mode and memory pressure begin. Invariant: at most one resource, loaded or in
    progress, is beyond the budget; all others fit it.
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
        """Bytes of everything that is loaded or in progress."""
        return self.held + self.reserved + self.lingering_bytes

    @property
    def reserved(self) -> int:
        """Bytes that are reserved for loads in progress."""
        return sum(load.reserved for load in self.loads)

    @property
    def lingering_bytes(self) -> int:
        """Bytes of released resources that are still referenced."""
        if self.lingering:
            self.lingering = [part for part in self.lingering if part.is_alive()]
        return sum(part.bytes for part in self.lingering)

    def unknown_beside(self, load: PoolLoad) -> list[PoolLoad]:
        """Return the loads in progress of unmeasured size, except those that this load is a part of."""
        return [one for one in self.loads if not one.measured and one.number not in load.own]

    def is_only_unknown(self, load: PoolLoad) -> bool:
        """Whether the size of the load is known, or no other load of unknown size is in progress."""
        return load.measured or self.budget is None or not self.unknown_beside(load)

    def may_start(self, load: PoolLoad) -> bool:
        """Whether a load may start now.

        A load of measured size may start if it fits. Any other may be the one beyond the budget: then everything else
        must fit, and no second load of unknown size may be in progress.
        """
        if self.budget is None or (load.measured and self.fits(load)):
            return True
        return not self.unknown_beside(load) and self.total <= self.budget

    def fits(self, load: PoolLoad) -> bool:
        """Whether the load fits the budget, as far as its size is known."""
        return self.budget is None or self.total + load.reserved <= self.budget

    def start(self, load: PoolLoad) -> None:
        """Record that a load is in progress."""
        self.loads.add(load)
        self.peak = max(self.peak, self.total)

    def add(self, count: int) -> None:
        """Add the bytes of a resource."""
        self.held += count
        self.peak = max(self.peak, self.total)

    def remove(self, count: int, left: list[SizePart]) -> None:
        """Subtract a resource except for the parts that are still referenced. The bytes are also subtracted from the
        machine's figures, which are as old as its last reading."""
        self.held -= count
        self.lingering += left
        self.machine_excess = max(0, self.machine_excess - count)

    def excess(self, coming: int = 0) -> int:
        """Return the bytes that idle resources should free: what exceeds the start of low-memory mode in the budget
        or in the machine's memory, `coming` included."""
        over = 0 if self.budget is None else self.total + coming - self._mark(self.budget)
        return max(over, self.machine_excess)

    def _mark(self, of: int) -> int:
        """Return the largest size below the start of low-memory mode."""
        return max(0, math.ceil(self.low_share * of) - 1)

    def read(self, reading: MemoryReading, at: float) -> None:
        """Store the device's reading."""
        self.reading, self.read_at, self.machine_excess = reading, at, 0
        if reading.total_bytes and reading.free_bytes is not None:
            used = reading.total_bytes - reading.free_bytes
            self.machine_excess = max(0, used - self._mark(reading.total_bytes))

    @property
    def budget_used(self) -> float | None:
        """Return the used share of the budget, from 0 to 1; `None` without a budget."""
        return self.total / self.budget if self.budget else None

    def fullest(self) -> float:
        """Return the used share of the budget or of the device, whichever is larger; 0 if neither is known."""
        return max(self.budget_used or 0.0, self.reading.used_share or 0.0)

    def fullness(self) -> str:
        """Return text such as `93 % of the pool's budget of 96.0 MB is in use`, and the same of the device."""
        parts = []
        if self.budget_used is not None and self.budget is not None:
            parts.append(f"{self.budget_used:.0%} of the pool's budget of {_megabytes(self.budget)} is in use")
        share, total = self.reading.used_share, self.reading.total_bytes
        if share is not None and total is not None:
            parts.append(f"{share:.0%} of the {_megabytes(total)} of the device")
        return ", ".join(parts).replace("%", " %") or "memory use unknown"

    def to_dict(self) -> dict[str, Any]:
        """Return its statistics as JSON values."""
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
