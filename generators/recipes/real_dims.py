"""Models at real size: configurations at real widths with one or two layers, of a model type's defaults or of a
checkpoint's config.json; and how a type calls torch's operators at the size of its defaults.

The memory of the first is known before anything is allocated; the second allocates nothing, because all tensors are
fakes with shapes only.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hwcompat.generators.models.catalog import TaskClass, load_catalog
from hwcompat.generators.models.checkpoint import read_checkpoint
from hwcompat.generators.models.classification import Classification, classify_type
from hwcompat.generators.models.inputs import make_inputs
from hwcompat.generators.models.recipe import SHIPPED_ORIGIN, Recipe
from hwcompat.generators.models.recipe_store import load_recipe
from hwcompat.hardware.cell import PIECES_TASK
from hwcompat.hardware.checkpoint_config import hash_of_config
from hwcompat.hardware.compare import Array
from hwcompat.hardware.errors import ModelError, echo
from hwcompat.hardware.inventory.system.main_memory import free_bytes
from hwcompat.hardware.testing.model_pieces import pieces_of, without_weights

from . import tiny
from .build_model import build, class_of, line_of
from .config_division import Division
from .config_scopes import arguments_of, children, default_of, overridden, overrides, role_of, roles
from .derive import best_recipe, derive_tiny, task_class
from .input_specs import input_specs
from .operator_calls import OperatorCall, call_recorder

BYTES_A_PARAMETER = 28
"""The model and the target's copy (4 + 4), its float64 reference (8), gradients of both (4 + 8)."""

BYTES_IN_PIECE = 20
"""A piece and the target's copy (4 + 4), its largest weight in float64 (8), the same for an exporter's copy (4)."""

_SHOWN = ("hidden", "width", "heads", "head_dim", "layers", "vocabulary", "positions", "experts", "experts_used")
"""Roles whose attributes the suite shows even if they are the defaults, because they are real."""

_LABELS = ("id2label", "label2id")
_LEFT_OUT = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "model_type", *_LABELS)
_POSITIONS = 8
"""Positions that a model was first trained with, before its rotary positions were scaled: fewer than inputs have."""
_SEED = 0
_MASKS = ("mask", "padded", "heard", "shown", "ones")
_OF_FAKES = "prim."
"""Operators among fakes that tensors don't call."""


def derive_real(name: str, task: str | None = None) -> Recipe:
    """Return the recipe of a model type, or of a folder with a config.json, at its real widths with few layers.

    It runs in pieces if it doesn't fit into free memory as a whole. Raises `ModelError` if it isn't accepted.
    """
    what, chosen, config, whose = start(name, task)
    for layers in (tiny.LAYERS, 1):
        arguments = json.loads(json.dumps(_arguments(config, layers)))
        needed = _parameters(what, chosen, arguments) * BYTES_A_PARAMETER
        if needed > free_bytes():
            continue
        recipe = best_recipe(what, chosen, iter([arguments]), f"{what.model_type} at real widths")
        kept = max(_counts(config, layers), default=layers)
        return replace(recipe, subject="config", dimensions=f"real widths{whose}, {kept} layer(s)")
    return derive_pieces(name, task)


