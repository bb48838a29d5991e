"""Lets resources go, and looks whether they really went: memory counts as free when nobody holds it any more."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from .account import Account
from .memory import give_back
from .sizes import Part, weak, whole
from .state import Entry, State

_COLLECTED_AGAIN = 10
_MACHINE_ASKED_AGAIN_S = 1.0
_ASKED_AGAIN_S = 1.0
"""How long what was found in use isn't asked again, but by a load that finds no room."""


def choose(
    state: State, account: Account, coming: int, *, now: float, kept: set[Entry], urgent: bool = False
) -> list[Entry]:
    """Mark the least recently used idle resources for leaving, as many as `excess` asks for. Under the lock.

    `urgent` asks those too that were found in use a moment ago, but those of `kept`, which this caller found so.
    """
    chosen: list[Entry] = []
    wanted = account.excess(coming)
    for entry in state.idle(account, float("inf") if urgent else now, kept):
        if wanted <= 0:
            break
        wanted -= entry.size.bytes_by_device[account.device]
        mark(state, entry)
        chosen.append(entry)
    return chosen


def mark(state: State, entry: Entry) -> None:
    """Keep others from using a resource while it is seen whether it can go. Under the lock."""
    entry.leaver = threading.get_ident()
    for device, count in entry.size.bytes_by_device.items():
        state.accounts[device].leaving += count


def let_go(state: State, entries: Sequence[Entry], *, forced: bool = False, thorough: bool = False) -> int:
    """Drop marked resources, and put back what somebody outside still refers to. Not under the lock.

    Returns how many went. `forced` puts nothing back: the memory of what is still referred to stays counted until it
    is gone. What can't be referred to weakly counts as gone. What refers to itself in a circle goes by a collection
    of garbage, which isn't made each time, since it takes long; `thorough` makes one.
    """
    if not entries:
        return 0
    dropped = [(entry, *_drop(entry)) for entry in entries]
    if any(_is_there(reference, parts) for _, reference, parts in dropped):
        _collect(state, now=thorough)
    went = []
    for entry, reference, _ in dropped:
        if not forced and reference is not None:
            entry.resource = reference()
        if entry.resource is None:
            went.append(entry)
    parts_of = {id(entry): parts for entry, _, parts in dropped}
    for device in {device for entry in went for device in entry.size.bytes_by_device}:
        give_back(device)
    with state.lock:
        for entry in entries:
            _settle(state, entry, parts_of[id(entry)], went=entry in went, now=state.now())
    return len(went)


def _collect(state: State, *, now: bool) -> None:
    """Collect garbage, now or where the last time is so long ago that it takes a tenth of all time at most."""
    began = state.now()
    if not now and began < state.collected_again:
        return
    gc.collect()
    state.collected_again = state.now() + _COLLECTED_AGAIN * (state.now() - began)


def _drop(entry: Entry) -> tuple[weakref.ref[Any] | None, tuple[Part, ...]]:
    """Give up the pool's own reference; what is left is weak."""
    reference, parts = weak(entry.resource), whole(entry.resource, entry.size)
    entry.resource = None
    return reference, parts


def _is_there(reference: weakref.ref[Any] | None, parts: tuple[Part, ...]) -> bool:
    return (reference is not None and reference() is not None) or any(part.is_alive() for part in parts)


def _settle(state: State, entry: Entry, parts: tuple[Part, ...], *, went: bool, now: float) -> None:
    entry.leaver = None
    left = [part for part in parts if part.is_alive()] if went else []
    for device, count in entry.size.bytes_by_device.items():
        account = state.accounts[device]
        account.leaving -= count
        if went:
            account.remove(count, [part for part in left if part.device == device])
            account.gave_back(count)
        account.room.notify_all()
    if went:
        state.outgoing.discard(entry)
        if state.entries.get(entry.key) is entry:
            del state.entries[entry.key]
        state.counts["evictions"] += 1
        state.counts["kept_in_part"] += bool(left)
    else:
        entry.kept_until = now + _ASKED_AGAIN_S
        state.counts["found_in_use"] += 1
    entry.stays.notify_all()


def tend(state: State, account: Account, *, urgent: bool = False, thorough: bool = False) -> None:
    """Let idle resources go until the device is below the beginning of low-memory mode, and note how full it is.

    `urgent` asks again what was found in use a moment ago, `thorough` collects garbage too.
    """
    _ask_the_machine(state, account)
    kept: set[Entry] = set()
    while True:
        with state.lock:
            _note_low_memory(state, account)
            chosen = choose(state, account, 0, now=state.now(), kept=kept, urgent=urgent or thorough)
            if not chosen:
                _note_pressure(state, account)
                return
        let_go(state, chosen, thorough=thorough)
        kept.update(chosen)


def needs_tending(account: Account) -> bool:
    """Whether a resource that isn't used any more changes something. Under the lock."""
    return account.excess() > 0 or account.low_memory or account.under_pressure


def _ask_the_machine(state: State, account: Account) -> None:
    now = state.now()
    if account.read_at is not None and now - account.read_at < _MACHINE_ASKED_AGAIN_S:
        return
    account.read_at = now  # others need not ask too
    reading = state.settings.read_memory(account.device)
    with state.lock:
        account.read(reading, now)


def _note_low_memory(state: State, account: Account) -> None:
    low = account.fullest() >= account.limits.low_memory
    if low and not account.low_memory:
        text = f"low-memory mode on {account.device}: {fullness(account)}; idle resources are released"
        state.remember("low_memory", account.device, text)
    account.low_memory = low


def _note_pressure(state: State, account: Account) -> None:
    pressed = account.fullest() >= account.limits.pressure
    if pressed and not account.under_pressure:
        left = "nothing idle is left to release"
        text = f"memory is nearly used up on {account.device}: {fullness(account)}, and {left}"
        state.remember("memory_pressure", account.device, text)
    account.under_pressure = pressed


def fullness(account: Account) -> str:
    """`93 % of the pool's budget of 96.0 MB is in use`, and the same of the device where that is known."""
    own, machine = account.shares()
    said = []
    if own is not None and account.budget is not None:
        said.append(f"{own:.0%} of the pool's budget of {megabytes(account.budget)} is in use".replace("%", " %"))
    if machine is not None and account.reading.total_bytes is not None:
        told = f"{machine:.0%} of the {megabytes(account.reading.total_bytes)} of the device"
        said.append(told.replace("%", " %"))
    return ", ".join(said) or "how full it is isn't known"


def megabytes(count: int) -> str:
    """Bytes in units of 10^6, as a text."""
    return f"{count / 1e6:,.1f} MB"
