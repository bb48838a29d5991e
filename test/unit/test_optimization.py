"""Optimisers: what is listed as applied is in force in the module, and what isn't worth it is taken back.

Times are given, not measured: a call takes as long as the test says for what is in force in the module.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from optimised_models import CPU, Text, picture, sample

from hardware.errors import UsageError
from hardware.optimization import CPUOptimizer, OptimizationLevel, OptimizationResult, call_timing
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


@pytest.mark.parametrize(
    ("text", "level"),
    [
        *(("O0", "O0"), ("none", "O0"), ("NONE", "O0"), ("o1", "O1"), ("Conservative", "O1"), (" balanced ", "O2")),
        *(("default", "O2"), ("o3", "O3"), ("AGGRESSIVE", "O3"), ("2", "O2")),
    ],
)
def test_levels_have_names_in_any_case(text, level):
    assert OptimizationLevel.from_string(text) is OptimizationLevel(level)


@pytest.mark.parametrize("text", ["", "O4", "agressive", "-1"])
def test_an_unknown_level_is_an_error(text):
    with pytest.raises(UsageError, match="unknown optimisation level"):
        OptimizationLevel.from_string(text)
    with pytest.raises(UsageError):
        CPUOptimizer(CPU).optimize(torch.nn.Linear(2, 2), text)


def test_level_zero_places_and_does_nothing_else():
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


def test_what_is_listed_is_in_the_module_and_what_is_measured_is_told(seconds, only):
    only(FoldedBatchNorms, ChannelsLast)
    seconds(folded_batch_norms=0.8, channels_last=0.5)
    model, want = picture(), picture()(**sample())["out"]
    model, result = CPUOptimizer(CPU).optimize(model, "O1", sample())
    assert result.optimizations_applied == ("folded_batch_norms", "channels_last")
    assert isinstance(model.norm, torch.nn.Identity)
    assert isinstance(model.other, torch.nn.BatchNorm2d), "its convolution's output is read by others too"
    assert model.first.weight.is_contiguous(memory_format=torch.channels_last)
    assert result.metrics["speedup"] == 2.5
    assert result.metrics["latency_after_ms"] == 400.0
    assert [(one.name, one.kept, one.measured["speedup"]) for one in result.steps] == [
        ("folded_batch_norms", True, 1.25),
        ("channels_last", True, 2.0),
    ]
    assert result.metrics["max_rel_error"] < 1e-5
    torch.testing.assert_close(model(**sample())["out"], want, rtol=1e-4, atol=1e-4)


def test_what_is_no_faster_is_taken_back(seconds, only):
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


def test_what_moves_outputs_is_taken_back(seconds, only, monkeypatch):
    class Louder(ChannelsLast):
        name = "louder"

        def apply(self, setting):
            change = super().apply(setting)
            setting.model.second.bias.data += 0.01
            return ModuleChange(on=change.on, off=lambda: (change.off(), setting.model.second.bias.data.sub_(0.01)))

    only(Louder)
    seconds(louder=0.1)
    model, want = picture(), picture()(**sample())["out"]
    _, result = CPUOptimizer(CPU).optimize(model, "O1", sample())
    torch.testing.assert_close(model(**sample())["out"], want)
    assert result.left_alone
    assert "outputs move by" in result.warnings[0]


def test_what_raises_or_is_not_in_force_leaves_the_module_as_it_was(only):
    class Raising(ChannelsLast):
        name = "raising"

        def apply(self, setting):
            raise RuntimeError("no kernel\nand more")

    class Idle(ChannelsLast):
        name = "idle"

        def apply(self, setting):
            return ModuleChange(on=lambda: None, off=lambda: None)

    only(Raising, Idle)
    model, result = CPUOptimizer(CPU).optimize(picture(), "O1", sample())
    assert not result.success
    assert result.warnings == (
        "raising: taken back, RuntimeError: no kernel",
        "idle: taken back, it isn't in force in the model",
    )
    assert model.first.weight.is_contiguous()


def test_without_a_sample_nothing_is_measured_and_nothing_done():
    _, result = CPUOptimizer(CPU).optimize(picture(), "O2")
    assert result.left_alone
    assert "no sample_input was given" in result.warnings[0]


def test_a_model_of_transformers_brings_a_sample_of_its_own(seconds, only):
    import transformers

    only(Compiled)
    seconds(torch_compile=2.0)
    config = transformers.BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model, result = CPUOptimizer(CPU).optimize(transformers.BertModel(config), "O2")
    (warning,) = result.warnings
    assert warning.startswith("torch_compile: taken back, a call takes 2000.00 ms, 1000.00 ms without it")
    assert model._compiled_call_impl is None


def test_a_compiled_module_is_compiled(seconds, only):
    only(Compiled)
    seconds(torch_compile=0.5)
    model, result = CPUOptimizer(CPU).optimize(fill(Text()), "O2", torch.linspace(-1, 1, 64)[None])
    assert result.optimizations_applied == ("torch_compile",)
    assert Compiled().is_applied(model)
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    model.compile(backend=counter)
    model(torch.ones(1, 64))
    assert counter.frame_count == 1


def test_mixed_precision_is_for_hardware_that_computes_in_it(seconds, only, monkeypatch):
    from hardware.optimization import strategies

    only(MixedPrecision)
    seconds(mixed_precision=0.5)
    monkeypatch.setattr(strategies, "_half", lambda device: None)
    _, result = CPUOptimizer(CPU).optimize(fill(Text()), "O1", torch.ones(1, 64))
    assert result.warnings == ("mixed_precision: this cpu doesn't compute in half precision",)
    monkeypatch.setattr(strategies, "_half", lambda device: torch.bfloat16)
    model, result = CPUOptimizer(CPU).optimize(fill(Text()), "O1", torch.ones(1, 64))
    assert result.optimizations_applied == ("mixed_precision",)
    assert model(torch.ones(1, 64))["out"].dtype == torch.bfloat16
    _, result = CPUOptimizer(CPU).optimize(fill(Text()), "O1", torch.ones(1, 64), dtype=torch.float32)
    assert result.warnings == ("mixed_precision: float32 was asked for",)
    del model.forward
    assert model(torch.ones(1, 64))["out"].dtype == torch.float32


def test_what_was_kept_is_measured_once_more_as_a_whole(only, monkeypatch):
    """A step that seemed to pay, on a machine that was slow just then."""
    only(FoldedBatchNorms)
    asked: list[int] = []

    def told(call: Any, calls: int, clock: Any) -> float:
        asked.append(1)
        first = len(asked) <= 1 + 2 * call_timing.ROUNDS
        return 0.5 if first and FoldedBatchNorms().is_applied(call.__self__._setting.model) else 1.0

    monkeypatch.setattr(call_timing, "_seconds", told)
    model, result = CPUOptimizer(CPU).optimize(picture(), "O1", sample())
    assert result.left_alone
    assert result.steps[0].kept
    assert isinstance(model.norm, torch.nn.BatchNorm2d)
    assert result.warnings[0].startswith("all of it: taken back, a call takes 1000.00 ms, 1000.00 ms without it")


def test_what_is_turned_off_and_on_again_gives_the_same(monkeypatch):
    model, x = picture(), sample()
    setting = StrategySetting(model=model, device=CPU, sample=x)
    before = model(**x)["out"]
    for strategy in (FoldedBatchNorms(), ChannelsLast(), MixedPrecision()):
        monkeypatch.setattr("hardware.optimization.strategies._half", lambda device: torch.bfloat16)
        change = strategy.apply(setting)
        after = model(**x)["out"]
        change.off()
        assert not strategy.is_applied(model)
        assert torch.equal(model(**x)["out"], before)
        change.on()
        assert strategy.is_applied(model)
        assert torch.equal(model(**x)["out"], after)
        change.off()


def test_a_normalisation_is_folded_only_where_it_alone_takes_an_output():
    assert foldable_pairs(picture(), sample(), 1e-4) == [("first", "norm")], "the second's output is read twice"
    assert foldable_pairs(picture(), {}, 1e-4) == []
    assert foldable_pairs(picture().train(), sample(), 1e-4) == []


def test_what_can_be_tried_is_told_with_what_was_measured(seconds, only):
    only(FoldedBatchNorms, ChannelsLast)
    optimizer = CPUOptimizer(CPU)
    assert [one.speedup_estimate for one in optimizer.get_available_strategies()] == [None, None]
    seconds(folded_batch_norms=0.5, channels_last=2.0)
    optimizer.optimize(picture(), "O1", sample())
    folded, last = (one.to_dict() for one in optimizer.get_available_strategies())
    assert folded["speedup_estimate"] == 2.0
    assert last["speedup_estimate"] == 0.5
    assert folded["applicable_levels"] == ["O1", "O2", "O3"]
    assert "int8_dynamic" not in {one.name for one in AppleOptimizer(CPU).get_available_strategies()}


def test_a_result_is_plain_data():
    made = OptimizationResult(success=True, model=torch.nn.Linear(1, 1), level=OptimizationLevel.O1)
    assert made.to_dict()["level"] == "O1"
