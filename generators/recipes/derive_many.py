"""Derive many recipes: one forked child for each, from a parent that has imported the libraries once.

The parent never computes a tensor, because after a large matrix product its children would hang in OpenMP.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from hwcompat.generators.models.recipe import SHIPPED, SHIPPED_ORIGIN, Recipe
from hwcompat.generators.models.recipe_store import (
    Obstacle,
    Refusal,
    keep_recipe,
    keep_refusal,
    load_recipe,
    refusal_of,
)
from hwcompat.hardware.errors import HwCompatError
from hwcompat.hardware.gc_control import uncollected
from hwcompat.hardware.process import Answering, limit_memory

TIMEOUT_S = 240.0
MEMORY_BYTES = 8 * 2**30
_NEEDED = (
    *("torch", "torch._dynamo", "transformers", "transformers.modeling_utils", "transformers.generation.utils"),
    *("hwcompat.generators.recipes.derive", "hwcompat.hardware.model.greedy_decoding"),
)
_LOOK_S = 0.5

Answer = dict[str, Any]
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A recipe to derive; `task` None is the type's primary one."""

    model_type: str
    task: str | None = None


def missing(wanted: Iterable[Wanted]) -> list[Wanted]:
    """Return those without a stored recipe or refusal."""
    return [
        one
        for one in wanted
        if refusal_of(one.model_type, one.task) is None and load_recipe(one.model_type, one.task) is None
    ]


def derive_and_keep(
    wanted: Iterable[Wanted], *, jobs: int, shipped: bool = False, timeout_s: float = TIMEOUT_S
) -> Iterator[tuple[Wanted, Recipe | Refusal]]:
    """Derive each in its own child, `jobs` at a time, and yield the results as they finish, in any order.

    A result is stored before it is yielded, so an interruption loses nothing: in the package's data if `shipped`,
    else in this machine's folder. Imports torch and transformers into this process. Raises `OutputError`.
    """
    folder = SHIPPED if shipped else None
    for asked, answer, lost in in_children(wanted, partial(_derive, anew=shipped), jobs=jobs, timeout_s=timeout_s):
        if answer is not None and "recipe" in answer:
            recipe = Recipe.from_dict(answer["recipe"])
            if shipped:
                recipe = replace(recipe, recorded={**recipe.recorded, "origin": SHIPPED_ORIGIN})
            keep_recipe(recipe, primary=asked.task is None, folder=folder)
            keep_refusal(asked.model_type, asked.task, None, folder)
            yield asked, recipe
            continue
        if answer is not None:
            refusal = Refusal.from_dict(answer["refusal"])
        else:
            refusal = Refusal(model_type=asked.model_type, obstacle=Obstacle.NOT_DERIVED, reason=lost)
        refusal = replace(refusal, task=asked.task or "")
        keep_refusal(asked.model_type, asked.task, refusal, folder)
        yield asked, refusal


def _derive(wanted: Wanted, *, anew: bool) -> Answer:
    """Derive in a child process, and return the result."""
    from .build_model import obstacle_of
    from .derive import derive_tiny

    try:
        return {"recipe": derive_tiny(wanted.model_type, wanted.task, anew=anew).to_dict()}
    except HwCompatError as error:
        failure = str(error)
    except Exception as error:  # any error of modeling code is the reason why there is no recipe
        failure = f"{type(error).__name__}: {error}"
    return {"refusal": obstacle_of(wanted.model_type, failure).to_dict()}


def in_children(
    items: Iterable[Item], work: Callable[[Item], Answer], *, jobs: int, timeout_s: float = TIMEOUT_S
) -> Iterator[tuple[Item, Answer | None, str]]:
    """Do `work` on each item in its own child, `jobs` at a time, and yield item and answer as they finish, in any
    order; for a child without an answer, the reason.

    A child that dies, or exceeds `timeout_s` or `MEMORY_BYTES`, costs one item.
    """
    warm_up()
    waiting = list(items)[::-1]
    working: dict[Answering, tuple[Item, float]] = {}
    try:
        while waiting or working:
            while waiting and len(working) < jobs:
                item = waiting.pop()
                working[Answering(partial(_in_child, work, item))] = (item, time.monotonic())
            select.select([child.reader for child in working], [], [], _LOOK_S)
            for child, (item, started) in tuple(working.items()):
                late = time.monotonic() - started > timeout_s
                if child.heard_all():
                    lost = "" if child.wait() == 0 else f"the process ended with {child.returncode}"
                elif late:
                    lost = f"no answer in {timeout_s:g} seconds"
                else:
                    continue
                child.end()
                del working[child]
                yield item, None if lost else json.loads(child.heard), lost
    finally:
        for child in working:
            child.end()


def warm_up() -> None:
    """Import what each child needs. The library's packages are lazy: unless their modules are named, each child
    spends seconds on importing their dependencies (SciPy, scikit-learn, TorchDynamo)."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with uncollected():
        for name in _NEEDED:
            importlib.import_module(name)


def _in_child(work: Callable[[Item], Answer], item: Item) -> bytes:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    limit_memory(MEMORY_BYTES)
    return json.dumps(work(item)).encode()
