"""Which inputs a model takes, as specifications (`inputs.py`), from its forward's signature and configuration."""

from __future__ import annotations

import inspect
from typing import Any

from hardware.errors import ModelError

from .catalog import TaskEntry
from .inputs import LENGTHS
from .tiny import children, overrides, special_tokens, text_config

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
    speech = "input_features" in takes
    specs: dict[str, dict[str, Any]] = {}
    for name in takes:
        if name == "input_ids" and vocabulary:
            specs[name] = {"kind": "tokens", "high": high}
        elif name == "attention_mask" and "input_ids" in takes:
            specs[name] = {"kind": "mask", "side": side}
        elif name == "position_ids" and architecture == "decoder-only":
            specs[name] = {"kind": "positions"}
        elif name == "pixel_values":
            specs[name] = {"kind": "pixels", "shape": _image_shape(config)}
        elif name == "input_features":
            specs[name] = {"kind": "features", "shape": _feature_shape(config)}
        elif name == "decoder_input_ids":
            length = {} if speech else {"length": min(_DECODER_LENGTH, most)}
            specs[name] = {"kind": "decoder_tokens", "high": high, **length}
    for name, fields in overrides(config.model_type).get("inputs", {}).items():
        if name in specs:
            specs[name] |= {k: getattr(text, v[1:]) if str(v).startswith("@") else v for k, v in fields.items()}
    if not specs:
        raise ModelError(
            f"no inputs are known for {type(model).__name__} ({entry.task})",
            why=f"its forward takes {', '.join(list(takes)[:8])}",
        )
    return specs


def _attribute(config: Any, *names: str) -> Any:
    """The first of these that a configuration or one of its parts has; None where none does."""
    for scope in (config, *children(config).values()):
        for name in names:
            value = getattr(scope, name, None)
            if value is not None:
                return value
    return None


def _image_shape(config: Any) -> list[int]:
    size = _attribute(config, "image_size") or 64
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return [_attribute(config, "num_channels") or 3, height, width]


def _feature_shape(config: Any) -> list[int]:
    bins, frames = _attribute(config, "num_mel_bins"), _attribute(config, "max_source_positions")
    if bins is None or frames is None:
        raise ModelError(
            f"the shape of the features of {config.model_type} is not known",
            why="its configuration has no num_mel_bins and max_source_positions",
        )
    return [bins, 2 * frames]


def lengths_of(model: Any) -> tuple[int, int]:
    """`LENGTHS`, or shorter ones where the positions of the model end before."""
    names = ("max_position_embeddings", "n_positions", "max_target_positions")
    most = _attribute(text_config(model.config), *names)
    longest = min(LENGTHS[0], most) if isinstance(most, int) and most > 1 else LENGTHS[0]
    return (longest, min(LENGTHS[1], longest - longest // 3))
