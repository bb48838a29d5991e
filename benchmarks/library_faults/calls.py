"""The calls of calls.toml, on tiny models with seeded test weights."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from generators.models.inputs import make_inputs
from generators.models.recipe_store import load_recipe
from generators.recipes.build_model import filled_model
from hardware.model.calls import to_arrays, to_tensors

from .planting.planted_faults import Finder

CALLS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
NEW = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "return_dict_in_generate": True}
STEPS = 3


def outcome(fault: Mapping[str, Any], broken: bool) -> dict[str, Any]:
    """Return the arrays, by name, that a fault's call gives with the faulty or sound library, in a new process."""
    if broken:
        sys.meta_path.insert(0, Finder(fault))
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs = _prepared(fault)
    found = {name: one.detach() for name, one in _called(fault, model, inputs)}
    mask = inputs.get("attention_mask")
    for one in found.values() if mask is not None else ():
        if one.shape[:2] == mask.shape:  # users don't read padding
            one[mask == 0] = 0
    return to_arrays(found)


def _prepared(fault: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the model and its inputs."""
    import torch

    call, how = fault["call"], CALLS[fault["call"]]
    recipe = load_recipe(fault["type"], fault.get("task"))
    assert recipe is not None, f"{fault['type']} has no recipe"
    recipe = dataclasses.replace(recipe, config={**recipe.config, **fault.get("config", {})})
    lengths = [length * how.get("times", 1) for length in recipe.recorded["lengths"]]
    lengths = [max(lengths)] * how["rows"] if "rows" in how else lengths
    specs = {name: dict(spec) for name, spec in recipe.inputs.items() if name not in how.get("without", ())}
    if "side" in how and "attention_mask" in specs:
        specs["attention_mask"]["side"] = how["side"]
    if call == "image_size":
        *others, height, width = specs["pixel_values"]["shape"]
        specs["pixel_values"]["shape"] = [*others, 2 * height, 3 * width]
    dtype = getattr(torch, how.get("dtype", "float64"))
    inputs = to_tensors(make_inputs(specs, 0, lengths), "cpu", dtype)
    padding = recipe.config.get("pad_token_id")
    if call in ("left_padding", "right_padding") and padding is not None:
        inputs["input_ids"][inputs["attention_mask"] == 0] = padding
    if "labels" in how:
        inputs |= _labels(recipe.task, inputs)
    model = filled_model(recipe).to(dtype).train("training" in how)
    with contextlib.suppress(AttributeError, ValueError):
        model.set_experts_implementation("eager")  # the default one has no float64
    if "eager" in how:
        model.set_attn_implementation("eager")
    if call == "gradient_checkpointing":
        model.gradient_checkpointing_enable()
    if call == "token_types":
        inputs["token_type_ids"] = inputs["input_ids"] % 2
    if call == "inputs_embeds":
        inputs["inputs_embeds"] = model.get_input_embeddings()(inputs.pop("input_ids")).detach()
    return model, inputs


def _labels(task: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the labels: the text itself for a language model, without padding."""
    import torch

    if "classification" in task and "token" not in task:
        return {"labels": torch.arange(2)}
    text = inputs.pop("decoder_input_ids", inputs.get("input_ids")).clone()
    if text.shape == inputs.get("attention_mask", text[:0]).shape:
        text[inputs["attention_mask"] == 0] = -100
    text[1, -3:] = -100
    return {"labels": text % 2 if "token" in task else text}


def _called(fault: Mapping[str, Any], model: Any, inputs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Make the call, and yield what it gives by name."""
    import torch

    call, how = fault["call"], CALLS[fault["call"]]
    more = {**how.get("arguments", {}), **fault.get("arguments", {})}
    if "decoder_input_ids" in how.get("without", ()):
        found = model.generate(**inputs, **NEW, **more)
        yield "tokens", found.sequences
        found = {name: found.get(name) for name in ("logits", "sequences_scores")}
    elif call == "cached_steps":
        found = _stepped(model, inputs["input_ids"])
    else:
        found = model(**inputs, **more)
    if call.startswith("gradient"):
        found.loss.backward()
        grads = [torch.zeros_like(one) if one.grad is None else one.grad for one in model.parameters()]
        found = {"gradients": torch.cat([one.flatten() for one in grads])}
    arrays = [(name, one) for name, one in _arrays("", found) if how.get("only", "") in name]
    yield from arrays[1:] if call == "secondary_output" else arrays


def _stepped(model: Any, text: Any) -> list[Any]:
    found, cache = [], None
    for part in (text[:, :-STEPS], *text[:, -STEPS:].split(1, dim=1)):
        read = model(input_ids=part, past_key_values=cache, use_cache=True)
        found, cache = [*found, read[0]], read.past_key_values
    return found


def _arrays(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping | list | tuple):
        for key, one in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _arrays(f"{name}.{key}", one)
    elif hasattr(value, "is_floating_point") and value.is_floating_point():
        yield name, value
