"""Optimizers: a step that is listed as applied is in force in the module, and one that doesn't pay is taken back.

Times are given, not measured: a call takes as long as the test says for the steps that are in force in the module.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from optimised_models import CPU, Text, bert, picture, sample

from hardware.errors import UsageError
from hardware.optimization import CPUOptimizer, OptimizationLevel, OptimizationResult, call_timing, strategies
from hardware.optimization.optimization_steps import ModuleChange
from hardware.optimization.optimizers import AppleOptimizer
from hardware.optimization.strategies import (
    ChannelsLast,
    Compiled,
    FoldedBatchNorms,
    MixedPrecision,
    StrategySetting,
    foldable_pairs,
)
from hardware.testing.seeded_weights import fill

pytestmark = [
    pytest.mark.usefixtures("alone"),
    # torch.compile itself imports what torch has deprecated.
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
]


def test_level_zero_only_places_and_an_unknown_level_is_an_error():
    model = torch.nn.Linear(2, 2)
    same, result = CPUOptimizer(CPU).optimize(model.train(), "none")
    assert same is model
    assert not model.training
    assert result.left_alone
    assert result.to_dict() == {
        "success": True,
        "model": "Linear",
        "level": "O0",
        "optimizations_applied": [],
        "warnings": [],
        "metrics": {},
        "steps": [],
    }
    made = OptimizationResult(success=True, model=model, level=OptimizationLevel.O1)
    assert made.to_dict()["level"] == "O1"
    with pytest.raises(UsageError):
        CPUOptimizer(CPU).optimize(model, "O4")
    _, result = CPUOptimizer(CPU).optimize(picture(), "O2")
    assert result.left_alone
    assert "no sample_input was given" in result.warnings[0]


def test_listed_steps_are_in_the_module_with_what_was_measured(seconds, only):
    only(FoldedBatchNorms, ChannelsLast)
    optimizer = CPUOptimizer(CPU)
    assert [one.speedup_estimate for one in optimizer.get_available_strategies()] == [None, None]
    seconds(folded_batch_norms=0.8, channels_last=0.5)
    model, want = picture(), picture()(**sample())["out"]
    model, result = optimizer.optimize(model, "O1", sample())
    assert result.optimizations_applied == ("folded_batch_norms", "channels_last")
    assert isinstance(model.norm, torch.nn.Identity)
    assert isinstance(model.other, torch.nn.BatchNorm2d), "its convolution's output is read by others too"
    assert model.first.weight.is_contiguous(memory_format=torch.channels_last)
    assert (result.metrics["speedup"], result.metrics["latency_after_ms"]) == (2.5, 400.0)
    assert [(one.name, one.kept, one.measured["speedup"]) for one in result.steps] == [
        ("folded_batch_norms", True, 1.25),
        ("channels_last", True, 2.0),
    ]
    assert result.metrics["max_rel_error"] < 1e-5
    torch.testing.assert_close(model(**sample())["out"], want, rtol=1e-4, atol=1e-4)
    folded, last = (one.to_dict() for one in optimizer.get_available_strategies())
    assert (folded["speedup_estimate"], last["speedup_estimate"]) == (1.25, 2.0)
    assert folded["applicable_levels"] == ["O1", "O2", "O3"]
    assert "int8_dynamic" not in {one.name for one in AppleOptimizer(CPU).get_available_strategies()}


def test_a_step_that_is_no_faster_is_taken_back(seconds, only):
    only(FoldedBatchNorms, ChannelsLast)
    seconds(folded_batch_norms=0.98, channels_last=1.1)
    model, want = picture(), picture()(**sample())["out"]
    model, result = CPUOptimizer(CPU).optimize(model, "O1", sample())
    assert result.left_alone
    assert result.success
    assert isinstance(model.norm, torch.nn.BatchNorm2d)
    assert model.first.weight.is_contiguous()
    assert not model._forward_pre_hooks
    assert torch.equal(model(**sample())["out"], want)
    assert result.warnings == (
        "folded_batch_norms: taken back, a call takes 980.00 ms, 1000.00 ms without it (faster in 15 of 15 rounds; "
        "12 of 15, and 3% in the median, are needed)",
        "channels_last: taken back, a call takes 1100.00 ms, 1000.00 ms without it (faster in 0 of 4 rounds; "
        "12 of 15, and 3% in the median, are needed)",
    )
    assert [one.kept for one in result.steps] == [False, False]


def test_a_step_that_moves_outputs_raises_or_is_not_in_force_is_taken_back(seconds, only):
    class Louder(ChannelsLast):
        name = "louder"

        def apply(self, setting):
            change = super().apply(setting)
            setting.model.second.bias.data += 0.01
            return ModuleChange(on=change.on, off=lambda: (change.off(), setting.model.second.bias.data.sub_(0.01)))

    class Raising(ChannelsLast):
        name = "raising"

        def apply(self, setting):
            raise RuntimeError("no kernel\nand more")

    class Idle(ChannelsLast):
        name = "idle"

        def apply(self, setting):
            return ModuleChange(on=lambda: None, off=lambda: None)

    only(Louder)
    seconds(louder=0.1)
    model, want = picture(), picture()(**sample())["out"]
    _, result = CPUOptimizer(CPU).optimize(model, "O1", sample())
    torch.testing.assert_close(model(**sample())["out"], want)
    assert result.left_alone
    assert "outputs move by" in result.warnings[0]
    only(Raising, Idle)
    model, result = CPUOptimizer(CPU).optimize(picture(), "O1", sample())
    assert not result.success
    assert result.warnings == (
        "raising: taken back, RuntimeError: no kernel",
        "idle: taken back, it isn't in force in the model",
    )
    assert model.first.weight.is_contiguous()


def test_a_model_of_transformers_brings_its_own_sample(seconds, only, monkeypatch):
    only(MixedPrecision)
    seconds(mixed_precision=2.0)
    monkeypatch.setattr(strategies, "_half", lambda device: torch.bfloat16)
    _, result = CPUOptimizer(CPU).optimize(bert(), "O2")
    (warning,) = result.warnings
    assert warning.startswith("mixed_precision: taken back, a call takes 2000.00 ms, 1000.00 ms without it")


def test_a_compiled_module_is_compiled(seconds, only):
    only(Compiled)
    seconds(torch_compile=0.5)
    x = torch.linspace(-1, 1, 64)[None]
    model, result = CPUOptimizer(CPU).optimize(fill(Text()), "O2", x)
    assert result.optimizations_applied == ("torch_compile",)
    assert Compiled().is_applied(model)
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    model.compile(backend=counter)
    model(torch.ones(1, 64))
    assert counter.frame_count == 1
    seconds(torch_compile=2.0)
    model, result = CPUOptimizer(CPU).optimize(fill(Text()), "O2", x)
    assert result.warnings[0].startswith("torch_compile: taken back, a call takes 2000.00 ms, 1000.00 ms without it")
    assert model._compiled_call_impl is None


def test_mixed_precision_is_for_hardware_that_computes_in_it(seconds, only, monkeypatch):
    only(MixedPrecision)
    seconds(mixed_precision=0.5)
    x = torch.ones(1, 64)
    monkeypatch.setattr(strategies, "_half", lambda device: None)
    _, result = CPUOptimizer(CPU).optimize(fill(Text()), "O1", x)
    assert result.warnings == ("mixed_precision: this cpu doesn't compute in half precision",)
    monkeypatch.setattr(strategies, "_half", lambda device: torch.bfloat16)
    model, result = CPUOptimizer(CPU).optimize(fill(Text()), "O1", x)
    assert result.optimizations_applied == ("mixed_precision",)
    assert model(x)["out"].dtype == torch.bfloat16
    _, result = CPUOptimizer(CPU).optimize(fill(Text()), "O1", x, dtype=torch.float32)
    assert result.warnings == ("mixed_precision: float32 was asked for",)
    del model.forward
    assert model(x)["out"].dtype == torch.float32


def test_kept_steps_are_measured_once_more_as_a_whole(only, monkeypatch):
    """A step that seemed to pay, on a machine that was slow just then."""
    only(FoldedBatchNorms)
    asked: list[int] = []

    def took(call: Any, calls: int, clock: Any) -> float:
        asked.append(1)
        first = len(asked) <= 1 + 2 * call_timing.ROUNDS
        return 0.5 if first and FoldedBatchNorms().is_applied(call.__self__._setting.model) else 1.0

    monkeypatch.setattr(call_timing, "_seconds", took)
    model, result = CPUOptimizer(CPU).optimize(picture(), "O1", sample())
    assert result.left_alone
    assert result.steps[0].kept
    assert isinstance(model.norm, torch.nn.BatchNorm2d)
    assert result.warnings[0].startswith("all of it: taken back, a call takes 1000.00 ms, 1000.00 ms without it")


def test_a_step_that_is_switched_off_and_on_again_gives_the_same(monkeypatch):
    model, x = picture(), sample()
    setting = StrategySetting(model=model, device=CPU, sample=x)
    before = model(**x)["out"]
    monkeypatch.setattr(strategies, "_half", lambda device: torch.bfloat16)
    for strategy in (FoldedBatchNorms(), ChannelsLast(), MixedPrecision()):
        change = strategy.apply(setting)
        after = model(**x)["out"]
        change.off()
        assert not strategy.is_applied(model)
        assert torch.equal(model(**x)["out"], before)
        change.on()
        assert strategy.is_applied(model)
        assert torch.equal(model(**x)["out"], after)
        change.off()
    assert foldable_pairs(picture(), x, 1e-4) == [("first", "norm")], "the second's output is read twice"
    assert foldable_pairs(picture(), {}, 1e-4) == []
    assert foldable_pairs(picture().train(), x, 1e-4) == []


def test_on_one_thread_of_the_host_other_processes_add_nothing_to_a_time():
    assert call_timing.clock_of(CPU) is time.process_time
    assert call_timing.clock_of(torch.device("cuda")) is time.perf_counter
    torch.set_num_threads(2)
    assert call_timing.clock_of(CPU) is time.perf_counter
