"""Facts of a model for a mesh: its tiny model, large enough to be split by four, and figures of the real one.

A child process builds both for `mesh_input`.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwcompat.generators.models.checkpoint import read_checkpoint
from hwcompat.generators.models.inputs import LENGTHS, make_inputs
from hwcompat.generators.models.recipe_store import load_recipe
from hwcompat.generators.recipes.build_model import class_of
from hwcompat.generators.recipes.config_scopes import arguments_of, children, readable, role_of, roles
from hwcompat.generators.recipes.on_demand import recipe_for
from hwcompat.generators.recipes.real_dims import start
from hwcompat.hardware.errors import ModelError, echo
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.plain_values import from_values
from hwcompat.hardware.process import NoAnswer, answer, ask

from .axes import Split
from .mesh_case import MeshModel
from .mesh_model import built, facts_of, plan_of, side_of, tensor_dims
from .model_figures import ModelFigures

if TYPE_CHECKING:
    import torch

    from hwcompat.generators.models.inputs import Array
    from hwcompat.generators.models.recipe import Recipe

LAYERS = 4
PARTS = 4
"""The number of ranks that a tiny model can be split over: it has as many layers, and heads and widths in
multiples."""
_STEP = 16
_BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
_GATHERED = "gather_output"
_LONGEST_S = 600.0
_BATCH = 4


@dataclass(frozen=True, kw_only=True)
class MeshInput:
    """A model type for a mesh: the tiny model with its figures and inputs, which the check runs, and the figures of
    the real one. `real` is None without them, `no_real` says why. `whose` names the source of the configuration."""

    tiny: MeshModel
    tiny_figures: ModelFigures
    inputs: Mapping[str, Mapping[str, Any]]
    real: ModelFigures | None
    whose: str
    no_real: str

    def arrays(self, batch: int) -> dict[str, Array]:
        """Return inputs for `batch` examples, in rows of different lengths so that a dropped mask is detected."""
        lengths = [(*LENGTHS, 12, LENGTHS[0])[place % 4] for place in range(batch)]
        return make_inputs(self.inputs, 0, lengths)


def batch_of(split: Split, microbatches: int) -> int:
    """Return the smallest batch from `_BATCH` on that a split divides into equal parts."""
    step = split.data * microbatches
    return step * -(-_BATCH // step)


def mesh_input(name: str, precision: str = "float32") -> MeshInput:
    """Return the facts of a type or a checkpoint folder; takes seconds, in a child. Raises `ModelError`."""
    if not Path(name).is_dir():
        recipe_for(name)  # derives and stores a missing recipe, or raises with the reason
    question = {"name": name, "precision": precision}
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    try:
        found = ask(__name__, question, limit_s=_LONGEST_S, environment=offline)
    except NoAnswer as error:
        raise ModelError("the model is unknown", why=str(error)) from error
    return from_values(MeshInput, found)


def enlarged(config: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return constructor arguments with four layers, heads in multiples of 4, and inner widths of 16.

    `config` is what `arguments` make. Attributes are found by their roles in roles.toml.
    """
    made = dict(arguments)
    before = max((one for one in role_of(config, "layers").values() if isinstance(one, int)), default=0)
    for name, value in role_of(config, "layers").items():
        if isinstance(value, int):
            made[name] = max(LAYERS, value)
    for name, value in role_of(config, "heads").items():
        if isinstance(value, int) and value % PARTS:
            made[name] = PARTS
    for name, value in role_of(config, "width").items():
        if isinstance(value, int) and value % _STEP and value not in role_of(config, "hidden").values():
            made[name] = -(-value // _STEP) * _STEP
    kinds = roles()["config"]["layer_kinds"]
    for name in arguments_of(config):
        value = getattr(config, name, None)
        per_layer = name in kinds or (name in arguments and isinstance(value, list) and len(value) == before)
        if per_layer and isinstance(value, list) and 0 < len(value) < LAYERS and before < LAYERS:
            made[name] = [value[place % len(value)] for place in range(LAYERS)]
    for name, child in children(config).items():
        made[name] = enlarged(child, made.get(name, {}) if isinstance(made.get(name, {}), Mapping) else {})
        if isinstance(arguments.get(name), Mapping) and "model_type" in arguments[name]:
            made[name]["model_type"] = arguments[name]["model_type"]
    return made


def _subject_fields(name: str, precision: str) -> dict[str, Any]:
    """Build the fields of `MeshInput` for one model type or folder. Raises what building the model raises."""
    folder = Path(name) if Path(name).is_dir() else None
    model_type = str(read_checkpoint(folder).config["model_type"]) if folder else name
    recipe = load_recipe(model_type)
    if recipe is None:
        raise ValueError("there is no tiny model of this type")
    if recipe.library != "transformers" or not recipe.config_class:
        raise ValueError(f"models of {recipe.library} can't be split over devices")
    config = readable(class_of(recipe.config_class)(**recipe.config))
    tiny = MeshModel(
        name=model_type,
        config_class=recipe.config_class,
        model_class=recipe.model_class,
        config=json.loads(json.dumps(enlarged(config, recipe.config))),
        gain=recipe.gain,
        zero_centered=recipe.zero_centered,
        masked_by=recipe.masked_by,
    )
    whole = built(tiny)
    arrays = make_inputs(recipe.inputs, 0)
    facts = facts_of(whole, arrays)
    sizes = {one.shape[0] if one.ndim else None for one in arrays.values()}
    if len(sizes) != 1 or None in sizes:
        raise ValueError("the batch isn't the first axis of every input, so it can't be split between copies")
    real, whose, no_real = None, "", ""
    try:
        counted, whose = real_figures(name, recipe, facts, precision)
        real = counted.to_dict()
    except Exception as error:  # a constructor may raise anything, which is the reason for missing figures
        no_real = f"{type(error).__name__}: {one_line(str(error))}"
    return {
        "tiny": asdict(tiny),
        "tiny_figures": figures(whole, facts, model_type, "float32").to_dict(),
        "inputs": {key: dict(value) for key, value in recipe.inputs.items()},
        "real": real,
        "whose": whose,
        "no_real": no_real,
    }


def real_figures(name: str, recipe: Recipe, facts: Mapping[str, Any], precision: str) -> tuple[ModelFigures, str]:
    """Return figures of the real model, built without data from a checkpoint's config.json or the type's defaults."""
    import torch

    _, _, config, whose = start(name, recipe.task)
    with torch.device("meta"):
        whole = class_of(recipe.model_class)(config)
    layers = whole.get_submodule(facts["layers"]) if facts["layers"] else ()
    found = figures(whole, {**facts, "count": len(layers)}, name, precision)
    return found, whose.removeprefix(" of ") or "the library's default configuration"


def figures(whole: torch.nn.Module, facts: Mapping[str, Any], name: str, precision: str) -> ModelFigures:
    """Return the bytes of the modules before, in and after the layers, and the sizes that a tensor split divides."""
    dims, width = tensor_dims(whole), _BYTES[precision]
    count = max(1, facts["count"])
    layers, split = [0] * count, [0] * count
    ends, split_ends = {"before": 0, "after": 0}, {"before": 0, "after": 0}
    for own, parameter in whole.named_parameters(remove_duplicate=False):
        size = parameter.numel() * width
        divided = size if own in dims else 0
        side = side_of(own, facts)
        if isinstance(side, int):
            layers[side] += size
            split[side] += divided
        else:
            ends[side] += size
            split_ends[side] += divided
    plan = plan_of(whole)
    return ModelFigures(
        name=name,
        dtype=precision,
        parameters=sum(one.numel() for one in whole.parameters()),
        layers=tuple(layers),
        before=ends["before"],
        after=ends["after"],
        split_layers=tuple(split),
        split_before=split_ends["before"],
        split_after=split_ends["after"],
        divided=_tensor_divisors(whole, dims, plan),
        tensor_plan="transformers' own tensor plan" if dims else "",
        no_tensor="" if dims else f"transformers has no tensor plan for {name}",
        no_pipeline=facts["no_pipeline"],
    )


def _tensor_divisors(whole: torch.nn.Module, dims: Mapping[str, int], plan: Mapping[str, str]) -> dict[str, int]:
    """Return the sizes that a tensor split must divide: heads if attention is split, and the axes of parameters."""
    config: Any = whole.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    found: dict[str, int] = {}
    attention = [style for name, style in plan.items() if "attn" in name or "attention" in name]
    if attention and not any(_GATHERED in style for style in attention):
        heads = getattr(text, "num_attention_heads", None)
        keys = getattr(text, "num_key_value_heads", None)
        found |= {"attention heads": heads} if isinstance(heads, int) else {}
        found |= {"key-value heads": keys} if isinstance(keys, int) else {}
    shapes = {name: tuple(one.shape) for name, one in whole.named_parameters()}
    for name, dim in dims.items():
        kind = ".".join("*" if part.isdigit() else part for part in name.split("."))
        found.setdefault(f"rows of axis {dim} of {kind}", shapes[name][dim])
    return found


def _answer(asked: Mapping[str, str]) -> dict[str, Any]:
    try:
        return _subject_fields(asked["name"], asked["precision"])
    except Exception as error:  # a model may raise anything, which is the reason
        why = f"{type(error).__name__}: {one_line(str(error))}"
        raise ModelError(f"{echo(asked['name'])} can't be split", why=why) from error


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    answer(_answer)
