"""Keeps pools usable in a forked child: locks are free there, and nothing waits for a thread that isn't there."""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from contextlib import ExitStack
from threading import Condition

from .account import Entry
from .state import State

_states: weakref.WeakSet[State] = weakref.WeakSet()
_held = ExitStack()
_left_alone: list[Entry] = []
"""What lies on accelerators and came along in a fork: its runtime can't be used in the child, not even to free it."""

global_lock = threading.Lock()
"""That of the pool that all parts of a process share."""


def watch(state: State) -> None:
    """Take care of a pool's state when the process forks."""
    _states.add(state)


def _before() -> None:
    """Hold every lock, so that no table is halfway when it is copied."""
    _held.enter_context(global_lock)
    for state in sorted(_states, key=id):
        _held.enter_context(state.lock)


def _after_in_child() -> None:
    for state in _states:
        _renew(state)
    _held.close()


def _renew(state: State) -> None:
    """Take back what other threads were about to do; of them none is left."""
    me = threading.get_ident()
    state.waits.forget_others(me)
    state.changed = Condition(state.lock)
    for load in [one for one in state.loads.values() if one.owner != me]:
        if load.has_started:
            state.accounts[load.wanted.key.device].end(load.number, load.need)
        del state.loads[load.wanted.key]
    for load in state.loads.values():
        load.waiting.clear()
    for entry in [*state.entries.values(), *state.outgoing]:
        if any(device != "cpu" for device in entry.size.bytes_by_device):
            _left_alone.append(entry)
            state.take_out(entry)
            for device, count in entry.size.bytes_by_device.items():
                state.accounts[device].remove(count, [])
        else:
            others = Counter({thread: count for thread, count in entry.leases.items() if thread != me})
            for thread in others.elements():
                state.end_lease(entry, thread)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_held.close, after_in_child=_after_in_child)
