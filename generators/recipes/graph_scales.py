"""Measure how far the outputs of a user's model spread over inputs, and what computing in float32 costs them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from hwcompat.hardware.compare import Array, is_whole
from hwcompat.hardware.errors import ModelError
from hwcompat.hardware.testing.graph_outputs import Part, masked_alike, shaken, with_parts
from hwcompat.hardware.testing.tolerances import file_rule, load_tolerances

FACTORS = (1.0, 1.0, 1.0, 0.3, 0.3, 0.1, 0.0)
"""Factors of drawn floating-point inputs: noise and silence, bright and dark images. None is larger than 1, since an
output that grows faster than its input would get a scale beyond that of the inputs that suites run."""
_SHAKEN = 2
_SMALLEST = float(np.finfo(np.float32).tiny)
_APART = 8
"""How many times smaller than its output's a part's scale is, at least, to be compared on its own."""
_MOST_PARTS = 8
_LONGEST_AXIS = 256
_RANK_OF_MAPS = 4


class Evaluator(Protocol):
    """Runs a model without the target."""

    def runs(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the outputs."""

    def with_shaken_weights(self, inputs: Mapping[str, Array]) -> Mapping[str, Array] | None:
        """Return the outputs with weights that differ in the last place of float32, or None."""

    def rounded(self, inputs: Mapping[str, Array]) -> tuple[Mapping[str, Array], Mapping[str, Array]] | None:
        """Return the outputs computed in float32 and in float64 by one implementation that no target runs."""


Make = Callable[[int], Mapping[str, Array]]
"""A function that returns inputs for a seed."""


@dataclass(frozen=True, kw_only=True)
class Spreads:
    """The scales of outputs, and of those `parts` of them that have a much smaller one."""

    scales: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)

    def along_fixed_axes(self, outputs: Mapping[str, Array], others: Mapping[str, Array]) -> Spreads:
        """Return them without parts along axes that have another size in `others`, outputs for inputs of other sizes:
        what lies there is a place in an image or a text, not a kind of result."""
        parts = {
            key: part for key, part in self.parts.items() if _size(outputs, part) == _size(others or outputs, part)
        }
        scales = {key: one for key, one in self.scales.items() if key in parts or key not in self.parts}
        return Spreads(scales=scales, parts=parts)


def spreads(evaluator: Evaluator, make: Make, factors: Sequence[float] = FACTORS) -> Spreads:
    """Return the scale of each output over several inputs, 1 for whole numbers: that of a single probability can't be
    the spread of the few numbers of one pass. An output that no input moves is left out.

    Raises the runtime's error if it can't run the first of them; others are skipped then.
    """
    every = [evaluator.runs(make(0))]
    for seed, factor in enumerate(factors[1:], start=1):
        with contextlib.suppress(Exception):  # a zero may be no valid divisor or scale
            every.append(evaluator.runs(_multiplied(make(seed), factor)))
    if any(one.keys() != every[0].keys() for one in every):
        raise ModelError("the model returns other outputs for other inputs", why="they can't be compared")
    unmasked = [masked_alike(one, one)[0] for one in every]
    scales: dict[str, float] = {}
    parts: dict[str, Part] = {}
    for name, first in every[0].items():
        if all(np.array_equal(first, one[name]) for one in every):
            continue
        if first.dtype.kind != "f":
            scales[name] = 1.0
            continue
        arrays = [one[name].astype(np.float64) for one in unmasked]
        whole = np.concatenate([one.ravel() for one in arrays])
        if scale := _spread(whole):
            scales[name] = scale
            for part, spread in _parts_of(name, arrays):
                small = max(spread, _smallest_scale(part, arrays))
                if small * _APART < scale:
                    scales[_named(part)], parts[_named(part)] = small, part
    return Spreads(scales=scales, parts=parts)


def _smallest_scale(part: Part, arrays: Sequence[Array]) -> float:
    """Return the scale below which a part isn't judged: 0, except for numbers between 0 and 1, which come from a
    sigmoid. Its kernels, ONNX Runtime's for one, are right to a unit in the last place of 1 and not of each number;
    a second unit is for rounding."""
    _, axis, first, last = part
    numbers = np.concatenate([one.take(range(first, last), axis).ravel() for one in arrays])
    is_probability = numbers.min(initial=0.0) >= 0 and numbers.max(initial=0.0) <= 1
    return float(f"{2 * np.finfo(np.float32).eps / _limit():.4g}") if is_probability else 0.0


def _limit() -> float:
    return next(one.limit for one in load_tolerances() if (one.target, one.precision) == ("*", "float32"))


def _size(outputs: Mapping[str, Array], part: Part) -> int:
    return int(outputs[part[0]].shape[part[1]])


def _spread(numbers: Array) -> float:
    """Return the standard deviation of the finite numbers, 0 if all are equal."""
    finite = numbers[np.isfinite(numbers)]
    return float(f"{max(finite.std(), _SMALLEST):.4g}") if finite.size and np.ptp(finite) else 0.0


def _named(part: Part) -> str:
    name, axis, first, last = part
    return f"{name}[{':, ' * axis}{first}:{last}]"


