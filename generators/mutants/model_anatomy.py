"""Find the attention layers, convolutions and tables of positions that a model's outputs depend on, and measure
whether a break changed the outputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.generators.recipes.attention_layers import (
    AttentionLayer,
    attention_layers,
    convolution_layers,
    matrix_layers,
    position_tables,
)
from hwcompat.generators.recipes.measurements import results_of
from hwcompat.hardware.compare import compare
from hwcompat.hardware.model.calls import to_tensors
from hwcompat.hardware.model.greedy_decoding import greedy
from hwcompat.hardware.output_masks import masks_of

if TYPE_CHECKING:
    import torch

_DEAD = 1e-12
"""A float64 gradient times its weight below this share of the largest one is rounding: no output depends on it."""
SMALLEST_CHANGE = 5e-6
"""A smaller difference, relative to the output's scale, may be rounding: the float32 error of recipes is smaller."""
_STEPS = 4


class ModelAnatomy:
    """Facts about a model before it is broken, computed on first use.

    `model` stays unchanged and mustn't be broken yet; `inputs` are example inputs by name; `trains_only` means that
    it has gradients in training mode only.
    """

    def __init__(self, model: torch.nn.Module, inputs: Mapping[str, Any], *, trains_only: bool = False) -> None:
        self.inputs = dict(inputs)
        self.class_name = type(model).__name__
        self._model = model
        self._trains_only = trains_only

    @cached_property
    def attention_layers(self) -> tuple[AttentionLayer, ...]:
        """Attention layers, or their replacements (no single matrix), that the outputs depend on."""
        return tuple(s for s in attention_layers(self._model) if s.kind != "weight" and self.is_used(s.query.weight))

    @cached_property
    def convolutions(self) -> tuple[AttentionLayer, ...]:
        """Convolutions over several places that the outputs depend on."""
        return tuple(layer for layer in convolution_layers(self._model) if self.is_used(layer.query.weight))

    @cached_property
    def matrices(self) -> tuple[AttentionLayer, ...]:
        """All matrices that the outputs depend on: a model that mixes places by matrices has nothing else."""
        return tuple(layer for layer in matrix_layers(self._model) if self.is_used(layer.query.weight))

    @cached_property
    def position_tables(self) -> tuple[str, ...]:
        """Names of the tables of positions that the outputs depend on, or that are frozen and have no gradient."""
        frozen = {name for name, parameter in self._model.named_parameters() if not parameter.requires_grad}
        return tuple(name for name in position_tables(self._model) if name in frozen or self.is_used(name))

    def is_used(self, parameter: str) -> bool:
        """Return whether the outputs depend on a parameter."""
        return parameter in self._used

    @cached_property
    def _used(self) -> frozenset[str]:
        """Names of the parameters that have a gradient in float64.

        A layer may have no effect: the last one of an image encoder of which the one before is used, or the first
        attention among DETR's queries, whose values are all equal.
        """
        from hwcompat.hardware.testing.reference import as_reference, float64_gradients

        model = copy.deepcopy(self._model).requires_grad_(True)
        sizes = {name: float(parameter.detach().abs().mean()) for name, parameter in model.named_parameters()}
        try:
            gradients = float64_gradients(as_reference(model), self.inputs, training=self._trains_only)
        except Exception as error:  # the model's own code may raise anything
            why = f"{type(error).__name__}: {error}"
            raise ValueError(f"it isn't known which weights of {self.class_name} matter: {why}") from error
        if not gradients:
            raise ValueError(f"it isn't known which weights of {self.class_name} matter: none has a gradient")
        moved = {name: sizes[name] * float(np.abs(gradient).mean()) for name, gradient in gradients.items()}
        least = _DEAD * max(moved.values(), default=0.0)
        used = {name for name, size in moved.items() if size > least}
        tied = {id(p): name for name, p in model.named_parameters() if name in used}
        names = model.named_parameters(remove_duplicate=False)
        return frozenset(used | {name for name, parameter in names if id(parameter) in tied})


def change(
    clean: torch.nn.Module,
    mutated: torch.nn.Module,
    inputs: Mapping[str, Any],
    *,
    generates: str = "none",
    masked_by: Mapping[str, str] | None = None,
) -> float:
    """Return the largest unmasked difference relative to the output's scale; infinite for NaN.

    Two passes (the second with the batch rows reversed: the same shapes, other values) and, for a model that decodes,
    the logits of a few steps with the cache. Both models keep their state between calls.
    """
    worst = 0.0
    for arrays in (dict(inputs), {name: np.ascontiguousarray(array[::-1]) for name, array in inputs.items()}):
        masks = masks_of(masked_by or {}, arrays)
        want, got = results_of(clean, arrays), results_of(mutated, arrays)
        worst = max(worst, compare(got, want, masks=masks, required=tuple(want)).max_rel_error)
    if generates != "none":
        want, got = ({"logits": _decode(model, inputs)} for model in (clean, mutated))
        worst = max(worst, compare(got, want).max_rel_error)
    return worst


def _decode(model: torch.nn.Module, arrays: Mapping[str, Any]) -> Any:
    import torch

    return greedy(model, to_tensors(arrays, "cpu", torch.float32), steps=_STEPS, use_cache=True).logits
