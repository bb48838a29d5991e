"""What an optimiser did to a model, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .levels import OptimizationLevel

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Step:
    """What was tried: one strategy, or several that stand together.

    `reason` says why it was taken back, `seconds` is what trying took, compilation and measurement included.
    `measured`, as far as it came: `first_call_s` (with what is compiled then), `max_rel_error` against the module as
    it came, `speedup` over the module without this step, `kept_bytes` for the backward pass.
    """

    name: str
    kept: bool
    reason: str
    seconds: float
    measured: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class OptimizationResult:
    """`optimizations_applied` are in force in `model`; what was tried and taken back, or couldn't be, is a warning.

    `success` says that nothing went wrong, also where there was nothing to gain and the model was left alone.
    `metrics`, where something was measured, of all that is applied against the module as it came: `latency_before_ms`
    and `latency_after_ms` (medians of calls on the sample, or of training steps), `speedup` (the median of their
    ratios), `max_rel_error` (of the outputs relative to their scale; in training of the gradients) and
    `allowed_rel_error`; in training `kept_bytes_before` and `kept_bytes_after`, what is kept for the backward pass.
    """

    success: bool
    model: torch.nn.Module
    level: OptimizationLevel
    optimizations_applied: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    @property
    def left_alone(self) -> bool:
        """Whether nothing is in force but the placement."""
        return not self.optimizations_applied

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; of the model, its class."""
        return {
            "success": self.success,
            "model": type(self.model).__name__,
            "level": self.level.value,
            "optimizations_applied": list(self.optimizations_applied),
            "warnings": list(self.warnings),
            "metrics": dict(self.metrics),
            "steps": [asdict(one) | {"measured": dict(one.measured)} for one in self.steps],
        }
