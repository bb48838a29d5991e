"""What a pool knows of its resources: those that are there, those that are being loaded, who uses them, who waits.

Everything here is used under `State.lock`, but for constructors and what the machine is asked. Memory counts as free
when no one holds it any more: a resource that goes is dropped, and taken back where somebody still refers to it.
"""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from threading import Condition
from typing import Any

from cachetools import LRUCache

from hardware.evidence.writer import now

from .account import Account, Entry, Key, Limits, Need
from .memory import ReadMemory, give_back
from .sizes import Part, weak, whole
from .waiting import Waits

_MOST_INCIDENTS = 100
_COLLECTED_AGAIN = 10
_MACHINE_ASKED_AGAIN_S = 1.0
_ASKED_AGAIN_S = 1.0
"""How long what was found in use isn't asked again, but by a load that finds no room."""

COUNTS = {
    "hits": "requests that found their resource",
    "misses": "requests that loaded it",
    "waits": "requests that waited for another's load",
    "loads": "loads that ended well",
    "failures": "loads that raised",
    "evictions": "resources that were released",
    "found_in_use": "times that a resource without a lease was still referred to, and stayed",
    "kept_in_part": "released resources of which somebody kept tensors",
    "waits_for_room": "times that a load waited for memory, or for its turn",
    "refused": "loads that found no room",
    "out_of_memory": "loads tried once more because memory ran out",
    "underestimated": "loads that took more than was expected",
    "nested_beyond_budget": "loads for another's constructor that had no room and couldn't wait",
}
"""What is counted, and what it means."""


@dataclass(frozen=True, kw_only=True)
class Incident:
    """`kind` is `low_memory`, `memory_pressure` or `failed_load`; moments are ISO 8601 in UTC.

    Of a failure `error` is the class and its message, `error_type` what is known of it, `model` whose it is.
    Texts may quote what others wrote.
    """

    kind: str
    device: str
    text: str
    error: str = ""
    error_type: str = ""
    model: str = ""
    first_at: str
    last_at: str
    count: int


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a caller asks for: `build` makes it, with nothing of the pool's held meanwhile. `claimed` and `estimated`
    are bytes: what the caller says that it holds, and what its files say."""

    key: Key
    build: Callable[[], Any]
    name_of: Callable[[Any], str]
    claimed: int | None = None
    estimated: int | None = None
    must_be_on: str = ""


@dataclass(kw_only=True, eq=False)
class Load:
    """One load, from the moment at which somebody asked for what wasn't there. `own` are the loads that it is a part
    of, `waiting` the threads that get a lease when it ends."""

    wanted: Wanted
    number: int
    owner: int
    own: frozenset[int]
    need: Need
    has_started: bool = False
    is_done: bool = False
    waiting: Counter[int] = field(default_factory=Counter)
    dismissed: bool = False
    entry: Entry | None = None
    error: BaseException | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a pool behaves: `budgets` in bytes by device (`cuda` stands for all of its kind), else `fraction` of what
    the device has; `wait_s` is how long a load waits for others to let go; `now` counts seconds."""

    budgets: Mapping[str, int]
    fraction: float
    limits: Limits
    wait_s: float
    read_memory: ReadMemory
    now: Callable[[], float]


