"""One load: wait for memory, build, measure, and give the resource to all waiting threads."""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from contextvars import ContextVar

from hwcompat.hardware.errors import BackendUnavailable, OutOfMemory, WouldDeadlock, is_out_of_memory
from hwcompat.hardware.plain_text import one_line

from .account import Account, Entry, PoolLoad
from .device_memory import allocated_bytes, resident_bytes
from .pool_models import names_on
from .pool_state import PoolState
from .resource_sizes import Size, size_of

_LOOKED_AGAIN_S = 1.0
_OUTSIDERS_LOOKED_AGAIN_S = 0.05
"""Seconds between two checks of a waiting load: no event reports that the last reference is dropped."""
_LONGEST_MESSAGE = 500

_under_way: ContextVar[frozenset[int]] = ContextVar("_under_way", default=frozenset())
"""The loads whose constructors this code runs for."""


def acquire(state: PoolState, load: PoolLoad) -> Entry:
    """Return the resource with a lease for this thread. If another thread loads it already, wait for that load.

    Raises the constructor's exception in all waiting threads; `OutOfMemory` and `WouldDeadlock`.
    """
    me = threading.get_ident()
    account = state.account(load.key.device)
    with state.lock:
        entry = state.entries.get(load.key)
        if entry is not None:
            state.counts["hits"] += 1
            state.lease(entry, Counter({me: 1}))
            return entry
        other = state.loads.get(load.key)
        if other is not None:
            state.counts["waits"] += 1
            return _wait_for_load(state, other, me)
        state.counts["misses"] += 1
        known = state.sizes.get(load.key)
        load.number, load.owner, load.own = next(state.numbers), me, _under_way.get()
        load.measured = known is not None
        load.expected = load.claimed if known is None else known
        state.loads[load.key] = load
    try:
        state.tend(account)
        with state.lock:
            _admit(state, load, account)
        entry = _built_or_retried(state, load, account)
        accounts = [state.account(device) for device in entry.size.bytes_by_device]
        with state.lock:
            _finish_load(state, load, entry)
    except BaseException as error:
        _failed(state, load, error)
        raise
    for one in accounts:
        state.tend(one)
    return entry


def _wait_for_load(state: PoolState, load: PoolLoad, me: int) -> Entry:
    """Return the result of another thread's load, with the lease that this thread got when the load ended."""
    by_itself = load.number in _under_way.get()
    load.waiting[me] += 1
    try:
        while not load.is_done:
            if by_itself or not state.waits.can_end(me, {load.owner}):
                raise WouldDeadlock(
                    f"waiting for {load.key} would never end",
                    why="its own constructor requests it"
                    if by_itself
                    else "the thread that loads it waits for a resource that this thread loads or leases",
                    fix="Request the resources that a constructor needs before its load, or release leases first.",
                )
            with state.waits.waiting(me, lambda: set() if load.is_done else {load.owner}):
                state.changed.wait(_LOOKED_AGAIN_S)
    except BaseException:
        if load.entry is None:
            load.waiting -= Counter({me: 1})
        else:
            state.end_lease(load.entry, me)
        raise
    if load.entry is None:
        assert load.error is not None
        raise load.error
    return load.entry


# Admission


def _admit(state: PoolState, load: PoolLoad, account: Account) -> None:
    """Wait until the load may start, and reserve its bytes. Idle resources are evicted for it, the least recently
    used first."""
    deadline: float | None = None
    thorough = False
    while True:
        if account.is_only_unknown(load):
            state.make_room(account, load.reserved, thorough=thorough)
        if account.may_start(load):
            break
        at = state.now()
        if deadline is None or state.loads_beside(account, load):
            deadline = at + state.wait_s
        if _wait_for_room(state, load, account, deadline):
            continue
        if not thorough:  # a garbage collection may still free reference cycles
            thorough = True
        elif load.own:  # a part of another load, which reserved memory or is the one beyond the budget
            state.counts["nested_beyond_budget"] += 1
            break
        else:
            state.counts["refused"] += 1
            raise _no_room(state, load, account, waited=at >= deadline)
    account.start(load)


def _wait_for_room(state: PoolState, load: PoolLoad, account: Account, deadline: float) -> bool:
    """Wait for a change; return false if no thread can free memory, or none did in time."""

    def blockers() -> set[int]:
        return state.blockers(account, load)

    left = deadline - state.now()
    has_outsiders = bool(account.lingering) or any(entry.is_idle for entry in state.entries.values())
    outside = has_outsiders and account.is_only_unknown(load)
    may_end = state.waits.can_end(load.owner, blockers()) or (outside and threading.active_count() > 1)
    if not may_end or left <= 0:
        return False
    state.counts["waits_for_room"] += 1
    with state.waits.waiting(load.owner, blockers):
        state.changed.wait(min(left, _OUTSIDERS_LOOKED_AGAIN_S if outside else _LOOKED_AGAIN_S))
    return True


