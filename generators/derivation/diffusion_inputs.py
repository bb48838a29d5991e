"""Which inputs one step of denoising takes, by the names of a forward's arguments and the model's configuration.

A name with points is an entry of a mapping that the forward takes: `added_cond_kwargs.time_ids`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from hardware.errors import ModelError

from .diffusion_config import told_of

Spec = dict[str, Any]

_EVERY = 4
"""Tokens of text for each step that a picture grows by: four steps for the longer of two prompts."""
_STEPS = 128
"""Of the thousand steps that models are trained with, the last ones. Models make positions of a step, and of a large
one float32 knows them to so few digits that it is heard in what comes out."""
_PARTS = 128
"""What the part of all steps that is left is counted in: a power of two, so that a thousand times it is exact in
float32."""
_OF_PARTS = 16
_FRAMES = 3


def rows_and_columns(unit: int) -> list[list[int]]:
    """Sizes of a picture that isn't square and grows with the text, in pixels of latents; `unit` is the smallest."""
    return [[unit, _EVERY], [2 * unit, _EVERY]]


def diffusion_specs(model: Any, family: str) -> dict[str, Spec]:
    """The specifications of the inputs that a part of a pipeline takes, in the order of its signature.

    Raises `ModelError` where nothing known is taken.
    """
    takes = inspect.signature(model.forward).parameters
    told = told_of(type(model).__name__, family, "inputs")
    specs: dict[str, Spec] = {}
    for name in takes:
        specs |= {key: spec for key, spec in _made(name, model.config, takes).items() if spec}
    for name, fields in told.items():
        if fields.get("omit"):
            specs.pop(name, None)
        else:
            kept = {} if "kind" in fields else specs.get(name, {})
            specs[name] = kept | {key: _referred(one, model.config) for key, one in fields.items()}
    if not specs:
        raise ModelError(
            f"no inputs are known for {type(model).__name__}", why=f"its forward takes {', '.join(list(takes)[:8])}"
        )
    return specs


def _referred(value: Any, config: Mapping[str, Any]) -> Any:
    """A literal of overrides/diffusion.toml, or for "@name" a value of the configuration."""
    if isinstance(value, list):
        return [_referred(one, config) for one in value]
    return config[value[1:]] if isinstance(value, str) and value.startswith("@") else value


def _made(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    makers: Mapping[str, Callable[..., dict[str, Spec]]] = {
        "sample": _sample,
        "hidden_states": _packed if "img_ids" in takes else _sample,
        "timestep": _timestep,
        "encoder_hidden_states": _prompt,
        "encoder_attention_mask": _mask,
        "encoder_hidden_states_mask": _mask,
        "pooled_projections": _pooled,
        "img_ids": _places_of_image,
        "txt_ids": _places_of_text,
        "guidance": _guidance,
        "timestep_ratio": _part_left,
        "added_cond_kwargs": _added,
        "timestep_cond": _timestep_condition,
        "original_size": _pair,
        "target_size": _pair,
        "crop_coords": _pair,
    }
    return {} if name not in makers else makers[name](name, config, takes)


def _unit(config: Mapping[str, Any]) -> int:
    """Pixels of latents that a picture's sides are multiples of: a patch, or what the blocks halve."""
    patch = config.get("patch_size") or 1
    blocks = config.get("down_block_types") or config.get("block_out_channels") or ("",)
    smallest = int(patch if isinstance(patch, int) else patch[-1])
    return smallest << (len(blocks) - 1)


def _sample(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    channels = config.get("in_channels")
    if "encoder_hidden_states" not in takes and "timestep" not in takes:  # an autoencoder's own picture
        return {name: {"kind": "features", "shape": [channels, *rows_and_columns(_unit(config))]}}
    frames = [_FRAMES] if isinstance(config.get("patch_size"), list | tuple) else []
    return {name: {"kind": "features", "shape": [channels, *frames, *rows_and_columns(_unit(config))]}}


def _packed(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    """Latents as a sequence of patches, row by row."""
    return {name: {"kind": "cells", "rows": [1, _EVERY], "columns": [2, _EVERY], "width": config["in_channels"]}}


def _places_of_image(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    axes = ["", "row", "column", *[""] * (len(config["axes_dims_rope"]) - 3)]
    return {name: {"kind": "places_of_cells", "rows": [1, _EVERY], "columns": [2, _EVERY], "axes": axes}}


def _places_of_text(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    axes = ["", "", "", "column"][: len(config["axes_dims_rope"])]
    return {name: {"kind": "places_of_cells", "rows": 1, "columns": [1, 1], "axes": axes}}


def _timestep(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    """Whole steps, or where places of an image are given as well (Flux) the part of all steps that is left."""
    if "img_ids" in takes:
        return _part_left(name, config, takes)
    return {name: {"kind": "categories", "shape": [], "high": _STEPS}}


def _part_left(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    return {name: {"kind": "categories", "shape": [], "high": _OF_PARTS, "divisor": _PARTS}}


def _prompt(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    known = ("encoder_hid_dim", "joint_attention_dim", "caption_channels", "text_dim", "text_embed_dim")
    width = next((config[one] for one in (*known, "cap_feat_dim", "cross_attention_dim") if config.get(one)), None)
    return {name: {"kind": "frames", "step": 1, "bins": width} if width else {}}


def _mask(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    return {name: {"kind": "mask", "side": "right"}}


def _pooled(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    return {name: {"kind": "features", "shape": [config["pooled_projection_dim"]]}}


def _guidance(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    """How strongly to follow the prompt; small, because positions are made of a thousand times that, too."""
    return _part_left(name, config, takes) if config.get("guidance_embeds") else {}


def _added(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    """What stands beside the prompt in the UNet of Stable Diffusion XL."""
    kind = config.get("addition_embed_type")
    if kind == "text_time":
        sizes = 6
        width = config["projection_class_embeddings_input_dim"] - sizes * config["addition_time_embed_dim"]
        return {
            f"{name}.text_embeds": {"kind": "features", "shape": [width]},
            f"{name}.time_ids": {"kind": "categories", "shape": [sizes], "high": _STEPS},
        }
    return {}


def _timestep_condition(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    width = config.get("time_cond_proj_dim")
    return {name: {"kind": "features", "shape": [width]} if width else {}}


def _pair(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    """Height and width, or the corner of what was cropped."""
    return {name: {"kind": "categories", "shape": [2], "high": _STEPS}}
