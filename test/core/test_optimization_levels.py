"""Optimization levels, whether a change pays on a busy machine, and which steps of an optimization are kept."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardware.errors import UsageError
from hardware.optimization import OptimizationLevel, attempts
from hardware.optimization.attempts import OptimizationRun, Timing, compared
from hardware.optimization.optimization_steps import ModuleChange, together


def test_levels_have_names_in_any_case_and_an_unknown_one_is_an_error() -> None:
    levels = {
        **{"O0": "O0", "none": "O0", "NONE": "O0", "o1": "O1", "Conservative": "O1", " balanced ": "O2"},
        **{"default": "O2", "o3": "O3", "AGGRESSIVE": "O3", "2": "O2"},
    }
    assert {text: OptimizationLevel.from_string(text).value for text in levels} == levels
    assert OptimizationLevel.from_string(None) is OptimizationLevel.O2
    for text in ("", "O4", "agressive", "-1"):
        with pytest.raises(UsageError, match="unknown optimization level"):
            OptimizationLevel.from_string(text)


class Machine:
    """A clock that only calls move: by `seconds`, which is told whether the change is in force."""

    def __init__(self, seconds: Callable[[bool], float]) -> None:
        self.seconds, self.now, self.on = seconds, 0.0, True
        self.change = ModuleChange(on=lambda: self._switch(True), off=lambda: self._switch(False))

    def _switch(self, on: bool) -> None:
        self.on = on

    def _call(self) -> None:
        self.now += self.seconds(self.on)

    def timing(self) -> Timing:
        found = compared(self.change, self._call, lambda: self.now)
        assert self.on, "the change is left in force"
        return found


def noisy(seed: int, factor: float, spread: float, busy: float = 0.0) -> Machine:
    """A call takes 1 s, `factor` s with the change, with noise; and threefold in the share `busy` of calls."""
    drawn = random.Random(seed)

    def seconds(on: bool) -> float:
        slow = 3.0 if drawn.random() < busy else 1.0
        return slow * (factor if on else 1.0) * math.exp(drawn.gauss(0, spread))

    return Machine(seconds)


def test_the_median_of_rounds_decides_and_few_faster_rounds_are_not_enough() -> None:
    found = Machine(lambda on: 0.5 if on else 1.0).timing()
    assert (found.before, found.after, found.ratio, found.pays) == (1.0, 0.5, 0.5, True)
    assert len(found.ratios) == 15
    assert not Machine(lambda on: 0.98 if on else 1.0).timing().pays, "3 % are needed"
    slower = Machine(lambda on: 1.1 if on else 1.0).timing()
    assert not slower.pays
    assert len(slower.ratios) == 4, "it ends when the change can't pay any more"
    assert not Timing(before=1.0, after=0.5, ratios=(*[0.5] * 11, *[1.0] * 4)).pays
    assert Timing(before=1.0, after=0.5, ratios=(*[0.5] * 12, *[1.0] * 3)).pays


@pytest.mark.parametrize(("factor", "most"), [(1.05, 0), (1.0, 1)])
def test_noise_keeps_no_change_that_is_no_faster(factor: float, most: int) -> None:
    """A step is measured, and then the whole."""
    machines = [noisy(seed, factor, 0.2, busy=0.1) for seed in range(300)]
    assert sum(one.timing().pays and one.timing().pays for one in machines) <= most


def test_a_faster_change_is_kept_through_noise() -> None:
    assert sum(noisy(seed, 0.6, 0.1).timing().pays for seed in range(100)) > 95


class Model:
    """Holds which steps are in force, and whose time and outputs they change."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.now = 0.0


class Step:
    """A strategy: calls take `factor` of their time with it, and outputs move by `moves`."""

    level, instead_of, speeds_up = OptimizationLevel.O1, "", True

    def __init__(self, name: str, factor: float = 1.0, moves: float = 0.0, limit: float = 1e-4, **facts: Any) -> None:
        self.name, self.factor, self.moves, self.limit = name, factor, moves, limit
        self.why = facts.pop("why", "")
        self.works, self.error, self.bytes = facts.pop("works", True), facts.pop("error", None), facts.pop("bytes", 0)
        vars(self).update(facts)

    def obstacle(self, setting: Any) -> str:
        return str(self.why)

    def apply(self, setting: Any) -> ModuleChange:
        if self.error:
            raise self.error
        steps = setting.model.steps
        change = ModuleChange(
            on=lambda: self in steps or steps.append(self), off=lambda: self in steps and steps.remove(self)
        )
        if self.works:
            change.on()
        return change if self.works else ModuleChange(on=lambda: None, off=lambda: None)

    def is_applied(self, model: Any) -> bool:
        return self in model.steps


