"""Operators of torch that a converter has no rule for, or a wrong one, computed by others while a trace is made.

The numbers are the same; an export is held against torch afterwards in any case.
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
    """For a while, `owner.name` is `substitute`, which is given what was there before its arguments."""
    original = getattr(owner, name, None)  # torch has no __round__

    def instead(*args: Any, **how: Any) -> Any:
        return substitute(original, *args, **how)

    return mock.patch.object(owner, name, instead, create=True)


@contextlib.contextmanager
def convertible_operators() -> Iterator[None]:
    """What OpenVINO's converter can't read (2026.4.1).

    It counts the axis of `unfold` from the front only, puts values into a tensor in place only, and refuses an
    average over more than there is. It has no rule for others that stand below. The CPU plug-in adds a
    constant to a sum over the last axis wrongly (https://github.com/openvinotoolkit/openvino/issues/23616, also in
    2026.4.1), not to a product; and where it joins a division of whole numbers to the comparison behind it, 3 is less
    than 7 // 2: what is left over is taken off before. Of several largest whole numbers it finds any. Attention
    with a single head reads queries, keys and values that were cut from one product at wrong places.
    """
    import torch

    functional, tensor = torch.nn.functional, torch.Tensor
    with contextlib.ExitStack() as stack:
        for name, substitute, *owners in (
            ("sum", _sum_as_product, torch),
            ("__floordiv__", _divided, tensor),
            ("div", _div, torch),
            ("divide", functools.partial(_as, torch.div), torch),
            ("subtract", functools.partial(_as, torch.sub), torch),
            ("argmax", _first_largest, torch, tensor),
            ("index_put", _put_into_copy, tensor),
            ("__setitem__", set_by_choice, tensor),
            ("avg_pool2d", _average_within, functional),
            ("diff", difference_of, torch, tensor),
            ("histc", counts_of, torch, tensor),
            ("scaled_dot_product_attention", _attending, functional),
            ("isin", is_among, torch),
            ("logit", _log_odds, torch, torch.special),
            ("cummax", functools.partial(_running, True), torch),
            ("cummin", functools.partial(_running, False), torch),
            ("mse_loss", _squared_error, functional),
            ("nan_to_num", _without_nan, torch, tensor),
            ("unfold", unfold_from_the_front, tensor),
        ):
            for owner in owners:
                stack.enter_context(substituted(owner, name, substitute))
        yield


def _as(other: Any, _: Any, *given: Any, **how: Any) -> Any:
    return other(*given, **how)


def _sum_as_product(summed: Any, tensor: torch.Tensor, *axes: Any, **how: Any) -> torch.Tensor:
    if not axes and how == {"dim": -1} and tensor.is_floating_point():
        return tensor @ tensor.new_ones(tensor.shape[-1])
    found: torch.Tensor = summed(tensor, *axes, **how)
    return found


def _whole(tensor: Any, divisor: Any) -> bool:
    """Whether this divides a tensor of whole numbers that isn't a size by whole numbers."""
    import torch

    if not isinstance(tensor, torch.Tensor) or tensor.dim() == 0 or tensor.is_floating_point():
        return False
    return isinstance(divisor, int) or (isinstance(divisor, torch.Tensor) and not divisor.is_floating_point())


def _divided(divide: Any, tensor: torch.Tensor, divisor: Any) -> Any:
    return divide(tensor - tensor % divisor if _whole(tensor, divisor) else tensor, divisor)


def _div(divide: Any, tensor: Any, divisor: Any, *, rounding_mode: str | None = None, **how: Any) -> Any:
    if rounding_mode == "floor" and _whole(tensor, divisor):
        tensor = tensor - tensor % divisor
    return divide(tensor, divisor, rounding_mode=rounding_mode, **how)


