"""What a check hands over: outputs, what it measured, and the two ways to end that are neither pass nor failure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..backends.base import Execution
from ..compare import Array, Comparison, not_finite
from ..evidence.record import Stage
from .choices import Choice


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
    choices: Sequence[Choice] = ()
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
