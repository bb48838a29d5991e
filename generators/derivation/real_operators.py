"""Operators with dtypes and shapes: of a recipe's tiny model, and of a model type at the size of its defaults, where
nothing is allocated because all tensors are fakes that carry shapes alone."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from generators.models.catalog import load_catalog
from generators.models.classifier import classify_type
from generators.models.inputs import make_inputs
from generators.models.recipe import Recipe
from generators.models.store import load_recipe
from hardware.compare import Array
from hardware.errors import ModelError, echo

from . import measure, tiny
from .building import build, class_of, line_of
from .derive import task_class
from .operator_calls import Call, call_recorder
from .specs import input_specs

_SEED = 0
_MASKS = ("mask", "padded", "heard", "shown", "ones")
_OF_FAKES = "prim."
"""What fakes ask each other that tensors don't."""


def tiny_calls(recipe: Recipe) -> tuple[Call, ...]:
    """How one forward pass of the tiny model calls torch's operators. Raises what modelling code raises."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(_SEED)
    model = build(recipe.config_class, recipe.model_class, recipe.config)
    inputs = make_inputs(recipe.inputs, _SEED, recipe.recorded["lengths"])
    with call_recorder() as recorder:
        measure.forward_pass(model, inputs)
    calls: tuple[Call, ...] = recorder.calls
    return calls


def real_calls(model_type: str, task: str | None = None) -> tuple[Call, ...]:
    """How one forward pass calls torch's operators at the size of the type's default configuration, in float32, for
    the lengths and the batch of its tiny model.

    Nothing is allocated: parameters and inputs are fakes. Where the model's own code can't be run on those, it is run
    without masks, whose numbers it may ask for, and at last as graphs are made of it (`hardware/export/tracing.py`:
    experts without a loop). Sizes that depend on numbers have names (`u0`). Raises `ModelError` where the type has no
    recipe, or its code asks other tensors for their numbers.
    """
    from hardware.export.traceable import traceable_parts

    recipe = load_recipe(model_type, task)
    if recipe is None or recipe.library != "transformers":
        raise ModelError(f"{echo(model_type)} has no recipe of transformers", fix="Name a model type that has one.")
    config = tiny._defaults(model_type, load_catalog())
    failed: list[Exception] = []
    masks = frozenset(name for name, spec in recipe.inputs.items() if spec["kind"] in _MASKS)
    for parts, dropped in ((_as_it_is, frozenset()), (_as_it_is, masks), (traceable_parts, frozenset())):
        try:
            return _calls(recipe, config, parts, dropped)
        except Exception as error:  # a model's own code, or a number that isn't there
            failed.append(error)
    raise ModelError(
        f"{echo(model_type)} doesn't run at the size of its defaults without numbers",
        why=f"{type(failed[0]).__name__}: {line_of(failed[0])}",
    ) from failed[0]


def _as_it_is(_: Any) -> AbstractContextManager[None]:
    return contextlib.nullcontext()


def _calls(
    recipe: Recipe, config: Any, parts: Callable[[Any], AbstractContextManager[Any]], dropped: frozenset[str]
) -> tuple[Call, ...]:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from transformers.initialization import no_init_weights

    from hardware.model.calls import forward
    from hardware.model.tensors import to_tensors

    unknown_numbers = ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=unknown_numbers)
    with torch.device("meta"), no_init_weights():  # what a constructor counts on the CPU keeps its numbers
        model = class_of(recipe.model_class)(copy.deepcopy(config)).eval()
    with mode:
        model.to_empty(device="cpu")
    tensors = to_tensors(_inputs(recipe, model), "cpu", torch.float32)
    given = {
        name: mode.from_tensor(tensor, static_shapes=True) for name, tensor in tensors.items() if name not in dropped
    }
    with parts(model), mode, call_recorder() as recorder, torch.no_grad():
        forward(model, given)
    return tuple(call for call in recorder.calls if not call.operator.startswith(_OF_FAKES))


def _inputs(recipe: Recipe, model: Any) -> Mapping[str, Array]:
    """Inputs for the sizes of this model: the recipe's kinds, with the sides and channels of its configuration."""
    entry = task_class(recipe.model_type, recipe.task).entry
    side = next((spec["side"] for spec in recipe.inputs.values() if spec["kind"] == "mask"), "right")
    lengths = recipe.recorded["lengths"]
    specs = input_specs(model, entry, classify_type(recipe.model_type).architecture, side, lengths[0])
    return make_inputs({name: specs.get(name, spec) for name, spec in recipe.inputs.items()}, _SEED, lengths)
