"""One load: it waits for room, builds, measures what came, and hands it to all who waited."""

from __future__ import annotations

import threading
import traceback
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Condition
from typing import Any

from hardware.errors import BackendUnavailable, OutOfMemory, WouldDeadlock
from hardware.out_of_memory import is_out_of_memory
from hardware.plain_text import one_line

from .account import Account, Need
from .leaving import choose, fullness, let_go, mark, tend
from .memory import allocated_bytes, resident_bytes
from .sizes import Size, size_of
from .state import Entry, Load, State, Wanted, next_number

_LOOKED_AGAIN_S = 1.0
_OUTSIDERS_LOOKED_AGAIN_S = 0.05
"""How often a load without room looks again: nobody tells when the last reference without a lease is dropped."""
_LONGEST_MESSAGE = 500

_under_way: ContextVar[frozenset[int]] = ContextVar("_under_way", default=frozenset())
"""The loads whose constructors this code runs for."""


@dataclass(frozen=True, kw_only=True)
class _Built:
    resource: Any
    size: Size
    seconds: float
    resident_change: int | None
    allocator_change: int | None


def acquire(state: State, wanted: Wanted) -> Entry:
    """The resource with a lease for this thread; loaded by this thread, or by the one that does already.

    Raises what the constructor raised, to all who waited for it; `OutOfMemory` and `WouldDeadlock`.
    """
    me = threading.get_ident()
    state.account(wanted.key.device)
    waited = False
    while True:
        with state.lock:
            entry = state.entries.get(wanted.key)
            if entry is not None and entry.leaver is None:
                state.counts["waits" if waited else "hits"] += 1
                return _lease(state, entry, me)
            load = state.loads.get(wanted.key)
            if entry is None and load is None:
                state.counts["misses"] += 1
                load = _begun(state, wanted, me)
                break
            waited = True
            if load is not None:
                state.counts["waits"] += 1
                return _lease(state, _awaited(state, load, me), me, promised=True)
            assert entry is not None
            _wait(state, entry.stays, {entry.leaver} if entry.leaver is not None else set(), me, wanted)
    return _run(state, load)


def _begun(state: State, wanted: Wanted, me: int) -> Load:
    known = state.sizes.get(wanted.key)
    expected = known if known is not None else wanted.declared if wanted.declared is not None else wanted.estimated
    load = Load(
        wanted=wanted,
        number=next_number(),
        owner=me,
        own=_under_way.get(),
        done=Condition(state.lock),
        need=Need(expected=expected, measured=known is not None),
    )
    state.loads[wanted.key] = load
    return load


def _lease(state: State, entry: Entry, thread: int, *, promised: bool = False) -> Entry:
    entry.promised -= promised
    entry.leases[thread] += 1
    entry.uses += 1
    entry.last_used, entry.order = state.now(), next_number()
    return entry


def _awaited(state: State, load: Load, me: int) -> Entry:
    """What another thread's load brings. Under the lock, which is let go of meanwhile."""
    load.waiting += 1
    try:
        while not load.is_done:
            _wait(state, load.done, {load.owner}, me, load.wanted)
    except BaseException:
        load.waiting -= 1
        if load.entry is not None:
            load.entry.promised -= 1
        raise
    if load.entry is None:
        assert load.error is not None
        raise load.error
    return load.entry


def _wait(state: State, condition: Condition, blockers: set[int], me: int, wanted: Wanted) -> None:
    load = state.loads.get(wanted.key)
    by_itself = load is not None and load.number in _under_way.get()
    if by_itself or not state.waits.can_end(me, blockers):
        raise WouldDeadlock(
            f"{wanted.key} can't be waited for",
            why="it is asked for while it is being loaded, by its own constructor"
            if by_itself
            else "the thread that loads it waits for what this one loads or has a lease on",
            fix="Ask for what a constructor needs before its load, or release leases first.",
        )
    with state.waits.waiting(me, lambda: blockers):
        condition.wait(_LOOKED_AGAIN_S)


def _run(state: State, load: Load) -> Entry:
    account = state.account(load.wanted.key.device)
    try:
        _admit(state, load, account)
        built = _built_or_retried(state, load, account)
        for device in built.size.bytes_by_device:
            state.account(device)
        entry = _arrived(state, load, built)
    except BaseException as error:
        _failed(state, load, error)
        raise
    for device in entry.size.bytes_by_device:
        tend(state, state.account(device))
    return entry


