"""The optimizer of each target: it tries the steps of a level, and keeps those that pay on a sample."""

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
    FusedAttention,
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
    """A strategy of an optimizer. `speedup_estimate` was measured on a model, or is None."""

    name: str
    description: str
    applicable_levels: tuple[OptimizationLevel, ...]
    speedup_estimate: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "applicable_levels": [level.value for level in self.applicable_levels]}


class BaseOptimizer:
    """Optimize modules for one torch device.

    Each step is measured on the sample against the module without it, and taken back if outputs move by more than its
    limit or if it isn't faster. At the end all kept steps are measured together against the original module. Times
    with and without a step are taken in turns. Without a sample, and without inputs of the model's own that run,
    nothing can be measured: the model gets the steps up to O2 that are safe unmeasured, in training what its class
    and hardware support.
    """

    BACKEND_NAME: ClassVar[str]
    STRATEGIES: ClassVar[tuple[type[Strategy], ...]] = (
        MixedPrecision,
        FusedAttention,
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
        """Return all strategies of this optimizer, each with the speedup that it last measured."""
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
        level: OptimizationLevel | str | None = OptimizationLevel.O2,
        sample_input: Any = None,
        *,
        training: bool = False,
        dtype: torch.dtype | None = None,
    ) -> tuple[torch.nn.Module, OptimizationResult]:
        """Move a module to the device and apply the steps of `level`, in place.

        `sample_input` is a tensor (the first argument of forward) or a mapping of arguments. `training` selects steps
        for training, and leaves the module in training mode; else it is in evaluation mode. `dtype` is the allowed
        precision of products; float32 forbids any other. Raises `UsageError` for an unknown level.
        """
        level = OptimizationLevel.from_string(level)
        model = model.to(self.device).train(training)
        if level is OptimizationLevel.O0:
            return model, OptimizationResult(success=True, model=model, level=level)
        sample, why = _usable_sample(model.eval(), sample_input, self.device)
        model.train(training)
        setting = StrategySetting(model=model, device=self.device, sample=sample, dtype=dtype)
        measured = TrainingStep(setting) if training else ForwardPass(setting)
        run = OptimizationRun(setting, level, None if why else measured)
        if why:
            run.warn(f"not measured, because {why}{self._needing_sample(level, training)}")
        for steps in self._plan(level, training, measured=not why):
            run.attempt(steps)
        run.conclude()
        self._speedups |= run.speedups
        return model, run.result()

    def _needing_sample(self, level: OptimizationLevel, training: bool) -> str:
        """Return what a sample would add, for a warning."""
        others = [one.name for one in self._steps(level, training) if not (training or one.safe_unmeasured)]
        also = f" {', '.join(others)} would be tried too, and" if others else ""
        return f": with one,{also} each step would stay only if outputs stay right and calls get faster"

    def _steps(self, level: OptimizationLevel, training: bool) -> list[Strategy]:
        return [one() for one in self.STRATEGIES if one.training is training and one.level.rank <= level.rank]

    def _plan(self, level: OptimizationLevel, training: bool, *, measured: bool) -> list[tuple[Strategy, ...]]:
        """Return the steps to try, in order; steps of one entry are kept or taken back together.

        Some 8-bit steps are slow unless they are compiled. At O3 the longer search replaces the plain compilation,
        and of the 8-bit steps the first that pays is kept. Unmeasured, only the steps that are safe so are tried.
        """
        chosen = self._steps(level, training)
        if training or not measured or level is not OptimizationLevel.O3:
            return [(one,) for one in chosen if training or measured or one.safe_unmeasured]
        compiled = [one for one in chosen if isinstance(one, CompiledForLong)]
        others = [one for one in chosen if not isinstance(one, Compiled)]
        plan = [(one, *compiled) if one.compiled_only else (one,) for one in others]
        return [*plan, *((one,) for one in compiled)]


def _usable_sample(
    model: torch.nn.Module, sample_input: Any, device: torch.device
) -> tuple[dict[str, torch.Tensor], str]:
    """Return the sample as arguments by name on the device, and the reason why nothing can be measured with it."""
    import inspect

    import torch

    given = getattr(model, "dummy_inputs", None) if sample_input is None else sample_input
    if isinstance(given, torch.Tensor):
        given = {next(iter(inspect.signature(model.forward).parameters)): given}
    if not isinstance(given, Mapping):
        return (
            {},
            "no sample_input was given" if sample_input is None else "sample_input is neither a tensor nor a mapping",
        )
    sample = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in given.items()}
    if sample_input is None:
        try:
            with torch.no_grad():
                model(**sample)
        except Exception as error:  # inputs of another kind of model; the error is up to the model
            return {}, f"no sample_input was given, and the model's dummy inputs fail ({type(error).__name__})"
    return sample, ""


class CPUOptimizer(BaseOptimizer):
    """The host's processor."""

    BACKEND_NAME = "cpu"


class NVIDIAOptimizer(BaseOptimizer):
    """CUDA devices."""

    BACKEND_NAME = "cuda"


class AMDOptimizer(BaseOptimizer):
    """ROCm devices, which torch names cuda."""

    BACKEND_NAME = "rocm"


class IntelOptimizer(BaseOptimizer):
    """XPU devices."""

    BACKEND_NAME = "xpu"


class AppleOptimizer(BaseOptimizer):
    """Metal devices, for which there are no kernels in 8 bits."""

    BACKEND_NAME = "mps"
    STRATEGIES = tuple(one for one in BaseOptimizer.STRATEGIES if one not in (Float8, Int8Kernels, Int8))


OPTIMIZERS: dict[str, type[BaseOptimizer]] = {
    one.BACKEND_NAME: one for one in (CPUOptimizer, NVIDIAOptimizer, AMDOptimizer, IntelOptimizer, AppleOptimizer)
}


def optimizer_for(name: str, device: torch.device) -> BaseOptimizer:
    """Return the optimizer of a target. Raises `UsageError` for a target without one."""
    if name not in OPTIMIZERS:
        raise UsageError(
            f"no optimizer for {echo(name)}",
            fix=f"{did_you_mean(name, OPTIMIZERS)} Known: {', '.join(OPTIMIZERS)}.".strip(),
        )
    return OPTIMIZERS[name](device)
