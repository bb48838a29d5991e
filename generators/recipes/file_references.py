"""Compute the references of a graph file's suite in advance, for a machine that runs the suite from a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwcompat.generators.models.given_recipe import GivenRecipe, draw_inputs
from hwcompat.hardware.testing import measurement
from hwcompat.hardware.testing.graph_files import open_reference
from hwcompat.hardware.testing.user_inputs import read_inputs


def keep_references(name: str, recipe: Mapping[str, Any], inputs: str) -> None:
    """Compute the reference for each set of inputs that the suite has, and keep it in the cache."""
    found = GivenRecipe.from_dict(dict(recipe))
    if inputs:
        given = read_inputs(Path(inputs))
    else:
        sizes = [found.sizes, found.sizes, *([{**found.sizes, **found.other_sizes}] if found.other_sizes else [])]
        given = [draw_inputs(found.inputs, one, seed) for seed, one in enumerate(sizes)]
    measurement.keeps_references = True
    evaluator = open_reference(Path(name))
    evaluator.scales, evaluator.parts = found.scales, found.parts
    for arrays in given:
        evaluator(arrays)
