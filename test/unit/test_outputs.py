"""What a model returned as named tensors, whatever it comes in, and the way back."""

from __future__ import annotations

from typing import Any

import torch

from hardware.model.calls import to_arrays
from hardware.model.outputs import floating_outputs, replaced_outputs, results


def maps() -> tuple[Any, ...]:
    return tuple(torch.full((2, 3), float(number)) for number in range(3))


def test_each_of_a_backbones_feature_maps_is_a_result_but_states_of_layers_are_not() -> None:
    found = floating_outputs({"feature_maps": maps(), "hidden_states": maps(), "attentions": maps(), "places": None})
    assert list(found) == ["feature_maps_0", "feature_maps_1", "feature_maps_2"]
    assert all(torch.equal(one, map_) for one, map_ in zip(found.values(), maps(), strict=True))


def test_a_single_tensor_of_that_name_is_a_result() -> None:
    assert list(floating_outputs({"encoder_hidden_states": maps()[0], "ids": torch.arange(3)})) == [
        "encoder_hidden_states"
    ]


def test_bare_tensors_and_tuples_are_named() -> None:
    assert list(floating_outputs(maps()[0])) == ["output"]
    assert list(floating_outputs((maps()[0], torch.arange(3), maps()[1]))) == ["output_0", "output_2"]


def test_whole_numbers_are_results_too_and_stay_whole():
    found = results({"codes": torch.arange(3), "kept": torch.ones(2, dtype=torch.bool), "logits": maps()[0]})
    assert list(found) == ["codes", "kept", "logits"]
    arrays = to_arrays(found)
    assert [arrays[name].dtype.kind for name in found] == ["i", "b", "f"]


def test_what_is_replaced_stands_where_it_stood() -> None:
    other = torch.ones(2, 3)
    changed = replaced_outputs({"feature_maps": maps(), "logits": maps()[0]}, {"feature_maps_1": other})
    assert torch.equal(changed["feature_maps"][1], other)
    assert torch.equal(changed["feature_maps"][2], maps()[2])
    assert torch.equal(changed["logits"], maps()[0])
    assert replaced_outputs(maps(), {"output_2": other})[2] is other
    assert replaced_outputs(maps()[0], {"output": other}) is other