class State:
    """All tables of a pool, the lock under which they are used, and the condition that tells of each change.

    `outgoing` are resources that the pool gives to no one any more and that somebody still has a lease on.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.lock = threading.RLock()  # a resource's end may call the pool, and comes under the lock
        self.changed = Condition(self.lock)
        self.entries: dict[Key, Entry] = {}
        self.outgoing: set[Entry] = set()
        self.loads: dict[Key, Load] = {}
        self.sizes: dict[Key, int] = {}
        self.accounts: dict[str, Account] = {}
        self.waits = Waits()
        self.counts: Counter[str] = Counter()
        self.numbers = itertools.count(1)
        self.collected_again = 0.0
        self.incidents: LRUCache[tuple[str, str, str], Incident] = LRUCache(_MOST_INCIDENTS)

    def now(self) -> float:
        """Seconds of the pool's clock."""
        return self.settings.now()

    def account(self, device: str) -> Account:
        """The account of a device, opened when it is first asked for: the device is asked what it has."""
        found = self.accounts.get(device)
        if found is not None:
            return found
        reading = self.settings.read_memory(device)
        fraction, budgets = self.settings.fraction, self.settings.budgets
        budget, source = budgets.get(device, budgets.get(device.partition(":")[0])), "given"
        if budget is None and reading.total_bytes:
            budget, source = int(fraction * reading.total_bytes), f"{fraction:g} of the device"
        elif budget is None:
            source = f"none: {reading.reason}"
        made = Account(device=device, budget=budget, budget_from=source, limits=self.settings.limits)
        made.read(reading, self.now())
        with self.lock:
            return self.accounts.setdefault(device, made)

    # Leases

    def lease(self, entry: Entry, threads: Counter[int]) -> None:
        """Promise threads that a resource stays."""
        self._unlist(entry)
        entry.leases += threads
        entry.uses += threads.total()
        entry.last_used, entry.order = self.now(), next(self.numbers)

    def end_lease(self, entry: Entry, thread: int) -> None:
        """Take one promise back. What was dismissed goes with the last."""
        entry.leases -= Counter({thread: 1})
        entry.last_used, entry.order = self.now(), next(self.numbers)
        if entry.is_idle:
            if entry.dismissed:
                self.release([entry], forced=True)
            else:
                self._list(entry)
            self.changed.notify_all()

    def _list(self, entry: Entry) -> None:
        for device, count in entry.size.bytes_by_device.items():
            if count:  # what holds nothing there gives nothing back
                self.accounts[device].idle[entry.key] = entry

    def _unlist(self, entry: Entry) -> None:
        for device in entry.size.bytes_by_device:
            if self.accounts[device].idle.get(entry.key) is entry:
                del self.accounts[device].idle[entry.key]

    # Letting go

    def release(self, entries: Sequence[Entry], *, forced: bool = False, thorough: bool = False) -> list[Entry]:
        """Drop idle resources, and take back what somebody outside still refers to, which is returned: that counts as
        a use.

        `forced` takes nothing back: the memory of what is still referred to stays counted until it is gone. What
        can't be referred to weakly counts as gone. What refers to itself in a circle goes by a collection of garbage,
        which isn't made each time, since it takes long; `thorough` makes one.
        """
        dropped = []
        for entry in entries:
            self._unlist(entry)
            dropped.append((entry, weak(entry.resource), whole(entry.resource, entry.size)))
            entry.resource = None
        if any(_is_there(reference, parts) for _, reference, parts in dropped):
            self._collect(now=thorough)
        stayed = []
        for entry, reference, parts in dropped:
            entry.resource = reference() if reference is not None and not forced else None
            if entry.resource is None:
                self._went(entry, [part for part in parts if part.is_alive()])
            else:
                entry.kept_until = self.now() + _ASKED_AGAIN_S
                self.counts["found_in_use"] += 1
                stayed.append(entry)
        for device in {device for entry in entries if entry not in stayed for device in entry.size.bytes_by_device}:
            give_back(device)
        self.changed.notify_all()
        return stayed

    def release_idle(self, entries: Sequence[Entry]) -> int:
        """Drop idle resources whatever room there is; return how many went."""
        stayed = self.release(entries)
        for entry in stayed:
            self._list(entry)
        return len(entries) - len(stayed)

    def _collect(self, *, now: bool) -> None:
        """Collect garbage, now or where the last time is so long ago that it takes a tenth of all time at most."""
        began = self.now()
        if now or began >= self.collected_again:
            gc.collect()
            self.collected_again = self.now() + _COLLECTED_AGAIN * (self.now() - began)

    def _went(self, entry: Entry, left: list[Part]) -> None:
        self.take_out(entry)
        for device, count in entry.size.bytes_by_device.items():
            self.accounts[device].remove(count, [part for part in left if part.device == device])
        self.counts["evictions"] += 1
        self.counts["kept_in_part"] += bool(left)

    def take_out(self, entry: Entry) -> None:
        """Give a resource to no one any more."""
        self._unlist(entry)
        self.outgoing.discard(entry)
        if self.entries.get(entry.key) is entry:
            del self.entries[entry.key]

    def make_room(self, account: Account, coming: int = 0, *, urgent: bool = False, thorough: bool = False) -> None:
        """Release idle resources, the least recently used first, until `excess` says that it is enough.

        `urgent` asks those too that were found in use a moment ago, `thorough` collects garbage too.
        """
        at, asked = self.now(), list[Entry]()
        while (wanted := account.excess(coming)) > 0:
            chosen = []
            while wanted > 0 and account.idle:
                _, entry = account.idle.popitem()
                asked.append(entry)
                if urgent or entry.kept_until <= at:
                    chosen.append(entry)
                    wanted -= entry.size.bytes_by_device[account.device]
            if not chosen:
                break
            self.release(chosen, thorough=thorough)
        for entry in asked:
            if entry.resource is not None and entry.is_idle:
                self._list(entry)

    def tend(self, account: Account, *, urgent: bool = False, thorough: bool = False) -> None:
        """Make room until a device is below the beginning of low-memory mode, and note how full it is."""
        at = self.now()
        if account.read_at is None or at - account.read_at >= _MACHINE_ASKED_AGAIN_S:
            account.read_at = at  # others need not ask too
            reading = self.settings.read_memory(account.device)
            with self.lock:
                account.read(reading, at)
        with self.lock:
            self._note_low_memory(account)
            self.make_room(account, urgent=urgent or thorough, thorough=thorough)
            self._note_low_memory(account)
            pressed = account.fullest() >= account.limits.pressure
            if pressed and not account.under_pressure:
                text = f"memory is nearly used up on {account.device}: {account.fullness()}"
                self.remember("memory_pressure", account.device, f"{text}, and nothing idle is left to release")
            account.under_pressure = pressed

    def _note_low_memory(self, account: Account) -> None:
        low = account.fullest() >= account.limits.low_memory
        if low and not account.low_memory:
            text = f"low-memory mode on {account.device}: {account.fullness()}; idle resources are released"
            self.remember("low_memory", account.device, text)
        account.low_memory = low

    def needs_tending(self, account: Account) -> bool:
        """Whether a resource that isn't used any more changes something."""
        return account.excess() > 0 or account.low_memory or account.under_pressure

    # Waiting

    def loads_on(self, account: Account, but: Load) -> list[Load]:
        """The loads under way on a device, but one and those that it is a part of."""
        return [
            one
            for one in self.loads.values()
            if one is not but
            and one.has_started
            and one.number not in but.own
            and one.wanted.key.device == account.device
        ]

    def is_turn_of(self, load: Load, account: Account) -> bool:
        """Whether no other load of unknown size is under way, where that matters."""
        return load.need.measured or account.budget is None or not account.unmeasured - load.own

    def blockers(self, account: Account, load: Load) -> set[int]:
        """The threads that may make room on a device: who loads or has a lease."""
        loads = self.loads_on(account, load)
        if not self.is_turn_of(load, account):
            return {one.owner for one in loads if one.number in account.unmeasured}
        leases = (entry.leases for entry in self.all_on(account.device))
        return {one.owner for one in loads}.union(*leases)

    def all_on(self, device: str) -> Iterable[Entry]:
        """The resources that hold memory of a device."""
        return (one for one in (*self.entries.values(), *self.outgoing) if device in one.size.bytes_by_device)

    # Telling

    def remember(
        self, kind: str, device: str, text: str, *, key: Key | None = None, error: str = "", error_type: str = ""
    ) -> None:
        """Keep what a report should tell; the same again (of `key`) is counted."""
        about = (kind, device, str(key or ""))
        found = self.incidents.pop(about, None)
        self.incidents[about] = Incident(
            kind=kind,
            device=device,
            text=text,
            error=error,
            error_type=error_type,
            model=key.id if key is not None and key.kind != "resource" else "",
            first_at=found.first_at if found else now(),
            last_at=now(),
            count=found.count + 1 if found else 1,
        )

    def snapshot(self) -> dict[str, Any]:
        """Counts, devices, resources, loads under way and what went wrong, all of one moment, as JSON values."""
        with self.lock:
            at = self.now()
            counts = {name: self.counts[name] for name in COUNTS}
            resources = sorted([*self.entries.values(), *self.outgoing], key=lambda one: one.order)
            return {
                "requests": counts["hits"] + counts["misses"] + counts["waits"],
                **counts,
                "low_memory_mode": any(one.low_memory for one in self.accounts.values()),
                "memory_pressure": any(one.under_pressure for one in self.accounts.values()),
                "devices": {device: _device(account) for device, account in sorted(self.accounts.items())},
                "resources": [_resource(entry, at) for entry in resources],
                "loading": sorted(str(key) for key in self.loads),
                "incidents": [asdict(one) for one in self.incidents.values()],
            }


