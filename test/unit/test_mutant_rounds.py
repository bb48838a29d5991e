"""Breaking models that suites load: by a variable or by orders, and never more than what was asked for."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import broken, run, tiny

from generators.mutants import mutation_plugin
from generators.mutants.model_anatomy import ModelAnatomy, change
from generators.mutants.mutation_operators import CONTROL, mutate
from generators.mutants.orders import (
    ORDERS_VARIABLE,
    Made,
    Order,
    write_orders,
)
from hardware.backends._torch import TorchBackend
from hardware.backends.base import ModelInput
from hardware.backends.factory import get_backend
from hardware.testing.model_test import ModelTest

ROOT = Path(__file__).parents[2]


def load(model: Any, recipe: Any, inputs: Mapping[str, Any]) -> Any:
    subject = ModelInput(model=copy.deepcopy(model), task=recipe.task, identity="x")
    return get_backend("cpu").load(subject, inputs, "float32")


def start_plugin() -> Any:
    manager = SimpleNamespace(registered=[])
    manager.register = manager.registered.append
    config: Any = SimpleNamespace(stash=pytest.Stash(), pluginmanager=manager)
    mutation_plugin.pytest_configure(config)
    return config


def test_a_break_of_nothing_changes_nothing() -> None:
    model, inputs, recipe = tiny("bert")
    mutant, _ = broken(model, inputs, CONTROL)
    assert change(model, mutant, inputs, masked_by=recipe.masked_by) == 0.0


def test_the_plugin_breaks_what_is_loaded_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs, recipe = tiny("vit")
    clean, loading = run(model, inputs)["logits"], TorchBackend.load
    monkeypatch.setenv(mutation_plugin.MUTANT_VARIABLE, "nan_row@0")
    config = start_plugin()
    try:
        outputs = load(model, recipe, inputs)(**inputs)
    finally:
        mutation_plugin.pytest_unconfigure(config)
    assert np.isnan(outputs["logits"][-1]).all()
    assert np.array_equal(run(model, inputs)["logits"], clean)
    assert TorchBackend.load is loading


def test_each_suite_is_broken_as_ordered_and_taken_to_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model, inputs, recipe = tiny("vit")
    clean = run(model, inputs)["logits"]
    orders = {
        tmp_path / "test_a.py": Order(mutants=("nan_row@0",), report=str(tmp_path / "a.json"), on_cpu=True),
        tmp_path / "test_b.py": Order(),
    }
    write_orders(tmp_path / "orders.json", orders)
    monkeypatch.setenv(ORDERS_VARIABLE, str(tmp_path / "orders.json"))
    config = start_plugin()
    (breaker,) = config.pluginmanager.registered
    try:
        for name, is_broken in (("test_b.py", False), ("test_a.py", True), ("test_c.py", False)):
            item: Any = SimpleNamespace(path=tmp_path / name)
            breaker.pytest_runtest_setup(item)
            outputs = load(model, recipe, inputs)(**inputs)["logits"]
            assert np.array_equal(outputs, clean) is not is_broken
            case = ModelTest("vit/image-classification/cuda/float32", lambda: model, inputs, gain=1.0, outputs=())
            assert case.requested_target.name == "cuda"
            if is_broken:
                assert (case.actual_target.name, case.substitution_reason) == ("cpu", "")
    finally:
        mutation_plugin.pytest_unconfigure(config)
    made = Made.from_dict(json.loads((tmp_path / "a.json").read_text()))
    assert (made.mutant.operator if made.mutant else "", made.change) == ("nan_row", float("inf"))


def test_the_first_break_that_the_model_has_a_place_for_is_made() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    inputs = {"input": np.ones((2, 4), dtype=np.float32)}
    subject = ModelInput(model=model, task="own", identity="x")
    before = copy.deepcopy(model.state_dict())
    made = mutation_plugin.break_model(subject, inputs, Order(mutants=("dropped_mask@0",)))
    assert made.mutant is None
    assert "no mask" in made.refused["dropped_mask@0"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    order = Order(mutants=("dropped_mask@0", f"{CONTROL}@0", "nan_row@0", "half_batch@0"))
    made = mutation_plugin.break_model(subject, inputs, order)
    assert made.mutant is not None
    assert made.mutant.name == "nan_row@0"
    assert "no mask" in made.refused["dropped_mask@0"]
    assert "changes the outputs by 0.0e+00" in made.refused[f"{CONTROL}@0"]
    assert torch.isnan(model(torch.ones(2, 4))[-1]).all()


def test_a_break_that_a_model_of_an_unknown_shape_refuses_becomes_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    subject = ModelInput(model=model, task="own", identity="x")

    def fail(*_: Any) -> Any:
        raise RuntimeError("shape '[-1]' is invalid")

    monkeypatch.setattr(mutation_plugin, "mutate", fail)
    made = mutation_plugin.break_model(subject, {}, Order(mutants=("half_batch@0",)))
    assert made.mutant is None
    assert str(made) == "no half_batch@0: RuntimeError: shape '[-1]' is invalid"


def test_a_model_without_gradients_has_no_sites_and_says_why() -> None:
    class Frozen(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q_proj = torch.nn.Linear(4, 4)
            self.k_proj = torch.nn.Linear(4, 4)

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return self.q_proj(input) * self.k_proj(input)

    model = torch.nn.Sequential(Frozen())
    with pytest.raises(ValueError, match="it isn't known which weights of Sequential matter"):
        mutate(model, "attention_scale", 0, ModelAnatomy(model, {"input": np.ones((2, 4), dtype=np.float32)}))


def test_the_plugin_refuses_an_unknown_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mutation_plugin.MUTANT_VARIABLE, "half_bach@0")
    with pytest.raises(pytest.UsageError, match=mutation_plugin.MUTANT_VARIABLE):
        start_plugin()
