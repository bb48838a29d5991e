"""Denoiser and autoencoder of a diffusers pipeline: tiny constructor arguments, and the inputs of one step.

Arguments are the class's defaults, made small: equal values stay equal, and a width that is the product of heads and
their width stays so. Inputs are known by the names of a forward's arguments; a name with points is an entry of a
mapping argument (`added_cond_kwargs.time_ids`). Names are understood by the roles in diffusion.toml; exceptions are
in overrides/diffusion.toml, by class or by family.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hwcompat.hardware.errors import ModelError

from .config_scopes import overrides, referred

LAYERS = 2
HEADS = 2
HEAD_DIM = 16
CHANNELS = 32
LATENTS = 8
GROUPS = 8
_NARROWEST = 32
_APART = 16

Arguments = Mapping[str, Any]
_plain = object()
Spec = dict[str, Any]
_EVERY = 4
"""Tokens of text per step of the image's growth: four steps for the longer of two prompts."""
_STEPS = 128
"""Only the last of the thousand training steps are used: models compute positions of a step, and float32 has so
few digits for a large one that the error shows in the outputs."""
_PARTS = 128
"""The unit of the remaining share of all steps: a power of two, so that a thousand times it is exact in float32."""
_OF_PARTS = 16
_FRAMES = 3


@functools.cache
def _roles() -> Mapping[str, list[str]]:
    with Path(__file__).with_name("diffusion.toml").open("rb") as file:
        roles: Mapping[str, list[str]] = tomllib.load(file)["roles"]
    return roles


