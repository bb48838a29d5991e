"""Optimizers in training: a kept step saves memory or time, and gradients stay the same."""

from __future__ import annotations

import pytest
import torch
from optimised_models import CPU, Picture, Text, bert, sample

from hardware.backends.factory import get_backend
from hardware.optimization import CPUOptimizer, strategies
from hardware.optimization.optimization_steps import ModuleChange
from hardware.optimization.sample_passes import TrainingStep
from hardware.optimization.strategies import GradientCheckpointing, MixedPrecision, StrategySetting, TrainingPrecision

pytestmark = [
    pytest.mark.usefixtures("alone"),
    # torch.compile itself imports what torch has deprecated.
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
]


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
    setting = StrategySetting(model=Text(), device=CPU)
    monkeypatch.setattr(strategies, "_half", lambda device: torch.float16)
    assert MixedPrecision().obstacle(setting) == ""
    assert "loss" in TrainingPrecision().obstacle(setting)
    monkeypatch.setattr(strategies, "_half", lambda device: torch.bfloat16)
    assert TrainingPrecision().obstacle(setting) == ""