def derive_pieces(name: str, task: str | None = None, lengths: Sequence[int] = ()) -> Recipe:
    """Return the recipe of a model type, or of a folder with a config.json, at its real widths, whose distinct layers
    and other parts run one at a time; for texts of `lengths`, or of those of its tiny model.

    Nothing is allocated. Raises `ModelError` if a part that can't be divided doesn't fit into free memory.
    """
    what, chosen, config, whose = start(name, task)
    tiny_one = load_recipe(what.model_type, chosen.task) or derive_tiny(what.model_type, chosen.task)
    arguments = json.loads(json.dumps(_arguments(config, tiny.LAYERS)))
    arguments |= tiny.head_arguments(arguments, type(config), chosen, what)
    with without_weights():
        model = build(load_catalog().config_class(what.model_type), chosen.model_class, arguments)
    pieces = pieces_of(model, free_bytes() // BYTES_IN_PIECE)
    kept = max(_counts(config, tiny.LAYERS), default=tiny.LAYERS)
    of_texts = f", {max(lengths)} tokens" if lengths else ""
    recorded = {"positions": [], "values": [], "lengths": list(lengths or tiny_one.recorded["lengths"])}
    fake, _ = _fake_model(chosen.model_class, model.config)
    specs = _real_specs(tiny_one, fake)
    found = replace(
        tiny_one,
        subject="config",
        dimensions=f"real widths{whose}, {kept} layer(s) in {len(pieces)} pieces{of_texts}",
        config=arguments,
        config_children={part: type(child).__name__ for part, child in children(model.config).items()},
        config_hash=hash_of_config(arguments),
        inputs={part: specs.get(part, spec) for part, spec in tiny_one.inputs.items()},
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        recorded={**tiny_one.recorded, **recorded, "origin": SHIPPED_ORIGIN},
        masked_by={},
        generate="none",
        mask_input=None,
        left_out="",
        calls={},
        branches={},
        pieces=pieces,
    )
    _traced(found, model.config, f"{what.model_type} at real widths")  # refuses inputs that don't fit the widths
    return replace(found, task=PIECES_TASK)


def derive_settings(folder: str, task: str | None = None) -> Recipe:
    """Return the recipe of a tiny model with the settings of a folder's config.json: all but its sizes. Raise as
    `derive_real` does."""
    what, chosen, config, whose = start(folder, task)
    configs = tiny.tiny_configs(what.model_type, load_catalog(), chosen.task, given=config)
    known = {*arguments_of(config), *_LEFT_OUT, *config.attribute_map, *itertools.chain(*roles()["config"].values())}
    # Modeling code reads settings that a configuration doesn't declare, such as `position_buckets` of DeBERTa.
    others = {name: value for name, value in read_checkpoint(Path(folder)).config.items() if name not in known}
    plain = {name: value for name, value in others.items() if isinstance(value, bool | int | float | str)}
    made = (plain | {name: value for name, value in one.items() if name not in _LEFT_OUT} for one in configs)
    recipe = best_recipe(what, chosen, map(_resized, made), f"tiny {what.model_type} with the settings{whose}")
    return replace(recipe, dimensions=f"tiny model with the settings{whose}")


def _resized(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments whose lists of rotary factors have as many entries as a head rotates pairs, and whose original
    number of positions is shorter than the inputs."""
    rope = arguments.get("rope_parameters")
    if isinstance(rope, Mapping) and "original_max_position_embeddings" in rope:
        rope = {**rope, "original_max_position_embeddings": _POSITIONS}
    for name in ("short_factor", "long_factor"):
        if isinstance(rope, Mapping) and isinstance(rope.get(name), list):
            heads = arguments.get("num_attention_heads", 1)
            width = arguments.get("head_dim") or arguments.get("hidden_size", heads) // heads
            pairs = int(width * rope.get("partial_rotary_factor", 1.0)) // 2
            places = [place * len(rope[name]) // pairs for place in range(pairs)]
            rope = {**rope, name: [rope[name][place] for place in places]}
    return arguments if rope is None else {**arguments, "rope_parameters": rope}


def start(name: str, task: str | None) -> tuple[Classification, TaskClass, Any, str]:
    """Return the classification of a model type or of a folder with a config.json, the class that does the task,
    its configuration, and the configuration's source in words. Raises `ModelError` or `BrokenInput`."""
    catalog = load_catalog()
    if name in catalog.configs:
        what = classify_type(name)
        return what, task_class(name, task), tiny._defaults(name, catalog), ""
    checkpoint = read_checkpoint(Path(name))
    from hwcompat.generators.models.classifier import classify_folder

    what = classify_folder(Path(name), name)
    chosen = task_class(what.model_type, task or what.task)
    make = class_of(catalog.config_class(what.model_type))
    try:
        config = make.from_dict(dict(checkpoint.config))
    except Exception as error:  # any error of a constructor means that the values can't be used
        raise ModelError(
            f"config.json in {echo(name)} isn't valid for {make.__name__}", why=f"{type(error).__name__}: {error}"
        ) from error
    return what, chosen, config, " of a config.json"


def _arguments(config: Any, layers: int) -> dict[str, Any]:
    """Return the constructor arguments that make `config` with this number of layers, including its widths."""
    parts = children(config)
    values = {name: getattr(config, name, None) for name in arguments_of(config) if name not in parts}
    plain = {n: v for n, v in values.items() if isinstance(v, tiny._PLAIN) and n not in _LEFT_OUT}
    plain |= _fewer_layers(config, layers)
    shown = {name for role in _SHOWN for name in role_of(config, role)}
    default = default_of(config)
    found = {n: v for n, v in plain.items() if n in shown or v != getattr(default, n, None)}
    labels = getattr(config, "num_labels", None)
    if not parts and labels is not None and labels != getattr(default, "num_labels", None):
        found["num_labels"] = labels
    for name, child in parts.items():
        found[name] = {"model_type": child.model_type, **_arguments(child, layers)}
    changes = overrides(getattr(config, "model_type", "")).get("config", {})
    return overridden(found, _structural(changes), config)


def _structural(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overrides of a type that aren't sizes of a tiny model: switches and references."""
    nested = {name: _structural(value) for name, value in changes.items() if isinstance(value, Mapping)}
    kept = {n: v for n, v in changes.items() if isinstance(v, bool) or (isinstance(v, str) and v.startswith("@"))}
    return kept | {name: value for name, value in nested.items() if value}


def _fewer_layers(config: Any, layers: int) -> dict[str, Any]:
    places = tiny._layers(config, Division(factor=1)) if layers == tiny.LAYERS else list(range(layers))
    most = len(places)
    changed: dict[str, Any] = {
        name: min(value, most) for name, value in role_of(config, "layers").items() if isinstance(value, int)
    }
    for name, value in role_of(config, "layer_kinds").items():
        changed[name] = [value[place] for place in places if place < len(value)]
    for name, value in role_of(config, "dense_layers_first").items():
        changed[name] = min(value, most - 1)
    windows = role_of(config, "image_window")
    for name, value in role_of(config, "depths").items():
        changed[name] = [2 if windows else 1] * len(value)
    return changed


def _counts(config: Any, layers: int) -> Iterator[int]:
    for value in _fewer_layers(config, layers).values():
        if isinstance(value, int):
            yield value
    for child in children(config).values():
        yield from _counts(child, layers)


def _parameters(what: Classification, chosen: TaskClass, arguments: Mapping[str, Any]) -> int:
    """Return the number of parameters of a configuration, counted without allocating them."""
    import torch

    with torch.device("meta"):
        model = build(load_catalog().config_class(what.model_type), chosen.model_class, arguments)
    return sum(parameter.numel() for parameter in model.parameters())


def real_calls(model_type: str, task: str | None = None) -> tuple[OperatorCall, ...]:
    """Return how one forward pass calls torch's operators at the size of the type's default configuration, in
    float32, for the lengths and the batch of its tiny model.

    Nothing is allocated: parameters and inputs are fakes. If the model's code can't be run on those, it is run
    without masks, whose values it may read, and finally as graphs are made of it (`hardware/export/convert_model.py`:
    experts without a loop). Sizes that depend on values have names (`u0`). Raises `ModelError` if the type has no
    recipe, or its code reads the values of other tensors.
    """
    recipe = load_recipe(model_type, task)
    if recipe is None or recipe.library != "transformers":
        raise ModelError(f"{echo(model_type)} has no transformers recipe", fix="Name a model type that has one.")
    return _traced(recipe, tiny._defaults(model_type, load_catalog()), f"{model_type} at its default size")


def _traced(recipe: Recipe, config: Any, which: str) -> tuple[OperatorCall, ...]:
    """Return the calls of a forward pass of a model with this configuration on fakes. Raises `ModelError`."""
    from hwcompat.hardware.export.traceable import traceable_parts

    failed: list[Exception] = []
    masks = frozenset(name for name, spec in recipe.inputs.items() if spec["kind"] in _MASKS)
    for parts, dropped in ((_as_it_is, frozenset()), (_as_it_is, masks), (traceable_parts, frozenset())):
        try:
            return _calls(recipe, config, parts, dropped)
        except Exception as error:  # an error of the model's code, or a missing value
            failed.append(error)
    raise ModelError(
        f"{which} can't be traced without data",
        why=f"{type(failed[0]).__name__}: {line_of(failed[0])}",
    ) from failed[0]


def _as_it_is(_: Any) -> AbstractContextManager[None]:
    return contextlib.nullcontext()


def _calls(
    recipe: Recipe, config: Any, parts: Callable[[Any], AbstractContextManager[Any]], dropped: frozenset[str]
) -> tuple[OperatorCall, ...]:
    import torch

    from hwcompat.hardware.model.calls import forward, to_tensors

    model, mode = _fake_model(recipe.model_class, config)
    tensors = to_tensors(_inputs(recipe, model), "cpu", torch.float32)
    given = {
        name: mode.from_tensor(tensor, static_shapes=True) for name, tensor in tensors.items() if name not in dropped
    }
    with parts(model), mode, call_recorder() as recorder, torch.no_grad():
        forward(model, given)
    return tuple(call for call in recorder.calls if not call.operator.startswith(_OF_FAKES))


def _fake_model(model_class: str, config: Any) -> tuple[Any, Any]:
    """Return a model whose parameters are fakes, and the mode in which these compute shapes."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from transformers.initialization import no_init_weights

    unknown_numbers = ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=unknown_numbers)
    with torch.device("meta"), no_init_weights():  # tensors that a constructor computes on the CPU keep their values
        model = class_of(model_class)(copy.deepcopy(config)).eval()
    with mode:
        model.to_empty(device="cpu")
    return model, mode


def _real_specs(recipe: Recipe, model: Any) -> Mapping[str, Mapping[str, Any]]:
    """Return the specifications of inputs for the sizes of this model."""
    entry = task_class(recipe.model_type, recipe.task).entry
    side = next((spec["side"] for spec in recipe.inputs.values() if spec["kind"] == "mask"), "right")
    architecture = classify_type(recipe.model_type).architecture
    return input_specs(model, entry, architecture, side, recipe.recorded["lengths"][0])


def _inputs(recipe: Recipe, model: Any) -> Mapping[str, Array]:
    """Return inputs for the sizes of this model, by the recipe's kinds and the configuration's sides and channels."""
    lengths, specs = recipe.recorded["lengths"], _real_specs(recipe, model)
    return make_inputs({name: specs.get(name, spec) for name, spec in recipe.inputs.items()}, _SEED, lengths)
