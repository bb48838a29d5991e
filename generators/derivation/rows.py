"""Some features of a projection, which a fault or an acceptance test scales or swaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Some output features of one projection.

    `weight` and `bias` are qualified parameter names (`bias` may be empty), `ranges` half-open ranges of
    features, and `axis` is the axis of the weight that they lie on: 0 for Linear and convolutions, 1 for the
    transposed projections of GPT-2. An embedding's features lie on axis 1.
    """

    weight: str
    bias: str
    ranges: tuple[tuple[int, int], ...]
    axis: int

    @property
    def size(self) -> int:
        """How many features these are."""
        return sum(stop - start for start, stop in self.ranges)


def scale_rows(model: torch.nn.Module, rows: Rows, factor: float) -> None:
    """Multiply these features of a projection, weight and bias, in place."""
    import torch

    with torch.no_grad():
        for view in _views(model, rows):
            view.mul_(factor)


def swap_rows(model: torch.nn.Module, one: Rows, other: Rows) -> None:
    """Exchange two projections' features in place, biases where both have one.

    Raises `ValueError` where their shapes differ.
    """
    import torch

    if not (one.bias and other.bias):
        one, other = replace(one, bias=""), replace(other, bias="")
    left, right = list(_views(model, one)), list(_views(model, other))
    if [v.shape for v in left] != [v.shape for v in right]:
        raise ValueError(f"{one.weight} and {other.weight} cannot be swapped: their shapes differ")
    with torch.no_grad():
        for a, b in zip(left, right, strict=True):
            kept = a.clone()
            a.copy_(b)
            b.copy_(kept)


def shapes_of(model: torch.nn.Module, rows: Rows) -> list[tuple[int, ...]]:
    """The shape of each range of these features in the weight."""
    return [tuple(view.shape) for view in _views(model, replace(rows, bias=""))]


def halves(rows: Rows) -> tuple[Rows, Rows]:
    """The lower and the upper half of the first range."""
    start, stop = rows.ranges[0]
    middle = (stop - start) // 2
    return (
        replace(rows, ranges=((start, start + middle),)),
        replace(rows, ranges=((stop - middle, stop),)),
    )


def _views(model: torch.nn.Module, rows: Rows) -> Iterator[torch.Tensor]:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for start, stop in rows.ranges:
        yield parameters[rows.weight].narrow(rows.axis, start, stop - start)
        if rows.bias:
            yield parameters[rows.bias].narrow(0, start, stop - start)
