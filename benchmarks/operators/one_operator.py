"""Modules of one operator, called as in a model, to try converters and runtimes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from generators.recipes.operator_calls import TENSOR, OperatorCall
from hardware.export.traceable import RULED_OUT

_WEIGHTS: Mapping[str, tuple[int, ...]] = {
    "aten.addmm": (0, 2),
    "aten.mm": (1,),
    "aten.embedding": (0,),
    "aten.convolution": (1, 2),
    "aten.native_layer_norm": (2, 3),
    "aten.native_batch_norm": (1, 2, 3, 4),
    "aten.native_group_norm": (1, 2),
    "aten._grouped_mm": (1,),
    "aten._prelu_kernel": (1,),
}
"""Arguments that are parameters in a model, so constants of its graph instead of inputs."""

_WHOLE_LARGEST = 2**31 - 1
_FLOAT16_LARGEST = 65504.0


@dataclass(frozen=True, kw_only=True)
class OneOperator:
    """A module, its inputs, and the number of comparable results: none of `rand`, and only the first of `sort`,
    because the order of equal numbers is undefined."""

    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    comparable: int


def one_operator(call: OperatorCall) -> OneOperator:
    """Return the module of a call with seeded numbers. Raises torch's error if it can't be called."""
    random = torch.Generator().manual_seed(0)
    weights = _WEIGHTS.get(call.operator, ())
    drawn: list[torch.Tensor] = []
    fixed: list[torch.Tensor] = []

    def place(value: Any, is_weight: bool) -> Any:
        if isinstance(value, dict):
            tensor = _drawn(value, random)
            (fixed if is_weight else drawn).append(tensor)
            is_complex = value[TENSOR].startswith("complex")
            return _Place(number=len(fixed if is_weight else drawn) - 1, is_weight=is_weight, is_complex=is_complex)
        if isinstance(value, list | tuple):
            return [place(one, is_weight) for one in value]
        return _parsed(value)

    arguments = [place(value, number in weights) for number, value in enumerate(call.arguments)]
    named = {
        name: place(value, False) for name, value in call.named if name not in ("device", "layout", "pin_memory")
    }
    module = _Calling(_function(call), arguments, named, fixed)
    return OneOperator(module=module, inputs=tuple(drawn), comparable=_COMPARABLE.get(call.operator, 99))


_COMPARABLE: Mapping[str, int] = {
    **dict.fromkeys(("aten.rand", "aten.randn", "aten.randint", "aten.randn_like", "aten.multinomial"), 0),
    **dict.fromkeys(("aten.empty", "aten.empty_like", "aten.new_empty"), 0),
    **dict.fromkeys(("aten.sort", "aten.topk", "aten.max", "aten.min"), 1),
    **dict.fromkeys(("aten.argmax", "aten.argmin"), 0),
}


@dataclass(frozen=True, kw_only=True)
class _Place:
    number: int
    is_weight: bool
    is_complex: bool


class _Calling(torch.nn.Module):
    """Calls a function with constants and inputs."""

    def __init__(
        self, function: Callable[..., Any], arguments: list[Any], named: dict[str, Any], fixed: list[torch.Tensor]
    ) -> None:
        super().__init__()
        self.function, self.arguments, self.named = function, arguments, named
        for number, tensor in enumerate(fixed):
            self.register_buffer(f"weight{number}", tensor)

    def forward(self, *tensors: torch.Tensor) -> Any:
        def filled(value: Any) -> Any:
            if isinstance(value, _Place):
                tensor = getattr(self, f"weight{value.number}") if value.is_weight else tensors[value.number]
                return torch.view_as_complex(tensor) if value.is_complex else tensor
            return [filled(one) for one in value] if isinstance(value, list) else value

        made = self.function(*map(filled, self.arguments), **{name: filled(v) for name, v in self.named.items()})
        found = made if isinstance(made, tuple | list) else [made]
        kept = [
            torch.view_as_real(one) if one.is_complex() else one for one in found if isinstance(one, torch.Tensor)
        ]
        # Booleans are returned as numbers, because some runtimes have no boolean outputs.
        kept = [one.to(torch.float32) if one.dtype == torch.bool else one for one in kept]
        return kept[0] if len(kept) == 1 else tuple(kept)


def _drawn(described: Mapping[str, Any], random: torch.Generator) -> torch.Tensor:
    dtype = getattr(torch, described[TENSOR])
    shape = described["shape"]
    if dtype == torch.bool:
        return torch.rand(shape, generator=random) > 0.5
    if dtype.is_complex:  # as pairs of numbers: runtimes take no complex inputs
        return torch.rand([*shape, 2], generator=random) * 0.9 + 0.05
    if dtype.is_floating_point:
        # Between 0 and 1, both excluded: in the domain of logarithms, roots and the arc cosine.
        return (torch.rand(shape, generator=random) * 0.9 + 0.05).to(dtype)
    low, high = described.get("low", 0), described.get("high", 1)
    low, high = max(low, -_WHOLE_LARGEST), min(high, _WHOLE_LARGEST)
    low = min(low, high)  # uninitialized in the model
    return torch.randint(low, high + 1, shape, generator=random).to(dtype)


def _parsed(value: Any) -> Any:
    """Return a JSON value as an argument of torch; dtypes and layouts are stored by name."""
    if isinstance(value, str):
        if value in ("inf", "-inf"):
            return float(value)
        if value.startswith("torch."):
            return getattr(torch, value.removeprefix("torch."))
    return value


def _function(call: OperatorCall) -> Callable[..., Any]:
    if call.operator in _AS_MODELS_CALL:
        return _AS_MODELS_CALL[call.operator]
    namespace, _, name = call.operator.partition(".")
    overload: Callable[..., Any] = getattr(getattr(getattr(torch.ops, namespace), name), call.overload)
    return _on_copy(overload) if name.endswith("_") else overload


def _on_copy(overload: Callable[..., Any]) -> Callable[..., Any]:
    """Give an in-place operator a copy of its first argument, because inputs of a graph must not change."""

    def compute(first: torch.Tensor, *others: Any, **named: Any) -> Any:
        return overload(first.clone(), *others, **named)

    return compute


functions = torch.nn.functional


def _attention(query: Any, key: Any, value: Any, *_: Any, attn_mask: Any = None, scale: Any = None, **__: Any) -> Any:
    causal = len(_) > 1 and bool(_[1])
    return functions.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=causal, scale=scale
    )


def _convolution(
    tensor: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    more: Any,
    groups: int,
) -> Any:
    axes = weight.dim() - 2
    stride, padding, dilation, more = (
        list(one) * axes if len(one) == 1 else one for one in (stride, padding, dilation, more)
    )
    if transposed:
        transposing = (functions.conv_transpose1d, functions.conv_transpose2d, functions.conv_transpose3d)[axes - 1]
        return transposing(tensor, weight, bias, stride, padding, more, groups, dilation)
    convolving = (functions.conv1d, functions.conv2d, functions.conv3d)[axes - 1]
    return convolving(tensor, weight, bias, stride, padding, dilation, groups)


def _group_norm(tensor: Any, weight: Any, bias: Any, _: int, __: int, ___: int, groups: int, eps: float) -> Any:
    return functions.group_norm(tensor, groups, weight, bias, eps)


def _batch_norm(
    tensor: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
) -> Any:
    return functions.batch_norm(tensor, mean, variance, weight, bias, training, momentum, eps)


def _resized(mode: str, antialias: bool = False) -> Callable[..., Any]:
    def compute(tensor: Any, size: Any, *how: Any, **_: Any) -> Any:
        aligned = {} if mode == "nearest" else {"align_corners": bool(how and how[0] is True)}
        return functions.interpolate(tensor, size=tuple(size), mode=mode, antialias=antialias, **aligned)

    return compute


def _padded(mode: str) -> Callable[..., Any]:
    return lambda tensor, padding: functions.pad(tensor, tuple(padding), mode=mode)


def _transformed(tensor: Any, axes: Any, _: int, onesided: bool) -> Any:
    return torch.fft.rfftn(tensor, dim=tuple(axes)) if onesided else torch.fft.fftn(tensor, dim=tuple(axes))


_AS_MODELS_CALL: Mapping[str, Callable[..., Any]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten.native_layer_norm": functions.layer_norm,
    "aten.native_group_norm": _group_norm,
    "aten.native_batch_norm": _batch_norm,
    "aten.convolution": _convolution,
    "aten._softmax": lambda scores, axis, _: torch.softmax(scores, axis),
    "aten._safe_softmax": lambda scores, axis: torch.softmax(scores, axis),
    "aten._log_softmax": lambda scores, axis, _: torch.log_softmax(scores, axis),
    "aten._to_copy": lambda tensor, dtype=None, **_: tensor.to(dtype) if dtype else tensor.clone(),
    "aten._unsafe_view": lambda tensor, shape: tensor.reshape(shape),
    "aten.lift_fresh": lambda tensor: tensor.clone(),
    "aten.detach": lambda tensor: tensor.detach(),
    "aten.alias": lambda tensor: tensor.view_as(tensor),
    "aten.t": lambda tensor: tensor.t(),
    "aten.max_pool2d_with_indices": lambda *how: functions.max_pool2d(*how),
    "aten.upsample_nearest2d": _resized("nearest"),
    "aten.upsample_linear1d": _resized("linear"),
    "aten.upsample_bilinear2d": _resized("bilinear"),
    "aten._upsample_bilinear2d_aa": _resized("bilinear", antialias=True),
    "aten.upsample_bicubic2d": _resized("bicubic"),
    "aten._adaptive_avg_pool2d": functions.adaptive_avg_pool2d,
    "aten.constant_pad_nd": lambda tensor, padding, value=0: functions.pad(tensor, tuple(padding), value=value),
    "aten.reflection_pad1d": _padded("reflect"),
    "aten.reflection_pad2d": _padded("reflect"),
    "aten.replication_pad1d": _padded("replicate"),
    "aten._weight_norm_interface": lambda direction, length, axis=0: torch._weight_norm(direction, length, axis),
    "aten._prelu_kernel": lambda tensor, slope: functions.prelu(tensor, slope.flatten()),
    "aten._euclidean_dist": lambda left, right: torch.cdist(left, right),
    "aten.log_sigmoid_forward": functions.logsigmoid,
    "aten.bitwise_and": lambda left, right: left & right,
    "aten.bitwise_or": lambda left, right: left | right,
    "aten.copy_": lambda place, values: values.expand_as(place).clone(),
    "aten._is_all_true": lambda tensor: tensor.all(),
    "aten.grid_sampler_2d": lambda *how: torch.grid_sampler(*how),
    "aten._fft_r2c": _transformed,
    "aten._fft_c2c": lambda tensor, axes, *_: torch.fft.fftn(tensor, dim=tuple(axes)),
    "aten._fft_c2r": lambda tensor, axes, _, last: torch.fft.irfftn(tensor, s=(last,), dim=tuple(axes)),
    "aten.hardtanh": functions.hardtanh,
    "aten.glu": functions.glu,
    "aten.im2col": lambda tensor, *how: functions.unfold(tensor, how[0], how[1], how[2], how[3]),
    "aten.col2im": lambda tensor, *how: functions.fold(tensor, how[0], how[1], how[2], how[3], how[4]),
}
"""Operators with another name in torch's dispatcher than in modeling code."""


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
