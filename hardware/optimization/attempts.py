"""An optimization in progress: it tries steps, measures them, and takes back those that don't pay."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .optimization_steps import ModuleChange, OptimizationResult, OptimizationStep, together

if TYPE_CHECKING:
    import torch

    from .optimization_steps import OptimizationLevel
    from .sample_passes import ForwardPass
    from .strategies import Strategy, StrategySetting


WORTH_KEEPING = 0.97
"""A change for speed is kept only if a call takes at most this share of its time without it."""

ROUNDS, FASTER = 15, 12
"""Rounds, and how many must be faster. Without any gain that happens by chance in 2 of 100 cases."""

_WARM_UPS = 3
_CALLS = 5
_ROUND_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds of a call without and with a change (medians of the rounds), and their ratio in each round."""

    before: float
    after: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Time of a call with the change over that without it, as the median of the rounds."""
        return statistics.median(self.ratios)

    @property
    def pays(self) -> bool:
        """Whether calls are faster by more than noise."""
        return sum(one < 1 for one in self.ratios) >= FASTER and self.ratio <= WORTH_KEEPING


def clock_of(device: torch.device) -> Callable[[], float]:
    """Return a clock for calls on a device, in seconds.

    If torch computes on one thread of the host, it is the processor time of this process, to which other processes
    add nothing; else it is wall-clock time.
    """
    import torch

    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.process_time if alone else time.perf_counter


def compared(
    change: ModuleChange, call: Callable[[], None], clock: Callable[[], float] = time.perf_counter
) -> Timing:
    """Time calls with and without a change that is in force, and leave it in force.

    Both are timed in each round, in alternating order, so that other load affects both alike. It stops after the
    round from which on the change can't pay.
    """
    for _ in range(_WARM_UPS):
        call()
    once = _seconds(call, 1, clock)
    calls = max(1, min(_CALLS, int(_ROUND_SECONDS / max(once, 1e-9))))
    before: list[float] = []
    after: list[float] = []
    while len(before) < ROUNDS and sum(b <= a for b, a in zip(before, after, strict=True)) <= ROUNDS - FASTER:
        sides = [(change.off, before), (change.on, after)]
        for switch, times in sides if len(before) % 2 == 0 else sides[::-1]:
            switch()
            if once < _ROUND_SECONDS:  # effects of a switch on caches don't show in longer calls
                call()
            times.append(_seconds(call, calls, clock))
    change.on()
    return Timing(
        before=statistics.median(before),
        after=statistics.median(after),
        ratios=tuple(a / b for b, a in zip(before, after, strict=True)),
    )


def _seconds(call: Callable[[], None], calls: int, clock: Callable[[], float]) -> float:
    """Return the time of the fastest of some calls: other load only adds to it."""
    shortest = math.inf
    for _ in range(calls):
        started = clock()
        call()
        shortest = min(shortest, clock() - started)
    return shortest


class OptimizationRun:
    """Steps in force, measurements and warnings. `measured` is None if nothing can be measured."""

    def __init__(self, setting: StrategySetting, level: OptimizationLevel, measured: ForwardPass | None) -> None:
        self.speedups: dict[str, float] = {}
        self._setting = setting
        self._level = level
        self._pass = measured
        self._applied: list[tuple[Strategy, ModuleChange]] = []
        self._steps: list[OptimizationStep] = []
        self._warnings: list[str] = []
        self._metrics: dict[str, float] = {}
        self._success = True
        self._before: Any = None
        self._kept_bytes: int | None = None
        self._error: float | None = None

    def warn(self, text: str) -> None:
        """Add a warning to the result."""
        self._warnings.append(text)

    def attempt(self, steps: Sequence[Strategy]) -> None:
        """Apply these steps together; keep them, or take them back with a warning."""
        ways = {one.instead_of for one, _ in self._applied} - {""}
        model = self._setting.model
        if any(one.is_applied(model) or one.instead_of in ways for one in steps):
            return
        for one in steps:
            if why := one.obstacle(self._setting):
                self.warn(f"{one.name}: {why}")
                return
        started = time.perf_counter()
        done: list[tuple[Strategy, ModuleChange]] = []
        measured: dict[str, float] = {}
        try:
            self._measure_before()
            for one in steps:
                done.append((one, one.apply(self._setting)))
            in_force = all(one.is_applied(model) for one in steps)
            why = self._why_not(done, measured) if in_force else "it had no effect on the model"
        except Exception as error:  # a compiler or a kernel may raise anything; the model continues unchanged
            why = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
            self._success = False
        name = " with ".join(one.name for one in steps)
        if why:
            together([change for _, change in done]).off()
            self.warn(f"{name}: reverted, {why}")
        else:
            self._applied += done
            self._error = measured.get("max_rel_error")
        seconds = time.perf_counter() - started
        self._steps.append(OptimizationStep(name=name, kept=not why, reason=why, seconds=seconds, measured=measured))

    def conclude(self) -> None:
        """Measure all kept steps together against the original module; take them back if they aren't faster."""
        if self._pass is None or not self._applied:
            return
        self._metrics["max_rel_error"] = self._error or 0.0
        self._metrics["allowed_rel_error"] = max(one.limit for one, _ in self._applied)
        if (kept := self._pass.kept_bytes()) is not None and self._kept_bytes is not None:
            self._metrics |= {"kept_bytes_before": float(self._kept_bytes), "kept_bytes_after": float(kept)}
        whole = together([change for _, change in self._applied])
        timing = compared(whole, self._pass.call, clock_of(self._setting.device))
        if all(one.speeds_up for one, _ in self._applied) and not timing.pays:
            whole.off()
            self.warn(f"all steps: reverted, {_times(timing)}")
            self._applied, self._metrics = [], {}
            return
        self._metrics |= {
            "latency_before_ms": timing.before * 1e3,
            "latency_after_ms": timing.after * 1e3,
            "speedup": 1 / timing.ratio,
        }

    def result(self) -> OptimizationResult:
        """Return the result of the optimization."""
        return OptimizationResult(
            success=self._success or bool(self._applied),
            model=self._setting.model,
            level=self._level,
            optimizations_applied=tuple(one.name for one, _ in self._applied),
            warnings=tuple(self._warnings),
            metrics=self._metrics,
            steps=tuple(self._steps),
        )

    def _measure_before(self) -> None:
        if self._before is None and self._pass is not None:
            self._before, self._kept_bytes = self._pass.outputs(), self._pass.kept_bytes()

    def _why_not(self, done: Sequence[tuple[Strategy, ModuleChange]], measured: dict[str, float]) -> str:
        """Return the reason to take these steps back, or an empty string; also if nothing can be measured."""
        from ..compare import compare

        if self._pass is None:
            return ""
        started = time.perf_counter()
        outputs = self._pass.outputs()
        measured["first_call_s"] = time.perf_counter() - started
        error = measured["max_rel_error"] = compare(outputs, self._before).max_rel_error
        limit = max(one.limit for one, _ in (*self._applied, *done))
        if not error <= limit:
            return f"outputs change by {error:.1e} of their scale (the limit is {limit:g})"
        if not any(one.speeds_up for one, _ in done):
            return self._why_no_memory(measured)
        timing = compared(together([change for _, change in done]), self._pass.call, clock_of(self._setting.device))
        measured["speedup"] = 1 / timing.ratio
        self.speedups |= {one.name: 1 / timing.ratio for one, _ in done}
        return "" if timing.pays else _times(timing)

    def _why_no_memory(self, measured: dict[str, float]) -> str:
        """Return the reason to take back a step that is meant to save memory, or an empty string."""
        assert self._pass is not None
        kept = self._pass.kept_bytes()
        if kept is None or self._kept_bytes is None:
            return "nothing is stored for a backward pass"
        measured["kept_bytes"] = float(kept)
        if kept < self._kept_bytes:
            return ""
        return f"a step stores {kept / 1e6:.2f} MB for its backward pass, {self._kept_bytes / 1e6:.2f} MB without it"


def _times(timing: Timing) -> str:
    faster = sum(one < 1 for one in timing.ratios)
    return (
        f"a call takes {timing.after * 1e3:.2f} ms, {timing.before * 1e3:.2f} ms without it (faster in {faster} of "
        f"{len(timing.ratios)} rounds; {FASTER} of {ROUNDS}, and {1 - WORTH_KEEPING:.0%} in the median, are required)"
    )
