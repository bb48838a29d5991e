"""Breaks of what the whole model returns, as forward hooks on its top module."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hardware.model.outputs import floating_outputs, replaced_outputs

if TYPE_CHECKING:
    import random

    import torch

    from .anatomy import Anatomy

    Tensors = dict[str, torch.Tensor]


def _on_outputs(model: torch.nn.Module, change: Callable[[Tensors], Tensors]) -> None:
    """Let `change` replace the floating-point outputs of every call; caches and the like stay as they are."""

    def hook(_module: Any, _args: Any, output: Any) -> Any:
        return replaced_outputs(output, change(floating_outputs(output)))

    model.register_forward_hook(hook)


def put_nan(model: torch.nn.Module, _random: random.Random, _anatomy: Anatomy) -> str:
    """The last row of the main output, the first that the model names, becomes NaN."""
    import torch

    def change(outputs: Tensors) -> Tensors:
        name, value = next(iter(outputs.items()))
        row = torch.arange(value.shape[0], device=value.device) == value.shape[0] - 1
        return {name: value.masked_fill(row.reshape(-1, *[1] * (value.ndim - 1)), float("nan"))}

    _on_outputs(model, change)
    return "main output, last row"


def repeat_half(model: torch.nn.Module, _random: random.Random, _anatomy: Anatomy) -> str:
    """The last half of the rows, rounded down, repeats the first rows: only half of the batch was computed."""
    import torch

    def change(outputs: Tensors) -> Tensors:
        return {name: _repeat(value) for name, value in outputs.items()}

    def _repeat(value: torch.Tensor) -> torch.Tensor:
        if value.ndim == 0:
            return value
        half = value.shape[0] // 2
        return torch.cat([value[: value.shape[0] - half], value[:half]])

    _on_outputs(model, change)
    return "all outputs, last half of the rows"


def round_to_bfloat16(model: torch.nn.Module, _random: random.Random, _anatomy: Anatomy) -> str:
    """Outputs go through bfloat16 and back to their dtype."""
    import torch

    _on_outputs(model, lambda outputs: {n: v.to(torch.bfloat16).to(v.dtype) for n, v in outputs.items()})
    return "all outputs"


def freeze(model: torch.nn.Module, _random: random.Random, _anatomy: Anatomy) -> str:
    """The outputs of the first call are given back whenever all shapes are the same again."""
    kept: dict[tuple[Any, ...], Tensors] = {}

    def change(outputs: Tensors) -> Tensors:
        key = tuple((name, tuple(value.shape)) for name, value in outputs.items())
        return kept.setdefault(key, {name: value.detach().clone() for name, value in outputs.items()})

    _on_outputs(model, change)
    return "all outputs"
