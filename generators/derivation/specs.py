"""Which inputs a model takes, as specifications (`inputs.py`), from its forward's signature and configuration."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any

from generators.models.catalog import TaskEntry
from generators.models.inputs import LENGTHS
from hardware.errors import ModelError

from .modalities import modality_spec
from .overrides import overrides
from .places import place_tokens, places
from .scopes import attribute_of, special_tokens, text_config

_DECODER_LENGTH = 7
"""Length of an encoder-decoder's second sequence where the first one has the mask; differs from `LENGTHS`."""


_PLACE_MARKS = ("token_type_ids", "mm_token_type_ids", "moe_mm_token_type_ids", "image_embeds_position_mask")
"""Inputs that mark the places of an image in the text."""
_WHERE_NEEDED = ("image_sizes",)
"""Inputs that few of the models that take them read: given where the model can't make image features without."""


def input_specs(model: Any, entry: TaskEntry, architecture: str, side: str, most: int) -> dict[str, dict[str, Any]]:
    """The specifications of the inputs that a model's forward takes, in the order of its signature.

    `side` is where token sequences are padded, `most` the number of tokens that a position table allows.
    Raises `ModelError` where nothing known is taken.
    """
    config = model.config
    text = text_config(config)
    takes = inspect.signature(model.forward).parameters
    told = overrides(config.model_type).get("inputs", {})
    passed_on = [name for name in told if name not in takes and "kwargs" in takes]
    unread = set(_WHERE_NEEDED) - _needed(model)
    names = [name for name in (*takes, *passed_on) if name not in unread and not told.get(name, {}).get("omit")]
    known = {name: spec for name in names if (spec := modality_spec(name, names, config))}
    given = {*known, *(name for name in names if name in told or name == "input_ids")}
    tokens = place_tokens(config, given)
    specs: dict[str, dict[str, Any]] = {}
    for name in names:
        if name in known:
            specs[name] = known[name]
        elif spec := _text_spec(name, names, config, side, most):
            specs[name] = spec
        elif name == "position_ids" and (architecture == "decoder-only" or (tokens and side == "left")):
            if "image_grid_thw" not in takes:  # else the model makes positions of three axes from the grid
                specs[name] = {"kind": "positions"}
        elif name in _PLACE_MARKS and tokens:
            specs[name] = {"kind": "places", "token": next(iter(tokens.values()))}
        elif name in told and told[name].get("kind") == "tokens":
            specs[name] = {"high": _high(config)}
        elif name in told and "kind" in told[name]:
            specs[name] = {}
    for name, fields in told.items():
        if name in specs:
            specs[name] |= {key: _referred(value, text, config) for key, value in fields.items()}
    if taken := places(model, tokens, specs, side):
        specs["input_ids"]["places"] = taken
    if not specs:
        raise ModelError(
            f"no inputs are known for {type(model).__name__} ({entry.task})",
            why=f"its forward takes {', '.join(list(takes)[:8])}",
        )
    return specs


def _text_spec(name: str, names: Collection[str], config: Any, side: str, most: int) -> dict[str, Any] | None:
    """The specification of an input that is text or its mask; None where it is neither."""
    if name == "input_ids" and _high(config):
        return {"kind": "tokens", "high": _high(config)}
    if name == "attention_mask" and "input_ids" in names:
        return {"kind": "mask", "side": side}
    if name == "decoder_input_ids" and (config.is_encoder_decoder or "input_ids" not in names):
        length = {"length": min(_DECODER_LENGTH, most)} if "input_ids" in names else {}
        return {"kind": "decoder_tokens", "high": _high(config), **length}
    return None


def _high(config: Any) -> int:
    """Token ids from here on aren't drawn: they are special or not in the vocabulary. 0 without a vocabulary."""
    vocabulary = getattr(text_config(config), "vocab_size", 0) or 0
    special = {*special_tokens(config), *place_tokens(config).values()}
    return min([vocabulary, *(one for one in special if one >= vocabulary - 16)])


def _needed(model: Any) -> set[str]:
    """What a model, or the model inside it, can't make features of an image without."""
    makers = [getattr(owner, "get_image_features", None) for owner in (model, getattr(model, "model", None))]
    known = [inspect.signature(maker).parameters.values() for maker in makers if maker is not None]
    return {one.name for parameters in known for one in parameters if one.default is one.empty}


def _referred(value: Any, text: Any, config: Any) -> Any:
    """A literal of overrides/*.toml, or for "@name" an attribute of the text part, else of the whole or a part."""
    if isinstance(value, list):
        return [_referred(one, text, config) for one in value]
    if isinstance(value, str) and value.startswith("@"):
        return attribute_of(text, value[1:]) or attribute_of(config, value[1:])
    return value


def lengths_of(model: Any) -> tuple[int, int]:
    """`LENGTHS`, or shorter ones where the positions of the model end before."""
    names = ("max_position_embeddings", "n_positions", "max_target_positions", "max_text_positions")
    most = attribute_of(text_config(model.config), *names)
    longest = min(LENGTHS[0], most) if isinstance(most, int) and most > 1 else LENGTHS[0]
    return (longest, min(LENGTHS[1], longest - longest // 3))
