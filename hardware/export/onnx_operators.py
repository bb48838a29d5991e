"""Replacements, during a trace, for operators that torch's ONNX exporter has no rule for, or a wrong one.

The numbers are the same; every export is compared with torch afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .openvino_operators import (
    average_within,
    counts_of,
    difference_of,
    is_among,
    set_by_choice,
    substituted,
    unfold_from_the_front,
)

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def exportable_operators() -> Iterator[None]:
    """Replace operators that torch's TorchScript exporter lacks or converts wrongly up to opset 17 (torch 2.13).

    It gets the shape of `repeat_interleave` and `unfold` wrong for a negative axis. Assignment by a mask becomes a
    list of places and a scatter, which hardly any device supports: the values are selected instead. A number that
    Python rounds is a size, and so a constant in a trace of one shape.
    """
    import torch

    functional, tensor = torch.nn.functional, torch.Tensor
    with contextlib.ExitStack() as stack:
        for name, substitute, *owners in (
            ("repeat_interleave", _repeat, torch, tensor),
            ("__setitem__", _set_rows, tensor),
            ("masked_scatter", _masked_scatter, torch, tensor),
            ("cumsum", _cumsum, torch, tensor),
            ("full", _full, torch),
            ("max_pool2d", _max_pool2d, functional),
            ("avg_pool2d", average_within, functional),
            ("interpolate", _resized_by_products, functional),
            ("fold", _joined_patches, functional),
            ("unfold", _cut_patches, functional),
            ("scaled_dot_product_attention", _attention, functional),
            ("__ior__", lambda _, one, other: one | other, tensor),
            ("__iand__", lambda _, one, other: one & other, tensor),
            ("__round__", lambda _, one, digits=None: round(one.item(), digits), tensor),
            ("diff", difference_of, torch, tensor),
            ("histc", counts_of, torch, tensor),
            ("isin", is_among, torch),
            ("take_along_dim", _take_along_dim, torch, tensor),
            ("rms_norm", _rms_norm, torch, functional),
            ("asinh", _asinh, torch, tensor),
            ("expm1", _expm1, torch, tensor),
            ("unfold", unfold_from_the_front, tensor),
        ):
            for owner in owners:
                stack.enter_context(substituted(owner, name, substitute))
        yield


def _attention(
    attend: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *rest: Any,
    enable_gqa: bool = False,
    **how: Any,
) -> Any:
    """Compute attention with keys and values of groups of heads repeated for each head."""
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


def _repeat(repeat: Any, tensor: torch.Tensor, repeats: Any, dim: int | None = None, **how: Any) -> torch.Tensor:
    import torch

    found: torch.Tensor
    if dim is None or not isinstance(repeats, int):
        found = repeat(tensor, repeats, dim, **how)
        return found
    axis = dim % tensor.dim()
    return torch.stack([tensor] * repeats, dim=axis + 1).flatten(axis, axis + 1)


def _take_along_dim(take: Any, tensor: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    if dim is None:
        found: torch.Tensor = take(tensor, indices)
        return found
    axis = dim % tensor.dim()
    shape = [max(one, other) for one, other in zip(tensor.shape, indices.shape, strict=True)]
    of = [tensor.shape[axis] if place == axis else size for place, size in enumerate(shape)]
    shape[axis] = indices.shape[axis]
    return tensor.expand(of).gather(axis, indices.expand(shape))


def _rms_norm(
    _: Any, tensor: torch.Tensor, normalized_shape: Any, weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    import torch

    axes = tuple(range(-len(tuple(normalized_shape)), 0))
    smallest = torch.finfo(tensor.dtype).eps if eps is None else eps
    found = tensor * torch.rsqrt(tensor.square().mean(axes, keepdim=True) + smallest)
    return found if weight is None else found * weight


def _asinh(_: Any, tensor: torch.Tensor) -> torch.Tensor:
    size = tensor.abs()
    return tensor.sign() * (size + (size.square() + 1).sqrt()).log()


def _expm1(_: Any, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.exp() - 1


def _set_rows(setitem: Any, tensor: torch.Tensor, key: Any, value: Any) -> None:
    """Assign rows by a mask: each selected place takes the next row."""
    import torch

    parts = key if isinstance(key, tuple) else (key,)
    if isinstance(value, torch.Tensor) and value.numel() == 0:
        return
    if all(isinstance(part, int | slice) for part in parts) and tensor[key].numel() == 0:
        return  # a slice beyond the end
    masked = isinstance(key, torch.Tensor) and key.dtype is torch.bool and isinstance(value, torch.Tensor)
    if not masked or value.shape[1:] != tensor.shape[key.dim() :] or value.dim() != 1 + tensor.dim() - key.dim():
        set_by_choice(setitem, tensor, key, value)
        return
    rows = value.to(tensor.dtype)[_counts_before(key)]
    tensor.copy_(torch.where(key[(...,) + (None,) * (tensor.dim() - key.dim())], rows, tensor))


def _masked_scatter(_: Any, tensor: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Select whole rows for a mask of rows expanded over the last axis: indices by row stay small, so that a device
    that counts in float16 represents them exactly."""
    import torch

    if source.numel() == 0:
        return tensor
    chosen = mask.expand_as(tensor)
    if tensor.dim() > 1 and chosen.stride(-1) == 0:
        rows = source.reshape(-1, tensor.shape[-1])[_counts_before(chosen[..., 0])]
        return torch.where(chosen, rows.to(tensor.dtype), tensor)
    return torch.where(chosen, source.flatten()[_counts_before(chosen)].to(tensor.dtype), tensor)


