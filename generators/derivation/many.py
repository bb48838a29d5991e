"""Derives many recipes: one forked child a model type, from a parent that has imported the libraries once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from generators.models.recipe import SHIPPED, SHIPPED_ORIGIN, Recipe
from generators.models.refusal import Obstacle, Refusal
from generators.models.store import keep_recipe, keep_refusal
from hardware.errors import HwCompatError

from .children import TIMEOUT_S, Answered, in_children
from .wanted import Wanted


@dataclass(frozen=True, kw_only=True)
class Derived:
    """What became of it: a recipe, or a refusal. `seconds` of wall time."""

    wanted: Wanted
    recipe: Recipe | None
    refusal: Refusal | None
    seconds: float


def derive_many(
    wanted: Iterable[Wanted],
    on_done: Callable[[Derived], None],
    *,
    jobs: int,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Derive each in a child of its own, `jobs` at a time, and tell `on_done` as they end, in any order.

    A child that dies, or takes longer than `timeout_s` or more memory than it may, costs one recipe. Imports torch
    and transformers into this process.
    """
    in_children(wanted, _derive, lambda one: on_done(_derived(one)), jobs=jobs, timeout_s=timeout_s)


def _derived(one: Answered[Wanted]) -> Derived:
    recipe, refusal = None, None
    if one.answer is None:
        refusal = Refusal(model_type=one.item.model_type, obstacle=Obstacle.NOT_DERIVED, reason=one.lost)
    elif "recipe" in one.answer:
        recipe = Recipe.from_dict(one.answer["recipe"])
    else:
        refusal = Refusal.from_dict(one.answer["refusal"])
    of_task = replace(refusal, task=one.item.task or "") if refusal else None
    return Derived(wanted=one.item, recipe=recipe, refusal=of_task, seconds=one.seconds)


def _derive(wanted: Wanted) -> dict[str, Any]:
    """The child: derive, and say what came out."""
    from .derive import derive_tiny
    from .obstacles import obstacle_of

    try:
        return {"recipe": derive_tiny(wanted.model_type, wanted.task).to_dict()}
    except HwCompatError as error:
        failure = str(error)
    except Exception as error:  # whatever modelling code raises is the reason why there is no recipe
        failure = f"{type(error).__name__}: {error}"
    return {"refusal": obstacle_of(wanted.model_type, failure).to_dict()}


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