def _is_there(reference: weakref.ref[Any] | None, parts: tuple[Part, ...]) -> bool:
    return (reference is not None and reference() is not None) or any(part.is_alive() for part in parts)


def _device(account: Account) -> dict[str, Any]:
    return {
        "budget_bytes": account.budget,
        "budget_from": account.budget_from,
        "held_bytes": account.held,
        "loading_bytes": account.reserved,
        "lingering_bytes": account.lingering_bytes,
        "peak_bytes": account.peak,
        "budget_used": account.budget_used,
        "device_total_bytes": account.reading.total_bytes,
        "device_free_bytes": account.reading.free_bytes,
        "device_used": account.reading.used_share,
        "device_reason": account.reading.reason,
        "low_memory_mode": account.low_memory,
        "memory_pressure": account.under_pressure,
    }


def _resource(entry: Entry, at: float) -> dict[str, Any]:
    return {
        **asdict(entry.key),
        "bytes_by_device": dict(entry.size.bytes_by_device),
        "measured_by": entry.size.measured_by,
        "resident_change_bytes": entry.resident_change,
        "allocator_change_bytes": entry.allocator_change,
        "leases": entry.leases.total(),
        "uses": entry.uses,
        "age_s": at - entry.loaded_at,
        "idle_s": at - entry.last_used,
        "load_s": entry.load_seconds,
        "dismissed": entry.dismissed,
    }
