"""Models that take more than text: what they are, sounds with places in a text, rows without a token for each."""

from __future__ import annotations

import ast
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from generators.models.architectures import shape_of
from generators.models.catalog import load_catalog
from generators.models.inputs import covered_by, make_inputs
from generators.models.recipe import Recipe, read_recipe
from generators.models.recipe_store import SHIPPED
from generators.recipes.input_layouts import chosen_layout, sound_layouts
from generators.recipes.measurements import masked_outputs
from generators.suites.render import render
from hardware.cell import Cell
from hardware.output_masks import masks_of
from hardware.target import Target

TRAJECTORY = {
    "states": {"kind": "frames", "step": 1, "bins": 5},
    "attention_mask": {"kind": "mask", "side": "left"},
}


def shape(model_type: str) -> tuple[str, str]:
    catalog = load_catalog()
    tasks = catalog.tasks_of(model_type)
    return shape_of(model_type, tasks[0].task if tasks else "", catalog)[:2]


def test_no_type_that_has_a_class_is_left_without_an_architecture() -> None:
    catalog = load_catalog()
    built = [model_type for model_type in catalog.model_types if catalog.tasks_of(model_type)]
    assert [one for one in built if shape(one)[1] == "unknown"] == []
    assert {shape(one)[1] for one in built if shape(one)[0] == "other"} == {"time-series"}


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        ("voxtral_encoder", ("audio", "speech")),
        ("musicflamingo_encoder", ("audio", "speech")),
        ("sam2_hiera_det_model", ("vision", "vision")),
        ("maskformer-swin", ("vision", "vision")),
        ("blip_2_qformer", ("multimodal", "multimodal")),
        ("vision-text-dual-encoder", ("multimodal", "multimodal")),
        ("decision_transformer", ("other", "time-series")),
    ],
)
def test_a_part_reads_what_the_model_around_it_does(model_type: str, expected: tuple[str, str]) -> None:
    assert shape(model_type) == expected


def test_a_second_name_of_a_type_has_its_classes() -> None:
    catalog = load_catalog()
    assert catalog.tasks_of("nougat") == catalog.tasks_of("vision-encoder-decoder")
    assert catalog.names_of("nougat")[0] == "nougat"
    assert catalog.whole_of("voxtral_realtime_encoder") == "voxtral_realtime"
    assert catalog.whole_of("bert") is None


def test_a_step_with_several_positions_is_masked_in_all_of_them() -> None:
    long, short = np.zeros((2, 48, 4)), np.zeros((2, 36, 4))
    found = masked_outputs({"hidden": short}, {"hidden": long}, (12, 16), TRAJECTORY)
    assert found == {"hidden": "attention_mask * 3"}
    mask = np.array([[1, 1], [0, 1]])
    assert masks_of(found, {"attention_mask": mask})["hidden"].tolist() == [[1] * 6, [0, 0, 0, 1, 1, 1]]


def test_a_mask_covers_the_tokens_or_what_has_a_frame_for_each() -> None:
    assert covered_by("attention_mask", TRAJECTORY) == "states"
    assert covered_by("attention_mask", {"input_ids": {"kind": "tokens", "high": 9}, **TRAJECTORY}) == "input_ids"
    assert covered_by("attention_mask", {"attention_mask": TRAJECTORY["attention_mask"]}) == ""


class Hearing:
    """Takes features of 32 frames with their bins first, and fails without a mask over those."""

    config = SimpleNamespace(model_type="some", num_mel_bins=20)

    def run(self, specs: dict[str, dict[str, Any]]) -> None:
        arrays = make_inputs(specs, 0, (4, 4))
        assert arrays["input_features"].shape == (2, 20, 64)
        assert arrays["input_features_mask"].shape == (2, 64)


def test_a_sound_in_a_text_has_a_fixed_length_and_a_mask_where_the_model_needs_one() -> None:
    model = Hearing()
    layouts = sound_layouts("input_features", model, in_text=True)
    specs = {"input_features": layouts[0], "input_features_mask": {"kind": "ones", "shape": []}}
    found = chosen_layout(model, "input_features", specs, layouts, model.run)
    assert found["input_features"] == {"kind": "features", "shape": [20, 64]}
    assert found["input_features_mask"] == {"kind": "ones", "shape": [64]}
    free = chosen_layout(model, "input_features", specs, layouts, lambda tried: None)
    assert list(free) == ["input_features"]


def decoded(inputs: dict[str, dict[str, Any]]) -> tuple[Recipe, str]:
    recipe = replace(read_recipe(SHIPPED / "5.5.4" / "bert.json"), inputs=inputs, masked_by={})
    cell = Cell(model=recipe.model_type, task=recipe.task, target=Target.parse("cpu"))
    return recipe, render(recipe, cell, ())


def test_a_suite_draws_rows_and_frames_as_its_recipe_says() -> None:
    grid = {"kind": "constant", "value": [1, 4, 4], "rows": 2}
    pooled = {"kind": "constant", "value": [0, 1], "apart": 2}
    recipe, text = decoded({**TRAJECTORY, "image_grid_thw": grid, "image_token_pooling": pooled})
    function = next(
        node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == "make_inputs"
    )
    names: dict[str, Any] = {"np": np}
    exec(compile(ast.Module(body=[function], type_ignores=[]), "suite", "exec"), names)
    ours, written = make_inputs(recipe.inputs, 2, (5, 12, 7)), names["make_inputs"](2, (5, 12, 7))
    assert ours["image_grid_thw"].shape == (6, 3)
    assert ours["image_token_pooling"].tolist() == [[0, 1], [2, 3], [4, 5]]
    for name in ours:
        assert ours[name].dtype == written[name].dtype
        assert np.array_equal(ours[name], written[name]), name


def test_padded_frames_are_scrambled_by_other_numbers() -> None:
    _, text = decoded(TRAJECTORY)
    assert 'steps = inputs["attention_mask"], inputs["states"]' in text
    assert "np.where(mask[..., None] == 1, steps, steps + 1)" in text
