"""Kinds of input that no shipped recipe has to have: a suite writes out what a recipe's specification draws."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from generators.models.inputs import make_inputs
from generators.models.recipe import read_recipe
from generators.models.recipe_store import SHIPPED
from generators.suites.render import render
from hardware.cell import Cell
from hardware.target import Target

KINDS = {
    "categories": {"kind": "categories", "shape": [3, 4], "high": 12},
    "categories_of_a_row": {"kind": "categories", "shape": [], "high": 3},
    "token_categories": {"kind": "token_categories", "high": [3, 256, 2]},
    "token_categories_from": {"kind": "token_categories", "low": [0, 1, 1], "high": [3, 2, 9]},
    "boxes": {"kind": "boxes", "high": 1001},
    "shares_of_a_page": {"kind": "boxes", "high": 1001, "divisor": 1000},
    "answers": {"kind": "tokens", "high": 50, "choices": 3, "last": 60},
    "answers_mask": {"kind": "mask", "side": "right", "choices": 3},
    "ended": {"kind": "tokens", "high": 50, "end": 60},
}


def written(inputs: dict[str, Any]) -> Any:
    """`make_inputs` of a suite whose recipe has these inputs."""
    recipe = replace(read_recipe(SHIPPED / "5.5.4" / "bert.json"), inputs=inputs)
    cell = Cell(model="bert", task=recipe.task, target=Target.parse("cpu"))
    tree = ast.parse(render(recipe, cell, ()))
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "make_inputs")
    names: dict[str, Any] = {"np": np}
    exec(compile(ast.Module(body=[function], type_ignores=[]), "suite", "exec"), names)
    return names["make_inputs"]


@pytest.mark.parametrize("name", KINDS)
def test_a_suite_draws_what_a_specification_says(name: str) -> None:
    inputs = {"input_ids": {"kind": "tokens", "high": 50}, name: KINDS[name]}
    function = written(inputs)
    for seed, lengths in ((0, (16, 9)), (2, (5, 12, 7))):
        ours, theirs = make_inputs(inputs, seed, lengths), function(seed, lengths)
        assert ours[name].dtype == theirs[name].dtype
        assert np.array_equal(ours[name], theirs[name])
        assert len(ours[name]) == len(lengths)


def test_each_column_of_token_categories_has_its_own_number() -> None:
    drawn = make_inputs({"token_type_ids": KINDS["token_categories"]}, 1)["token_type_ids"]
    assert drawn.shape == (2, 16, 3)
    assert np.all(drawn.max(axis=(0, 1)) <= [2, 255, 1])
    assert drawn[..., 1].max() > 2


def test_shares_of_a_page_lie_between_nothing_and_all_of_it() -> None:
    shares = make_inputs({"bbox": KINDS["shares_of_a_page"]}, 1)["bbox"]
    assert shares.dtype == np.float32
    assert shares.min() >= 0
    assert 0.5 < shares.max() <= 1
    assert (shares[..., :2] <= shares[..., 2:]).all()


def test_answers_to_choose_from_have_an_axis_of_their_own_and_a_mask_alike() -> None:
    drawn = make_inputs({name: KINDS[name] for name in ("answers", "answers_mask")}, 1, (5, 3))
    assert drawn["answers"].shape == drawn["answers_mask"].shape == (2, 3, 5)
    assert drawn["answers_mask"][:, 2].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert (drawn["answers"][..., -1] == 60).all()


def test_a_text_ends_in_front_of_its_padding() -> None:
    ids = make_inputs({"input_ids": KINDS["ended"]}, 1, (5, 3))["input_ids"]
    assert np.argwhere(ids == 60).tolist() == [[0, 4], [1, 2]]


def test_pictures_side_by_side_are_one_row_for_all_examples() -> None:
    inputs = {
        "input_ids": {"kind": "tokens", "high": 50},
        "pixel_values": {"kind": "pixels", "shape": [3, 4, 16], "side_by_side": True},
    }
    ours, theirs = make_inputs(inputs, 2, (5, 12, 7)), written(inputs)(2, (5, 12, 7))
    assert ours["pixel_values"].shape == (1, 3, 4, 3 * 16)
    assert np.array_equal(ours["pixel_values"], theirs["pixel_values"])