def _counts_before(mask: torch.Tensor) -> torch.Tensor:
    """Return, for each place of a mask, how many were set before it."""
    import torch

    found: torch.Tensor = (mask.flatten().to(torch.int64).cumsum(0) - 1).clamp(min=0).view(mask.shape)
    return found


def _cumsum(add: Any, tensor: torch.Tensor, *axis: Any, **how: Any) -> torch.Tensor:
    """Add up a mask as integers: no runtime adds booleans."""
    import torch

    found: torch.Tensor = add(tensor.to(torch.int64) if tensor.dtype is torch.bool else tensor, *axis, **how)
    return found


def _full(fill: Any, size: Any, fill_value: Any, **how: Any) -> torch.Tensor:
    """Keep integers: without a dtype, the exporter converts them to floating point."""
    import torch

    if type(fill_value) is int and how.get("dtype") is None:
        how = {**how, "dtype": torch.int64}
    found: torch.Tensor = fill(size, fill_value, **how)
    return found


def _max_pool2d(pool: Any, tensor: torch.Tensor, *rest: Any, **how: Any) -> Any:
    """Pool an image without a batch by adding one."""
    if tensor.dim() != 3 or how.get("return_indices"):
        return pool(tensor, *rest, **how)
    return pool(tensor[None], *rest, **how)[0]


def _resized_by_products(
    resize: Any, tensor: torch.Tensor, size: Any = None, *rest: Any, antialias: bool = False, **how: Any
) -> torch.Tensor:
    """Resize an image with antialiasing by two products, with the weights of its rows and of its columns."""
    import torch

    if not antialias or not isinstance(size, tuple | list) or tensor.dim() != 4:
        found: torch.Tensor = resize(tensor, size, *rest, antialias=antialias, **how)
        return found

    def weights(count: int, wanted: int) -> torch.Tensor:
        numbers = resize(torch.eye(count)[None, None], (wanted, count), *rest, antialias=True, **how)[0, 0]
        return torch.as_tensor(numbers.numpy(), dtype=tensor.dtype)  # a constant of the trace

    rows, columns = (weights(int(count), int(new)) for count, new in zip(tensor.shape[-2:], size, strict=True))
    return rows @ (tensor @ columns.T)


def _joined_patches(
    fold: Any, tensor: torch.Tensor, output_size: Any, kernel_size: Any, *rest: Any, **how: Any
) -> torch.Tensor:
    """Put patches that don't overlap side by side."""
    if not _are_patches(kernel_size, *rest, **how):
        found: torch.Tensor = fold(tensor, output_size, kernel_size, *rest, **how)
        return found
    (height, width), (rows, columns) = _pair(output_size), _pair(kernel_size)
    batch, count = tensor.shape[0], tensor.shape[1] // (rows * columns)
    patches = tensor.view(batch, count, rows, columns, height // rows, width // columns)
    return patches.permute(0, 1, 4, 2, 5, 3).reshape(batch, count, height, width)


def _cut_patches(unfold: Any, tensor: torch.Tensor, kernel_size: Any, *rest: Any, **how: Any) -> torch.Tensor:
    """Cut an image into patches that don't overlap and leave nothing over."""
    (rows, columns), (height, width) = _pair(kernel_size), tensor.shape[-2:]
    if not _are_patches(kernel_size, *rest, **how) or tensor.dim() != 4 or height % rows or width % columns:
        found: torch.Tensor = unfold(tensor, kernel_size, *rest, **how)
        return found
    batch, count = tensor.shape[:2]
    patches = tensor.view(batch, count, height // rows, rows, width // columns, columns)
    return patches.permute(0, 1, 3, 5, 2, 4).reshape(batch, count * rows * columns, -1)


def _pair(size: Any) -> tuple[int, int]:
    return tuple(size) if isinstance(size, tuple | list) else (size, size)


def _are_patches(kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> bool:
    """Return whether windows lie side by side."""
    return (_pair(dilation), _pair(padding), _pair(stride)) == ((1, 1), (0, 0), _pair(kernel_size))
