"""Replacements, during a trace, for operators that OpenVINO's converter has no rule for, or a wrong one.

The numbers are the same; every export is compared with torch afterwards.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    import torch


def substituted(owner: Any, name: str, substitute: Callable[..., Any]) -> AbstractContextManager[Any]:
    """Temporarily replace `owner.name` by `substitute`, whose first argument is the original."""
    original = getattr(owner, name, None)  # torch has no __round__

    def instead(*args: Any, **how: Any) -> Any:
        return substitute(original, *args, **how)

    return mock.patch.object(owner, name, instead, create=True)


@contextlib.contextmanager
def convertible_operators() -> Iterator[None]:
    """Replace operators that OpenVINO's converter can't read (2026.4.1).

    It supports `unfold` with a positive axis only, assignment in place only, and refuses an average over more than
    there is. It lacks the other operators below. The CPU plugin adds a constant to a sum over the last axis wrongly
    (https://github.com/openvinotoolkit/openvino/issues/23616, also in 2026.4.1), not to a product; and where it fuses
    an integer division with a following comparison, 3 is less than 7 // 2: the remainder is subtracted first. Of
    several largest integers it finds any. Attention with a single head reads queries, keys and values that were cut
    from one product at wrong offsets.
    """
    import torch

    functional, tensor = torch.nn.functional, torch.Tensor
    with contextlib.ExitStack() as stack:
        for name, substitute, *owners in (
            ("sum", _sum_as_product, torch),
            ("__floordiv__", _floor_divide, tensor),
            ("div", _div, torch),
            ("divide", functools.partial(_call, torch.div), torch),
            ("subtract", functools.partial(_call, torch.sub), torch),
            ("argmax", _first_largest, torch, tensor),
            ("index_put", _put_into_copy, tensor),
            ("__setitem__", set_by_choice, tensor),
            ("avg_pool2d", average_within, functional),
            ("diff", difference_of, torch, tensor),
            ("histc", counts_of, torch, tensor),
            ("scaled_dot_product_attention", _attention, functional),
            ("isin", is_among, torch),
            ("logit", _logit, torch, torch.special),
            ("cummax", functools.partial(_running_extreme, True), torch),
            ("cummin", functools.partial(_running_extreme, False), torch),
            ("mse_loss", _squared_error, functional),
            ("nan_to_num", _nan_to_num, torch, tensor),
            ("unfold", unfold_from_the_front, tensor),
        ):
            for owner in owners:
                stack.enter_context(substituted(owner, name, substitute))
        yield


def _call(other: Any, _: Any, *given: Any, **how: Any) -> Any:
    return other(*given, **how)


def _sum_as_product(summed: Any, tensor: torch.Tensor, *axes: Any, **how: Any) -> torch.Tensor:
    if not axes and how == {"dim": -1} and tensor.is_floating_point():
        return tensor @ tensor.new_ones(tensor.shape[-1])
    found: torch.Tensor = summed(tensor, *axes, **how)
    return found


def _whole(tensor: Any, divisor: Any) -> bool:
    """Return whether this divides a tensor of integers that isn't a size by integers."""
    import torch

    if not isinstance(tensor, torch.Tensor) or tensor.dim() == 0 or tensor.is_floating_point():
        return False
    return isinstance(divisor, int) or (isinstance(divisor, torch.Tensor) and not divisor.is_floating_point())


def _floor_divide(divide: Any, tensor: torch.Tensor, divisor: Any) -> Any:
    return divide(tensor - tensor % divisor if _whole(tensor, divisor) else tensor, divisor)


def _div(divide: Any, tensor: Any, divisor: Any, *, rounding_mode: str | None = None, **how: Any) -> Any:
    if rounding_mode == "floor" and _whole(tensor, divisor):
        tensor = tensor - tensor % divisor
    return divide(tensor, divisor, rounding_mode=rounding_mode, **how)


def _first_largest(argmax: Any, tensor: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """Return the first of several largest integers, as torch does; models find the end of a text that way."""
    import torch

    found: torch.Tensor
    if dim is None or tensor.is_floating_point():
        found = argmax(tensor, dim, keepdim)
        return found
    last = tensor.to(torch.int64).transpose(dim, -1)
    places = torch.arange(last.shape[-1], device=tensor.device)
    found = torch.where(last == last.amax(-1, keepdim=True), places, last.shape[-1]).amin(-1, keepdim=True)
    return found.transpose(dim, -1) if keepdim else found.transpose(dim, -1).squeeze(dim)


def set_by_choice(setitem: Any, tensor: torch.Tensor, key: Any, value: Any) -> None:
    """Select values instead of assigning them by a mask, or at some places of one axis."""
    if (chosen := _chosen(tensor, key)) is None or not _is_uniform(value, tensor, key):
        setitem(tensor, key, value)
        return
    import torch

    fitting = torch.as_tensor(value, dtype=tensor.dtype, device=tensor.device)
    tensor.copy_(torch.where(chosen, fitting, tensor))


def _chosen(tensor: torch.Tensor, key: Any) -> torch.Tensor | None:
    """Return which elements a key selects, broadcastable to the tensor; None for other kinds of keys."""
    import torch

    if isinstance(key, torch.Tensor) and key.dtype is torch.bool:
        return key[(...,) + (None,) * (tensor.dim() - key.dim())]
    if not isinstance(key, tuple) or len(key) != tensor.dim() or not all(one == slice(None) for one in key[:-1]):
        return None
    if not isinstance(key[-1], list | torch.Tensor):
        return None
    places = torch.as_tensor(key[-1], device=tensor.device)
    if places.dtype is torch.bool or places.dim() != 1:
        return None
    return (torch.arange(tensor.shape[-1], device=tensor.device)[:, None] == places % tensor.shape[-1]).any(-1)


def _is_uniform(value: Any, tensor: torch.Tensor, key: Any) -> bool:
    """Return whether a value is the same for all selected elements, so that their number doesn't matter."""
    import torch

    if not isinstance(value, torch.Tensor):
        return True
    free: int = tensor.dim() - key.dim() if isinstance(key, torch.Tensor) else 0
    return bool(value.dim() <= free)


def _put_into_copy(
    _: Any, tensor: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    return tensor.clone().index_put_(indices, values, accumulate)


def average_within(
    average: Any, tensor: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, *rest: Any, **how: Any
) -> torch.Tensor:
    """Clip a window that starts inside an image to the image."""
    if padding in (0, (0, 0)):
        sizes = kernel_size if isinstance(kernel_size, tuple | list) else (kernel_size, kernel_size)
        stride = stride or sizes
        kernel_size = tuple(min(one, int(size)) for one, size in zip(sizes, tensor.shape[-2:], strict=True))
    found: torch.Tensor = average(tensor, kernel_size, stride, padding, *rest, **how)
    return found


def difference_of(
    differ: Any, tensor: torch.Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None
) -> Any:
    """Compute differences of neighbors by slicing and subtracting."""
    import torch

    if n != 1:
        return differ(tensor, n, dim, prepend, append)
    parts = [part for part in (prepend, tensor, append) if part is not None]
    whole = torch.cat(parts, dim=dim) if len(parts) > 1 else tensor
    length = whole.shape[dim]
    later, earlier = whole.narrow(dim, 1, length - 1), whole.narrow(dim, 0, length - 1)
    return later.ne(earlier) if tensor.dtype is torch.bool else later - earlier


def counts_of(_: Any, tensor: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """Count values in equal parts of the range from `min` to `max`; those outside don't count."""
    import torch

    values = tensor.flatten()
    if max == min:  # as torch does, for one expert
        min, max = min - 1, max + 1
    place = torch.floor((values - min) * (bins / (max - min))).clamp(max=bins - 1)
    place = torch.where((values >= min) & (values <= max), place, torch.full_like(place, -1))
    numbers = torch.arange(bins, device=tensor.device, dtype=place.dtype)
    return (place[:, None] == numbers[None]).to(tensor.dtype).sum(0)


def _attention(
    attend: Any, query: torch.Tensor, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **how: Any
) -> Any:
    """Let a row that may attend to nothing, as those of padding, attend to everything: OpenVINO gives NaN instead,
    which spreads, and torch zeros. Such rows mean nothing. With one head, products stay products."""
    import torch

    if query.dim() == 4 and query.shape[1] == 1 and attn_mask is None and not rest:
        return _attention_by_products(query, key, value, **how)
    if attn_mask is not None:
        smallest = torch.finfo(query.dtype).min
        if attn_mask.dtype is torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, smallest)
        else:
            attn_mask = attn_mask.clamp(min=smallest)
    return attend(query, key, value, attn_mask, *rest, **how)


def _attention_by_products(
    query: torch.Tensor, key: Any, value: Any, *, scale: float | None = None, is_causal: bool = False, **_: Any
) -> torch.Tensor:
    import torch

    scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.transpose(-2, -1)
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, torch.finfo(scores.dtype).min)
    weights: torch.Tensor = torch.softmax(scores, dim=-1)
    return weights @ value


def is_among(_: Any, elements: torch.Tensor, test_elements: torch.Tensor) -> torch.Tensor:
    """Return which elements are equal to any of others, by comparing all pairs."""
    return (elements.unsqueeze(-1) == test_elements.flatten()).any(-1)


def _logit(_: Any, tensor: torch.Tensor, eps: float | None = None) -> torch.Tensor:
    within = tensor if eps is None else tensor.clamp(eps, 1 - eps)
    return (within / (1 - within)).log()


def _running_extreme(largest: bool, compute: Any, tensor: torch.Tensor, dim: int) -> Any:
    """Return the largest or smallest integer so far along an axis, with the place of its last occurrence."""
    import torch

    if tensor.is_floating_point():
        return compute(tensor, dim)
    last = tensor.transpose(dim, -1)
    length = last.shape[-1]
    places = torch.arange(length, device=tensor.device)
    limits = torch.iinfo(tensor.dtype)
    later = places[None] > places[:, None]
    each = last.unsqueeze(-2).masked_fill(later, limits.min if largest else limits.max)
    found = each.amax(-1) if largest else each.amin(-1)
    place = torch.where(each == found.unsqueeze(-1), places, -1).amax(-1)
    return found.transpose(dim, -1), place.transpose(dim, -1)


def _squared_error(
    compute: Any, got: torch.Tensor, want: torch.Tensor, *rest: Any, reduction: str = "mean", **how: Any
) -> Any:
    if rest or how or reduction not in ("mean", "sum", "none"):
        return compute(got, want, *rest, reduction=reduction, **how)
    squares = (got - want).square()
    return squares if reduction == "none" else getattr(squares, reduction)()


def _nan_to_num(
    _: Any, tensor: torch.Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> torch.Tensor:
    import torch

    limits = torch.finfo(tensor.dtype)
    for found, instead in (
        (tensor != tensor, 0.0 if nan is None else nan),
        (tensor == float("inf"), limits.max if posinf is None else posinf),
        (tensor == float("-inf"), limits.min if neginf is None else neginf),
    ):
        tensor = torch.where(found, torch.full_like(tensor, instead), tensor)
    return tensor


def unfold_from_the_front(unfold: Any, tensor: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """`unfold` with its axis counted from the front, as converters do for any axis."""
    found: torch.Tensor = unfold(tensor, dimension % tensor.dim(), size, step)
    return found
