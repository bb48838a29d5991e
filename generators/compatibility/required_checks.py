"""The checks that a cell must have, by its recipe and what its target can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hwcompat.generators.models.recipe import Recipe
from hwcompat.generators.models.recipe_store import load_recipe
from hwcompat.hardware.backends.factory import backend_class, known_targets
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.errors import ModelError
from hwcompat.hardware.evidence.revisions import knows_check
from hwcompat.hardware.testing.checks import applicable_checks, call_checks


def required_checks(cell: Cell, load: Callable[[str, str], Recipe | None] = load_recipe) -> tuple[str, ...]:
    """Return the checks that a cell must have, so that a plan with fewer can't count as complete.

    `load` reads a recipe by model and task. Without a recipe it isn't known whether the model decodes and takes a
    mask: then these are the checks that every model has on that target. Raises `BrokenInput` for a recipe that can't
    be read.
    """
    recipe = recipe_of(cell, load)
    known = cell.target.name in known_targets()
    checks = applicable_checks(
        generates=recipe.generate if recipe else "none",
        has_mask=recipe is not None and recipe.mask_input is not None,
        has_cache=recipe is None or not recipe.without_cache,
        can=backend_class(cell.target.name).CAN if known else frozenset(),
        task=cell.task,
        in_recipe=recipe.calls_in(cell.precision) if recipe else (),
        precision=cell.precision,
    )
    return tuple(check.name for check in checks)


def later_checks(
    required: Sequence[str], planned: Sequence[str], runs: Sequence[Mapping[str, str]]
) -> tuple[str, ...]:
    """Return the required checks of calls that weren't planned because no run's code had them; none if no run is
    known. `runs` are the versions that the runs state."""
    missing = [name for name in required if name in call_checks() and name not in planned]
    return tuple(name for name in missing if runs and not any(knows_check(one, name) for one in runs))


def recipe_of(cell: Cell, load: Callable[[str, str], Recipe | None]) -> Recipe | None:
    """Return the recipe of a cell's model and task, or None if there is none."""
    try:
        return load(cell.model, cell.task)
    except ModelError:  # no transformers here, or a checkpoint's slug that no model type can have
        return None
