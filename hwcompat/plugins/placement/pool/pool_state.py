"""State of a pool: loaded resources, loads in progress, users, and waiting threads.

Everything here is used under `PoolState.lock`, except for constructors and readings of the machine. Memory counts as
free when it is unreferenced: a resource is dropped, and restored if it is still referenced.
"""

from __future__ import annotations

import gc
import itertools
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from threading import Condition
from typing import Any

from cachetools import LRUCache

from hwcompat.hardware.evidence.writer import now

from .account import Account, Entry, Key, PoolLoad
from .device_memory import ReadMemory, give_back
from .resource_sizes import weak, whole

_MOST_INCIDENTS = 100
_COLLECTED_AGAIN = 10
_ASKED_AGAIN_S = 1.0
"""Seconds during which the last reading of a device is used."""

COUNTS = {
    "hits": "requests that found their resource",
    "misses": "requests that loaded it",
    "waits": "requests that waited for another's load",
    "loads": "loads that succeeded",
    "failures": "loads that raised",
    "evictions": "resources that were released",
    "found_in_use": "times that a resource without a lease was still referenced, and stayed",
    "kept_in_part": "released resources with tensors that are still referenced",
    "waits_for_room": "times that a load waited for memory or for another load",
    "refused": "loads without enough memory",
    "out_of_memory": "loads tried again because memory ran out",
    "underestimated": "loads that took more memory than expected",
    "nested_beyond_budget": "loads inside of another's constructor that exceeded the budget",
}
"""Names of the counts, and what they mean."""


@dataclass(frozen=True, kw_only=True)
class Incident:
    """An incident: `kind` is `low_memory`, `memory_pressure` or `failed_load`; times are ISO 8601 in UTC.

    Of a failure, `error` is the class and its message, `error_type` its type if known, `model` the model. Texts may
    quote messages of other software.
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


Blockers = Callable[[], set[int]]
"""Returns the threads, by identity, any of which may end a wait; called each time, since they change."""


class Waits:
    """The threads that wait, and for which threads, so that a deadlock becomes an error."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._of: dict[int, list[Blockers]] = {}

    @contextmanager
    def waiting(self, thread: int, blockers: Blockers) -> Iterator[None]:
        """Record that `thread` waits. A thread can wait twice, because a signal handler may use the pool too."""
        with self._lock:
            self._of.setdefault(thread, []).append(blockers)
        try:
            yield
        finally:
            with self._lock:
                self._of[thread].remove(blockers)
                if not self._of[thread]:
                    del self._of[thread]

    def can_end(self, thread: int, blockers: set[int]) -> bool:
        """Whether `thread` would wait, directly or through waiting threads, for one that runs.

        A thread that waits for no thread in particular counts as running.
        """
        met = {thread}
        to_see = list(blockers - met)
        while to_see:
            one = to_see.pop()
            if one not in met:
                met.add(one)
                following = set[int]().union(*(ask() for ask in self._of.get(one, ())))
                if not following:
                    return True
                to_see += following - met
        return False

    def forget_others(self, thread: int) -> None:
        """Keep the waits of one thread: after a fork there are no others."""
        self._of = {one: waits for one, waits in self._of.items() if one == thread}


