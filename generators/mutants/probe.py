"""Tells whether a mutant changed anything: both models are run on the same inputs and compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hardware.compare import compare
from hardware.model.calls import forward
from hardware.model.decoding import greedy
from hardware.model.tensors import to_arrays, to_tensors
from hardware.output_masks import masks_of

if TYPE_CHECKING:
    import torch

SMALLEST_CHANGE = 5e-6
"""A smaller difference, relative to the output's scale, may be rounding: a recipe's float32 error is below."""

_STEPS = 4


def change(
    clean: torch.nn.Module,
    mutated: torch.nn.Module,
    inputs: Mapping[str, Any],
    *,
    generates: str = "none",
    masked_by: Mapping[str, str] | None = None,
) -> float:
    """The largest difference relative to the output's scale, where outputs mean something; infinite for NaN.

    Two passes (the second with the rows of the batch turned round: the same shapes, other values) and, for what
    decodes, the logits of a few steps with the cache. Both models keep whatever they keep between calls.
    """
    worst = 0.0
    for arrays in (dict(inputs), {name: np.ascontiguousarray(array[::-1]) for name, array in inputs.items()}):
        masks = masks_of(masked_by or {}, arrays)
        want, got = _run(clean, arrays), _run(mutated, arrays)
        worst = max(worst, compare(got, want, masks=masks, required=tuple(want)).max_rel_error)
    if generates != "none":
        want, got = ({"logits": _decode(model, inputs)} for model in (clean, mutated))
        worst = max(worst, compare(got, want).max_rel_error)
    return worst


def _run(model: torch.nn.Module, arrays: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    with torch.no_grad():
        return to_arrays(forward(model, to_tensors(arrays, "cpu", torch.float32)))


def _decode(model: torch.nn.Module, arrays: Mapping[str, Any]) -> Any:
    import torch

    return greedy(model, to_tensors(arrays, "cpu", torch.float32), steps=_STEPS, use_cache=True).logits
