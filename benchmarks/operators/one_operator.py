"""Modules of one operator, called as in a model, to try converters and runtimes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from generators.operators.operator_variants import plain_call
from generators.recipes.operator_calls import OperatorCall
from hardware.export.traceable import RULED_OUT
from hardware.operators.call import made

_FLOAT16_LARGEST = 65504.0
_OF_A_PLACE = ("device", "layout", "pin_memory")

_COMPARABLE: Mapping[str, int] = {
    **dict.fromkeys(("aten.rand", "aten.randn", "aten.randint", "aten.randn_like", "aten.multinomial"), 0),
    **dict.fromkeys(("aten.empty", "aten.empty_like", "aten.new_empty"), 0),
    **dict.fromkeys(("aten.sort", "aten.topk", "aten.max", "aten.min"), 1),
    **dict.fromkeys(("aten.argmax", "aten.argmin"), 0),
}


@dataclass(frozen=True, kw_only=True)
class OneOperator:
    """A module, its inputs, and the number of comparable results: none of `rand`, and only the first of `sort`,
    because the order of equal numbers is undefined."""

    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    comparable: int


class _ByPosition(torch.nn.Module):
    """A module of one call that takes its tensors by position, as exporters pass them."""

    def __init__(self, called: torch.nn.Module) -> None:
        super().__init__()
        self.called = called

    def forward(self, *tensors: torch.Tensor) -> Any:
        found = self.called(**{f"input{number}": tensor for number, tensor in enumerate(tensors)})
        return found[0] if len(found) == 1 else found


def one_operator(call: OperatorCall) -> OneOperator:
    """Return the module of a call with seeded numbers. Raises torch's error if it can't be called.

    Numbers are between 0 and 1, both excluded: in the domain of logarithms, roots and the arc cosine.
    """
    named = [[name, value] for name, value in call.named if name not in _OF_A_PLACE]
    plain = {"overload": call.overload, "arguments": call.arguments, "named": named, "draws": "unit"}
    one = made(call.operator, plain_call(plain), "float32")
    return OneOperator(
        module=_ByPosition(one.build()),
        inputs=tuple(torch.as_tensor(array) for array in one.inputs.values()),
        comparable=_COMPARABLE.get(call.operator, 99),
    )


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference relative to the largest expected number; infinity for another shape or NaN.

    Masked values (minus infinity, or beyond float16) match any masking value.
    """
    if tuple(found.shape) != tuple(expected.shape):
        return math.inf
    if expected.numel() == 0:
        return 0.0
    difference = (found.double() - expected.double()).abs()
    same = (
        ((found.double() <= RULED_OUT) & (expected.double() < -_FLOAT16_LARGEST))
        | (found.double() == expected.double())
        | (torch.isnan(found.double()) & torch.isnan(expected.double()))
    )
    difference = torch.where(same, 0.0, difference).max().item()
    if not math.isfinite(difference):
        return math.inf
    finite = expected.double()[expected.double().abs() <= _FLOAT16_LARGEST]
    return difference / max(finite.abs().max().item() if finite.numel() else 1.0, 1e-6)