def _parts_of(name: str, arrays: Sequence[Array]) -> Iterator[tuple[Part, float]]:
    """Yield neighbors along the axis with the fewest such parts whose spreads are of one magnitude, such as boxes and
    scores, each with its scale. Of maps only the channels count: at the edges of an image everything is smaller."""
    ways = []
    rank = arrays[0].ndim
    for axis in (1,) if rank == _RANK_OF_MAPS else range(int(rank > 1), rank):  # the first is a batch
        counts = {one.shape[axis] if one.ndim > axis else 0 for one in arrays}
        if len(counts) == 1 and 1 < min(counts) <= _LONGEST_AXIS:
            rows = np.concatenate([np.moveaxis(one, axis, 0).reshape(min(counts), -1) for one in arrays], axis=1)
            found = _runs([_spread(row) for row in rows])
            if len(found) > 1:
                ways.append((axis, found))
    axis, found = min(ways, key=lambda one: len(one[1]), default=(0, []))
    while len(found) > _MOST_PARTS:
        ratios = [max(one[2], other[2]) / (min(one[2], other[2]) or 1) for one, other in itertools.pairwise(found)]
        nearest = ratios.index(min(ratios))
        (first, _, one), (_, last, other) = found[nearest : nearest + 2]
        found[nearest : nearest + 2] = [(first, last, max(one, other))]
    for first, last, scale in found:
        if scale:
            yield (name, axis, first, last), scale


def _runs(spread: Sequence[float]) -> list[tuple[int, int, float]]:
    """Return runs of indices whose spreads differ by less than `_APART`: first, last and the largest; zeros fit into
    each."""
    found: list[tuple[int, int, float]] = []
    low = high = 0.0
    for index, one in enumerate(spread):
        lower, higher = min(low or one, one or low), max(high, one)
        if found and higher <= lower * _APART:
            found[-1] = (found[-1][0], index + 1, higher)
            low, high = lower, higher
        else:
            found.append((index, index + 1, one))
            low = high = one
    return found


def float32_costs(evaluator: Evaluator, make: Make, found: Spreads) -> dict[str, float]:
    """Return for each output and part the largest error, relative to its scale, that float32 alone has: if inputs or
    weights change by one unit in the last place, and of an implementation that no target runs against its own
    float64. A target's error isn't in it."""
    pairs = []
    for seed in range(_SHAKEN):
        inputs = make(seed)
        plain = evaluator.runs(inputs)
        pairs.append((plain, evaluator.runs({name: shaken(one, seed) for name, one in inputs.items()})))
        if (other := evaluator.with_shaken_weights(inputs)) is not None:
            pairs.append((plain, other))
    worst = _largest(pairs, found)
    # It takes long, and can't make an output that is too sensitive less so.
    if not are_too_large(worst) and (rounded := evaluator.rounded(make(0))) is not None:
        worst = _largest([*pairs, rounded], found)
    return worst


def are_too_large(costs: Mapping[str, float]) -> bool:
    """Return whether float32 alone changes each output by more than any limit allows."""
    rule = file_rule()
    return bool(costs) and all(cost > rule.most / rule.factor for cost in costs.values())


def _largest(pairs: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]], found: Spreads) -> dict[str, float]:
    worst: dict[str, float] = {}
    for pair in pairs:
        first, second = map(partial(with_parts, parts=found.parts), masked_alike(*pair))
        for name, error in _errors(first, second, found.scales):
            worst[name] = max(worst.get(name, 0.0), float(f"{error:.2g}"))
    return worst


def judged(found: Spreads, costs: Mapping[str, float]) -> tuple[Spreads, dict[str, float]]:
    """Return the parts that float32 can tell apart, with scales at which they can be judged by the plain limit, and
    the costs of outputs that need a wider one."""
    widened = {name: max(1.0, file_rule().factor * cost / _limit()) for name, cost in costs.items()}
    scales = {name: one for name, one in found.scales.items() if name not in found.parts}
    parts = {}
    for name, part in found.parts.items():
        scale = found.scales[name] * widened.get(name, 1.0)
        if scale * _APART < scales[part[0]]:
            parts[name], scales[name] = part, float(f"{scale:.4g}")
    wide = {name: cost for name, cost in costs.items() if name not in found.parts and widened[name] > 1}
    return Spreads(scales=scales, parts=parts), wide


def _multiplied(inputs: Mapping[str, Array], factor: float) -> dict[str, Array]:
    return {
        name: (one * factor).astype(one.dtype) if one.dtype.kind == "f" and one.ndim > 1 else one
        for name, one in inputs.items()
    }


def _errors(
    first: Mapping[str, Array], second: Mapping[str, Array], scales: Mapping[str, float]
) -> Iterator[tuple[str, float]]:
    for name, one in first.items():
        other = second[name]
        if name in scales and not is_whole(one) and one.shape == other.shape:
            both = np.isfinite(one) & np.isfinite(other)
            yield name, float(np.abs(one[both].astype(np.float64) - other[both]).max(initial=0.0)) / scales[name]
