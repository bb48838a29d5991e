"""Much work of one kind: one forked child a piece, from a parent that has imported the libraries once.

The parent never computes a tensor: after one large product of matrices its children would hang in OpenMP.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import resource
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from hardware.garbage import uncollected

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
    process: BaseProcess
    pipe: Connection
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
            wait([one.pipe for one in working], timeout=_LOOK_S)
            for one in tuple(working):
                done = _ended(one, timeout_s)
                if done is not None:
                    working.remove(one)
                    on_done(done)
    finally:
        for one in working:
            one.process.kill()


def warm_up() -> None:
    """Import what every child needs. The library's packages are lazy: their modules have to be named, else each child
    spends seconds on what stands behind them (SciPy, scikit-learn, TorchDynamo)."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with uncollected():
        for name in _NEEDED:
            importlib.import_module(name)


def _start(item: Item, work: Callable[[Item], Answer], memory_bytes: int) -> _Child[Item]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_in_child, args=(item, work, theirs, memory_bytes), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of the parent do nothing that a child needs
        process.start()
    theirs.close()
    return _Child(item=item, process=process, pipe=ours, started=time.monotonic())


def _ended(one: _Child[Item], timeout_s: float) -> Answered[Item] | None:
    """What a child said, or why it said nothing; None while it is at work."""
    elapsed = time.monotonic() - one.started
    answer: Answer | None = None
    if one.pipe.poll():
        with contextlib.suppress(EOFError):  # it is gone without a word
            answer = one.pipe.recv()
        one.process.join()
    elif elapsed > timeout_s:
        one.process.kill()
        one.process.join()
    else:
        return None
    one.pipe.close()
    late = elapsed > timeout_s
    lost = f"no answer in {timeout_s:g} seconds" if late else f"the process ended with {one.process.exitcode}"
    return Answered(item=one.item, answer=answer, lost="" if answer else lost, seconds=round(elapsed, 2))


def _in_child(item: Item, work: Callable[[Item], Answer], pipe: Connection, memory_bytes: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    pipe.send(work(item))
