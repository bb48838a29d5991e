"""Optimisers: what is listed as applied is in force in the module, and what isn't worth it is taken back.

Times are given, not measured: a call takes as long as the test says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from hardware.backends.factory import get_backend
from hardware.errors import UsageError
from hardware.optimization import CPUOptimizer, OptimizationLevel, OptimizationResult, optimizers
from hardware.optimization.batch_norms import foldable_pairs
from hardware.optimization.optimizers import AppleOptimizer
from hardware.optimization.strategies import (
    ChannelsLast,
    Compiled,
    FoldedBatchNorms,
    GradientCheckpointing,
    Int8,
    MixedPrecision,
    Setting,
    Strategy,
)
from hardware.testing.loud_weights import fill

CPU = torch.device("cpu")

# torch.compile itself imports what torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")


class Picture(torch.nn.Module):
    """Two convolutions with normalisations; the output of the second is read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.other = torch.nn.BatchNorm2d(8)

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.second(self.norm(self.first(pixel_values)).relu())
        return {"out": self.other(hidden) + hidden}


class Text(torch.nn.Module):
    """A linear layer over another."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(64, 64)
        self.second = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": self.second(self.first(x).tanh())}


def picture() -> Picture:
    return fill(Picture().eval())


def sample() -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.linspace(-1, 1, 3 * 16 * 16).reshape(1, 3, 16, 16)}


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says how long calls take, one measurement after the other; the last one lasts."""

    def set_to(*values: float) -> None:
        left = iter(values)
        latest = [values[-1]]

        def latency(model: Any, setting: Setting) -> float:
            latest[0] = next(left, latest[0])
            return latest[0]

        monkeypatch.setattr(optimizers, "_latency", latency)

    return set_to


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Leaves an optimiser these strategies."""

    def keep(*strategies: type[Strategy]) -> None:
        monkeypatch.setattr(CPUOptimizer, "STRATEGIES", strategies)

    return keep


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
    }


def test_what_is_listed_is_in_the_module_and_what_is_measured_is_told(seconds, only):
    only(FoldedBatchNorms, ChannelsLast)
    seconds(1.0, 0.9, 0.5)
    model, want = picture(), picture()(**sample())["out"]
    model, result = CPUOptimizer(CPU).optimize(model, "O1", sample())
    assert result.optimizations_applied == ("folded_batch_norms", "channels_last")
    assert isinstance(model.norm, torch.nn.Identity)
    assert isinstance(model.other, torch.nn.BatchNorm2d), "its convolution's output is read by others too"
    assert model.first.weight.is_contiguous(memory_format=torch.channels_last)
    assert result.metrics["speedup"] == 2.0
    assert result.metrics["max_rel_error"] < 1e-5
    torch.testing.assert_close(model(**sample())["out"], want, rtol=1e-4, atol=1e-4)


def test_what_is_no_faster_is_taken_back(seconds, only):
    only(FoldedBatchNorms, ChannelsLast)
    seconds(1.0, 0.98, 1.1)
    model, want = picture(), picture()(**sample())["out"]
    model, result = CPUOptimizer(CPU).optimize(model, "O1", sample())
    assert result.left_alone
    assert result.success
    assert isinstance(model.norm, torch.nn.BatchNorm2d)
    assert model.first.weight.is_contiguous()
    assert not model._forward_pre_hooks
    assert torch.equal(model(**sample())["out"], want)
    assert result.warnings[0] == "folded_batch_norms: taken back, a call takes 980.00 ms, 1000.00 ms without it"


def test_what_moves_outputs_is_taken_back(seconds, only, monkeypatch):
    class Louder(ChannelsLast):
        name = "louder"

        def apply(self, setting):
            undo = super().apply(setting)
            setting.model.second.bias.data += 0.01
            return lambda: (undo(), setting.model.second.bias.data.sub_(0.01))

    only(Louder)
    seconds(1.0, 0.1)
    _, result = CPUOptimizer(CPU).optimize(picture(), "O1", sample())
    assert result.left_alone
    assert "outputs move by" in result.warnings[0]


def test_what_raises_or_is_not_in_force_leaves_the_module_as_it_was(seconds, only):
    class Raising(ChannelsLast):
        name = "raising"

        def apply(self, setting):
            raise RuntimeError("no kernel\nand more")

    class Idle(ChannelsLast):
        name = "idle"

        def apply(self, setting):
            return lambda: None

    only(Raising, Idle)
    seconds(1.0, 0.1)
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
    seconds(1.0, 2.0)
    config = transformers.BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model, result = CPUOptimizer(CPU).optimize(transformers.BertModel(config), "O2")
    assert result.warnings == ("torch_compile: taken back, a call takes 2000.00 ms, 1000.00 ms without it",)
    assert model._compiled_call_impl is None


def test_a_compiled_module_is_compiled(seconds, only):
    only(Compiled)
    seconds(1.0, 0.5)
    model, result = CPUOptimizer(CPU).optimize(fill(Text()), "O2", torch.linspace(-1, 1, 64)[None])
    assert result.optimizations_applied == ("torch_compile",)
    assert Compiled().is_applied(model)
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    model.compile(backend=counter)
    model(torch.ones(1, 64))
    assert counter.frame_count == 1


def test_eight_bits_and_compilation_stand_together(seconds, only, monkeypatch):
    pytest.importorskip("torchao", reason="torchao isn't installed (requirements-optimise.txt)")
    from hardware.optimization.strategies import CompiledForLong

    monkeypatch.setattr(CompiledForLong, "mode", "default")  # the search takes minutes and isn't what is tested
    only(Int8, Compiled, CompiledForLong)
    seconds(1.0, 0.5)
    model, result = CPUOptimizer(CPU).optimize(fill(Text()), "O3", torch.linspace(-1, 1, 64).repeat(4, 1))
    assert result.optimizations_applied == ("int8_dynamic", "torch_compile_max_autotune")
    assert type(model.first.weight.data).__name__ == "Int8Tensor"
    assert 1e-5 < result.metrics["max_rel_error"] < 0.25
    seconds(1.0, 2.0)
    model, result = CPUOptimizer(CPU).optimize(fill(Text()), "O3", torch.linspace(-1, 1, 64).repeat(4, 1))
    assert result.left_alone
    assert type(model.first.weight) is torch.nn.Parameter
    assert result.warnings[0].startswith("int8_dynamic with torch_compile_max_autotune: taken back")


def test_mixed_precision_is_for_hardware_that_computes_in_it(seconds, only, monkeypatch):
    from hardware.optimization import strategies

    only(MixedPrecision)
    seconds(1.0, 0.5)
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


def test_training_recomputes_activations_where_the_class_can():
    import transformers

    config = transformers.BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    backend = get_backend("cpu")
    model = transformers.BertModel(config)
    optimizer = torch.optim.AdamW(model.parameters())
    ready, same = backend.optimize_for_training(model, optimizer, dtype=torch.float32)
    assert same is optimizer
    assert ready.training
    assert ready.is_gradient_checkpointing
    assert backend.optimized is not None
    assert backend.optimized.optimizations_applied == ("gradient_checkpointing",)
    ready(input_ids=torch.arange(4)[None]).last_hidden_state.sum().backward()
    optimizer.step()
    assert GradientCheckpointing().obstacle(Setting(model=torch.nn.Linear(2, 2), device=CPU))


def test_a_normalisation_is_folded_only_where_it_alone_takes_an_output():
    assert foldable_pairs(picture(), sample(), 1e-4) == [("first", "norm")], "the second's output is read twice"
    assert foldable_pairs(picture(), {}, 1e-4) == []
    assert foldable_pairs(picture().train(), sample(), 1e-4) == []


def test_what_can_be_tried_is_told_with_what_was_measured(seconds, only):
    only(FoldedBatchNorms, ChannelsLast)
    optimizer = CPUOptimizer(CPU)
    assert [one.speedup_estimate for one in optimizer.get_available_strategies()] == [None, None]
    seconds(1.0, 0.5, 1.0)
    optimizer.optimize(picture(), "O1", sample())
    folded, last = (one.to_dict() for one in optimizer.get_available_strategies())
    assert folded["speedup_estimate"] == 2.0
    assert last["speedup_estimate"] == 0.5
    assert folded["applicable_levels"] == ["O1", "O2", "O3"]
    assert "int8_dynamic" not in {one.name for one in AppleOptimizer(CPU).get_available_strategies()}


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """No compiled code of another test."""
    yield
    torch._dynamo.reset()


def test_a_result_is_plain_data():
    made = OptimizationResult(success=True, model=torch.nn.Linear(1, 1), level=OptimizationLevel.O1)
    assert made.to_dict()["level"] == "O1"
