"""Keeps pools usable in a forked child: locks are free there, and nothing waits for a thread that isn't there."""

from __future__ import annotations

import os
import threading
import weakref
from threading import Condition

from .state import Entry, State

_states: weakref.WeakSet[State] = weakref.WeakSet()
_locks: list[threading.Lock] = []
_held: list[threading.Lock] = []
_left_alone: list[Entry] = []
"""What lies on accelerators and came along in a fork: its runtime can't be used in the child, not even to free it."""


def watch(state: State) -> None:
    """Take care of a pool's state when the process forks."""
    _states.add(state)


def watch_lock(lock: threading.Lock) -> None:
    """Have a lock free in a child."""
    _locks.append(lock)


def _before() -> None:
    """Hold every lock, so that no table is halfway when it is copied."""
    locks = [*_locks, *sorted((state.lock for state in _states), key=id)]
    for lock in locks:
        lock.acquire()
    _held[:] = locks


def _after() -> None:
    for lock in _held:
        lock.release()
    _held.clear()


def _after_in_child() -> None:
    for state in _states:
        _renew(state)
    _after()


def _renew(state: State) -> None:
    """Take back what other threads were about to do; of them none is left."""
    me = threading.get_ident()
    state.waits.forget_others(me)
    for account in state.accounts.values():
        account.room, account.turn = Condition(state.lock), Condition(state.lock)
    for load in [one for one in state.loads.values() if one.owner != me]:
        if load.has_started:
            state.accounts[load.wanted.key.device].end(load.number, load.need)
        del state.loads[load.wanted.key]
    for load in state.loads.values():
        load.waiting, load.done = 0, Condition(state.lock)
    for entry in [*state.entries.values(), *state.outgoing]:
        entry.stays = Condition(state.lock)
        entry.leases = type(entry.leases)({thread: count for thread, count in entry.leases.items() if thread == me})
        entry.promised = 0
        elsewhere = any(device != "cpu" for device in entry.size.bytes_by_device)
        if entry.leaver not in (None, me):
            for device, count in entry.size.bytes_by_device.items():
                state.accounts[device].leaving -= count
            entry.leaver = None
        if elsewhere or (entry.resource is None and entry.leaver is None):
            _left_alone.append(entry)
            _take_out(state, entry)


def _take_out(state: State, entry: Entry) -> None:
    for device, count in entry.size.bytes_by_device.items():
        state.accounts[device].held -= count
    state.outgoing.discard(entry)
    if state.entries.get(entry.key) is entry:
        del state.entries[entry.key]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