def defaults_of(model_class: Any) -> dict[str, Any]:
    """Return the constructor arguments of a class with their defaults; None if an argument has none."""
    parameters = inspect.signature(model_class.__init__).parameters.values()
    named = [p for p in parameters if p.name != "self" and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return {p.name: None if p.default is p.empty else p.default for p in named}


def overrides_of(model_class: str, family: str, what: str) -> dict[str, Any]:
    """Return `config` or `inputs` of `overrides/diffusion.toml`: first of the class, then of the family."""
    entries = (overrides(model_class), overrides(family))
    return {key: value for entry in entries for key, value in entry.get(what, {}).items()}


def tiny_arguments(model_class: Any, family: str) -> dict[str, Any]:
    """Return the constructor arguments of a small model of `model_class`: JSON values that differ from the defaults.

    Nothing is imported. `overrides/diffusion.toml` takes precedence; its entry of a family counts for the classes
    with such an argument. Raises `ModelError` for a family without a tiny model, with the reason.
    """
    if why := overrides(family).get("refused"):
        raise ModelError(f"no tiny {family} can be made", why=why)
    defaults = defaults_of(model_class)
    changes = overrides_of(model_class.__name__, family, "config")
    given = {key: value for key, value in changes.items() if key in defaults}
    made = {**defaults, **_shrunk(defaults), **given}
    found = {name: value for name, value in made.items() if value != defaults.get(name, _plain)}
    return dict(json.loads(json.dumps(found)))


def _shrunk(defaults: Arguments) -> dict[str, Any]:
    changed: dict[str, Any] = {n: min(v, LAYERS) for n, v in _numbers(defaults, "layers").items()}
    changed |= {n: min(v, LATENTS) for n, v in _numbers(defaults, "latents").items()}
    changed |= _heads(defaults)
    changed |= _widths(defaults, changed)
    changed |= _rotary(defaults, changed)
    return changed | _blocks(defaults)


def _role(defaults: Arguments, role: str) -> dict[str, Any]:
    return {name: value for name, value in defaults.items() if name in _roles()[role] and value}


def _numbers(defaults: Arguments, role: str) -> dict[str, int]:
    return {n: v for n, v in _role(defaults, role).items() if isinstance(v, int) and not isinstance(v, bool)}


def _lists(defaults: Arguments, role: str) -> dict[str, list[Any]]:
    return {n: list(v) for n, v in _role(defaults, role).items() if isinstance(v, list | tuple)}


def _heads(defaults: Arguments) -> dict[str, Any]:
    """Return few heads in the same proportion, at least two if there were two; narrow ones of equal width."""
    if _lists(defaults, "down_blocks"):  # there `attention_head_dim` is the number of heads
        return dict.fromkeys(_numbers(defaults, "head_dim"), HEADS)
    heads = _numbers(defaults, "heads")
    common = math.gcd(*heads.values()) if heads else 1
    few = {name: value // common for name, value in heads.items()}
    few = {name: value * (HEADS if max(few.values()) < HEADS else 1) for name, value in few.items()}
    return few | {name: min(value, HEAD_DIM) for name, value in _numbers(defaults, "head_dim").items()}


def _widths(defaults: Arguments, changed: Arguments) -> dict[str, int]:
    """Return widths in the order of their size, `_APART` from each other; products of heads and width stay so."""
    heads, head_dim = ("num_attention_heads", "attention_head_dim")
    products: dict[int, int] = {}
    if isinstance(defaults.get(heads), int) and isinstance(defaults.get(head_dim), int):
        products[defaults[heads] * defaults[head_dim]] = changed[heads] * changed[head_dim]
    stream = _numbers(defaults, "stream")
    if not products and stream:
        few = next((changed[name] for name in ("num_attention_heads", "n_heads") if name in changed), HEADS)
        products = dict.fromkeys(stream.values(), few * HEAD_DIM)
    widths = stream | _numbers(defaults, "width")
    sizes = sorted({value for value in widths.values() if value not in products})
    small = {size: min(size, _NARROWEST + _APART * place) for place, size in enumerate(sizes)}
    return {name: products.get(value) or small[value] for name, value in widths.items()}


def _rotary(defaults: Arguments, changed: Arguments) -> dict[str, list[int]]:
    """Return even shares of a head's width in about the same proportion; the first axis gets the rest."""
    found = {}
    for name, axes in _lists(defaults, "rotary").items():
        width = changed.get("attention_head_dim", HEAD_DIM)
        shares = [max(2, axis * width // sum(axes) // 2 * 2) for axis in axes]
        found[name] = [width - sum(shares[1:]), *shares[1:]]
    return found


def _blocks(defaults: Arguments) -> dict[str, Any]:
    """Return one block of each kind, the first ones first, and as many if a list has no kinds; each twice as wide."""
    changed: dict[str, Any] = {}
    down = next(iter(_lists(defaults, "down_blocks").values()), [])
    channels = _lists(defaults, "channels")
    count = len(next(iter(channels.values()), []))
    kinds = sorted({down.index(kind) for kind in down})
    kept = kinds if len(kinds) > 1 else list(range(min(count, 2)))
    if not kept or not count:
        return {}
    for name, value in defaults.items():
        if isinstance(value, list | tuple) and len(value) == count:
            places = kept if name not in _roles()["up_blocks"] else sorted(count - 1 - place for place in kept)
            changed[name] = [value[place] for place in places]
    for name in channels:
        changed[name] = [CHANNELS * 2**place for place in range(len(kept))]
    return changed | dict.fromkeys(_numbers(defaults, "groups"), GROUPS)


def rows_and_columns(unit: int) -> list[list[int]]:
    """Return the sides of a non-square image that grows with the text, in latent pixels; `unit` is the smallest."""
    return [[unit, _EVERY], [2 * unit, _EVERY]]


def diffusion_specs(model: Any, family: str) -> dict[str, Spec]:
    """Return the specifications of the inputs of a pipeline's part, in the order of its signature.

    Raises `ModelError` if it takes no known input.
    """
    takes = inspect.signature(model.forward).parameters
    given = overrides_of(type(model).__name__, family, "inputs")
    specs: dict[str, Spec] = {}
    for name in takes:
        specs |= {key: spec for key, spec in _made(name, model.config, takes).items() if spec}
    for name, fields in given.items():
        if fields.get("omit"):
            specs.pop(name, None)
        else:
            kept = {} if "kind" in fields else specs.get(name, {})
            specs[name] = kept | {key: referred(one, model.config.__getitem__) for key, one in fields.items()}
    if not specs:
        raise ModelError(
            f"the inputs of {type(model).__name__} are unknown", why=f"its forward takes {', '.join(list(takes)[:8])}"
        )
    return specs


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
    """Return the divisor of an image's sides in latent pixels: a patch, or the product of the blocks' strides."""
    patch = config.get("patch_size") or 1
    blocks = config.get("down_block_types") or config.get("block_out_channels") or ("",)
    smallest = int(patch if isinstance(patch, int) else patch[-1])
    return smallest << (len(blocks) - 1)


def _sample(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    channels = config.get("in_channels")
    if "encoder_hidden_states" not in takes and "timestep" not in takes:  # an autoencoder's image
        return {name: {"kind": "features", "shape": [channels, *rows_and_columns(_unit(config))]}}
    frames = [_FRAMES] if isinstance(config.get("patch_size"), list | tuple) else []
    return {name: {"kind": "features", "shape": [channels, *frames, *rows_and_columns(_unit(config))]}}


def _packed(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    """Return latents as a sequence of patches, row by row."""
    return {name: {"kind": "cells", "rows": [1, _EVERY], "columns": [2, _EVERY], "width": config["in_channels"]}}


def _places_of_image(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    axes = ["", "row", "column", *[""] * (len(config["axes_dims_rope"]) - 3)]
    return {name: {"kind": "places_of_cells", "rows": [1, _EVERY], "columns": [2, _EVERY], "axes": axes}}


def _places_of_text(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    axes = ["", "", "", "column"][: len(config["axes_dims_rope"])]
    return {name: {"kind": "places_of_cells", "rows": 1, "columns": [1, 1], "axes": axes}}


def _timestep(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    """Return whole steps, or the remaining share of all steps if image positions are inputs too (Flux)."""
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
    """Return the strength of guidance; small, because positions are computed from a thousand times its value."""
    return _part_left(name, config, takes) if config.get("guidance_embeds") else {}


def _added(name: str, config: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Spec]:
    """Return the additional conditions of the UNet of Stable Diffusion XL."""
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
    """Return height and width, or the corner of the crop."""
    return {name: {"kind": "categories", "shape": [2], "high": _STEPS}}
