"""Measure allocations and releases of torch's allocator during a run, with torch's profiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd.profiler import profile

_SHOWN = 6


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of the storages of `tensors`, each counted once."""
    storages = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in tensors}
    return sum(storages.values())


def peak_while(work: Callable[[], Any]) -> tuple[int, list[str]]:
    """Return the peak bytes that `work` allocated in addition to earlier ones, and the operators at that moment, the
    innermost first."""
    recorder = profile(use_kineto=True, profile_memory=True)
    recorder._prepare_trace()
    recorder._start_trace()
    kept: Any = None
    try:
        kept = work()
    finally:
        found = torch.autograd._disable_profiler()
    del kept
    moves = []
    waiting = list(found.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if hasattr(event.extra_fields, "total_allocated"):
            moves.append(event)
    if not moves:
        return 0, []
    first = min(moves, key=lambda one: one.start_time_ns).extra_fields
    where = max(moves, key=lambda one: one.extra_fields.total_allocated)
    # The count continues over profiles, and misses releases between them.
    peak = where.extra_fields.total_allocated - (first.total_allocated - first.alloc_size)
    names: list[str] = []
    while where.parent is not None and len(names) < _SHOWN:
        where = where.parent
        names.append(where.name)
    return max(peak, 0), names