class Pass:
    """A call of the model: 1 s on its own clock, unless steps change that."""

    def __init__(self, model: Model, kept: int | None = None) -> None:
        self.model, self.kept, self.factor = model, kept, 1.0

    def outputs(self) -> Any:
        return {"out": np.array([1.0, -1.0]) * (1 + sum(step.moves for step in self.model.steps))}

    def call(self) -> None:
        self.model.now += math.prod(step.factor for step in self.model.steps) ** self.factor

    def kept_bytes(self) -> int | None:
        return None if self.kept is None else self.kept - sum(step.bytes for step in self.model.steps)


def optimized(
    monkeypatch: pytest.MonkeyPatch, *steps: Any, kept: int | None = None, slow_at_end: bool = False
) -> Any:
    """The result of trying steps, or tuples of steps, and the model."""
    model = Model()
    one = Pass(model, kept)
    monkeypatch.setattr(attempts, "clock_of", lambda device: lambda: model.now)
    setting: Any = SimpleNamespace(model=model, device=None)
    run = OptimizationRun(setting, OptimizationLevel.O1, one)  # type: ignore[arg-type]
    for step in steps:
        run.attempt(step if isinstance(step, tuple) else (step,))
    one.factor = 0.0 if slow_at_end else 1.0
    run.conclude()
    return run.result(), model, run.speedups


def test_steps_that_pay_are_kept_with_their_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Step("first", 0.8, moves=1e-5), Step("second", 0.5, limit=1e-2)
    result, model, speedups = optimized(monkeypatch, first, second)
    assert (result.optimizations_applied, model.steps, result.success) == (("first", "second"), [first, second], True)
    assert [(one.kept, round(one.measured["speedup"], 6)) for one in result.steps] == [(True, 1.25), (True, 2.0)]
    assert {name: round(value, 6) for name, value in speedups.items()} == {"first": 1.25, "second": 2.0}
    metrics = {name: round(value, 6) for name, value in result.metrics.items()}
    assert metrics == {
        "max_rel_error": 1e-5,
        "allowed_rel_error": 1e-2,
        "latency_before_ms": 1000.0,
        "latency_after_ms": 400.0,
        "speedup": 2.5,
    }
    assert not result.left_alone
    saved = Step("checkpoints", 1.4, speeds_up=False, bytes=300)
    result, _, _ = optimized(monkeypatch, saved, kept=1000)
    assert result.optimizations_applied == ("checkpoints",), "a step for memory may take time"
    assert (result.metrics["kept_bytes_before"], result.metrics["kept_bytes_after"]) == (1000.0, 700.0)
    result, _, _ = optimized(monkeypatch, Step("a", 0.5, instead_of="x"), Step("b", 0.1, instead_of="x"))
    assert (result.optimizations_applied, result.warnings) == (("a",), ()), "one of several ways is enough"


def test_steps_that_do_not_pay_are_taken_back_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[Any, str, bool]] = [
        (Step("slow", 1.1), "slow: reverted, a call takes 1100.00 ms, 1000.00 ms without it", True),
        (Step("hardly", 0.98), "hardly: reverted, a call takes 980.00 ms, 1000.00 ms", True),
        (Step("wrong", 0.1, moves=1e-3), "wrong: reverted, outputs change by 1.0e-03 of their scale", True),
        (Step("raising", error=RuntimeError("no kernel\nor")), "raising: reverted, RuntimeError: no kernel", False),
        (Step("idle", works=False), "idle: reverted, it had no effect on the model", True),
        (Step("impossible", why="no such hardware"), "impossible: no such hardware", True),
        ((Step("a", 0.9), Step("b", 2.0)), "a with b: reverted, a call takes 1800.00 ms", True),
        (Step("memory", speeds_up=False), "memory: reverted, a step stores 0.00 MB for its backward pass", True),
    ]
    for step, warning, success in cases:
        result, model, _ = optimized(monkeypatch, step, kept=1000)
        assert (result.left_alone, model.steps, result.success) == (True, [], success), warning
        (found,) = result.warnings
        assert found.startswith(warning)
        assert not result.metrics
    result, model, _ = optimized(monkeypatch, Step("first", 0.5), Step("raising", error=RuntimeError("no kernel")))
    assert (result.optimizations_applied, result.success) == (("first",), True), "the step that failed is named"
    assert result.warnings == ("raising: reverted, RuntimeError: no kernel",)
    result, model, _ = optimized(monkeypatch, Step("first", 0.5), slow_at_end=True)
    assert (result.left_alone, model.steps, result.steps[0].kept) == (True, [], True)
    assert result.warnings[0].startswith("all steps: reverted, a call takes 1000.00 ms, 1000.00 ms without it")
    order: list[str] = []
    changes = [
        ModuleChange(on=lambda n=n: order.append(f"+{n}"), off=lambda n=n: order.append(f"-{n}")) for n in "ab"
    ]
    both = together(changes)
    both.on()
    both.off()
    assert order == ["+a", "+b", "-b", "-a"]
