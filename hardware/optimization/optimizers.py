"""The optimiser of each target: tries what a level holds, and keeps what is right and faster on a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UsageError, did_you_mean, echo
from .attempts import OptimizationRun
from .eight_bits import Float8, Int8, Int8Kernels
from .optimization_steps import OptimizationLevel, OptimizationResult
from .sample_passes import ForwardPass, TrainingStep
from .strategies import (
    ChannelsLast,
    Compiled,
    CompiledForLong,
    FoldedBatchNorms,
    GradientCheckpointing,
    MixedPrecision,
    Strategy,
    StrategySetting,
    TrainingPrecision,
)

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class StrategyInfo:
    """One thing that an optimiser can do. `speedup_estimate` is measured on a model, or None: nothing is guessed."""

    name: str
    description: str
    applicable_levels: tuple[OptimizationLevel, ...]
    speedup_estimate: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "applicable_levels": [level.value for level in self.applicable_levels]}


class BaseOptimizer:
    """Optimises modules for one torch device.

    Nothing is kept on trust: each step is measured on the sample against the module without it, in its outputs and in
    its time, and is taken back where outputs move by more than it may cost or where it isn't faster. In the end all
    that was kept is measured once more against the module as it came, and taken back where that isn't faster. Times
    are taken by turns, with and without. Without a sample, and without inputs of the model's own that run, nothing
    can be measured and the model is left alone; in training it gets what its class and its hardware can, unmeasured.
    """

    BACKEND_NAME: ClassVar[str]
    STRATEGIES: ClassVar[tuple[type[Strategy], ...]] = (
        MixedPrecision,
        FoldedBatchNorms,
        ChannelsLast,
        Float8,
        Int8Kernels,
        Int8,
        Compiled,
        CompiledForLong,
        TrainingPrecision,
        GradientCheckpointing,
    )

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._speedups: dict[str, float] = {}

    def get_available_strategies(self) -> tuple[StrategyInfo, ...]:
        """All that can be tried here; each with the speed-up that this optimiser last measured for it."""
        return tuple(
            StrategyInfo(
                name=one.name,
                description=one.description,
                applicable_levels=one().applicable_levels,
                speedup_estimate=self._speedups.get(one.name),
            )
            for one in self.STRATEGIES
        )

    def optimize(
        self,
        model: torch.nn.Module,
        level: OptimizationLevel | str = OptimizationLevel.O2,
        sample_input: Any = None,
        *,
        training: bool = False,
        dtype: torch.dtype | None = None,
    ) -> tuple[torch.nn.Module, OptimizationResult]:
        """Put a module on the device and do what `level` holds; it is changed in place.

        `sample_input` is a tensor (the first argument of forward) or a mapping of arguments. `training` asks for
        what a training step gains by, and leaves the module in training mode; else it is in evaluation mode. `dtype`
        is the precision that products may be in; float32 forbids any other. Raises `UsageError` for an unknown level.
        """
        level = OptimizationLevel.from_string(level) if isinstance(level, str) else level
        model = model.to(self.device).train(training)
        if level is OptimizationLevel.O0:
            return model, OptimizationResult(success=True, model=model, level=level)
        sample, why = _usable_sample(model.eval(), sample_input, self.device)
        model.train(training)
        setting = StrategySetting(model=model, device=self.device, sample=sample, dtype=dtype)
        measured = TrainingStep(setting) if training else ForwardPass(setting)
        run = OptimizationRun(setting, level, None if why else measured)
        if why:
            run.warn(f"{'not measured' if training else 'left alone: nothing can be measured'}, since {why}")
        if training or not why:
            for steps in self._plan(level, training):
                run.attempt(steps)
            run.conclude()
        self._speedups |= run.speedups
        return model, run.result()

    def _plan(self, level: OptimizationLevel, training: bool) -> list[tuple[Strategy, ...]]:
        """What is tried, in order; what stands together is kept or taken back together.

        Some 8 bits are slow unless they are compiled, and at O3 the longer search stands for the plain compilation.
        Of the ways to 8 bits the first that pays is kept.
        """
        chosen = [one() for one in self.STRATEGIES if one.training is training and one.level.rank <= level.rank]
        if training or level is not OptimizationLevel.O3:
            return [(one,) for one in chosen]
        compiled = [one for one in chosen if isinstance(one, CompiledForLong)]
        others = [one for one in chosen if not isinstance(one, Compiled)]
        plan = [(one, *compiled) if one.compiled_only else (one,) for one in others]
        return [*plan, *((one,) for one in compiled)]


def _usable_sample(
    model: torch.nn.Module, sample_input: Any, device: torch.device
) -> tuple[dict[str, torch.Tensor], str]:
    """The sample as arguments by name on the device, and why there is none that can be measured with."""
    import inspect

    import torch

    given = getattr(model, "dummy_inputs", None) if sample_input is None else sample_input
    if isinstance(given, torch.Tensor):
        given = {next(iter(inspect.signature(model.forward).parameters)): given}
    if not isinstance(given, Mapping):
        return {}, "no sample_input was given" if sample_input is None else "sample_input is no tensor and no mapping"
    sample = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in given.items()}
    if sample_input is None:
        try:
            with torch.no_grad():
                model(**sample)
        except Exception as error:  # inputs of another kind of model; what it raises is up to the model
            return {}, f"no sample_input was given, and it doesn't take inputs of its own ({type(error).__name__})"
    return sample, ""


class CPUOptimizer(BaseOptimizer):
    """The host's processor."""

    BACKEND_NAME = "cpu"


class NVIDIAOptimizer(BaseOptimizer):
    """CUDA devices."""

    BACKEND_NAME = "cuda"


class AMDOptimizer(BaseOptimizer):
    """ROCm devices, which torch calls cuda."""

    BACKEND_NAME = "rocm"


class IntelOptimizer(BaseOptimizer):
    """XPU devices."""

    BACKEND_NAME = "xpu"


class AppleOptimizer(BaseOptimizer):
    """Metal devices: there are no kernels in 8 bits for them."""

    BACKEND_NAME = "mps"
    STRATEGIES = tuple(one for one in BaseOptimizer.STRATEGIES if one not in (Float8, Int8Kernels, Int8))


_OPTIMIZERS: dict[str, type[BaseOptimizer]] = {
    one.BACKEND_NAME: one for one in (CPUOptimizer, NVIDIAOptimizer, AMDOptimizer, IntelOptimizer, AppleOptimizer)
}


def optimizer_for(name: str, device: torch.device) -> BaseOptimizer:
    """The optimiser of a target. Raises `UsageError` for one whose models aren't optimised here."""
    if name not in _OPTIMIZERS:
        raise UsageError(
            f"nothing optimises models for {echo(name)}",
            fix=f"{did_you_mean(name, _OPTIMIZERS)} Known: {', '.join(_OPTIMIZERS)}.".strip(),
        )
    return _OPTIMIZERS[name](device)
