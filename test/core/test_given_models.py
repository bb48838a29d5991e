"""Models that users bring: the recipe of a module or graph file, its inputs, and the suite that shows both."""

from __future__ import annotations

import ast
import json
from dataclasses import replace

import numpy as np
import pytest
from given_recipes import graph_recipe, module_recipe
from suite_inputs import make_inputs_of

from generators.models.given_recipe import GivenInput, GivenRecipe, draw_inputs
from generators.suites.render import render_given
from hardware.cell import Cell
from hardware.testing.suite_file import is_edited
from hardware.testing.tolerances import OwnTolerance

MODULE = Cell.parse("own_net.make/module-forward/cpu/float32")
GRAPH = Cell.parse("net/graph-forward/openvino/float32")


def test_inputs_are_drawn_in_order_inside_their_range() -> None:
    drawn = draw_inputs(module_recipe().inputs, {"batch": 500})
    rng = np.random.default_rng(0)
    assert np.array_equal(drawn["ids"], rng.integers(0, 9, (500, 4)))
    assert np.array_equal(drawn["x"], rng.normal(1, 2, (500, 3)).astype(np.float32))
    assert np.array_equal(drawn["share"], rng.uniform(-1, 1, (500,)).astype(np.float32))
    assert 0.4 < drawn["mask"].mean() < 0.6
    assert [str(one.dtype) for one in drawn.values()] == ["int64", "float32", "float32", "bool"]
    with pytest.raises(ValueError, match="isn't a kind of input"):
        GivenInput(kind="text", dtype="int64", shape=(2,)).draw(rng, {})


def test_a_recipe_survives_json() -> None:
    for recipe in (module_recipe(), graph_recipe()):
        assert GivenRecipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.parametrize(
    ("recipe", "cell"), [(module_recipe(), MODULE), (graph_recipe(), GRAPH)], ids=["module", "graph"]
)
def test_a_suite_draws_the_inputs_of_its_recipe_and_shows_what_was_recorded(recipe: GivenRecipe, cell: Cell) -> None:
    text = render_given(recipe, cell, ("a.rule",))
    assert not is_edited(text)
    assert "a.rule" in text
    made = make_inputs_of(text)
    for sizes in (recipe.sizes, recipe.other_sizes):
        ours, written = draw_inputs(recipe.inputs, sizes, 1), made(1, **sizes)
        assert list(ours) == list(written)
        assert all(np.array_equal(ours[name], written[name]) for name in ours)
        assert all(ours[name].dtype == written[name].dtype for name in ours)
    constants = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            constants[node.targets[0].id] = ast.literal_eval(node.value)
    assert constants["CELL"] == cell.id
    checks = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    assert {"test_builds", "test_matches_reference", "test_runs_natively"} <= checks
    of_modules = {"test_backward", "test_matches_recorded"}
    if recipe.kind == "graph":  # has no recorded numbers and no gradients
        assert not of_modules & checks
    else:
        assert of_modules <= checks
        assert list(constants["RECORDED"].items()) == [((0, 1), 0.5), ((1, 2), -0.25)]


def test_a_suite_names_its_model_its_tolerance_and_no_path() -> None:
    text = render_given(module_recipe(), MODULE, ())
    assert "from own_net import make" in text
    assert "return from_factory(factory)" in text
    alone = render_given(replace(module_recipe(), paired=False, name="own_net:make(n=2)"), MODULE, ())
    assert "return from_factory(lambda: factory(n=2), example_inputs)" in alone
    assert "--model own_net:make" in text
    graph = render_given(graph_recipe(), GRAPH, (), folder="../models")
    assert "<path of net.onnx>" in graph
    assert '"../models' in graph
    assert "a" * 64 in graph
    own = OwnTolerance(limit=1e-3, reason="sums in another order", source="hwcompat.toml")
    assert "tolerance=0.001" in render_given(module_recipe(), MODULE, (), tolerance=own)
