"""The ten reference models, in sizes at which the time of a call is meaningful."""

from __future__ import annotations

from typing import Any

from generators.models.catalog import load_catalog
from generators.models.classifier import classify_type
from generators.models.inputs import make_inputs
from generators.models.recipe_store import load_recipe
from generators.recipes.build_model import build
from generators.recipes.config_division import Division
from generators.recipes.config_scopes import numbers, role_of, tree
from generators.recipes.derive import task_class
from generators.recipes.input_specs import input_specs
from generators.recipes.tiny import tiny_configs
from hardware.compare import Array
from hardware.errors import ModelError
from hardware.testing.seeded_weights import fill

REFERENCE_MODELS = ("bert", "gpt2", "llama", "t5", "vit", "clip", "whisper", "resnet", "mixtral", "mamba")
"""One for each kind of model: encoder, decoders with learned and with rotary positions, encoder-decoder, vision,
vision and text, speech, convolutions, mixture of experts, state space."""

LEAST_WIDTH = 256
LENGTH = 96
_FACTORS = (64, 32, 16, 8, 4, 2)


def larger(model_type: str) -> tuple[Any, dict[str, Array], str]:
    """Return a float32 model with seeded test weights, inputs of one row of `LENGTH` tokens (or its number of
    positions), and its description.

    Its widths are the type's defaults divided by the largest power of two that leaves `LEAST_WIDTH`; it has four
    layers, or one in each stage. Raises `ModelError` if it can't be built.
    """
    what, chosen, recipe = classify_type(model_type), task_class(model_type, None), load_recipe(model_type)
    if recipe is None or recipe.gain is None:
        raise ModelError(f"no recipe ships for {model_type}")
    config = next(tiny_configs(model_type, load_catalog(), chosen.task, divisions=_divisions))
    model = fill(
        build(recipe.config_class, recipe.model_class, config), gain=recipe.gain, zero_centered=recipe.zero_centered
    )
    side = next((spec["side"] for spec in recipe.inputs.values() if spec["kind"] == "mask"), "right")
    places = [count for scope in tree(model.config) for count in numbers(role_of(scope, "positions"))]
    length = min([LENGTH, *places])
    specs = input_specs(model, chosen.entry, what.architecture, side, length)
    count = sum(parameter.numel() for parameter in model.parameters())
    widths = sorted({width for scope in tree(model.config) for width in numbers(role_of(scope, "hidden"))})
    shown = f"{count / 1e6:.1f} M parameters, width {' and '.join(map(str, widths))}"
    return model, make_inputs(specs, 0, (length,)), shown if length == LENGTH else f"{shown}, {length} tokens"


def _divisions(config: Any) -> list[Division]:
    widths = [width for scope in tree(config) for width in numbers(role_of(scope, "hidden"))]
    fitting = [one for one in _FACTORS if min(widths) % one == 0 and min(widths) // one >= LEAST_WIDTH]
    return [Division(factor=fitting[0] if fitting else 1, deeper=True)]
