"""Hands tasks to Ray and takes their results as they arrive. Where and when each runs, and where it runs again, is
Ray's to say; what can't run anywhere any more is called off."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hardware.plain_text import one_line

from .ray_cluster import Demand, RayNode, alive_nodes

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


class _Pending:
    """The tasks that are out, by the references of their results."""

    def __init__(self, ray: Any, function: Callable[..., Any], works: Sequence[Work]) -> None:
        self.ray = ray
        self.arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.out: dict[Any, Work] = {}
        self.without_node: dict[Demand, float] = {}
        remote = ray.remote(max_retries=RETRIES, retry_exceptions=True)(function)
        by_demand = {demand: remote.options(**demand.options()) for demand in {one.demand for one in works}}
        for work in works:
            reference = by_demand[work.demand].remote(*work.arguments)
            self.out[reference] = work
            reference.future().add_done_callback(
                lambda future, reference=reference: self.arrived.put((reference, future))
            )

    def taken(self, reference: Any, future: Any) -> Done | None:
        """The result that arrived; None where the task was called off before."""
        work = self.out.pop(reference, None)
        if work is None:
            return None
        error = future.exception()
        if error is None:
            return Done(key=work.key, value=future.result())
        return Done(key=work.key, lost=_reason(error))

    def called_off(self, nodes: Sequence[RayNode], now: float) -> Iterator[Done]:
        """Tasks that no node could run for a while: Ray would keep them for ever."""
        for demand in {work.demand for work in self.out.values()}:
            if any(demand.fits(node.offers) for node in nodes):
                self.without_node.pop(demand, None)
            elif now - self.without_node.setdefault(demand, now) >= _PATIENCE_S:
                yield from self._call_off(demand)

    def _call_off(self, demand: Demand) -> Iterator[Done]:
        names = ", ".join(demand.resources)
        for reference, work in tuple(self.out.items()):
            if work.demand == demand:
                del self.out[reference]
                self.ray.cancel(reference)
                yield Done(key=work.key, lost=f"the last node that offered {names} was lost")

    def cancel(self) -> None:
        """Call off all that is out."""
        for reference in self.out:
            self.ray.cancel(reference, force=True)
        self.out.clear()


def do_all(
    ray: Any,
    function: Callable[..., Any],
    works: Sequence[Work],
    on_lost: Callable[[RayNode], None] = lambda _node: None,
) -> Iterator[Done]:
    """Have Ray run `function` for each of some works, and give what came of each as it arrives, each once.

    `on_lost` hears of each node that goes. Whoever stops listening calls off what is left.
    """
    pending = _Pending(ray, function, works)
    looked = time.monotonic()
    before = alive_nodes(ray)
    try:
        while pending.out:
            try:
                done = pending.taken(*pending.arrived.get(timeout=_LOOK_S))
            except queue.Empty:
                done = None
            if done is not None:
                yield done
            if (now := time.monotonic()) - looked >= _LOOK_S:
                looked = now
                nodes = alive_nodes(ray)
                for node in before:
                    if node.id not in {one.id for one in nodes}:
                        on_lost(node)
                before = nodes
                yield from pending.called_off(nodes, now)
    finally:
        pending.cancel()


def _reason(error: BaseException) -> str:
    """Why a task has no result, in one line: what it raised itself, or what Ray says of its worker or node."""
    cause = getattr(error, "cause", None) or error
    text = str(cause).strip() or type(cause).__name__
    return one_line(f"after {RETRIES + 1} attempts: {type(cause).__name__}: {text}", longest=600)
