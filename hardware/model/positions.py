"""Positions of a model: how many tokens it has them for, and positions that it computes in Python."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_NAMES = (
    *("max_position_embeddings", "n_positions", "max_target_positions", "max_text_positions"),
    *("max_decoder_position_embeddings", "max_encoder_position_embeddings"),
)
_METHOD = "compute_3d_position_ids"
"""Method of transformers' models whose positions have a time, a height and a width (from Qwen2-VL on)."""
_TABLES = ("position_embeddings", "embed_positions")
"""Names of tables whose positions may start after the padding token, as RoBERTa's do."""


def positions_of(model: Any, *, decoding: bool = False) -> int | None:
    """Return the length of the longest text that a model's configuration has positions for, or None without a limit.

    With `decoding` it is the decoder's text, if encoder and decoder are of different types.
    """
    config = getattr(model, "config", None)
    config = getattr(config, "decoder", None) or config if decoding else config
    texts = (part for part in _parts(config) if getattr(part, "vocab_size", None))
    text = next(texts, config)
    stated = [value for name in _NAMES if type(value := getattr(text, name, None)) is int and value > 1]
    return min(stated) - _unused_rows(model, min(stated)) if stated else None


def steps_within(model: Any, inputs: Mapping[str, Any], steps: int) -> int:
    """Return how many of `steps` tokens a model has positions for after these inputs; at least one."""
    most = positions_of(model, decoding=True)
    if most is None:
        return steps
    beside_encoder = getattr(model.config, "is_encoder_decoder", False) or "input_ids" not in inputs
    length = 1 if beside_encoder else int(inputs["input_ids"].shape[1])
    return max(1, min(steps, most - length))


def _parts(config: Any) -> Iterator[Any]:
    if config is not None:
        yield config
        for name in getattr(config, "sub_configs", {}):
            yield from _parts(getattr(config, name, None))


def _unused_rows(model: Any, most: int) -> int:
    """Return the number of rows of a position table that no token gets: those up to the padding token."""
    if not hasattr(model, "named_modules"):
        return 0
    tables = (module for name, module in model.named_modules() if name.rpartition(".")[2] in _TABLES)
    behind = [
        table.padding_idx + 1
        for table in tables
        if getattr(table, "padding_idx", None) is not None and getattr(table, "num_embeddings", 0) <= most
    ]
    return max(behind, default=0)


def host_positions(model: Any, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return `position_ids` (3, batch, length) of a model that computes them token by token in Python, which no graph
    can hold; empty for all other models."""
    part = next((one for one in model.modules() if hasattr(one, _METHOD)), None)
    if part is None or "position_ids" in tensors:
        return {}
    count = getattr(part, _METHOD)
    given = {
        one.name: tensors.get(one.name)
        for one in inspect.signature(count).parameters.values()
        if one.name in tensors or one.default is inspect.Parameter.empty
    }
    try:
        positions = count(**given)
    except ValueError:  # the surrounding model computes them differently
        return {}
    return {} if positions is None else {"position_ids": positions}
