"""Positions that the library computes token by token in Python, which no graph can hold."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_METHOD = "compute_3d_position_ids"
"""What transformers calls it in models whose positions have a time, a height and a width (from Qwen2-VL on)."""


def host_positions(model: Any, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """`position_ids` (3, batch, length) of a model that counts them by hand; empty for all other models."""
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
    except ValueError:  # the model around it counts in another way
        return {}
    return {} if positions is None else {"position_ids": positions}
