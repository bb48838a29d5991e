"""Inputs that aren't text: shapes that fit the model, the same in a recipe and in its suite, and each is heard."""

from __future__ import annotations

import ast
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from generators.models.inputs import KINDS, LENGTHS, make_inputs
from generators.models.recipe import Recipe, read_recipe
from generators.models.recipe_store import SHIPPED
from generators.recipes.modality_inputs import modality_spec
from generators.suites.render import render
from hardware.cell import Cell
from hardware.errors import ModelError
from hardware.target import Target

EVERY_KIND = {
    "input_ids": {"kind": "tokens", "high": 50, "places": [[60, -9, -5], [61, -5, -3]], "padding": 1},
    "attention_mask": {"kind": "mask", "side": "left"},
    "position_ids": {"kind": "positions", "start": 2},
    "token_type_ids": {"kind": "places", "token": 60},
    "pixel_values": {"kind": "patches", "grid": [1, 2, 2], "shape": [3, 2, 2]},
    "flattened_patches": {"kind": "flattened", "side": 2, "width": 5},
    "image_grid_thw": {"kind": "constant", "value": [1, 2, 2]},
    "image_merge_sizes": {"kind": "constant", "value": 1},
    "image_position_ids": {"kind": "constant", "value": [[0, 0], [1, 0]]},
    "aspect_ratio_mask": {"kind": "ones", "shape": [1, 4]},
    "pixel_attention_mask": {"kind": "ones", "shape": [1], "boolean": True},
    "cross_attention_mask": {"kind": "seen", "shape": [1, 4]},
}
"""What an image or a video may bring with it."""
RECIPES = sorted((SHIPPED / "5.5.4").glob("*.json"))


def configured(**attributes: Any) -> SimpleNamespace:
    return SimpleNamespace(model_type="some", **attributes)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_suite_draws_the_numbers_that_its_recipe_says(path: Any) -> None:
    drawn_alike(read_recipe(path))


def test_a_suite_draws_whatever_comes_with_an_image() -> None:
    recipe = read_recipe(SHIPPED / "5.5.4" / "llava.json")
    drawn_alike(replace(recipe, inputs=EVERY_KIND))
    arrays = make_inputs(EVERY_KIND, 0, (4, 3))
    assert arrays["input_ids"].shape == arrays["cross_attention_mask"].shape[:2] == (2, 10)
    assert not arrays["cross_attention_mask"][:, 0].any()
    assert arrays["flattened_patches"][0, :, :2].tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]
    assert arrays["pixel_attention_mask"].dtype == bool


def drawn_alike(recipe: Recipe) -> None:
    """The function that a suite writes gives what the recipe's specifications do."""
    cell = Cell(model=recipe.model_type, task=recipe.task, target=Target.parse("cpu"))
    tree = ast.parse(render(recipe, cell, ()))
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "make_inputs")
    names: dict[str, Any] = {"np": np}
    exec(compile(ast.Module(body=[function], type_ignores=[]), "suite", "exec"), names)
    for seed, lengths in ((recipe.recorded["seed"], tuple(recipe.recorded["lengths"])), (2, (5, 12, 7))):
        ours, written = make_inputs(recipe.inputs, seed, lengths), names["make_inputs"](seed, lengths)
        assert list(ours) == list(written)
        for name in ours:
            assert ours[name].dtype == written[name].dtype
            assert np.array_equal(ours[name], written[name]), name


def test_a_shape_that_no_configuration_tells_is_refused_with_what_is_missing() -> None:
    with pytest.raises(ModelError, match="max_2d_position_embeddings"):
        modality_spec("bbox", (), configured())
    assert modality_spec("labels", (), configured()) is None


def test_patches_and_grid_speak_of_the_same_images() -> None:
    config = configured(in_channels=3, patch_size=14, temporal_patch_size=2, spatial_merge_size=2)
    takes = ("pixel_values", "image_grid_thw")
    specs = {name: modality_spec(name, takes, config) or {} for name in takes}
    arrays = make_inputs(specs, 0, (4, 4, 4))
    assert arrays["pixel_values"].shape == (arrays["image_grid_thw"].prod(axis=1).sum(), 3 * 2 * 14 * 14)