def _no_room(state: PoolState, load: PoolLoad, account: Account, *, waited: bool) -> OutOfMemory:
    entries = state.all_on(account.device)
    leased = sum(not one.is_idle for one in entries)
    why = (
        f"{account.fullness()}: {leased} of {len(entries)} resources have leases, and the others are still referenced"
    )
    if waited:
        why += f"; none was released in {state.wait_s:g} s"
    return OutOfMemory(
        f"not enough memory for {load.key}",
        why=why,
        fix="Release leases and drop references to unused resources, use fewer models at a time, or give the pool "
        f"a larger budget (ResourcePool(budgets={{'{account.device}': BYTES}})).",
    )


# Building


def _built_or_retried(state: PoolState, load: PoolLoad, account: Account) -> Entry:
    """Build; if memory runs out, evict all idle resources and try once more."""
    try:
        return _built(state, load)
    except Exception as error:
        if isinstance(error, OutOfMemory) or not is_out_of_memory(error):
            raise
    with state.lock:
        state.counts["out_of_memory"] += 1
        gone = state.release(state.idle_on(account.device))
    try:
        return _built(state, load)
    except Exception as error:
        if isinstance(error, OutOfMemory) or not is_out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)  # frames reference partly built objects
        with state.lock:
            full = account.fullness()
        raise OutOfMemory(
            f"out of memory while loading {load.key}, also after releasing {gone} idle resources",
            why=f"{one_line(f'{type(error).__name__}: {error}', longest=_LONGEST_MESSAGE)}; {full}",
            fix="Use a smaller model or half precision, release leases, close other programs that use the device, or "
            "choose another device.",
        ) from error


def _built(state: PoolState, load: PoolLoad) -> Entry:
    device = load.key.device
    with state.lock:
        state.counts["builds"] += 1
        serial = state.counts["builds"]
        alone = sum(len(one.loads) for one in state.accounts.values()) == 1
    resident, allocated, began = resident_bytes(), allocated_bytes(device), state.now()
    token = _under_way.set(load.own | {load.number})
    try:
        resource = load.build()
    finally:
        _under_way.reset(token)
    seconds = state.now() - began
    with state.lock:
        alone = alone and serial == state.counts["builds"]
    # If others were loaded at the same time, the change isn't due to this load alone.
    resident_change = _change(resident, resident_bytes()) if alone else None
    allocator_change = _change(allocated, allocated_bytes(device)) if alone else None
    size = size_of(resource, device, names_on(device).name_of, load.claimed)
    if size.measured_by == "tensors":
        size = size.at_least(device, allocator_change)
    elif size.measured_by == "nothing" and load.key.kind == "model":
        growth = allocator_change if allocator_change is not None else resident_change if device == "cpu" else None
        if growth is not None and growth > 0:
            size = Size(bytes_by_device={device: growth}, measured_by="process")
    if load.key.kind == "model" and size.parts and not size.bytes_by_device.get(device):
        raise BackendUnavailable(
            f"{load.key} is on another device",
            why=f"its constructor created it on {', '.join(sorted(size.bytes_by_device))}",
            fix="Give the constructor a parameter `device` and use it, or return a module whose `to` moves it.",
        )
    return Entry(
        key=load.key,
        resource=resource,
        size=size,
        loaded_at=state.now(),
        last_used=state.now(),
        load_seconds=seconds,
        resident_change=resident_change,
        allocator_change=allocator_change,
    )


def _change(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


# Its end


def _finish_load(state: PoolState, load: PoolLoad, entry: Entry) -> None:
    _end(state, load)
    for device, count in entry.size.bytes_by_device.items():
        state.accounts[device].add(count)
    measured = entry.size.bytes_by_device.get(load.key.device, 0)
    if load.expected is not None and measured > load.expected:
        state.counts["underestimated"] += 1
    state.sizes[load.key] = measured
    entry.dismissed = load.dismissed
    if load.dismissed:
        state.outgoing.add(entry)
    else:
        state.entries[load.key] = entry
    state.counts["loads"] += 1
    load.entry = entry
    state.lease(entry, load.waiting + Counter({load.owner: 1}))


def _failed(state: PoolState, load: PoolLoad, error: BaseException) -> None:
    what = one_line(f"{type(error).__name__}: {error}", longest=_LONGEST_MESSAGE)
    kind = "out_of_memory" if isinstance(error, OutOfMemory) or is_out_of_memory(error) else ""
    with state.lock:
        load.error = error
        state.counts["failures"] += 1
        text = f"{load.key} failed to load: {what}"
        state.remember("failed_load", load.key.device, text, key=load.key, error=what, error_type=kind)
        _end(state, load)


def _end(state: PoolState, load: PoolLoad) -> None:
    state.accounts[load.key.device].loads.discard(load)
    load.is_done = True
    if state.loads.get(load.key) is load:
        del state.loads[load.key]
    state.changed.notify_all()
