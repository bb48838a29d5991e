"""Scales of outputs: parts along fixed axes, what float32 costs in branches of a graph, and drawn pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from generators.models.given_recipe import GivenInput, draw_inputs
from generators.recipes.graph_file import derive_graph
from generators.recipes.graph_scales import FACTORS, are_too_large, float32_costs, spreads
from hardware.backends.base import FileInput
from hardware.backends.factory import get_backend
from hardware.cell import GRAPH_TASK
from hardware.compare import Array
from hardware.model.model_types import Unsupported
from hardware.testing import GraphTest
from hardware.testing.graph_ladder import Ladder
from hardware.testing.tolerances import load_tolerances

LENGTH = 6


class Made:
    """An evaluator whose output is a function of its input."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def runs(self, inputs: Any) -> dict[str, Array]:
        return {"y": self.function(inputs["x"]).astype(np.float32)}

    def with_shaken_weights(self, inputs: Any) -> None:
        return None

    def rounded(self, inputs: Any) -> None:
        return None


def drawn(*shape: int) -> Any:
    return lambda seed: {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}


def dim_edges(x: Array) -> Array:
    found = x.copy()
    found[..., :2] *= 1e-3
    return found


def test_parts_are_kinds_of_results_and_not_places_in_a_text_or_an_image() -> None:
    evaluator = Made(dim_edges)
    listed = spreads(evaluator, drawn(2, 3, LENGTH), FACTORS)
    assert list(listed.parts) == ["y[:, :, 0:2]"]
    assert spreads(evaluator, drawn(2, 3, 5, LENGTH), FACTORS).parts == {}
    first = evaluator.runs(drawn(2, 3, LENGTH)(0))
    assert listed.along_fixed_axes(first, evaluator.runs(drawn(3, 3, LENGTH)(0))) == listed
    longer = listed.along_fixed_axes(first, evaluator.runs(drawn(3, 3, 2 * LENGTH)(0)))
    assert longer.parts == {}
    assert list(longer.scales) == ["y"]


def test_small_probabilities_are_judged_as_exactly_as_a_sigmoid_is_computed() -> None:
    """Of a detector that finds nothing in noise: boxes in pixels, and scores of 3e-5."""

    def detect(x: Array, error: float = 0.0) -> Array:
        found = 300 + 100 * x.astype(np.float64)
        found[:, 2:] = 1 / (1 + np.exp(10.4 + 0.5 * x[:, 2:])) + error
        return found

    make = drawn(2, 6, 9)
    found = spreads(Made(detect), make)
    (part,) = found.parts
    limit = next(one.limit for one in load_tolerances() if (one.target, one.precision) == ("*", "float32"))
    assert part == "y[:, 2:6]"
    for error, is_right in ((5e-8, True), (2e-6, False)):
        apart = float(np.abs(detect(make(0)["x"], error) - detect(make(0)["x"]))[:, 2:].max())
        assert (apart / found.scales[part] <= limit) == is_right


def test_float32_is_not_judged_twice_where_it_already_costs_too_much() -> None:
    class Noisy(Made):
        def rounded(self, inputs: Any) -> Any:
            raise AssertionError("it takes long")

    moved = Noisy(lambda x: np.sin(x * 1e6))
    assert are_too_large(float32_costs(moved, drawn(2, 9), spreads(moved, drawn(2, 9))))
    assert not are_too_large({})


def test_weights_in_the_branches_of_a_graph_are_moved_too(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32), "w")
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    branches = [
        helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], name, [], [y], [weights])
        for name in ("then", "else")
    ]
    yes = numpy_helper.from_array(np.array(True), "yes")
    chosen = helper.make_node("If", ["yes"], ["y"], then_branch=branches[0], else_branch=branches[1])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    model = helper.make_model(
        helper.make_graph([chosen], "g", [x], [y], [yes]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, str(tmp_path / "net.onnx"))
    ladder, inputs = Ladder(model, tmp_path / "net.onnx"), drawn(2, 4)(0)
    moved = ladder.with_shaken_weights(inputs)
    assert moved is not None
    assert 0 < np.abs(moved["y"] - ladder.first(inputs)["y"]).max() < 1e-5


def test_a_graph_that_the_runtime_writes_wrongly_is_stated_and_other_failures_stay(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    weights = numpy_helper.from_array(np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    recipe = derive_graph(str(file))
    inputs = draw_inputs(recipe.inputs, recipe.sizes)
    cell = f"net.onnx@{str(recipe.weights_hash)[:8]}/{GRAPH_TASK}/cpu/float32"
    scales = recipe.scales
    case = GraphTest(
        cell, lambda: file, inputs, gain=None, outputs=recipe.outputs, weights="checkpoint", scales=scales
    )
    assert case.error(case.save_and_reload(tmp_path, inputs), case.reference(inputs)) < 1e-6

    def writes(said: str) -> None:
        def fail(folder: Path) -> Any:
            raise Unsupported(said)

        case.runnable.save_and_reload = fail  # type: ignore[method-assign]

    writes("ONNX Runtime can't load model.onnx: [ONNXRuntimeError] : 10 : INVALID_GRAPH : not in SSA form")
    assert case.error(case.save_and_reload(tmp_path, inputs), case.reference(inputs)) < 1e-6
    assert case.facts()["conditions"]["not_saved"] == "INVALID_GRAPH"
    writes("ONNX Runtime can't load model.onnx: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Conv")
    with pytest.raises(Unsupported):
        case.save_and_reload(tmp_path, inputs)


def test_a_page_has_dark_letters_on_a_bright_ground_in_each_channel() -> None:
    for shape in ((2, 3, 40, 50), (2, 40, 50, 1), (40, 50, 3)):
        page = GivenInput(kind="page", dtype="float32", shape=shape, low=0, high=255)
        found, other = (draw_inputs({"x": page}, {}, seed)["x"] for seed in (0, 1))
        assert (found.shape, found.dtype) == (shape, np.float32)
        assert 0 <= found.min() < 60 < 170 < found.max() <= 255
        assert not np.array_equal(found, other)
        dark = float(np.mean(found < 60))
        assert 0.1 < dark < 0.5


def test_products_of_whole_numbers_are_computed_in_int8(tmp_path: Path) -> None:
    file = tmp_path / "quantized.onnx"
    weights = numpy_helper.from_array(np.arange(-8, 8, dtype=np.int8).reshape(4, 4), "w")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy")
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["product"]),
        helper.make_node("Cast", ["product"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["wide", "scale"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    inputs = {"x": np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)}
    assert get_backend("cpu").load_file(FileInput(file=file), inputs, "int8").actual_dtype == "int8"
