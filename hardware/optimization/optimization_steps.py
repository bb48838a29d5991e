"""Optimization levels, changes of a module that can be reverted, and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, did_you_mean, echo


class OptimizationLevel(StrEnum):
    """Optimization levels; each includes the ones before it.

    O0 only places the model: suites run with it. O1 is mixed precision if the hardware computes in it, another memory
    format, and folding that changes no number that matters. O2, the default for users, compiles; in training it
    recomputes activations instead of keeping them. O3 computes in 8 bits.
    """

    O0 = "O0"
    O1 = "O1"
    O2 = "O2"
    O3 = "O3"

    @classmethod
    def from_string(cls, text: str | None) -> OptimizationLevel:
        """Return the level that a name or an alias means, in any case; None is the default, O2. Raises `UsageError`
        for any other."""
        if text is None:
            return cls.O2
        name = text.strip().lower()
        found = _NAMES.get(name)
        if found is None:
            known = ", ".join(f"{level} ({', '.join(names)})" for level, names in _ALIASES.items())
            raise UsageError(
                f"unknown optimization level {echo(text)}",
                fix=f"{did_you_mean(name, _NAMES)} Known: {known}.".strip(),
            )
        return found

    @property
    def rank(self) -> int:
        """Position of the level, 0 to 3."""
        return int(self.value[1])


_ALIASES = {
    OptimizationLevel.O0: ("none", "off", "disabled", "0"),
    OptimizationLevel.O1: ("conservative", "basic", "1"),
    OptimizationLevel.O2: ("balanced", "default", "2"),
    OptimizationLevel.O3: ("aggressive", "max", "3"),
}
_NAMES = {name: level for level, names in _ALIASES.items() for name in (level.value.lower(), *names)}


if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class ModuleChange:
    """A change of a module that is in force, and can be switched off and on again repeatedly."""

    on: Callable[[], None]
    off: Callable[[], None]


def together(changes: Sequence[ModuleChange]) -> ModuleChange:
    """Return changes, each made on top of those before it, as one."""

    def on() -> None:
        for one in changes:
            one.on()

    def off() -> None:
        for one in reversed(changes):
            one.off()

    return ModuleChange(on=on, off=off)


def replaced(model: torch.nn.Module, modules: Mapping[str, torch.nn.Module]) -> ModuleChange:
    """Replace submodules of a model, by name."""
    before = {name: model.get_submodule(name) for name in modules}

    def put(chosen: Mapping[str, torch.nn.Module]) -> None:
        for name, module in chosen.items():
            model.set_submodule(name, module)

    put(modules)
    return ModuleChange(on=lambda: put(modules), off=lambda: put(before))


@dataclass(frozen=True, kw_only=True)
class OptimizationStep:
    """One attempt: a strategy, or several that belong together.

    `reason` says why it was taken back; `seconds` includes compilation and measurement. `measured` may have
    `first_call_s` (including compilation), `max_rel_error` against the original module, `speedup` over the module
    without this step, and `kept_bytes` for the backward pass.
    """

    name: str
    kept: bool
    reason: str
    seconds: float
    measured: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class OptimizationResult:
    """Result: `optimizations_applied` are in force in `model`; steps that were taken back or impossible are warnings.

    `success` is False if no step is in force and one of them raised an error, or if the target doesn't run torch
    modules; it is True if there was nothing to gain. `metrics` compare all applied steps
    with the original module: `latency_before_ms` and `latency_after_ms` (medians of calls on the sample, or of
    training steps), `speedup` (median of their ratios), `max_rel_error` (of the outputs relative to their scale; in
    training of the gradients) and `allowed_rel_error`; in training `kept_bytes_before` and `kept_bytes_after`, the
    memory that is kept for the backward pass.
    """

    success: bool
    model: torch.nn.Module
    level: OptimizationLevel
    optimizations_applied: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    steps: tuple[OptimizationStep, ...] = ()

    @property
    def left_alone(self) -> bool:
        """Whether nothing but the placement is in force."""
        return not self.optimizations_applied

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; the model is represented by its class."""
        return {
            "success": self.success,
            "model": type(self.model).__name__,
            "level": self.level.value,
            "optimizations_applied": list(self.optimizations_applied),
            "warnings": list(self.warnings),
            "metrics": dict(self.metrics),
            "steps": [asdict(one) | {"measured": dict(one.measured)} for one in self.steps],
        }
