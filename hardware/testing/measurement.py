"""What a check hands over: outputs, what it measured, and the two ways to end that are neither pass nor failure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..backends.base import Execution
from ..compare import Array, Comparison, is_whole, not_finite, others, scale_of
from ..evidence.record import Stage
from .router_choices import RouterChoice


class Ambiguous(Exception):
    """The result neither shows that the target is right nor that it is wrong."""


class NotApplicable(Exception):
    """The loaded model lacks an ability that its target has in general; the reason is the message."""


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Outputs by name, the inputs that gave them, and the positions that mean something in those that have a row for
    each token. `watched` are those of another pass of the same inputs, which was watched, if there was one."""

    arrays: Mapping[str, Array]
    masks: Mapping[str, Array]
    inputs: Mapping[str, Array]
    watched: Mapping[str, Array] | None = None
    choices: Sequence[RouterChoice] = ()
    """Those that the target made by its largest scores, if they were observed."""

    @property
    def passes(self) -> tuple[Mapping[str, Array], ...]:
        """The outputs of each pass."""
        return (self.arrays,) if self.watched is None else (self.arrays, self.watched)

    def furthest(
        self, compare: Callable[[Mapping[str, Array]], Comparison]
    ) -> tuple[Comparison, Mapping[str, Array]]:
        """The comparison of the pass that is furthest off, with its outputs."""
        return max(((compare(arrays), arrays) for arrays in self.passes), key=lambda one: one[0].max_rel_error)


@dataclass(kw_only=True)
class Measurement:
    """What one check saw. The plug-in takes it when the check is over."""

    stage: Stage = Stage.BUILD
    comparison: Comparison | None = None
    tolerance: float | None = None
    execution: Execution | None = None
    left_to_host: dict[str, int] = field(default_factory=dict)
    """Operators that its forward passes left to the host, beyond the target's allow-list or not."""

    latency_ms: float | None = None
    batch: int | None = None
    sequence_length: int | None = None

    def keep(self, comparison: Comparison) -> float:
        """Remember a comparison, unless a larger error is known already, and return its error."""
        before = self.comparison
        if before is None or not comparison.max_rel_error <= before.max_rel_error:
            self.comparison = comparison
        return comparison.max_rel_error


def absolute_error(got: Any, want: float) -> float:
    """How far a number is from another; infinite if it isn't finite."""
    value = abs(float(got) - want)
    return value if math.isfinite(value) else math.inf


def comparison_of(absolute: float, scale: float, worst: str) -> Comparison:
    """The comparison of a result, `worst`, that is off by so much."""
    if not math.isfinite(absolute):
        return not_finite(worst)
    return Comparison(max_rel_error=absolute / scale, max_abs_error=absolute, worst=worst)


# Whole numbers among outputs, as codes and matches are: which of them hang on a last digit


_SHAKES = 4
"""How often inputs are shaken to find them."""


def with_whole_numbers_of(want: Outputs, got: Mapping[str, Array]) -> dict[str, Array] | None:
    """`got` with the whole numbers of `want`, None where it has none of those."""
    whole = {name: array for name, array in want.arrays.items() if is_whole(array) and name in got}
    return {**got, **whole} if whole else None


def are_undecided(
    got: Mapping[str, Array], want: Outputs, reference: Callable[[Mapping[str, Array]], Outputs], size: float
) -> bool:
    """Whether all whole numbers of `got` that aren't those of `want` change in float64 too, where the inputs move by
    `size` of their scale: either code is right where two lie equally near."""
    different = {
        name: others(got[name], array, want.masks.get(name))
        for name, array in want.arrays.items()
        if is_whole(array) and name in got
    }
    for seed in range(_SHAKES):
        shaken = reference(_shaken(want.inputs, size, seed)).arrays
        different = {name: there & (shaken[name] == want.arrays[name]) for name, there in different.items()}
    return not any(there.any() for there in different.values())


def _shaken(inputs: Mapping[str, Array], size: float, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        name: (array + size * scale_of(array) * rng.standard_normal(array.shape)).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for name, array in inputs.items()
    }


active = False

keeps_references = True
"""Whether references that are computed in this process may be kept for later runs. Not in plain pytest, where a
conftest.py or a plugin may have changed modules in memory, and not beside a suite that was edited."""
