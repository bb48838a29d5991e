"""What is asked of a tiny model: its code, what no check runs, and how it calls operators."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.operators.one_operator import apart, one_operator
from generators.models.code_facts import ANY_LENGTH, NOT_TRACED
from generators.models.recipe_store import load_recipe
from generators.recipes.operator_calls import OperatorCall, call_recorder
from generators.recipes.probe import run_probe, skipped_checks
from generators.recipes.probe_code import code_facts_of
from generators.recipes.real_dims import real_calls
from hardware.errors import ModelError


def test_code_that_reads_its_padding_and_code_that_can_not_be_traced_are_found():
    padded = code_facts_of(load_recipe("nystromformer"))
    assert padded.padding_error > 0.5
    assert padded.traced == ANY_LENGTH
    assert "aten::linear" in padded.trace_operators
    untraced = code_facts_of(load_recipe("autoformer"))
    assert untraced.traced == NOT_TRACED
    assert untraced.trace_fails


class Whole(torch.nn.Linear):
    """A part that the library saves by itself."""

    def save_pretrained(self, folder: str) -> None:
        raise NotImplementedError


class Composed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.text, self.codec, self.spare = Whole(3, 3), torch.nn.Sequential(Whole(3, 3)), torch.nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return {"logits": self.text(x)}

    def generate(self, **given: Any) -> Any:
        raise NotImplementedError


def test_whole_models_that_no_check_runs_are_named_with_all_else_that_is_left_out():
    inputs = {"x": np.ones((2, 3), dtype=np.float32)}
    model, found = Composed(), SimpleNamespace(inputs=inputs, unknown_masks=())
    reached, used_cache = run_probe(model, found, "none")
    assert (reached, used_cache) == ({"", "text"}, True)
    assert skipped_checks(model, found, reached, {}) == "codec.0, which no check runs"
    assert not skipped_checks(model, found, {*reached, "codec.0"}, {})
    assert run_probe(model, found, "causal")[1]  # what fails is left to the suite
    masks = SimpleNamespace(inputs=inputs, unknown_masks=("pixel_mask", "odd_mask"))
    said = skipped_checks(model, masks, {"text", "codec.0"}, {"left_out": "rotary positions"})
    assert said == "rotary positions; padding by pixel_mask, odd_mask"


def test_a_call_is_kept_once_for_each_combination_of_dtypes_and_ranks():
    with call_recorder() as recorder:
        torch.ones(2, 3) + torch.ones(2, 3)
        torch.ones(5, 7) + torch.ones(5, 7)
        torch.ones(3) + torch.ones(3)
        torch.nn.functional.embedding(torch.tensor([[1, 7]]), torch.ones(9, 4))
    added = [call for call in recorder.calls if call.operator == "aten.add"]
    assert [(call.tensors[0], call.count) for call in added] == [(("float32", (2, 3)), 2), (("float32", (3,)), 1)]
    assert str(added[0]) == "float32[2x3], float32[2x3]"
    call = next(call for call in recorder.calls if call.operator == "aten.embedding")
    assert call.arguments[1] == {"tensor": "int64", "shape": [1, 2], "low": 1, "high": 7}
    assert OperatorCall.from_dict(json.loads(json.dumps(call.to_dict()))) == call


def test_a_recorded_call_becomes_a_module_that_calls_it_alike():
    tensor = {"tensor": "float32", "shape": [2, 3]}
    norm = OperatorCall(
        operator="aten.native_layer_norm",
        overload="default",
        arguments=(tensor, [3], {"tensor": "float32", "shape": [3]}, {"tensor": "float32", "shape": [3]}, 1e-5),
    )
    subject = one_operator(norm)
    assert [tuple(one.shape) for one in subject.inputs] == [(2, 3)]  # weights are constants of a graph
    assert tuple(subject.module(*subject.inputs).shape) == (2, 3)
    filled = one_operator(OperatorCall(operator="aten.fill_", overload="Scalar", arguments=(tensor, 3.0)))
    before = filled.inputs[0].clone()
    assert filled.module(*filled.inputs).eq(3.0).all()
    assert torch.equal(filled.inputs[0], before)


def test_other_numbers_shapes_and_nan_are_apart_and_what_is_ruled_out_is_not():
    ones = torch.ones(3)
    assert apart(ones * 1.5, ones) == pytest.approx(0.5)
    assert apart(torch.ones(2), ones) == math.inf
    assert apart(torch.tensor([1.0, math.nan, 1.0]), ones) == math.inf
    assert apart(torch.tensor([1.0, -1e4]), torch.tensor([1.0, -math.inf])) == 0
    assert apart(torch.tensor([1.0, -5.0]), torch.tensor([1.0, -math.inf])) == math.inf


def test_a_model_at_its_real_size_calls_its_operators_without_its_memory():
    calls = real_calls("distilbert")
    table = next(call for call in calls if call.operator == "aten.embedding")
    assert table.tensors[0] == ("float32", (30522, 768))
    assert "aten._scaled_dot_product_flash_attention_for_cpu" in {call.operator for call in calls}
    with pytest.raises(ModelError, match="has no transformers recipe"):
        real_calls("nosuchtype")
