"""Which inputs a model takes, as specifications (`inputs.py`), from its forward's signature and configuration."""

from __future__ import annotations

import inspect
from typing import Any

from generators.models.catalog import TaskEntry
from generators.models.inputs import LENGTHS
from hardware.errors import ModelError

from .modalities import attribute_of, image_places, image_token, modality_spec
from .overrides import overrides
from .scopes import special_tokens, text_config

_DECODER_LENGTH = 7
"""Length of an encoder-decoder's second sequence where the first one has the mask; differs from `LENGTHS`."""


def input_specs(model: Any, entry: TaskEntry, architecture: str, side: str, most: int) -> dict[str, dict[str, Any]]:
    """The specifications of the inputs that a model's forward takes, in the order of its signature.

    `side` is where token sequences are padded, `most` the number of tokens that a position table allows.
    Raises `ModelError` where nothing known is taken.
    """
    config = model.config
    text = text_config(config)
    takes = inspect.signature(model.forward).parameters
    vocabulary = getattr(text, "vocab_size", 0) or 0
    band = [one for one in special_tokens(config) if one >= vocabulary - 16]
    high = min([vocabulary, *band])
    token = image_token(model, takes)
    told = overrides(config.model_type).get("inputs", {})
    specs: dict[str, dict[str, Any]] = {}
    passed_on = [name for name in told if name not in takes and "kwargs" in takes]
    for name in (*takes, *passed_on):
        if spec := modality_spec(name, takes, config):
            specs[name] = spec
        elif name == "input_ids" and vocabulary:
            specs[name] = {"kind": "tokens", "high": high}
        elif name == "attention_mask" and "input_ids" in takes:
            specs[name] = {"kind": "mask", "side": side}
        elif name == "position_ids" and (architecture == "decoder-only" or (token and side == "left")):
            if "image_grid_thw" not in takes:  # else the model makes positions of three axes from the grid
                specs[name] = {"kind": "positions"}
        elif name in ("token_type_ids", "mm_token_type_ids") and token:
            specs[name] = {"kind": "places", "token": token}
        elif name == "decoder_input_ids":
            length = {"length": min(_DECODER_LENGTH, most)} if "input_ids" in takes else {}
            specs[name] = {"kind": "decoder_tokens", "high": high, **length}
        elif name in told and told[name].get("kind") == "tokens":
            specs[name] = {"high": high}
        elif name in told and "kind" in told[name]:
            specs[name] = {}
    if token:
        specs["input_ids"] |= image_places(model, token, specs, side)
    for name, fields in told.items():
        if fields.get("omit"):
            specs.pop(name, None)
        elif name in specs:
            specs[name] |= {key: _referred(value, text, config) for key, value in fields.items()}
    for name in [name for name, spec in specs.items() if spec["kind"] == "positions"]:
        if "attention_mask" in list(specs)[list(specs).index(name) :]:  # positions are counted in the mask
            specs[name] = specs.pop(name)
    if not specs:
        raise ModelError(
            f"no inputs are known for {type(model).__name__} ({entry.task})",
            why=f"its forward takes {', '.join(list(takes)[:8])}",
        )
    return specs


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
