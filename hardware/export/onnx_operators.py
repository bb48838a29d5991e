"""Operators that torch's exporter to ONNX has no rule for, or a wrong one, computed by others while a trace is made.

The numbers are the same; an export is held against torch afterwards in any case.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .openvino_operators import counts_of, difference_of, is_among, set_by_choice, substituted, unfold_from_the_front

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def exportable_operators() -> Iterator[None]:
    """What torch's exporter over TorchScript has no rule for up to opset 17, or a wrong one (torch 2.13).

    Of `repeat_interleave` and `unfold` it gets the shape wrong where the axis is counted from the back. Values that
    are put where a mask is set become a list of places and a scatter, which hardly any device takes: they are chosen
    instead. What Python rounds is a size, and so a number in a trace of one shape.
    """
    import torch

    functional, tensor = torch.nn.functional, torch.Tensor
    with contextlib.ExitStack() as stack:
        for name, substitute, *owners in (
            ("repeat_interleave", _repeating, torch, tensor),
            ("__setitem__", _setting_rows, tensor),
            ("masked_scatter", _scattered, torch, tensor),
            ("cumsum", _running_sum, torch, tensor),
            ("full", _full_of, torch),
            ("max_pool2d", _pooled, functional),
            ("scaled_dot_product_attention", _each_head, functional),
            ("__ior__", lambda _, one, other: one | other, tensor),
            ("__iand__", lambda _, one, other: one & other, tensor),
            ("__round__", lambda _, one, digits=None: round(one.item(), digits), tensor),
            ("diff", difference_of, torch, tensor),
            ("histc", counts_of, torch, tensor),
            ("isin", is_among, torch),
            ("take_along_dim", _taken_along, torch, tensor),
            ("rms_norm", _root_mean_square, torch, functional),
            ("asinh", _area_sine, torch, tensor),
            ("expm1", _exp_less_one, torch, tensor),
            ("unfold", unfold_from_the_front, tensor),
        ):
            for owner in owners:
                stack.enter_context(substituted(owner, name, substitute))
        yield


def _each_head(
    attend: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *rest: Any,
    enable_gqa: bool = False,
    **how: Any,
) -> Any:
    """Attention whose keys and values are of groups of heads, with one for each head."""
    if enable_gqa:
        batch, groups, length, _ = key.shape
        heads = query.shape[1] // groups
        key, value = (
            one[:, :, None]
            .expand(batch, groups, heads, length, one.shape[-1])
            .reshape(batch, groups * heads, length, one.shape[-1])
            for one in (key, value)
        )
    return attend(query, key, value, *rest, **how)


def _repeating(repeat: Any, tensor: torch.Tensor, repeats: Any, dim: int | None = None, **how: Any) -> torch.Tensor:
    import torch

    found: torch.Tensor
    if dim is None or not isinstance(repeats, int):
        found = repeat(tensor, repeats, dim, **how)
        return found
    axis = dim % tensor.dim()
    return torch.stack([tensor] * repeats, dim=axis + 1).flatten(axis, axis + 1)


def _taken_along(take: Any, tensor: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    if dim is None:
        found: torch.Tensor = take(tensor, indices)
        return found
    axis = dim % tensor.dim()
    shape = [max(one, other) for one, other in zip(tensor.shape, indices.shape, strict=True)]
    of = [tensor.shape[axis] if place == axis else size for place, size in enumerate(shape)]
    shape[axis] = indices.shape[axis]
    return tensor.expand(of).gather(axis, indices.expand(shape))


def _root_mean_square(
    _: Any, tensor: torch.Tensor, normalized_shape: Any, weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    import torch

    axes = tuple(range(-len(tuple(normalized_shape)), 0))
    smallest = torch.finfo(tensor.dtype).eps if eps is None else eps
    found = tensor * torch.rsqrt(tensor.square().mean(axes, keepdim=True) + smallest)
    return found if weight is None else found * weight


def _area_sine(_: Any, tensor: torch.Tensor) -> torch.Tensor:
    size = tensor.abs()
    return tensor.sign() * (size + (size.square() + 1).sqrt()).log()


def _exp_less_one(_: Any, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.exp() - 1


def _setting_rows(setitem: Any, tensor: torch.Tensor, key: Any, value: Any) -> None:
    """Rows that are put one after another where a mask is set: each place takes the row that its turn is."""
    import torch

    if isinstance(value, torch.Tensor) and value.numel() == 0:
        return
    masked = isinstance(key, torch.Tensor) and key.dtype is torch.bool and isinstance(value, torch.Tensor)
    if not masked or value.shape[1:] != tensor.shape[key.dim() :] or value.dim() != 1 + tensor.dim() - key.dim():
        set_by_choice(setitem, tensor, key, value)
        return
    rows = value.to(tensor.dtype)[_turns(key)]
    tensor.copy_(torch.where(key[(...,) + (None,) * (tensor.dim() - key.dim())], rows, tensor))


def _scattered(_: Any, tensor: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Whole rows where the mask is one of rows, spread over the last axis: places counted by row stay small numbers,
    which a device that counts in float16 knows exactly."""
    import torch

    if source.numel() == 0:
        return tensor
    chosen = mask.expand_as(tensor)
    if tensor.dim() > 1 and chosen.stride(-1) == 0:
        rows = source.reshape(-1, tensor.shape[-1])[_turns(chosen[..., 0])]
        return torch.where(chosen, rows.to(tensor.dtype), tensor)
    return torch.where(chosen, source.flatten()[_turns(chosen)].to(tensor.dtype), tensor)


def _turns(mask: torch.Tensor) -> torch.Tensor:
    """At each place of a mask, how many were set before it."""
    import torch

    found: torch.Tensor = (mask.flatten().to(torch.int64).cumsum(0) - 1).clamp(min=0).view(mask.shape)
    return found


def _running_sum(add: Any, tensor: torch.Tensor, *axis: Any, **how: Any) -> torch.Tensor:
    """Of a mask, what it counts: no runtime adds truth values."""
    import torch

    found: torch.Tensor = add(tensor.to(torch.int64) if tensor.dtype is torch.bool else tensor, *axis, **how)
    return found


def _full_of(fill: Any, size: Any, fill_value: Any, **how: Any) -> torch.Tensor:
    """Whole numbers stay such: the exporter makes them floating-point where no dtype is asked for."""
    import torch

    if type(fill_value) is int and how.get("dtype") is None:
        how = {**how, "dtype": torch.int64}
    found: torch.Tensor = fill(size, fill_value, **how)
    return found


def _pooled(pool: Any, tensor: torch.Tensor, *rest: Any, **how: Any) -> Any:
    """A picture without a batch gets one."""
    if tensor.dim() != 3 or how.get("return_indices"):
        return pool(tensor, *rest, **how)
    return pool(tensor[None], *rest, **how)[0]
