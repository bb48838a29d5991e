"""Submit tasks to Ray and yield their results as they arrive. Ray schedules and retries them; tasks that can't run
anymore are canceled."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hwcompat.hardware.plain_text import one_line

from .nodes import Demand, FleetNode
from .ray_cluster import alive_nodes

RETRIES = 2
"""The number of retries of a task on another worker or node after its worker died."""

_LOOK_S = 2.0
_PATIENCE_S = 20.0
"""Seconds that tasks wait for a lost node, which may come back."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One task: its `key`, the resources that it needs, and the arguments of the function."""

    key: Any
    demand: Demand
    arguments: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Done:
    """The result of a task: the function's `value`, or why there is none."""

    key: Any
    value: Any = None
    lost: str = ""


def do_all(
    ray: Any,
    function: Callable[..., Any],
    works: Sequence[Work],
    on_lost: Callable[[FleetNode], None] = lambda _node: None,
) -> Iterator[Done]:
    """Have Ray run `function` for each work, and yield each result once, as it arrives.

    `on_lost` is called for each node that is lost. Closing the generator cancels the rest.
    """
    arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
    out: dict[Any, Work] = {}
    remote = ray.remote(max_retries=RETRIES, retry_exceptions=True)(function)
    by_demand = {demand: remote.options(**demand.options()) for demand in {one.demand for one in works}}
    for work in works:
        reference = by_demand[work.demand].remote(*work.arguments)
        out[reference] = work
        reference.future().add_done_callback(lambda future, reference=reference: arrived.put((reference, future)))
    without_node: dict[Demand, float] = {}
    looked, before = time.monotonic(), alive_nodes(ray)
    try:
        while out:
            try:
                reference, future = arrived.get(timeout=_LOOK_S)
            except queue.Empty:
                reference = None
            if done := out.pop(reference, None):  # otherwise it was canceled
                yield _done(done, future)
            if (now := time.monotonic()) - looked < _LOOK_S:
                continue
            looked, gone, before = now, before, alive_nodes(ray)
            for node in gone:
                if node.id not in {one.id for one in before}:
                    on_lost(node)
            for demand in {work.demand for work in out.values()}:
                if any(demand.fits(node.offers) for node in before):
                    without_node.pop(demand, None)
                elif now - without_node.setdefault(demand, now) >= _PATIENCE_S:  # Ray would keep them forever
                    for reference in [one for one, work in out.items() if work.demand == demand]:
                        ray.cancel(reference)
                        lost = f"the last node that offered {demand.target} was lost"
                        yield Done(key=out.pop(reference).key, lost=lost)
    finally:
        for reference in out:
            ray.cancel(reference, force=True)


def _done(work: Work, future: Any) -> Done:
    """Return the result of a task: its value, what it raised, or what Ray reports of its worker or node."""
    error = future.exception()
    if error is None:
        return Done(key=work.key, value=future.result())
    cause = getattr(error, "cause", None) or error
    text = str(cause).strip() or type(cause).__name__
    why = f"after {RETRIES + 1} attempts: {type(cause).__name__}: {text}"
    return Done(key=work.key, lost=one_line(why, longest=600))
