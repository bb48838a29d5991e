"""Much work of one kind: one forked child a piece, from a parent that has imported the libraries once.

The parent never computes a tensor: after one large product of matrices its children would hang in OpenMP.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hardware.garbage import uncollected
from hardware.process import Answering, limit_memory

TIMEOUT_S = 240.0
MEMORY_BYTES = 8 * 2**30
_NEEDED = (
    *("torch", "torch._dynamo", "transformers", "transformers.modeling_utils", "transformers.generation.utils"),
    *("generators.derivation.derive", "hardware.model.decoding"),
)
_LOOK_S = 0.5

Answer = dict[str, Any]
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Answered(Generic[Item]):
    """What a child said of its piece of work, or `lost`: why it said nothing. `seconds` of wall time."""

    item: Item
    answer: Answer | None
    lost: str
    seconds: float


@dataclass(kw_only=True)
class _Child(Generic[Item]):
    item: Item
    process: Answering
    started: float


def in_children(
    items: Iterable[Item],
    work: Callable[[Item], Answer],
    on_done: Callable[[Answered[Item]], None],
    *,
    jobs: int,
    timeout_s: float = TIMEOUT_S,
    memory_bytes: int = MEMORY_BYTES,
) -> None:
    """Do `work` on each in a child of its own, `jobs` at a time, and tell `on_done` as they end, in any order.

    A child that dies, takes longer than `timeout_s` or more than `memory_bytes` costs one piece. Imports torch and
    transformers into this process.
    """
    warm_up()
    waiting = list(items)[::-1]
    working: list[_Child[Item]] = []
    try:
        while waiting or working:
            while waiting and len(working) < jobs:
                working.append(_start(waiting.pop(), work, memory_bytes))
            select.select([one.process.reader for one in working], [], [], _LOOK_S)
            for one in tuple(working):
                done = _ended(one, timeout_s)
                if done is not None:
                    working.remove(one)
                    on_done(done)
    finally:
        for one in working:
            one.process.end()


def warm_up() -> None:
    """Import what every child needs. The library's packages are lazy: their modules have to be named, else each child
    spends seconds on what stands behind them (SciPy, scikit-learn, TorchDynamo)."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with uncollected():
        for name in _NEEDED:
            importlib.import_module(name)


def _start(item: Item, work: Callable[[Item], Answer], memory_bytes: int) -> _Child[Item]:
    process = Answering(lambda: _in_child(item, work, memory_bytes))
    return _Child(item=item, process=process, started=time.monotonic())


def _ended(one: _Child[Item], timeout_s: float) -> Answered[Item] | None:
    """What a child said, or why it said nothing; None while it is at work."""
    over = one.process.heard_all()
    elapsed = time.monotonic() - one.started
    late = elapsed > timeout_s
    if not over and not late:
        return None
    code = one.process.wait() if over else one.process.returncode
    one.process.end()
    answer: Answer | None = pickle.loads(one.process.heard) if code == 0 else None
    lost = f"no answer in {timeout_s:g} seconds" if late else f"the process ended with {code}"
    return Answered(item=one.item, answer=answer, lost="" if answer else lost, seconds=round(elapsed, 2))


def _in_child(item: Item, work: Callable[[Item], Answer], memory_bytes: int) -> bytes:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    limit_memory(memory_bytes)
    return pickle.dumps(work(item))
