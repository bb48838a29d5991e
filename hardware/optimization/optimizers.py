"""The optimiser of each target: tries what a level holds, and keeps what is right and faster on a sample."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UsageError, did_you_mean, echo
from .batch_norms import outputs_of
from .levels import OptimizationLevel
from .result import OptimizationResult
from .strategies import (
    ChannelsLast,
    Compiled,
    CompiledForLong,
    FoldedBatchNorms,
    GradientCheckpointing,
    Int8,
    MixedPrecision,
    Setting,
    Strategy,
    TrainingPrecision,
    Undo,
)

if TYPE_CHECKING:
    import torch

    Outputs = Mapping[str, Any]

WORTH_KEEPING = 0.97
"""What is there for speed stays only if a call takes at most this part of the time it took before."""

_WARM_UPS, _CALLS = 3, 9


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

    Nothing is kept on trust: each step is measured on the sample against the module as it was, in its outputs and in
    its time, and is taken back where outputs move by more than it may cost or where it isn't faster. Without a
    sample, and without inputs of the model's own that run, nothing can be measured and the model is left alone.
    """

    BACKEND_NAME: ClassVar[str]
    STRATEGIES: ClassVar[tuple[type[Strategy], ...]] = (
        MixedPrecision,
        FoldedBatchNorms,
        ChannelsLast,
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
        run = _Run(self, model, level, training)
        if level is OptimizationLevel.O0:
            return model, run.result()
        sample, why = _usable_sample(model, sample_input, self.device)
        if why and not training:
            run.warn(f"left alone: nothing can be measured, since {why}")
            return model, run.result()
        setting = Setting(model=model, device=self.device, sample=sample, dtype=dtype)
        for steps in self._plan(level, training):
            run.attempt(steps, setting)
        return model, run.result()

    def _plan(self, level: OptimizationLevel, training: bool) -> list[tuple[Strategy, ...]]:
        """What is tried, in order; what stands together is kept or taken back together.

        8 bits are slow unless they are compiled, and at O3 the longer search stands for the plain compilation.
        """
        chosen = [one() for one in self.STRATEGIES if one.training is training and one.level.rank <= level.rank]
        if training or level is not OptimizationLevel.O3:
            return [(one,) for one in chosen]
        compiled = [one for one in chosen if isinstance(one, CompiledForLong)]
        others = [one for one in chosen if not isinstance(one, Compiled)]
        plan: list[tuple[Strategy, ...]] = [(one, *compiled) if isinstance(one, Int8) else (one,) for one in others]
        return [*plan, *((one,) for one in compiled)]

    def measured(self, steps: Sequence[Strategy], speedup: float) -> None:
        """Remember what a step brought."""
        for one in steps:
            self._speedups[one.name] = speedup


class _Run:
    """One `optimize` under way: what is in force, what was measured, what there is to warn of."""

    def __init__(
        self, optimizer: BaseOptimizer, model: torch.nn.Module, level: OptimizationLevel, training: bool
    ) -> None:
        self.optimizer = optimizer
        self.model = model
        self.level = level
        self.training = training
        self.applied: list[Strategy] = []
        self.warnings: list[str] = []
        self.metrics: dict[str, float] = {}
        self.success = True
        self._before: tuple[Outputs, float] | None = None
        self._now = 0.0

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def attempt(self, steps: Sequence[Strategy], setting: Setting) -> None:
        """Do these steps together; keep them, or take them back and say why."""
        if any(one.is_applied(self.model) for one in steps):
            return
        name = " with ".join(one.name for one in steps)
        for one in steps:
            if why := one.obstacle(setting):
                self.warn(f"{one.name}: {why}")
                return
        undone: list[Undo] = []
        try:
            if not self.training:
                self._measure_before(setting)
            for one in steps:
                undone.append(one.apply(setting))
            why = "" if self.training else self._judged(steps, setting)
        except Exception as error:  # a compiler or a kernel may raise anything; the model goes on as it was
            why = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
            self.success = False
        if not why and not all(one.is_applied(self.model) for one in steps):
            why = "it isn't in force in the model"
        if why:
            for undo in reversed(undone):
                undo()
            self.warn(f"{name}: taken back, {why}")
        else:
            self.applied += steps

    def _measure_before(self, setting: Setting) -> None:
        if self._before is None:
            self._now = _latency(self.model, setting)
            self._before = outputs_of(self.model, setting.sample), self._now

    def _judged(self, steps: Sequence[Strategy], setting: Setting) -> str:
        """Why these steps aren't worth keeping; the empty string where they are."""
        from ..testing.parity import compare

        assert self._before is not None
        want, first = self._before
        error = compare(outputs_of(self.model, setting.sample), want).max_rel_error
        limit = max(one.limit for one in (*self.applied, *steps))
        if not error <= limit:
            return f"outputs move by {error:.1e} of their scale ({limit:g} is allowed)"
        after = _latency(self.model, setting)
        self.optimizer.measured(steps, self._now / after)
        if any(one.speeds_up for one in steps) and not after <= WORTH_KEEPING * self._now:
            return f"a call takes {after * 1e3:.2f} ms, {self._now * 1e3:.2f} ms without it"
        self._now = after
        self.metrics = {
            "latency_before_ms": first * 1e3,
            "latency_after_ms": after * 1e3,
            "speedup": first / after,
            "max_rel_error": error,
        }
        return ""

    def result(self) -> OptimizationResult:
        return OptimizationResult(
            success=self.success,
            model=self.model,
            level=self.level,
            optimizations_applied=tuple(one.name for one in self.applied),
            warnings=tuple(self.warnings),
            metrics=self.metrics,
        )


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


def _latency(model: torch.nn.Module, setting: Setting) -> float:
    """The median time of a call in seconds, after some that warm up."""
    import torch

    wait = _synchronizer(setting.device)
    times = []
    with torch.no_grad():
        for _ in range(_WARM_UPS + _CALLS):
            started = time.perf_counter()
            model(**setting.sample)
            wait()
            times.append(time.perf_counter() - started)
    return statistics.median(times[_WARM_UPS:])


def _synchronizer(device: torch.device) -> Callable[[], None]:
    import torch

    if device.type == "cpu":
        return lambda: None
    synchronize: Callable[[], None] = getattr(torch, device.type).synchronize
    return synchronize


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
    """Metal devices: torchao has no kernels for them."""

    BACKEND_NAME = "mps"
    STRATEGIES = tuple(one for one in BaseOptimizer.STRATEGIES if one is not Int8)


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
