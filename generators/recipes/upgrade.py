"""Carry over recipes that ship for another version of the library to the installed one."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from hwcompat.generators.models.catalog import TaskClass, installed_version
from hwcompat.generators.models.classification import Classification
from hwcompat.generators.models.inputs import make_inputs
from hwcompat.generators.models.model_libraries import installed_diffusers
from hwcompat.generators.models.recipe import KEPT, Recipe
from hwcompat.hardware.testing.model_relations import eager_attention
from hwcompat.hardware.testing.reference import as_reference, float64_outputs

from . import measurements
from .build_model import filled_model

if TYPE_CHECKING:
    import torch

AGREES = 1e-6
"""A difference of recorded numbers, relative to their scale, below which two versions agree."""


def layout_of(model: torch.nn.Module) -> str:
    """Return a hash of the names and shapes of a model's parameters: 16 hexadecimal digits."""
    named = sorted(f"{name} {tuple(one.shape)}" for name, one in model.named_parameters())
    return hashlib.sha256("\n".join(named).encode()).hexdigest()[:16]


def distance_of(recipe: Recipe, model: torch.nn.Module) -> float:
    """Return how far the float64 outputs are from the recorded numbers, relative to their scale; those of the plain
    attention if they are nearer, since they are recorded where the default attention is wrong."""
    recorded = recipe.recorded
    inputs = make_inputs(recipe.inputs, recorded["seed"], recorded["lengths"])
    exact = as_reference(model)

    def distance() -> float:
        output = float64_outputs(exact, inputs)[recorded["output"]]
        there = [float(output[tuple(place)]) for place in recorded["positions"]]
        farthest = max(abs(a - b) for a, b in zip(there, recorded["values"], strict=True))
        return float(farthest / recorded["scale"])

    default = distance()
    if default < AGREES:
        return default
    with eager_attention(exact):
        return min(default, distance())


def carried_over(shipped: Recipe, what: Classification, chosen: TaskClass) -> Recipe | None:
    """Return a recipe of another version for the installed one; None if its model can't be made in the same way.

    Numbers and calls stay those of the other version: a suite fails where the installed version computes something
    else, or can't run the model. Parameters with other names get other test weights: then nothing can be compared.
    """
    is_diffusion = what.architecture == "diffusion"
    version = installed_diffusers() if is_diffusion else installed_version()
    if version == shipped.library_version or shipped.model_class != chosen.model_class:
        return None
    try:
        model = filled_model(shipped)
    except Exception:  # the class or an argument is gone, or takes other values
        return None
    if layout_of(model) != shipped.layout:
        return None
    operators = shipped.operators
    with contextlib.suppress(Exception):  # the suite shows what a pass raises
        inputs = make_inputs(shipped.inputs, shipped.recorded["seed"], shipped.recorded["lengths"])
        operators = measurements.operators_of(model, inputs)
    return replace(
        shipped,
        transformers_version=installed_version(),
        diffusers_version=installed_diffusers() if is_diffusion else "",
        family=what.family,
        architecture=what.architecture,
        traits=what.traits,
        operators=operators,
        branches={},  # of the other version's code
        recorded={**shipped.recorded, "origin": f"{KEPT}{shipped.library_version}"},
    )
