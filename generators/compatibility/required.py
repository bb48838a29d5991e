"""Which checks a cell has to have, whatever a plan says: from its model's recipe and what its target can do."""

from __future__ import annotations

from collections.abc import Callable

from generators.models.recipe import Recipe
from generators.models.store import load_recipe
from hardware.backends.factory import backend_class, known_targets
from hardware.cell import Cell
from hardware.errors import ModelError


def required_checks(cell: Cell, load: Callable[[str, str], Recipe | None] = load_recipe) -> tuple[str, ...]:
    """The names of the checks that `checks.toml` asks for, so that a plan with fewer can't pass for a whole one.

    `load` reads a recipe by model and task; whoever asks for many cells has one that remembers.

    Where no recipe is stored, whether the model decodes and takes a mask isn't known: then it is what every model
    has to pass on that target. Raises `BrokenInput` for a recipe that can't be read.
    """
    # Imported late: the package brings NumPy along, which a matrix of declared levels doesn't need.
    from hardware.testing.checks import applicable_checks

    recipe = _recipe(cell, load)
    known = cell.target.name in known_targets()
    checks = applicable_checks(
        generates=recipe.generate if recipe else "none",
        has_mask=recipe is not None and recipe.mask_input is not None,
        has_cache=recipe is None or not recipe.without_cache,
        can=backend_class(cell.target.name).CAN if known else frozenset(),
        task=cell.task,
    )
    return tuple(check.name for check in checks)


def _recipe(cell: Cell, load: Callable[[str, str], Recipe | None]) -> Recipe | None:
    try:
        return load(cell.model, cell.task)
    except ModelError:  # no transformers here, or a checkpoint's slug that no model type can have
        return None