# Admission


def _admit(state: State, load: Load, account: Account) -> None:
    """Return when the load may start, with its bytes set aside. What is idle goes for it, the least recently used
    first."""
    tend(state, account)
    kept: set[Entry] = set()
    deadline: float | None = None
    thorough = False
    while True:
        with state.lock:
            chosen = _to_go_for(state, load, account, kept)
            if chosen is None:
                load.has_started = True
                account.start(load.number, load.need)
                return
            if not chosen:
                now = state.now()
                deadline = (
                    now + state.settings.wait_s if deadline is None or state.loads_on(account, load) else deadline
                )
                try:
                    _wait_for_room(state, load, account, deadline)
                except OutOfMemory:
                    if not thorough:  # what refers to itself in a circle may go still
                        thorough = True
                    elif load.own:  # a part of another load, which has room or was the one beyond the budget
                        load.has_started = True
                        account.start(load.number, load.need)
                        state.counts["nested_beyond_budget"] += 1
                        return
                    else:
                        state.counts["refused"] += 1
                        raise
                kept.clear()
                continue
        let_go(state, chosen, thorough=thorough)
        kept.update(entry for entry in chosen if entry.resource is not None)


def _to_go_for(state: State, load: Load, account: Account, kept: set[Entry]) -> list[Entry] | None:
    """What should leave before the load starts; `None` where it may start, nothing where all that is there stays."""
    its_turn = state.is_turn_of(load, account)
    coming, now = load.need.reserved, state.now()
    chosen = choose(state, account, coming, now=now, kept=kept) if its_turn else []
    if not chosen and its_turn and not account.fits(load.need):
        chosen = choose(state, account, coming, now=now, kept=kept, urgent=True)
    return None if not chosen and account.may_start(load.need, load.own) else chosen


def _wait_for_room(state: State, load: Load, account: Account, deadline: float) -> None:
    """Wait until something changed.

    Raises `OutOfMemory` where nobody can make room, or nobody did in time. Under the lock, let go of meanwhile.
    """

    def blockers() -> set[int]:
        return state.blockers(account, load)

    now = state.now()
    its_turn = state.is_turn_of(load, account)
    outside = its_turn and (bool(account.lingering) or any(entry.is_idle for entry in state.entries.values()))
    may_end = state.waits.can_end(load.owner, blockers()) or (outside and threading.active_count() > 1)
    if not may_end or now >= deadline:
        raise _no_room(state, load, account, waited=now >= deadline)
    state.counts["waits_for_room"] += 1
    with state.waits.waiting(load.owner, blockers):
        condition = account.room if its_turn else account.turn
        condition.wait(min(deadline - now, _OUTSIDERS_LOOKED_AGAIN_S if outside else _LOOKED_AGAIN_S))


def _no_room(state: State, load: Load, account: Account, *, waited: bool) -> OutOfMemory:
    entries = [one for one in state.entries.values() if account.device in one.size.bytes_by_device]
    leased = sum(bool(one.leases) for one in entries)
    why = (
        f"{fullness(account)}: {leased} of {len(entries)} resources have leases, and the others are still referred to"
    )
    if waited:
        why += f"; none was released in {state.settings.wait_s:g} s"
    return OutOfMemory(
        f"there is no room for {load.wanted.key}",
        why=why,
        fix="Release leases and drop references to what isn't needed, use fewer models at a time, or give the pool "
        f"a larger budget (ResourcePool(budgets={{'{account.device}': BYTES}})).",
    )


# Building


def _built_or_retried(state: State, load: Load, account: Account) -> _Built:
    """Build; where memory runs out, let everything idle go and try once more."""
    try:
        return _built(state, load)
    except Exception as error:
        if isinstance(error, OutOfMemory) or not is_out_of_memory(error):
            raise
    with state.lock:
        idle = state.idle(account, float("inf"), set())
        for entry in idle:
            mark(state, entry)
        state.counts["out_of_memory"] += 1
    gone = let_go(state, idle)
    try:
        return _built(state, load)
    except Exception as error:
        if isinstance(error, OutOfMemory) or not is_out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)  # what was built halfway hangs on them
        with state.lock:
            told = fullness(account)
        raise OutOfMemory(
            f"memory ran out while {load.wanted.key} was loaded, and again after {gone} idle resources were released",
            why=f"{one_line(f'{type(error).__name__}: {error}', longest=_LONGEST_MESSAGE)}; {told}",
            fix="Use a smaller model or half precision, release what has leases, close other programs that use the "
            "device, or name another device.",
        ) from error


