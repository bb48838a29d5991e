"""Derives many recipes: one forked child a model type, from a parent that has imported the libraries once.

The parent never computes a tensor: after one large product of matrices its children would hang in OpenMP.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import multiprocessing
import os
import resource
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from generators.models.recipe import SHIPPED, SHIPPED_ORIGIN, Recipe
from generators.models.refusal import Obstacle, Refusal
from generators.models.store import keep_recipe, keep_refusal
from hardware.errors import HwCompatError

from .wanted import Wanted

TIMEOUT_S = 240.0
MEMORY_BYTES = 8 * 2**30
_NEEDED = (
    *("torch", "torch._dynamo", "transformers", "transformers.modeling_utils", "transformers.generation.utils"),
    *("generators.derivation.derive", "hardware.backends._decoding"),
)
_LOOK_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Derived:
    """What became of it: a recipe, or a refusal. `seconds` of wall time."""

    wanted: Wanted
    recipe: Recipe | None
    refusal: Refusal | None
    seconds: float


@dataclass(kw_only=True)
class _Child:
    wanted: Wanted
    process: BaseProcess
    pipe: Connection
    started: float


def derive_many(
    wanted: Iterable[Wanted],
    on_done: Callable[[Derived], None],
    *,
    jobs: int,
    timeout_s: float = TIMEOUT_S,
    memory_bytes: int = MEMORY_BYTES,
) -> None:
    """Derive each in a child of its own, `jobs` at a time, and tell `on_done` as they end, in any order.

    A child that dies, takes longer than `timeout_s` or more than `memory_bytes` costs one recipe. Imports torch and
    transformers into this process.
    """
    _warm_up()
    waiting = list(wanted)[::-1]
    working: list[_Child] = []
    try:
        while waiting or working:
            while waiting and len(working) < jobs:
                working.append(_start(waiting.pop(), memory_bytes))
            wait([one.pipe for one in working], timeout=_LOOK_S)
            for one in tuple(working):
                done = _ended(one, timeout_s)
                if done is not None:
                    working.remove(one)
                    on_done(done)
    finally:
        for one in working:
            one.process.kill()


def _warm_up() -> None:
    """Import what every child needs. The library's packages are lazy: their modules have to be named, else each child
    spends seconds on what stands behind them (SciPy, scikit-learn, TorchDynamo)."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for name in _NEEDED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _start(wanted: Wanted, memory_bytes: int) -> _Child:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_derive, args=(wanted, theirs, memory_bytes), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of the parent do nothing that a child needs
        process.start()
    theirs.close()
    return _Child(wanted=wanted, process=process, pipe=ours, started=time.monotonic())


def _ended(one: _Child, timeout_s: float) -> Derived | None:
    """What a child said, or why it said nothing; None while it is at work."""
    elapsed = time.monotonic() - one.started
    answer: dict[str, Any] | None = None
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
    done = functools.partial(Derived, wanted=one.wanted, seconds=round(elapsed, 2))
    if answer is None:
        late = elapsed > timeout_s
        why = f"no answer in {timeout_s:g} seconds" if late else f"the process ended with {one.process.exitcode}"
        lost = Refusal(model_type=one.wanted.model_type, obstacle=Obstacle.NOT_DERIVED, reason=why)
        return done(recipe=None, refusal=_of_task(lost, one.wanted))
    if "recipe" in answer:
        return done(recipe=Recipe.from_dict(answer["recipe"]), refusal=None)
    return done(recipe=None, refusal=_of_task(Refusal.from_dict(answer["refusal"]), one.wanted))


def _of_task(refusal: Refusal, wanted: Wanted) -> Refusal:
    return replace(refusal, task=wanted.task or "")


def _derive(wanted: Wanted, pipe: Connection, memory_bytes: int) -> None:
    """The child: derive, and say what came out."""
    from .derive import derive_tiny
    from .obstacles import obstacle_of

    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    try:
        pipe.send({"recipe": derive_tiny(wanted.model_type, wanted.task).to_dict()})
        return
    except HwCompatError as error:
        failure = str(error)
    except Exception as error:  # whatever modelling code raises is the reason why there is no recipe
        failure = f"{type(error).__name__}: {error}"
    pipe.send({"refusal": obstacle_of(wanted.model_type, failure).to_dict()})


def derive_and_keep(
    wanted: Iterable[Wanted], *, jobs: int, shipped: bool = False, on_done: Callable[[Derived], None]
) -> None:
    """Derive each and store what comes of it as it comes, so that nothing is lost where it is cut off.

    `shipped` stores into the package's own data, else it is this machine's own folder. Raises `OutputError`.
    """
    folder = SHIPPED if shipped else None

    def keep(done: Derived) -> None:
        recipe, asked = done.recipe, done.wanted
        if recipe is not None:
            if shipped:
                recipe = replace(recipe, recorded={**recipe.recorded, "origin": SHIPPED_ORIGIN})
            keep_recipe(recipe, primary=asked.task is None, folder=folder)
        keep_refusal(asked.model_type, asked.task, done.refusal, folder)
        on_done(done)

    derive_many(wanted, keep, jobs=jobs)
