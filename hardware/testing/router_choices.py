"""The choices that a model makes by its largest scores: which experts get a token, which token comes next.

Two scores that are closer together than rounding may change places, which changes everything after them. To compare
the rest, float64 is computed again with the target's choices; the distance of each from float64's own choice is kept,
and compared with what rounding does to the scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compare import Array

if TYPE_CHECKING:
    import torch

_RULED_OUT = 1e30
"""Scores beyond this are masks and no measure of the distance of scores."""


@dataclass(frozen=True, kw_only=True)
class RouterChoice:
    """One call of `topk` or `argmax` on scores, with the indices that it returned."""

    function: str
    indices: Array


@dataclass(kw_only=True)
class Held:
    """The scores of each call in a pass with given choices, and the gap of each choice.

    A gap is the largest difference between a score that float64 would have chosen and the one that was given, rank by
    rank if their order counts; infinite if one was given twice.
    """

    scores: list[Array] = field(default_factory=list)
    gaps: list[Array] = field(default_factory=list)


class OtherChoices(Exception):
    """A pass makes other calls than those with given choices."""


@contextmanager
def observe_choices(model: torch.nn.Module, *, passes: int | None = None) -> Iterator[list[RouterChoice]]:
    """Record the choices of torch in this thread, up to the end of `passes` passes of the model. The list is filled
    at the end: copies to the host during a pass would look like work on the host."""
    found: list[RouterChoice] = []
    kept: list[tuple[str, torch.Tensor]] = []
    ended = 0

    def end(*_: object) -> None:
        nonlocal ended
        ended += 1

    def note(function: str, call: Any, scores: Any, dim: int, in_order: bool) -> Any:
        result = call()
        if passes is None or ended < passes:
            kept.append((function, _indices_of(result).clone()))
        return result

    handle = model.register_forward_hook(end)
    try:
        with _mode(note):
            yield found
    finally:
        handle.remove()
    found += [RouterChoice(function=function, indices=indices.cpu().numpy()) for function, indices in kept]


@contextmanager
def hold_choices(choices: Sequence[RouterChoice], *, but: Sequence[Array] = ()) -> Iterator[Held]:
    """Have a pass take these choices, one call after another, with its own scores; `but` says for each call which it
    makes itself.

    Raises `OtherChoices` if it makes other calls.
    """
    import torch

    held, left = Held(), list(reversed(choices))

    def give(function: str, call: Any, scores: Any, dim: int, in_order: bool) -> Any:
        result = call()
        own, given = _indices_of(result), left.pop() if left else None
        if given is None or given.function != function or given.indices.shape != tuple(own.shape):
            raise OtherChoices(f"{function} of shape {tuple(own.shape)} has no counterpart")
        indices = torch.as_tensor(given.indices, device=own.device, dtype=own.dtype)
        several = function == "topk"
        if but:
            own_here = torch.as_tensor(but[len(held.gaps)], device=own.device)
            indices = torch.where(own_here.unsqueeze(dim) if several else own_here, own, indices)
        held.scores.append(_as_array(scores))
        both = [one if several else np.expand_dims(one, dim) for one in (_as_array(own), given.indices)]
        held.gaps.append(_gaps(held.scores[-1], *both, dim=dim, in_order=in_order))
        if function == "argmax":
            return indices
        return type(result)((scores.gather(dim, indices), indices))

    with _mode(give):
        yield held
    if left:
        raise OtherChoices(f"{len(left)} choices were not used")


def _gaps(scores: Array, own: Array, given: Array, *, dim: int, in_order: bool) -> Array:
    """Return the gap of each choice, in the shape of `scores` without the axis `dim`."""
    twice = (np.diff(np.sort(given, axis=dim), axis=dim) == 0).any(axis=dim)
    if not in_order:  # the same ones in another order are the same
        own, given = np.sort(own, axis=dim), np.sort(given, axis=dim)
    different = (own != given).any(axis=dim)
    wanted, taken = (np.take_along_axis(scores, one, axis=dim) for one in (own, given))
    if not in_order:
        wanted, taken = np.sort(wanted, axis=dim), np.sort(taken, axis=dim)
    with np.errstate(invalid="ignore"):
        gap: Array = np.where(wanted == taken, 0.0, np.abs(wanted - taken)).max(axis=dim, initial=0.0)
    return np.where(different, np.where(twice | np.isnan(gap), math.inf, gap), 0.0)


def beyond_rounding(exact: Held, rounded: Sequence[Held]) -> list[Array]:
    """Return for each call which of its choices rounding can't explain.

    Their gap is more than twice the change that rounding makes to the scores of the call in each of the rounded
    passes: both scores that change places are rounded.
    """
    return [
        gaps > 2 * min(_moved(one.scores[call], exact.scores[call]) for one in rounded)
        for call, gaps in enumerate(exact.gaps)
    ]


def _moved(scores: Array, exact: Array) -> float:
    """Return the largest change of a score; 0 if the passes chose among different candidates."""
    if scores.shape != exact.shape:
        return 0.0
    meant = np.isfinite(exact) & np.isfinite(scores) & (np.abs(exact) < _RULED_OUT)
    return float(np.abs(scores[meant] - exact[meant]).max(initial=0.0))


def _as_array(tensor: Any) -> Array:
    kept = tensor.detach().cpu()
    array: Array = (kept.double() if kept.is_floating_point() else kept).numpy()
    return array


def _indices_of(result: Any) -> Any:
    return result if not isinstance(result, tuple) else result[1]


def _mode(answer: Any) -> Any:
    """Return a mode in which `answer` makes the result of each call that chooses by scores."""
    import torch
    from torch.overrides import TorchFunctionMode

    names = {torch.topk: "topk", torch.Tensor.topk: "topk", torch.argmax: "argmax", torch.Tensor.argmax: "argmax"}

    class Choosing(TorchFunctionMode):  # type: ignore[misc] # torch is Any to mypy
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = kwargs or {}
            name = names.get(function)
            scores: Any = args[0] if args else given.get("input")
            if name is None or not scores.is_floating_point() or given.get("largest", True) is False:
                return function(*args, **given)
            place = 2 if name == "topk" else 1
            dim = given.get("dim", args[place] if len(args) > place else -1 if name == "topk" else None)
            if dim is None or given.get("keepdim"):
                return function(*args, **given)
            in_order = given.get("sorted", args[4] if len(args) > 4 else True)
            return answer(name, lambda: function(*args, **given), scores, dim, in_order)

    return Choosing()


def choices_of_whole_passes(choices: Sequence[RouterChoice], rows: int, steps: int) -> list[RouterChoice] | None:
    """Return the choices of decoding with a cache in the form of decoding without one: each pass has those of all
    passes before it too. None if they can't be separated. `rows` is the size of the batch."""
    passes: list[list[RouterChoice]] = [[]]
    for one in choices:
        passes[-1].append(one)
        if one.function == "argmax" and one.indices.shape == (rows,):  # the tokens that end a pass
            passes.append([])
    if passes.pop() or len(passes) != steps:
        return None
    each = len(passes[-1])
    if any(len(one) != each for one in passes[1:]) or len(passes[0]) < each:
        return None
    found, so_far = list(passes[0]), passes[0][-each:-1]
    for later in passes[1:]:
        joined = [_joined(*pair, rows) for pair in zip(so_far, later[:-1], strict=True)]
        so_far = [one for one in joined if one is not None]
        if len(so_far) != len(joined):
            return None
        found += [*so_far, later[-1]]
    return found


def _joined(before: RouterChoice, more: RouterChoice, rows: int) -> RouterChoice | None:
    """Return the choices for tokens and for those after them, if the tokens of a batch are in one axis or in two,
    else None."""
    old, new = before.indices, more.indices
    if old.shape[1:] == new.shape[1:] and len(old) % rows == len(new) % rows == 0:
        parts = [one.reshape(rows, -1, *one.shape[1:]) for one in (old, new)]
        indices = np.concatenate(parts, axis=1).reshape(-1, *old.shape[1:])
    elif len(old) == len(new) == rows and old.shape[2:] == new.shape[2:]:
        indices = np.concatenate([old, new], axis=1)
    else:
        return None
    return RouterChoice(function=more.function, indices=indices)
