"""What a check measures: outputs, comparisons, and the two results that are neither pass nor failure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..backends.base import Execution
from ..compare import Array, Comparison, is_whole, not_finite, others, scale_of
from ..evidence.record import Stage
from ..output_masks import covering
from .router_choices import RouterChoice


class Ambiguous(Exception):
    """The result shows neither that the target is right nor that it is wrong."""


class NumbersChanged(Exception):
    """The installed version of the library computes other numbers than the version that recorded them."""


class NotApplicable(Exception):
    """The loaded model lacks an ability that its target has in general; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Outputs by name, their inputs, and the positions that count in outputs with a row for each token. `watched` are
    the outputs of a profiled pass with the same inputs, if there was one."""

    arrays: Mapping[str, Array]
    masks: Mapping[str, Array]
    inputs: Mapping[str, Array]
    watched: Mapping[str, Array] | None = None
    choices: Sequence[RouterChoice] = ()
    """The target's choices by its largest scores, if they were observed."""
    scales: Mapping[str, float] = field(default_factory=dict)
    """The scales of errors where they aren't those of the outputs: a row of two numbers has its batch's."""

    @property
    def own_scales(self) -> dict[str, float]:
        """Return the scale of each floating-point output at the positions that count."""
        return {
            name: scale_of(array[covering(self.masks[name], array)] if name in self.masks else array)
            for name, array in self.arrays.items()
            if not is_whole(array)
        }

    @property
    def passes(self) -> tuple[Mapping[str, Array], ...]:
        """Return the outputs of each pass."""
        return (self.arrays,) if self.watched is None else (self.arrays, self.watched)

    def furthest(
        self, compare: Callable[[Mapping[str, Array]], Comparison]
    ) -> tuple[Comparison, Mapping[str, Array]]:
        """Return the comparison of the pass with the largest error, with its outputs."""
        return max(((compare(arrays), arrays) for arrays in self.passes), key=lambda one: one[0].max_rel_error)


@dataclass(kw_only=True)
class Measurement:
    """The measurements of one check. The plugin takes them when the check is over."""

    stage: Stage = Stage.BUILD
    comparison: Comparison | None = None
    tolerance: float | None = None
    execution: Execution | None = None
    left_to_host: dict[str, int] = field(default_factory=dict)
    """Operators that its forward passes left to the host, allowed for the target or not."""

    latency_ms: float | None = None
    batch: int | None = None
    sequence_length: int | None = None

    def keep(self, comparison: Comparison) -> float:
        """Keep a comparison unless a larger error is known, and return its error."""
        before = self.comparison
        if before is None or not comparison.max_rel_error <= before.max_rel_error:
            self.comparison = comparison
        return comparison.max_rel_error


def absolute_error(got: Any, want: float) -> float:
    """Return the absolute difference of two numbers, infinite if the first isn't finite."""
    value = abs(float(got) - want)
    return value if math.isfinite(value) else math.inf


def comparison_of(absolute: float, scale: float, worst: str) -> Comparison:
    """Return the comparison of a result with an absolute error."""
    if not math.isfinite(absolute):
        return not_finite(worst)
    return Comparison(max_rel_error=absolute / scale, max_abs_error=absolute, worst=worst)


def recorded_comparison(
    array: Array, recorded: Mapping[tuple[int, ...], float], scale: float, output: str
) -> Comparison:
    """Return the comparison of single elements of an output with recorded ones."""
    errors = (absolute_error(array[position], value) for position, value in recorded.items())
    return comparison_of(max(errors, default=0.0), scale, output)


# Integers among outputs, such as codes and matches, may depend on a last digit


_PERTURBATIONS = 4
"""How often inputs are perturbed to find such numbers."""


def with_whole_numbers_of(want: Outputs, got: Mapping[str, Array]) -> dict[str, Array] | None:
    """Return `got` with the integers of `want`, or None if there are none."""
    whole = {name: array for name, array in want.arrays.items() if is_whole(array) and name in got}
    return {**got, **whole} if whole else None


def are_undecided(
    got: Mapping[str, Array], want: Outputs, reference: Callable[[Mapping[str, Array]], Outputs], size: float
) -> bool:
    """Whether all integers of `got` that differ from `want` change in float64 too if inputs move by `size` of their
    scale: either code is correct if two are equally near."""
    different = {
        name: others(got[name], array, want.masks.get(name))
        for name, array in want.arrays.items()
        if is_whole(array) and name in got
    }
    for seed in range(_PERTURBATIONS):
        shaken = reference(_perturbed(want.inputs, size, seed)).arrays
        different = {name: there & (shaken[name] == want.arrays[name]) for name, there in different.items()}
    return not any(there.any() for there in different.values())


def _perturbed(inputs: Mapping[str, Array], size: float, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        name: (array + size * scale_of(array) * rng.standard_normal(array.shape)).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for name, array in inputs.items()
    }


active = False

keeps_references = True
"""Whether references computed in this process may be kept for later runs. False in plain pytest, where a conftest.py
or plugin may have changed modules in memory, and beside an edited suite."""
