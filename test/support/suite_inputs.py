"""The inputs that a generated suite draws, beside those of the recipe that it was rendered from."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from golden_suites import recipe_of

from generators.models.inputs import make_inputs
from generators.models.recipe import Recipe
from generators.suites.render import render
from hardware.cell import Cell
from hardware.target import Target
from hardware.testing import page, tones

DRAWS = ((0, (16, 9)), (2, (5, 12, 7)))


def with_inputs(inputs: Mapping[str, Any], model_type: str = "bert") -> Recipe:
    """Return a recipe that ships, with other inputs."""
    return replace(recipe_of(model_type), inputs=dict(inputs), masked_by={})


def suite_of(recipe: Recipe) -> str:
    return render(recipe, Cell(model=recipe.model_type, task=recipe.task, target=Target.parse("cpu")), ())


def make_inputs_of(text: str) -> Callable[..., dict[str, Any]]:
    """Return the function `make_inputs` of a suite, without importing what the suite imports."""
    function = next(n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == "make_inputs")
    names: dict[str, Any] = {"np": np, "page": page, "tones": tones}
    exec(compile(ast.Module(body=[function], type_ignores=[]), "suite", "exec"), names)
    return names["make_inputs"]  # type: ignore[no-any-return]


def drawn_differently(recipe: Recipe, text: str = "") -> list[str]:
    """Return the inputs of a recipe that its suite draws otherwise: other names, types or numbers."""
    written, wrong = make_inputs_of(text or suite_of(recipe)), []
    recorded = (recipe.recorded["seed"], tuple(recipe.recorded["lengths"]))
    for seed, lengths in {recorded, *DRAWS}:
        ours, theirs = make_inputs(recipe.inputs, seed, lengths), written(seed, lengths)
        if list(ours) != list(theirs):
            wrong.append(f"{recipe.model_type}: {list(ours)} and {list(theirs)}")
            continue
        for name, array in ours.items():
            if array.dtype != theirs[name].dtype or not np.array_equal(array, theirs[name]):
                wrong.append(f"{recipe.model_type}: {name} with {seed}, {lengths}")
    return wrong
