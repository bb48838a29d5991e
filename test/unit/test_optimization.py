"""Optimisers: what is listed as applied is in force in the module, and what isn't worth it is taken back.

Times are given, not measured: a call takes as long as the test says for what is in force in the module.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from hardware.backends.factory import get_backend
from hardware.errors import UsageError
from hardware.optimization import CPUOptimizer, OptimizationLevel, OptimizationResult, timing
from hardware.optimization.batch_norms import foldable_pairs
from hardware.optimization.changes import Change
from hardware.optimization.eight_bit_layers import Float8 as Float8Format
from hardware.optimization.eight_bit_layers import float8_layers, float8_of, products
from hardware.optimization.eight_bits import Float8, Int8, Int8Kernels
from hardware.optimization.optimizers import AppleOptimizer
from hardware.optimization.passes import TrainingStep
from hardware.optimization.strategies import (
    ChannelsLast,
    Compiled,
    FoldedBatchNorms,
    GradientCheckpointing,
    MixedPrecision,
    Setting,
    Strategy,
    TrainingPrecision,
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
    """Says by what each strategy that is in force in the module multiplies the time of a call; without, it is 1 s."""

    def set_to(**factors: float) -> None:
        ways = {one: factors[one.name] for one in map(_made, CPUOptimizer.STRATEGIES) if one.name in factors}

        def told(call: Any, calls: int, clock: Any) -> float:
            model = call.__self__._setting.model
            return math.prod(factor for one, factor in ways.items() if one.is_applied(model))

        monkeypatch.setattr(timing, "_seconds", told)

    return set_to


def _made(strategy: type[Strategy]) -> Strategy:
    return strategy()


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
        "folded_batch_norms: taken back, a call takes 980.00 ms, 1000.00 ms without it (faster in 15 of 15 rounds)",
        "channels_last: taken back, a call takes 1100.00 ms, 1000.00 ms without it (faster in 0 of 4 rounds)",
    )
    assert [one.kept for one in result.steps] == [False, False]


def test_what_moves_outputs_is_taken_back(seconds, only, monkeypatch):
    class Louder(ChannelsLast):
        name = "louder"

        def apply(self, setting):
            change = super().apply(setting)
            setting.model.second.bias.data += 0.01
            return Change(on=change.on, off=lambda: (change.off(), setting.model.second.bias.data.sub_(0.01)))

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
            return Change(on=lambda: None, off=lambda: None)

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


def test_eight_bits_and_compilation_stand_together(seconds, only, monkeypatch):
    pytest.importorskip("torchao", reason="torchao isn't installed (requirements-optimise.txt)")
    from hardware.optimization.strategies import CompiledForLong

    monkeypatch.setattr(CompiledForLong, "mode", "default")  # the search takes minutes and isn't what is tested
    only(Int8, Compiled, CompiledForLong)
    seconds(torch_compile_max_autotune=0.5)
    model, result = CPUOptimizer(CPU).optimize(fill(Text()), "O3", torch.linspace(-1, 1, 64).repeat(4, 1))
    assert result.optimizations_applied == ("int8_dynamic", "torch_compile_max_autotune")
    assert type(model.first.weight.data).__name__ == "Int8Tensor"
    assert 1e-5 < result.metrics["max_rel_error"] < 0.25
    seconds(torch_compile_max_autotune=2.0)
    model, result = CPUOptimizer(CPU).optimize(fill(Text()), "O3", torch.linspace(-1, 1, 64).repeat(4, 1))
    assert result.left_alone
    assert type(model.first.weight) is torch.nn.Parameter
    assert result.warnings[0].startswith("int8_dynamic with torch_compile_max_autotune: taken back")


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


def bert(**changes: Any) -> torch.nn.Module:
    import transformers

    config = transformers.BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, **changes
    )
    return transformers.BertModel(config)


def test_training_recomputes_activations_where_the_class_can():
    backend = get_backend("cpu")
    model = bert()
    optimizer = torch.optim.AdamW(model.parameters())
    ready, same = backend.optimize_for_training(model, optimizer, dtype=torch.float32)
    assert same is optimizer
    assert ready.training
    assert ready.is_gradient_checkpointing
    result = backend.optimized
    assert result is not None
    assert result.optimizations_applied == ("gradient_checkpointing",)
    assert 0 < result.metrics["kept_bytes_after"] < result.metrics["kept_bytes_before"]
    assert result.metrics["max_rel_error"] < 1e-5
    ready(input_ids=torch.arange(4)[None]).last_hidden_state.sum().backward()
    optimizer.step()
    assert GradientCheckpointing().obstacle(Setting(model=torch.nn.Linear(2, 2), device=CPU))


def test_a_judged_training_step_leaves_everything_as_it_was(only):
    only(GradientCheckpointing)
    model = bert().train()
    model(input_ids=torch.arange(4)[None]).last_hidden_state.sum().backward()
    gradients = [None if one.grad is None else one.grad.clone() for one in model.parameters()]
    state = torch.random.get_rng_state()
    CPUOptimizer(CPU).optimize(model, "O2", {"input_ids": torch.arange(8)[None]}, training=True)
    assert torch.equal(torch.random.get_rng_state(), state)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert (parameter.grad is None and gradient is None) or torch.equal(parameter.grad, gradient)
    norms = Picture().train()
    step = TrainingStep(Setting(model=norms, device=CPU, sample=sample()))
    step.outputs(), step.call(), step.kept_bytes()
    assert torch.equal(norms.norm.running_mean, torch.zeros(8))
    assert int(norms.norm.num_batches_tracked) == 0


def test_checkpointing_that_saves_nothing_or_changes_gradients_is_taken_back(only, monkeypatch):
    class Idle(GradientCheckpointing):
        def apply(self, setting):
            setting.model.encoder.gradient_checkpointing = True  # a flag that no layer reads
            return Change(
                on=lambda: None, off=lambda: setattr(setting.model.encoder, "gradient_checkpointing", False)
            )

        def is_applied(self, model):
            return getattr(model.encoder, "gradient_checkpointing", False)

    class Wrong(GradientCheckpointing):
        def apply(self, setting):
            change = super().apply(setting)
            hook = setting.model.pooler.dense.weight.register_hook(lambda gradient: gradient * 1.01)
            return Change(on=change.on, off=lambda: (change.off(), hook.remove()))

    only(Idle)
    _, result = CPUOptimizer(CPU).optimize(bert(), "O2", training=True)
    assert result.left_alone
    assert "MB for its backward pass" in result.warnings[0]
    only(Wrong)
    model, result = CPUOptimizer(CPU).optimize(bert(), "O2", training=True)
    assert not model.is_gradient_checkpointing
    assert "outputs move by" in result.warnings[0]


def test_training_without_a_sample_is_told_to_be_unmeasured(only):
    class Plain(torch.nn.Linear):
        supports_gradient_checkpointing = True
        is_gradient_checkpointing = False

        def gradient_checkpointing_enable(self, **options):
            self.is_gradient_checkpointing = True

        def gradient_checkpointing_disable(self):
            self.is_gradient_checkpointing = False

    only(GradientCheckpointing)
    _, result = CPUOptimizer(CPU).optimize(Plain(2, 2), "O2", training=True)
    assert result.optimizations_applied == ("gradient_checkpointing",)
    assert result.metrics == {}
    assert result.warnings == ("not measured, since no sample_input was given",)


def test_training_in_float16_is_left_to_a_loop_that_scales_its_loss(monkeypatch):
    from hardware.optimization import strategies

    setting = Setting(model=Text(), device=CPU)
    monkeypatch.setattr(strategies, "_half", lambda device: torch.float16)
    assert MixedPrecision().obstacle(setting) == ""
    assert "loss" in TrainingPrecision().obstacle(setting)
    monkeypatch.setattr(strategies, "_half", lambda device: torch.bfloat16)
    assert TrainingPrecision().obstacle(setting) == ""


def test_int8_on_the_host_is_made_by_torch_alone(seconds, only):
    only(Int8Kernels, Int8)
    seconds(int8_kernels=0.5)
    x = torch.linspace(-1, 1, 64).repeat(4, 1)
    model, want = fill(Text()), fill(Text())(x)["out"].detach()
    model, result = CPUOptimizer(CPU).optimize(model, "O3", x)
    assert result.optimizations_applied == ("int8_kernels",)
    assert not result.warnings, "another way to 8 bits isn't tried"
    assert model.first.packed.dtype == torch.int8
    assert {name.rpartition(".")[2] for name, _ in model.named_parameters()} == {"bias"}, "no weight is in float32"
    error = float((model(x)["out"].detach() - want).abs().max() / want.std())
    assert 1e-4 < error < 0.05
    assert result.metrics["allowed_rel_error"] == 0.25
    _, again = CPUOptimizer(CPU).optimize(model, "O3", x)
    assert again.optimizations_applied == ()
    seconds(int8_kernels=1.0)
    model, result = CPUOptimizer(CPU).optimize(fill(Text()), "O3", x)
    assert type(model.first) is torch.nn.Linear
    assert torch.equal(model(x)["out"], want)


def test_layers_that_are_a_product_are_found_whichever_way_their_weight_lies():
    from transformers.pytorch_utils import Conv1D

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), Conv1D(6, 8), torch.nn.LayerNorm(6))
    assert {name: tuple(weight.shape) for name, (weight, _) in products(model).items()} == {"0": (8, 4), "1": (6, 8)}


def test_float8_products_are_those_of_float8_numbers():
    form = Float8Format(dtype=torch.float8_e4m3fn, largest=448.0)
    model, x = fill(Text()).requires_grad_(False), torch.linspace(-3, 5, 64).repeat(4, 1)[:, None]
    layer = float8_layers(model, form)["first"]
    assert layer.narrow.dtype == torch.float8_e4m3fn
    rows = (x / (x.abs().max() / 448)).to(torch.float8_e4m3fn).float() * (x.abs().max() / 448)
    exact = rows @ (layer.narrow.float() * layer.scale).t() + model.first.bias
    torch.testing.assert_close(layer(x), exact, rtol=1e-5, atol=1e-5)
    error = float((layer(x) - model.first(x)).abs().max() / model.first(x).std())
    assert 1e-3 < error < 0.1
    odd = torch.nn.Sequential(torch.nn.Linear(60, 64), torch.nn.Linear(64, 64))
    assert list(float8_layers(odd, form)) == ["1"], "the kernel takes multiples of 16"


@pytest.mark.parametrize(
    ("capability", "why"),
    [((8, 0), "compute capability 8.0 doesn't multiply float8; 8.9 does"), ((8, 9), ""), ((9, 0), "")],
)
def test_float8_is_for_devices_that_multiply_it(monkeypatch, capability, why):
    assert "no processor multiplies float8" in Float8().obstacle(Setting(model=Text(), device=CPU))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    setting = Setting(model=Text(), device=torch.device("cuda:0"))
    assert Float8().obstacle(setting) == why
    if not why:
        assert isinstance(float8_of(setting.device), Float8Format)
        assert "float64" not in str(setting.model.first.weight.dtype)
        assert Float8().obstacle(Setting(model=Text().double(), device=setting.device))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")
def test_float8_on_a_device_that_multiplies_it(only):
    device = torch.device("cuda:0")
    if isinstance(why := float8_of(device), str):
        pytest.skip(why)
    x = torch.linspace(-1, 1, 64, device=device).repeat(4, 1)
    model = fill(Text()).to(device)
    want = model(x)["out"]
    change = Float8().apply(Setting(model=model, device=device))
    assert Float8().is_applied(model)
    assert float((model(x)["out"] - want).abs().max() / want.std()) < 0.25
    change.off()
    assert torch.equal(model(x)["out"], want)


@pytest.mark.parametrize(("slower", "most"), [(1.05, 0), (1.0, 1)])
def test_noise_keeps_nothing_that_is_no_faster(monkeypatch, slower, most):
    """Times that scatter by a fifth, and are threefold once in ten: a step is measured, and then the whole."""
    kept = 0
    for seed in range(300):
        drawn, on = random.Random(seed), [True]
        change = Change(on=lambda on=on: on.__setitem__(0, True), off=lambda on=on: on.__setitem__(0, False))

        def told(call: Any, calls: int, clock: Any, drawn: Any = drawn, on: Any = on) -> float:
            busy = 3.0 if drawn.random() < 0.1 else 1.0
            return busy * (slower if on[0] else 1.0) * math.exp(drawn.gauss(0, 0.2))

        monkeypatch.setattr(timing, "_seconds", told)
        kept += timing.compared(change, lambda: None).pays and timing.compared(change, lambda: None).pays
    assert kept <= most, f"{kept} of 300"


def test_what_is_faster_is_kept_through_noise(monkeypatch):
    kept = 0
    for seed in range(100):
        drawn, on = random.Random(seed), [True]
        change = Change(on=lambda on=on: on.__setitem__(0, True), off=lambda on=on: on.__setitem__(0, False))
        monkeypatch.setattr(
            timing,
            "_seconds",
            lambda call, calls, clock, drawn=drawn, on=on: (0.6 if on[0] else 1.0) * math.exp(drawn.gauss(0, 0.1)),
        )
        kept += timing.compared(change, lambda: None).pays
    assert kept > 95


def test_on_one_thread_of_the_host_other_processes_add_nothing_to_a_time():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert timing.clock_of(CPU) is time.process_time
        assert timing.clock_of(torch.device("cuda")) is time.perf_counter
        torch.set_num_threads(2)
        assert timing.clock_of(CPU) is time.perf_counter
    finally:
        torch.set_num_threads(before)


def test_what_was_kept_is_measured_once_more_as_a_whole(only, monkeypatch):
    """A step that seemed to pay, on a machine that was slow just then."""
    only(FoldedBatchNorms)
    asked: list[int] = []

    def told(call: Any, calls: int, clock: Any) -> float:
        asked.append(1)
        first = len(asked) <= 1 + 2 * timing.ROUNDS
        return 0.5 if first and FoldedBatchNorms().is_applied(call.__self__._setting.model) else 1.0

    monkeypatch.setattr(timing, "_seconds", told)
    model, result = CPUOptimizer(CPU).optimize(picture(), "O1", sample())
    assert result.left_alone
    assert result.steps[0].kept
    assert isinstance(model.norm, torch.nn.BatchNorm2d)
    assert result.warnings[0].startswith("all of it: taken back, a call takes 1000.00 ms, 1000.00 ms without it")


def test_what_is_turned_off_and_on_again_gives_the_same(monkeypatch):
    model, x = picture(), sample()
    setting = Setting(model=model, device=CPU, sample=x)
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


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """No compiled code of another test, and one thread: two wait for one another on a machine with other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    torch._dynamo.reset()


def test_a_result_is_plain_data():
    made = OptimizationResult(success=True, model=torch.nn.Linear(1, 1), level=OptimizationLevel.O1)
    assert made.to_dict()["level"] == "O1"