class PoolState:
    """All tables of a pool, the lock under which they are used, and the condition that is notified of each change.

    `budgets` are in bytes by device (`cuda` is all of its kind), else a device has `fraction` of its memory;
    `low_memory` and `pressure` are shares of it, `wait_s` is how long a load waits for others, `now` returns seconds.
    `outgoing` are resources with a lease that the pool gives to no new caller, `leaving` are being dropped.
    """

    def __init__(
        self,
        *,
        budgets: Mapping[str, int],
        fraction: float,
        low_memory: float,
        pressure: float,
        wait_s: float,
        read_memory: ReadMemory,
        now: Callable[[], float],
    ) -> None:
        self.budgets, self.fraction, self.wait_s = budgets, fraction, wait_s
        self.low_memory, self.pressure = low_memory, pressure
        self.read_memory, self.now = read_memory, now
        self.lock = threading.RLock()  # finalizers of resources may call the pool under the lock
        self.changed = Condition(self.lock)
        self.entries: dict[Key, Entry] = {}
        self.outgoing: set[Entry] = set()
        self.leaving: set[Entry] = set()
        self.loads: dict[Key, PoolLoad] = {}
        self.sizes: dict[Key, int] = {}
        self.accounts: dict[str, Account] = {}
        self.waits = Waits(self.lock)
        self.counts: Counter[str] = Counter()
        self.numbers = itertools.count(1)
        self.collected_again = 0.0
        self.incidents: LRUCache[tuple[str, str, str], Incident] = LRUCache(_MOST_INCIDENTS)
        _states.add(self)

    def account(self, device: str) -> Account:
        """Return the account of a device; the first call reads the device's memory."""
        found = self.accounts.get(device)
        if found is not None:
            return found
        reading = self.read_memory(device)
        budget, source = self.budgets.get(device, self.budgets.get(device.partition(":")[0])), "given"
        if budget is None and reading.total_bytes:
            budget, source = int(self.fraction * reading.total_bytes), f"{self.fraction:g} of the device"
        elif budget is None:
            source = f"none: {reading.reason}"
        made = Account(
            device=device,
            budget=budget,
            budget_from=source,
            low_share=self.low_memory,
            pressure_share=self.pressure,
        )
        made.read(reading, self.now())
        with self.lock:
            return self.accounts.setdefault(device, made)

    # Leases

    def lease(self, entry: Entry, threads: Counter[int]) -> None:
        """Give threads a lease on a resource."""
        entry.leases += threads
        entry.uses += threads.total()
        entry.last_used, entry.order = self.now(), next(self.numbers)

    def end_lease(self, entry: Entry, thread: int) -> None:
        """End one lease. A dismissed resource is released with the last."""
        entry.leases -= Counter({thread: 1})
        entry.last_used, entry.order = self.now(), next(self.numbers)
        if entry.is_idle:
            if entry.dismissed:
                self.release([entry], forced=True)
            self.changed.notify_all()

    # Releases

    def idle_on(self, device: str) -> list[Entry]:
        """Return resources without a lease that hold memory of a device, the least recently used first."""
        idle = [one for one in self.entries.values() if one.is_idle and one.size.bytes_by_device.get(device)]
        return sorted(idle, key=lambda one: one.order)

    def release(self, entries: Sequence[Entry], *, forced: bool = False, thorough: bool = False) -> int:
        """Drop idle resources, and restore those that are still referenced, which counts as a use. Return how many
        were dropped.

        `forced` restores none: memory that is still referenced stays counted until it is freed. An object without
        weak references counts as freed. Reference cycles are freed by a garbage collection, which is slow and isn't
        run each time; `thorough` runs one.
        """
        own = [entry for entry in entries if entry not in self.leaving]  # finalizers of resources may need memory too
        self.leaving.update(own)
        references = [(weak(entry.resource), whole(entry.resource, entry.size)) for entry in own]
        for entry in own:
            entry.resource = None
        if any(one is not None and one() is not None for one, _ in references) or any(
            part.is_alive() for _, parts in references for part in parts
        ):
            self._collect(now=thorough)
        gone = []
        for entry, (reference, parts) in zip(own, references, strict=True):
            entry.resource = reference() if reference is not None and not forced else None
            if entry.resource is not None:
                entry.order = next(self.numbers)
                self.counts["found_in_use"] += 1
                continue
            gone.append(entry)
            left = [part for part in parts if part.is_alive()]
            self.take_out(entry)
            for device, count in entry.size.bytes_by_device.items():
                self.accounts[device].remove(count, [part for part in left if part.device == device])
            self.counts["evictions"] += 1
            self.counts["kept_in_part"] += bool(left)
        self.leaving.difference_update(own)
        for device in {device for entry in gone for device in entry.size.bytes_by_device}:
            give_back(device)
        self.changed.notify_all()
        return len(gone)

    def _collect(self, *, now: bool) -> None:
        """Run a garbage collection if `now`, or if collections take at most a tenth of all time."""
        began = self.now()
        if now or began >= self.collected_again:
            gc.collect()
            self.collected_again = self.now() + _COLLECTED_AGAIN * (self.now() - began)

    def take_out(self, entry: Entry) -> None:
        """Give a resource to no new caller."""
        self.outgoing.discard(entry)
        if self.entries.get(entry.key) is entry:
            del self.entries[entry.key]

    def make_room(self, account: Account, coming: int = 0, *, thorough: bool = False) -> None:
        """Release idle resources, the least recently used first, until `excess` is 0; `thorough` also runs a garbage
        collection."""
        asked = set[Entry]()
        while (wanted := account.excess(coming)) > 0:
            chosen = []
            for entry in self.idle_on(account.device):
                if wanted > 0 and entry not in asked:
                    chosen.append(entry)
                    wanted -= entry.size.bytes_by_device[account.device]
            if not chosen:
                break
            asked.update(chosen)
            self.release(chosen, thorough=thorough)

    def tend(self, account: Account, *, thorough: bool = False) -> None:
        """Free memory until a device is below the start of low-memory mode, and record its use."""
        at = self.now()
        if account.read_at is None or at - account.read_at >= _ASKED_AGAIN_S:
            account.read_at = at  # so that other threads don't read it too
            reading = self.read_memory(account.device)
            with self.lock:
                account.read(reading, at)
        with self.lock:
            self._note_low_memory(account)
            self.make_room(account, thorough=thorough)
            self._note_low_memory(account)
            pressed = account.fullest() >= account.pressure_share
            if pressed and not account.under_pressure:
                text = f"memory is nearly used up on {account.device}: {account.fullness()}"
                self.remember("memory_pressure", account.device, f"{text}, and no idle resource is left to release")
            account.under_pressure = pressed

    def _note_low_memory(self, account: Account) -> None:
        low = account.fullest() >= account.low_share
        if low and not account.low_memory:
            text = f"low-memory mode on {account.device}: {account.fullness()}; idle resources are released"
            self.remember("low_memory", account.device, text)
        account.low_memory = low

    def tend_all(self, devices: Iterable[str] | None = None) -> None:
        """Run `tend` for these devices (None: all) that have idle resources to release."""
        for device in list(self.accounts) if devices is None else devices:
            account = self.accounts[device]
            with self.lock:
                is_needed = account.excess() > 0 or account.low_memory or account.under_pressure
            if is_needed:
                self.tend(account)

    # Waiting

    def loads_beside(self, account: Account, load: PoolLoad) -> list[PoolLoad]:
        """Return the loads in progress on a device, except for one and those that it is a part of."""
        return [one for one in account.loads if one is not load and one.number not in load.own]

    def blockers(self, account: Account, load: PoolLoad) -> set[int]:
        """Return the threads that may free memory on a device: those that load or hold a lease."""
        if not account.is_only_unknown(load):
            return {one.owner for one in account.unknown_beside(load)}
        leases = (entry.leases for entry in self.all_on(account.device))
        return {one.owner for one in self.loads_beside(account, load)}.union(*leases)

    def all_on(self, device: str) -> list[Entry]:
        """Return the resources that hold memory of a device."""
        return [one for one in (*self.entries.values(), *self.outgoing) if device in one.size.bytes_by_device]

    # Reports

    def remember(
        self, kind: str, device: str, text: str, *, key: Key | None = None, error: str = "", error_type: str = ""
    ) -> None:
        """Record an incident for reports; repeated ones (by `key`) are counted."""
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
        """Return counts, devices, resources, loads in progress and incidents of one moment as JSON values."""
        with self.lock:
            at = self.now()
            counts = {name: self.counts[name] for name in COUNTS}
            resources = sorted([*self.entries.values(), *self.outgoing], key=lambda one: one.order)
            return {
                "requests": counts["hits"] + counts["misses"] + counts["waits"],
                **counts,
                "low_memory_mode": any(one.low_memory for one in self.accounts.values()),
                "memory_pressure": any(one.under_pressure for one in self.accounts.values()),
                "devices": {device: account.to_dict() for device, account in sorted(self.accounts.items())},
                "resources": [entry.to_dict(at) for entry in resources],
                "loading": sorted(str(key) for key in self.loads),
                "incidents": [asdict(one) for one in self.incidents.values()],
            }


