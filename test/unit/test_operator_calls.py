"""How operators are called: what is recorded of a pass, and of a model at its real size, without its memory."""

from __future__ import annotations

import json
import math

import pytest
import torch

from benchmarks.operators.one_operator import apart, one_operator
from generators.recipes.operator_calls import OperatorCall, call_recorder
from generators.recipes.real_dims import real_calls
from hardware.errors import ModelError


def test_a_call_is_kept_once_for_each_combination_of_dtypes_and_ranks() -> None:
    with call_recorder() as recorder:
        torch.ones(2, 3) + torch.ones(2, 3)
        torch.ones(5, 7) + torch.ones(5, 7)
        torch.ones(3) + torch.ones(3)
    added = [call for call in recorder.calls if call.operator == "aten.add"]
    assert [(call.tensors[0], call.count) for call in added] == [(("float32", (2, 3)), 2), (("float32", (3,)), 1)]
    assert str(added[0]) == "float32[2x3], float32[2x3]"


def test_whole_numbers_keep_their_range_and_a_call_survives_json() -> None:
    table, places = torch.ones(9, 4), torch.tensor([[1, 7]])
    with call_recorder() as recorder:
        torch.nn.functional.embedding(places, table)
    call = next(call for call in recorder.calls if call.operator == "aten.embedding")
    assert call.arguments[1] == {"tensor": "int64", "shape": [1, 2], "low": 1, "high": 7}
    again = OperatorCall.from_dict(json.loads(json.dumps(call.to_dict())))
    assert again == call


def test_a_recorded_call_becomes_a_module_that_calls_it_alike() -> None:
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


def test_other_numbers_shapes_and_nan_are_apart_and_what_is_ruled_out_is_not() -> None:
    ones = torch.ones(3)
    assert apart(ones * 1.5, ones) == pytest.approx(0.5)
    assert apart(torch.ones(2), ones) == math.inf
    assert apart(torch.tensor([1.0, math.nan, 1.0]), ones) == math.inf
    assert apart(torch.tensor([1.0, -1e4]), torch.tensor([1.0, -math.inf])) == 0
    assert apart(torch.tensor([1.0, -5.0]), torch.tensor([1.0, -math.inf])) == math.inf


def test_a_model_at_its_real_size_calls_its_operators_without_its_memory() -> None:
    calls = real_calls("distilbert")
    table = next(call for call in calls if call.operator == "aten.embedding")
    assert table.tensors[0] == ("float32", (30522, 768))
    assert "aten._scaled_dot_product_flash_attention_for_cpu" in {call.operator for call in calls}
    with pytest.raises(ModelError, match="has no recipe"):
        real_calls("nosuchtype")
