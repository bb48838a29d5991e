"""Tiny models as their recipes say, whole and broken, for tests that look at numbers."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from generators.models.catalog import installed_version
from generators.models.inputs import make_inputs
from generators.models.recipe_store import load_recipe
from generators.mutants.model_anatomy import ModelAnatomy
from generators.mutants.mutation_operators import mutate
from generators.recipes.build_model import build
from hardware.model.calls import forward, to_arrays, to_tensors
from hardware.testing.seeded_weights import fill


@functools.cache
def _built(model_type: str) -> tuple[Any, Any]:
    recipe = load_recipe(model_type)
    if recipe is None:
        pytest.skip(f"no recipe ships for transformers {installed_version()}")
    assert recipe.gain is not None
    return fill(
        build(recipe.config_class, recipe.model_class, recipe.config),
        gain=recipe.gain,
        zero_centered=recipe.zero_centered,
    ), recipe


def tiny(model_type: str) -> tuple[Any, dict[str, Any], Any]:
    """Model, inputs and recipe of a kind that ships; the model is built once and isn't to be changed."""
    model, recipe = _built(model_type)
    return model, make_inputs(recipe.inputs), recipe


def broken(model: Any, inputs: Mapping[str, Any], operator: str, seed: int = 0) -> tuple[Any, str]:
    copied = copy.deepcopy(model)
    return copied, mutate(copied, operator, seed, ModelAnatomy(model, inputs)).site


def run(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    with torch.no_grad():
        return to_arrays(forward(model, to_tensors(inputs, "cpu", torch.float32)))


def changed_parameters(model: Any, mutant: Any) -> dict[str, tuple[Any, Any]]:
    after = dict(mutant.named_parameters())
    return {n: (p.detach(), after[n].detach()) for n, p in model.named_parameters() if not torch.equal(p, after[n])}