# Forks: in a child locks are free, and nothing waits for a thread of the parent.

_states: weakref.WeakSet[PoolState] = weakref.WeakSet()
_held = ExitStack()
_left_alone: list[Entry] = []
"""Objects on accelerators that were copied by a fork: the child can't use their runtime, not even to free them."""

global_lock = threading.Lock()
"""The lock of the pool that the whole process shares."""


def _before_fork() -> None:
    """Take every lock, so that no table is copied in the middle of a change."""
    _held.enter_context(global_lock)
    for state in sorted(_states, key=id):
        _held.enter_context(state.lock)


def _in_child() -> None:
    """Undo unfinished changes of other threads, which the child doesn't have."""
    me = threading.get_ident()
    for state in _states:
        state.waits.forget_others(me)
        state.changed = Condition(state.lock)
        for load in list(state.loads.values()):
            if load.owner == me:
                load.waiting.clear()
                continue
            state.accounts[load.key.device].loads.discard(load)
            del state.loads[load.key]
        for entry in [*state.entries.values(), *state.outgoing]:
            if any(device != "cpu" for device in entry.size.bytes_by_device):
                _left_alone.append(entry)
                state.take_out(entry)
                for device, count in entry.size.bytes_by_device.items():
                    state.accounts[device].remove(count, [])
            else:
                for thread in [one for one in entry.leases.elements() if one != me]:
                    state.end_lease(entry, thread)
    _held.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_held.close, after_in_child=_in_child)
