"""Optimizers: a step that is listed as applied is in force in the module, and one that doesn't pay is taken back.

Times are given, not measured: a call takes as long as the test says for the steps that are in force in the module.
"""

from __future__ import annotations

import time

import pytest
import torch
from optimized_modules import CPU, Picture, Text, bert, picture, sample

from hardware.backends.factory import get_backend
from hardware.errors import UsageError
from hardware.optimization import CPUOptimizer, OptimizationLevel, OptimizationResult, attempts, strategies
from hardware.optimization.eight_bits import Float8, Int8, Int8Kernels, float8_layers, float8_of, products
from hardware.optimization.optimization_steps import ModuleChange
from hardware.optimization.optimizers import AppleOptimizer
from hardware.optimization.sample_passes import TrainingStep
from hardware.optimization.strategies import (
    ChannelsLast,
    Compiled,
    CompiledForLong,
    FoldedBatchNorms,
    FusedAttention,
    GradientCheckpointing,
    MixedPrecision,
    StrategySetting,
    TrainingPrecision,
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


def test_without_a_sample_what_is_safe_unmeasured_is_applied(only, monkeypatch):
    monkeypatch.setattr(strategies, "_half", lambda device: torch.bfloat16)
    model, result = CPUOptimizer(CPU).optimize(picture(), None)
    assert (result.level, result.success) == (OptimizationLevel.O2, True)
    assert result.optimizations_applied == ("mixed_precision", "channels_last", "torch_compile")
    assert "no sample_input was given: with one, folded_batch_norms would be tried too" in result.warnings[0]
    torch.testing.assert_close(model(**sample())["out"].float(), picture()(**sample())["out"], rtol=0.1, atol=0.1)
    text, result = CPUOptimizer(CPU).optimize(fill(Text()), "O3")
    assert result.optimizations_applied == ("mixed_precision", "torch_compile")
    assert all(name in result.warnings[0] for name in ("int8_kernels", "torch_compile_max_autotune"))
    _, result = CPUOptimizer(CPU).optimize(picture(), "O1", object())
    assert "sample_input is neither a tensor nor a mapping" in result.warnings[0]

    class Uncompilable(Compiled):
        def apply(self, setting):
            monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx", None)
            return super().apply(setting)

    only(Uncompilable)
    torch._dynamo.reset()
    text, _ = CPUOptimizer(CPU).optimize(fill(Text()), "O2")
    x = torch.ones(1, 64)
    with pytest.warns(RuntimeWarning, match="torch_compile: reverted"):
        found = text(x)["out"]
    assert torch.equal(found, fill(Text())(x)["out"])
    assert not Compiled().is_applied(text)


def test_attention_in_steps_is_fused(only):
    only(FusedAttention)
    model = fill(bert(attn_implementation="eager"))
    want = model(input_ids=torch.arange(4)[None]).last_hidden_state
    change = FusedAttention().apply(StrategySetting(model=model, device=CPU))
    assert FusedAttention().is_applied(model)
    torch.testing.assert_close(model(input_ids=torch.arange(4)[None]).last_hidden_state, want, rtol=1e-4, atol=1e-4)
    change.off()
    assert not FusedAttention().is_applied(model)
    assert FusedAttention().obstacle(StrategySetting(model=Text(), device=CPU)) == "its class has no fused attention"


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
    assert [one.kept for one in result.steps] == [False, False]


def test_a_step_that_moves_outputs_is_taken_back(seconds, only):
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
    assert "outputs change by" in result.warnings[0]


def test_a_model_of_transformers_brings_its_own_sample(seconds, only, monkeypatch):
    only(MixedPrecision)
    seconds(mixed_precision=2.0)
    monkeypatch.setattr(strategies, "_half", lambda device: torch.bfloat16)
    _, result = CPUOptimizer(CPU).optimize(bert(), "O2")
    (warning,) = result.warnings
    assert warning.startswith("mixed_precision: reverted, a call takes 2000.00 ms, 1000.00 ms without it")


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
    assert result.warnings[0].startswith("torch_compile: reverted, a call takes 2000.00 ms, 1000.00 ms without it")
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
    assert result.warnings == ("mixed_precision: float32 was requested",)
    del model.forward
    assert model(x)["out"].dtype == torch.float32


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
    assert attempts.clock_of(CPU) is time.process_time
    assert attempts.clock_of(torch.device("cuda")) is time.perf_counter
    torch.set_num_threads(2)
    assert attempts.clock_of(CPU) is time.perf_counter


# 8 bits


def test_eight_bits_and_compilation_are_kept_together(seconds, only, monkeypatch):
    pytest.importorskip("torchao", reason="torchao isn't installed (the extra optimize)")
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
    assert result.warnings[0].startswith("int8_dynamic with torch_compile_max_autotune: reverted")


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


def test_float8_products_are_those_of_float8_numbers():
    from transformers.pytorch_utils import Conv1D

    mixed = torch.nn.Sequential(torch.nn.Linear(4, 8), Conv1D(6, 8), torch.nn.LayerNorm(6))
    assert {name: tuple(weight.shape) for name, (weight, _) in products(mixed).items()} == {"0": (8, 4), "1": (6, 8)}
    form = torch.float8_e4m3fn
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


def test_float8_is_for_devices_that_multiply_it(monkeypatch):
    assert "processors can't multiply float8" in Float8().obstacle(StrategySetting(model=Text(), device=CPU))
    setting = StrategySetting(model=Text(), device=torch.device("cuda:0"))
    too_old = "compute capability 8.0 doesn't multiply float8 (8.9 or later does)"
    for capability, why in (((8, 0), too_old), ((8, 9), ""), ((9, 0), "")):
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
            assert Float8().obstacle(setting) == why
            assert isinstance(float8_of(setting.device), torch.dtype) is not bool(why)
            if not why:
                assert Float8().obstacle(StrategySetting(model=Text().double(), device=setting.device))
    if torch.cuda.is_available() and not isinstance(float8_of(setting.device), str):
        x = torch.linspace(-1, 1, 64, device=setting.device).repeat(4, 1)
        model = fill(Text()).to(setting.device)
        want = model(x)["out"]
        change = Float8().apply(StrategySetting(model=model, device=setting.device))
        assert Float8().is_applied(model)
        assert float((model(x)["out"] - want).abs().max() / want.std()) < 0.25
        change.off()
        assert torch.equal(model(x)["out"], want)


# Training


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
    assert GradientCheckpointing().obstacle(StrategySetting(model=torch.nn.Linear(2, 2), device=CPU))


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
    step = TrainingStep(StrategySetting(model=norms, device=CPU, sample=sample()))
    step.outputs(), step.call(), step.kept_bytes()
    assert torch.equal(norms.norm.running_mean, torch.zeros(8))
    assert int(norms.norm.num_batches_tracked) == 0


def test_checkpointing_that_saves_nothing_or_changes_gradients_is_taken_back(only, monkeypatch):
    class Idle(GradientCheckpointing):
        def apply(self, setting):
            setting.model.encoder.gradient_checkpointing = True  # a flag that no layer reads
            return ModuleChange(
                on=lambda: None, off=lambda: setattr(setting.model.encoder, "gradient_checkpointing", False)
            )

        def is_applied(self, model):
            return getattr(model.encoder, "gradient_checkpointing", False)

    class Wrong(GradientCheckpointing):
        def apply(self, setting):
            change = super().apply(setting)
            hook = setting.model.pooler.dense.weight.register_hook(lambda gradient: gradient * 1.01)
            return ModuleChange(on=change.on, off=lambda: (change.off(), hook.remove()))

    only(Idle)
    _, result = CPUOptimizer(CPU).optimize(bert(), "O2", training=True)
    assert result.left_alone
    assert "MB for its backward pass" in result.warnings[0]
    only(Wrong)
    model, result = CPUOptimizer(CPU).optimize(bert(), "O2", training=True)
    assert not model.is_gradient_checkpointing
    assert "outputs change by" in result.warnings[0]


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
    (warning,) = result.warnings
    assert warning.startswith("not measured, because no sample_input was given")


def test_training_in_float16_is_left_to_a_loop_that_scales_its_loss(monkeypatch):
    setting = StrategySetting(model=Text(), device=CPU)
    monkeypatch.setattr(strategies, "_half", lambda device: torch.float16)
    assert MixedPrecision().obstacle(setting) == ""
    assert "loss" in TrainingPrecision().obstacle(setting)
    monkeypatch.setattr(strategies, "_half", lambda device: torch.bfloat16)
    assert TrainingPrecision().obstacle(setting) == ""