def test_boxes_have_their_corners_in_order() -> None:
    boxes = make_inputs({"bbox": {"kind": "boxes", "high": 1001}}, 3)["bbox"]
    assert boxes.shape == (2, 16, 4)
    assert (boxes[..., :2] <= boxes[..., 2:]).all()
    assert boxes.min() >= 0
    assert boxes.max() <= 1000


def test_an_input_that_changes_nothing_is_named() -> None:
    import torch

    from generators.recipes.measurements import run, unheard

    class Blind(torch.nn.Linear):
        def forward(self, past_values: Any, pixel_values: Any) -> Any:
            return {"logits": super().forward(past_values) + 0 * pixel_values.sum()}

    model = Blind(4, 3)
    specs = {name: {"kind": "features", "shape": [4]} for name in ("past_values", "pixel_values")}
    inputs, others = make_inputs(specs, 0), make_inputs(specs, 1)
    found = unheard(model, inputs, others, run(model, inputs), {}, specs)
    assert len(found) == 1
    assert found[0].startswith("other pixel_values move the output by 0.0e+00")
    half = {**others, "past_values": np.stack([inputs["past_values"][0], others["past_values"][1]])}
    assert unheard(model, inputs, half, run(model, inputs), {}, specs) == found, (
        "a row that is drawn alike says nothing"
    )
    assert len(unheard(model, inputs, inputs, run(model, inputs), {}, specs)) == 2, "nothing was drawn anew"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_second_row_is_padded_and_every_kind_is_known(path: Any) -> None:
    recipe = read_recipe(path)
    arrays = make_inputs(recipe.inputs, 0, LENGTHS)
    for name, spec in recipe.inputs.items():
        assert spec["kind"] in KINDS
        assert arrays[name].size
        if spec["kind"] == "mask":
            assert not arrays[name].all()


def test_padding_goes_where_it_is_not_heard() -> None:
    """SigLIP reads a text off its last column: there stands a token that ends the text, behind the padding."""
    siglip = read_recipe(SHIPPED / "5.5.4" / "siglip.json")
    assert make_inputs(siglip.inputs)["attention_mask"][1, -1] == 0
    assert (make_inputs(siglip.inputs)["input_ids"][:, -1] == siglip.inputs["input_ids"]["last"]).all()


def test_what_a_model_writes_into_its_prompt_stays_out_of_the_inputs() -> None:
    """BLIP puts its first token into the prompt and decodes without the last one; the result says from what."""
    import torch

    from generators.recipes.build_model import build
    from hardware.model.calls import to_tensors
    from hardware.model.greedy_decoding import greedy
    from hardware.testing.seeded_weights import fill

    recipe = read_recipe(SHIPPED / "5.5.4" / "blip.json")
    model = fill(
        build(recipe.config_class, recipe.model_class, recipe.config),
        gain=recipe.gain or 1.0,
        zero_centered=recipe.zero_centered,
    )
    inputs = make_inputs(recipe.inputs)
    before = {name: array.copy() for name, array in inputs.items()}
    found = greedy(model, to_tensors(inputs, "cpu", torch.float32), steps=2, use_cache=True)
    assert all(np.array_equal(before[name], inputs[name]) for name in inputs)
    assert found.start.shape == (2, inputs["input_ids"].shape[1] - 1)
    assert (found.start[:, 1:] == inputs["input_ids"][:, 1:-1]).all()
    assert (found.start[:, 0] == recipe.config["text_config"]["bos_token_id"]).all()


def test_an_example_that_is_left_out_is_named() -> None:
    """A model that scatters more than there are places for silently leaves the last image out."""
    import torch

    from generators.recipes.measurements import run, unheard

    class First(torch.nn.Linear):
        def forward(self, pixel_values: Any) -> Any:
            return {"logits": super().forward(pixel_values) * torch.tensor([[1.0], [0.0]])}

    model, specs = First(4, 3), {"pixel_values": {"kind": "features", "shape": [4]}}
    inputs, others = make_inputs(specs, 0), make_inputs(specs, 1)
    assert len(unheard(model, inputs, others, run(model, inputs), {}, specs)) == 1
