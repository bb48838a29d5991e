"""What a check hands over: outputs, what it measured, and the two ways to end that are neither pass nor failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..backends.base import Execution
from ..compare import Array, Comparison
from ..evidence.record import Stage


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

    @property
    def passes(self) -> tuple[Mapping[str, Array], ...]:
        """The outputs of each pass."""
        return (self.arrays,) if self.watched is None else (self.arrays, self.watched)


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