def _built(state: State, load: Load) -> _Built:
    wanted, device = load.wanted, load.wanted.key.device
    with state.lock:
        state.counts["builds"] += 1
        serial = state.counts["builds"]
        alone = not any(one.has_started for one in state.loads.values() if one is not load)
    resident, allocated, began = resident_bytes(), allocated_bytes(device), state.now()
    token = _under_way.set(load.own | {load.number})
    try:
        resource = wanted.build()
    finally:
        _under_way.reset(token)
    seconds = state.now() - began
    resident_change = _change(resident, resident_bytes())
    allocator_change = _change(allocated, allocated_bytes(device))
    with state.lock:
        alone = alone and serial == state.counts["builds"]
    if not alone:  # others were loaded meanwhile: the change isn't this one's
        resident_change = allocator_change = None
    size = size_of(resource, device, wanted.name_of, wanted.declared)
    if size.measured_by == "tensors":
        size = size.at_least(device, allocator_change)
    elif size.measured_by == "nothing" and wanted.key.kind == "model":
        told = allocator_change if allocator_change is not None else resident_change if device == "cpu" else None
        if told is not None and told > 0:
            size = Size(bytes_by_device={device: told}, measured_by="process")
    if wanted.must_be_on and size.parts and not size.bytes_by_device.get(wanted.must_be_on):
        raise BackendUnavailable(
            f"{wanted.key} isn't there",
            why=f"what its constructor gave lies on {', '.join(sorted(size.bytes_by_device))}",
            fix="Have the constructor take `device` and use it, or give a module whose `to` moves it.",
        )
    return _Built(
        resource=resource,
        size=size,
        seconds=seconds,
        resident_change=resident_change,
        allocator_change=allocator_change,
    )


def _change(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


# Its end


def _arrived(state: State, load: Load, built: _Built) -> Entry:
    key, now = load.wanted.key, state.now()
    with state.lock:
        entry = Entry(
            key=key,
            resource=built.resource,
            size=built.size,
            stays=Condition(state.lock),
            loaded_at=now,
            last_used=now,
            order=next_number(),
            load_seconds=built.seconds,
            resident_change=built.resident_change,
            allocator_change=built.allocator_change,
            promised=load.waiting,
            dismissed=load.dismissed,
        )
        account = state.accounts[key.device]
        account.end(load.number, load.need)
        for device, count in built.size.bytes_by_device.items():
            state.accounts[device].add(count)
        measured = built.size.bytes_by_device.get(key.device, 0)
        if load.need.expected is not None and measured > load.need.expected:
            state.counts["underestimated"] += 1
        state.sizes[key] = measured
        if load.dismissed:
            state.outgoing.add(entry)
        else:
            state.entries[key] = entry
        state.counts["loads"] += 1
        load.entry = entry
        _end(state, load, account)
        return _lease(state, entry, load.owner)


def _failed(state: State, load: Load, error: BaseException) -> None:
    key = load.wanted.key
    with state.lock:
        account = state.accounts[key.device]
        if load.has_started:
            account.end(load.number, load.need)
        load.error = error
        state.counts["failures"] += 1
        what = one_line(f"{type(error).__name__}: {error}", longest=_LONGEST_MESSAGE)
        kind = "out_of_memory" if isinstance(error, OutOfMemory) or is_out_of_memory(error) else ""
        text = f"{key} wasn't loaded: {what}"
        state.remember("failed_load", key.device, text, key=key, error=what, error_type=kind)
        _end(state, load, account)


def _end(state: State, load: Load, account: Account) -> None:
    load.is_done = True
    if state.loads.get(load.wanted.key) is load:
        del state.loads[load.wanted.key]
    load.done.notify_all()
    account.room.notify_all()
    account.turn.notify()
