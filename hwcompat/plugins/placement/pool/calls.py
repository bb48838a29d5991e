"""Runs many calls at once, each with a result or an error of its own, in the order in which they were given."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from .state import State

_MOST_WORKERS = 32


@dataclass(frozen=True, kw_only=True)
class CallOutcome:
    """What one call gave: its `value`, or the `error` that it raised."""

    value: Any = None
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        """Whether it gave a value."""
        return self.error is None


def run_all(state: State, calls: Sequence[Callable[[], Any]], max_workers: int | None) -> list[CallOutcome]:
    """Run the calls by `max_workers` threads (as many as calls, 32 at most). Returns when all have ended.

    Each run has threads of its own, so that calls may start further runs. What isn't an `Exception` (an interruption)
    is raised when all have ended.
    """
    if not calls:
        return []
    workers: set[int] = set()
    me = threading.get_ident()

    def run(call: Callable[[], Any]) -> CallOutcome:
        thread = threading.get_ident()
        with state.lock:
            workers.add(thread)
        try:
            return CallOutcome(value=call())
        except Exception as error:  # whatever a call raises is its outcome
            return CallOutcome(error=error)
        finally:
            with state.lock:
                workers.discard(thread)

    count = min(len(calls), max_workers or _MOST_WORKERS)
    with ThreadPoolExecutor(count, thread_name_prefix="resource-pool") as executor:
        # A call inside a constructor belongs to that constructor's load: it inherits the context.
        futures = [executor.submit(copy_context().run, run, call) for call in calls]
        waiting = state.waits.waiting(me, lambda: set(workers))
        with state.lock:
            waiting.__enter__()
        try:
            return [future.result() for future in futures]
        finally:
            with state.lock:
                waiting.__exit__(None, None, None)
