"""How modeling code calls operators that have another name in torch's dispatcher.

Some of these names are of one device (`_scaled_dot_product_flash_attention_for_cpu`), while modeling code calls a
function of all devices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

WEIGHTS: Mapping[str, tuple[int, ...]] = {
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

COMPARING = frozenset(f"aten.{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
"""Operators that compare with a number, which torch rounds to the precision of the tensor."""

POSITIONS: Mapping[str, int] = {
    **dict.fromkeys(("aten.argmax", "aten.argmin"), 0),
    **dict.fromkeys(("aten.sort", "aten.topk", "aten.max", "aten.min", "aten.cummax", "aten.cummin"), 1),
}
"""Which result holds positions in the first input. Equal numbers may be in any order, so that the numbers at these
positions are compared."""


def function_of(operator: str, overload: str) -> Callable[..., Any]:
    """Return the function of an operator as modeling code calls it. An in-place operator gets a copy of its first
    argument, because inputs of a graph must not change. Raises `AttributeError` for an unknown overload."""
    import torch

    if operator in _as_models_call():
        return _as_models_call()[operator]
    namespace, _, name = operator.partition(".")
    function: Callable[..., Any] = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    return _on_copy(function) if name.endswith("_") else function


def _on_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda first, *others, **named: function(first.clone(), *others, **named)


def _grouped_product(tensor: Any, weight: Any, ends: Any, *how: Any, **named: Any) -> Any:
    import torch

    if tensor.dtype is not torch.float64:  # in which the kernel doesn't compute: the reference multiplies each group
        if not tensor.numel():
            tensor = tensor.reshape(0).view(
                tensor.shape
            )  # arrays without elements give strides of 0, as no model has
        return torch._grouped_mm(tensor, weight, ends, *how, **named)
    if any(stride % 8 for one in (tensor, weight) for stride in one.stride() if stride != 1):
        raise RuntimeError("strides should be multiple of 16 bytes")  # as the kernel says
    groups = torch.tensor_split(tensor, ends[:-1].cpu().long())
    return torch.cat([group @ one for group, one in zip(groups, weight, strict=True)])


def _attention(query: Any, key: Any, value: Any, *_: Any, attn_mask: Any = None, scale: Any = None, **__: Any) -> Any:
    import torch

    causal = len(_) > 1 and bool(_[1])
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=causal, scale=scale
    )


def _convolution(
    tensor: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, *others: Any
) -> Any:
    import torch

    more, groups = others
    axes = weight.dim() - 2
    stride, padding, dilation, more = (
        list(one) * axes if len(one) == 1 else one for one in (stride, padding, dilation, more)
    )
    name = f"conv_transpose{axes}d" if transposed else f"conv{axes}d"
    rest = (padding, more, groups, dilation) if transposed else (padding, dilation, groups)
    return getattr(torch.nn.functional, name)(tensor, weight, bias, stride, *rest)


def _resized(mode: str, antialias: bool = False) -> Callable[..., Any]:
    def compute(tensor: Any, size: Any, *how: Any, **_: Any) -> Any:
        import torch

        aligned = {} if mode == "nearest" else {"align_corners": bool(how and how[0] is True)}
        return torch.nn.functional.interpolate(tensor, size=tuple(size), mode=mode, antialias=antialias, **aligned)

    return compute


def _padded(mode: str) -> Callable[..., Any]:
    def compute(tensor: Any, padding: Any) -> Any:
        import torch

        return torch.nn.functional.pad(tensor, tuple(padding), mode=mode)

    return compute


def _transformed(tensor: Any, axes: Any, _: int, onesided: bool) -> Any:
    import torch

    return torch.fft.rfftn(tensor, dim=tuple(axes)) if onesided else torch.fft.fftn(tensor, dim=tuple(axes))


def _group_norm(tensor: Any, weight: Any, bias: Any, _: int, __: int, ___: int, groups: int, eps: float) -> Any:
    import torch

    return torch.nn.functional.group_norm(tensor, groups, weight, bias, eps)


def _batch_norm(tensor: Any, weight: Any, bias: Any, mean: Any, variance: Any, *how: Any) -> Any:
    import torch

    return torch.nn.functional.batch_norm(tensor, mean, variance, weight, bias, *how)


@functools.cache
def _as_models_call() -> Mapping[str, Callable[..., Any]]:
    import torch

    functions = torch.nn.functional
    return {
        "aten._scaled_dot_product_flash_attention_for_cpu": _attention,
        "aten._grouped_mm": _grouped_product,
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
