"""Recipes that ship for another version of the library, carried over to the installed one: did its numbers change?"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from hwcompat.generators.models.catalog import TaskClass, installed_version
from hwcompat.generators.models.classifier import Classification
from hwcompat.generators.models.inputs import make_inputs
from hwcompat.generators.models.model_libraries import installed_diffusers
from hwcompat.generators.models.recipe import DIFFERS, Recipe
from hwcompat.hardware.compare import ReferenceNotFinite
from hwcompat.hardware.errors import ModelError
from hwcompat.hardware.testing.model_relations import eager_attention
from hwcompat.hardware.testing.reference import as_reference, float64_outputs
from hwcompat.hardware.testing.widened_weights import copy_over

from . import measurements
from .build_model import filled_model

if TYPE_CHECKING:
    import torch

AGREES = 1e-6
"""A difference of recorded numbers, relative to their scale, below which two versions agree."""
CANNOT_RUN = (ReferenceNotFinite, RuntimeError, ValueError, TypeError, KeyError, IndexError)
"""What modeling code raises for the arguments or inputs of another version."""


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
    """Return a recipe of another version for the installed one; None if its model can't be made and run in the same
    way.

    The numbers and calls stay those of the other version, so that a suite fails where the installed version computes
    something else. Parameters with other names get other test weights: then nothing can be compared.
    """
    library = what.architecture == "diffusion"
    version = installed_diffusers() if library else installed_version()
    if version == shipped.library_version or shipped.model_class != chosen.model_class:
        return None
    inputs = make_inputs(shipped.inputs, shipped.recorded["seed"], shipped.recorded["lengths"])
    try:
        model = filled_model(shipped)
        if layout_of(model) != shipped.layout:
            return None
        distance = distance_of(shipped, copy_over(model))
        operators = measurements.operators_of(model, inputs)
    except (ModelError, *CANNOT_RUN):
        return None
    found = "agrees with" if distance < AGREES else DIFFERS
    return replace(
        shipped,
        transformers_version=installed_version(),
        diffusers_version=installed_diffusers() if library else "",
        family=what.family,
        architecture=what.architecture,
        traits=what.traits,
        operators=operators,
        recorded={**shipped.recorded, "origin": f"{found} the recipe for {shipped.library_version}"},
    )
