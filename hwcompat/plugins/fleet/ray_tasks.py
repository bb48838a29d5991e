"""Hands tasks to Ray and takes their results as they arrive. Where and when each runs, and where it runs again, is
Ray's to say; what can't run anywhere any more is called off."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hardware.plain_text import one_line

from .nodes import Demand, FleetNode
from .ray_cluster import alive_nodes

RETRIES = 2
"""How often Ray gives a task to another worker or node after the first died with it."""

_LOOK_S = 2.0
_PATIENCE_S = 20.0
"""How long tasks wait for a node that could run them, after there was one and it went: it may come back."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One task: what it is of (`key`), what it takes of a node, and the arguments of the function."""

    key: Any
    demand: Demand
    arguments: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Done:
    """What came of a task: the function's `value`, or why there is none."""

    key: Any
    value: Any = None
    lost: str = ""


def do_all(
    ray: Any,
    function: Callable[..., Any],
    works: Sequence[Work],
    on_lost: Callable[[FleetNode], None] = lambda _node: None,
) -> Iterator[Done]:
    """Have Ray run `function` for each of some works, and give what came of each as it arrives, each once.

    `on_lost` hears of each node that goes. Whoever stops listening calls off what is left.
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
            if done := out.pop(reference, None):  # else it was called off
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
                elif now - without_node.setdefault(demand, now) >= _PATIENCE_S:  # Ray would keep them for ever
                    for reference in [one for one, work in out.items() if work.demand == demand]:
                        ray.cancel(reference)
                        lost = f"the last node that offered {demand.target} was lost"
                        yield Done(key=out.pop(reference).key, lost=lost)
    finally:
        for reference in out:
            ray.cancel(reference, force=True)


def _done(work: Work, future: Any) -> Done:
    """What came of a task; why there is nothing is what it raised itself, or what Ray says of its worker or node."""
    error = future.exception()
    if error is None:
        return Done(key=work.key, value=future.result())
    cause = getattr(error, "cause", None) or error
    text = str(cause).strip() or type(cause).__name__
    why = f"after {RETRIES + 1} attempts: {type(cause).__name__}: {text}"
    return Done(key=work.key, lost=one_line(why, longest=600))
