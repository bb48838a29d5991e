"""How many tokens a model has positions for, how many of them decoding may add, and positions that Python counts."""

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
_COUNTED_BY = "compute_3d_position_ids"
"""What transformers calls it in models whose positions have a time, a height and a width (from Qwen2-VL on)."""
_TABLES = ("position_embeddings", "embed_positions")
"""Tables of positions that may count from behind the padding token, as RoBERTa's does."""


def positions_of(model: Any, *, decoding: bool = False) -> int | None:
    """The longest text that a model has positions for, by its configuration; None where that sets no limit.

    With `decoding` it is the text of the decoder, where a model is made of an encoder and a decoder of other types.
    """
    config = getattr(model, "config", None)
    config = getattr(config, "decoder", None) or config if decoding else config
    texts = (part for part in _parts(config) if getattr(part, "vocab_size", None))
    text = next(texts, config)
    said = [value for name in _NAMES if type(value := getattr(text, name, None)) is int and value > 1]
    return min(said) - _left_out(model, min(said)) if said else None


def steps_within(model: Any, inputs: Mapping[str, Any], steps: int) -> int:
    """Of `steps` tokens, how many a model has positions for behind these inputs (arrays or tensors): at least one."""
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


def _left_out(model: Any, most: int) -> int:
    """Rows of a table of positions that no token gets: up to that of the padding token."""
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
    """`position_ids` (3, batch, length) of a model that counts them token by token in Python, which no graph can
    hold; empty for all other models."""
    part = next((one for one in model.modules() if hasattr(one, _COUNTED_BY)), None)
    if part is None or "position_ids" in tensors:
        return {}
    count = getattr(part, _COUNTED_BY)
    given = {
        one.name: tensors.get(one.name)
        for one in inspect.signature(count).parameters.values()
        if one.name in tensors or one.default is inspect.Parameter.empty
    }
    try:
        positions = count(**given)
    except ValueError:  # the model around it counts in another way
        return {}
    return {} if positions is None else {"position_ids": positions}