def _first_largest(argmax: Any, tensor: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """Among whole numbers, as those that say where a text ends, torch gives the first of several largest ones."""
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
    """Values that are put where a mask is set, or at some places of one axis, are chosen instead."""
    if (chosen := _chosen(tensor, key)) is None or not _spreads(value, tensor, key):
        setitem(tensor, key, value)
        return
    import torch

    fitting = torch.as_tensor(value, dtype=tensor.dtype, device=tensor.device)
    tensor.copy_(torch.where(chosen, fitting, tensor))


def _chosen(tensor: torch.Tensor, key: Any) -> torch.Tensor | None:
    """Which elements a key chooses, ready to be spread over a tensor; None for keys of other kinds."""
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


def _spreads(value: Any, tensor: torch.Tensor, key: Any) -> bool:
    """Whether a value is the same for all that is chosen, so that it doesn't matter how many that is."""
    import torch

    if not isinstance(value, torch.Tensor):
        return True
    free: int = tensor.dim() - key.dim() if isinstance(key, torch.Tensor) else 0
    return bool(value.dim() <= free)


def _put_into_copy(
    _: Any, tensor: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    return tensor.clone().index_put_(indices, values, accumulate)


def _average_within(
    average: Any, tensor: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, *rest: Any, **how: Any
) -> torch.Tensor:
    """A window that begins inside a picture counts what it covers of it: one that is larger is as large."""
    if padding in (0, (0, 0)):
        sizes = kernel_size if isinstance(kernel_size, tuple | list) else (kernel_size, kernel_size)
        stride = stride or sizes
        kernel_size = tuple(min(one, int(size)) for one, size in zip(sizes, tensor.shape[-2:], strict=True))
    found: torch.Tensor = average(tensor, kernel_size, stride, padding, *rest, **how)
    return found


def difference_of(
    differ: Any, tensor: torch.Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None
) -> Any:
    """Differences of neighbours by cutting and subtracting."""
    import torch

    if n != 1:
        return differ(tensor, n, dim, prepend, append)
    parts = [part for part in (prepend, tensor, append) if part is not None]
    whole = torch.cat(parts, dim=dim) if len(parts) > 1 else tensor
    length = whole.shape[dim]
    later, earlier = whole.narrow(dim, 1, length - 1), whole.narrow(dim, 0, length - 1)
    return later.ne(earlier) if tensor.dtype is torch.bool else later - earlier


def counts_of(_: Any, tensor: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """How many values lie in each of equal parts of the range from `min` to `max`; those outside count nowhere."""
    import torch

    values = tensor.flatten()
    if max == min:  # as torch does, for one expert
        min, max = min - 1, max + 1
    place = torch.floor((values - min) * (bins / (max - min))).clamp(max=bins - 1)
    place = torch.where((values >= min) & (values <= max), place, torch.full_like(place, -1))
    numbers = torch.arange(bins, device=tensor.device, dtype=place.dtype)
    return (place[:, None] == numbers[None]).to(tensor.dtype).sum(0)


def _attending(
    attend: Any, query: torch.Tensor, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **how: Any
) -> Any:
    """A row that may attend to nothing, as those of padding, attends to everything: OpenVINO gives NaN instead, which
    spreads, where torch gives zeros. Such rows mean nothing. With one head, products are left as products."""
    import torch

    if query.dim() == 4 and query.shape[1] == 1 and attn_mask is None and not rest:
        return _attending_by_products(query, key, value, **how)
    if attn_mask is not None:
        smallest = torch.finfo(query.dtype).min
        if attn_mask.dtype is torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, smallest)
        else:
            attn_mask = attn_mask.clamp(min=smallest)
    return attend(query, key, value, attn_mask, *rest, **how)


def _attending_by_products(
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
    """Which elements are any of others, by comparing each with each."""
    return (elements.unsqueeze(-1) == test_elements.flatten()).any(-1)


def _log_odds(_: Any, tensor: torch.Tensor, eps: float | None = None) -> torch.Tensor:
    within = tensor if eps is None else tensor.clamp(eps, 1 - eps)
    return (within / (1 - within)).log()


def _running(largest: bool, compute: Any, tensor: torch.Tensor, dim: int) -> Any:
    """The largest, or smallest, of all whole numbers so far along an axis, with the place of the last such one."""
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


def _without_nan(
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
    """`unfold` with its axis counted from the front, as converters do whatever they are told."""
    found: torch.Tensor = unfold(tensor, dimension % tensor.dim(), size, step)
    return found
