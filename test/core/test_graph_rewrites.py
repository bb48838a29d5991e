"""Operators that a runtime lacks are replaced by others with the same values, and what can't be replaced stays."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from hardware.export.graph_rewrites import MOST_AXES, merged, rewrite, steps


def both(
    folder: Path, nodes: Sequence[Any], shapes: Mapping[str, Sequence[int]], **constants: Sequence[int] | int
) -> tuple[dict[str, int], onnx.ModelProto, float]:
    """Return what was replaced, the graph that is left, and the largest difference of its output `y`."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    stored = [numpy_helper.from_array(np.array(value), name) for name, value in constants.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", inputs, [output], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    plain, other = folder / "plain.onnx", folder / "other.onnx"
    onnx.save(model, str(plain))
    replaced = rewrite(plain, other)
    if not replaced:
        assert not other.exists()
        return {}, model, 0.0
    random = np.random.default_rng(0)
    given = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    want, got = (onnxruntime.InferenceSession(str(one)).run(None, given)[0] for one in (plain, other))
    assert want.shape == got.shape
    return replaced, onnx.load(str(other)), float(np.abs(want - got).max())


@pytest.mark.parametrize("order", [(0, 1, 3, 2, 4, 5), (5, 4, 3, 2, 1, 0), (0, 3, 1, 4, 2, 5), (2, 0, 5, 1, 4, 3)])
def test_a_transposition_of_six_axes_becomes_some_of_at_most_five(tmp_path: Path, order: tuple[int, ...]) -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "windows"], ["w"]),
        helper.make_node("Transpose", ["w"], ["t"], perm=order),
        helper.make_node("Reshape", ["t", "flat"], ["y"]),
    ]
    replaced, model, difference = both(tmp_path, nodes, {"x": (2, 6, 6, 4)}, windows=[2, 3, 2, 2, 3, 4], flat=[-1])
    assert replaced == {"Transpose": 1}
    assert difference == 0.0
    model = onnx.shape_inference.infer_shapes(model)
    assert max(len(one.type.tensor_type.shape.dim) for one in model.graph.value_info) <= MOST_AXES


@pytest.mark.parametrize(("upper", "diagonal"), [(1, 0), (0, 0), (1, 1), (0, -2)])
def test_a_triangle_becomes_a_choice_of_fewer_axes(tmp_path: Path, upper: int, diagonal: int) -> None:
    nodes = [helper.make_node("Trilu", ["x", "k"], ["y"], upper=upper)]
    replaced, model, difference = both(tmp_path, nodes, {"x": (2, 3, 2, 4, 5)}, k=diagonal)
    assert replaced == {"Trilu": 1}
    assert difference == 0.0
    assert [node.op_type for node in model.graph.node] == ["Reshape", "Where", "Reshape"]


def test_a_negation_of_five_axes_has_fewer_and_one_of_four_stays(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    replaced, _, difference = both(tmp_path, nodes, {"x": (2, 1, 2, 4, 5)})
    assert (replaced, difference) == ({"Neg": 1}, 0.0)
    (other := tmp_path / "other").mkdir()
    assert both(other, nodes, {"x": (2, 2, 4, 5)})[0] == {}


@pytest.mark.parametrize(
    ("kind", "attributes", "constants"),
    [
        ("ReduceMax", {"axes": [2, -3], "keepdims": 0}, {}),
        ("ReduceSum", {"keepdims": 1}, {"axes": [4]}),
        ("Split", {"axis": 3}, {"sizes": [1, 2]}),
        ("Squeeze", {}, {"axes": [1]}),
        ("Unsqueeze", {}, {"axes": [0]}),
    ],
)
def test_sums_cuts_and_other_shapes_of_six_axes_have_fewer(
    tmp_path: Path, kind: str, attributes: Mapping[str, Any], constants: Mapping[str, Sequence[int]]
) -> None:
    outputs = ["y", "rest"] if kind == "Split" else ["y"]
    node = helper.make_node(kind, ["x", *constants], outputs, **attributes)
    replaced, model, difference = both(tmp_path, [node], {"x": (2, 1, 2, 3, 2, 3)}, **constants)
    assert (replaced, difference) == ({kind: 1}, 0.0)
    axes = {one.name: len(one.type.tensor_type.shape.dim) for one in (*model.graph.value_info, *model.graph.input)}
    kept = [one for one in model.graph.node if one.op_type == kind]
    assert all(axes[name] <= MOST_AXES for one in kept for name in (one.input[0], *one.output))


@pytest.mark.parametrize(
    ("other", "is_replaced"),
    [((2, 1, 1, 3, 2, 3), True), ((3,), True), ((1, 2, 2, 3, 2, 3), True), ((2, 1, 2, 1, 2, 1), False)],
)
def test_a_product_of_six_axes_has_fewer_if_neighbors_are_broadcast_alike(
    tmp_path: Path, other: tuple[int, ...], is_replaced: bool
) -> None:
    node = helper.make_node("Mul", ["x", "z"], ["y"])
    replaced, _, difference = both(tmp_path, [node], {"x": (2, 2, 2, 3, 2, 3), "z": other})
    assert replaced == ({"Mul": 1} if is_replaced else {})
    assert difference == 0.0


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ijbn->bnij", [(2, 3, 4, 5)]),
        ("i,j->ij", [(3,), (4,)]),
        ("bqc,bchw->bqhw", [(2, 3, 4), (2, 4, 5, 6)]),
        ("...si,...id->...sd", [(2, 3, 4, 5), (2, 3, 5, 6)]),
        ("...pd, ...qd -> ...pq", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("bhwk,hk->bhw", [(2, 3, 4, 5), (3, 5)]),
    ],
)
def test_an_einsum_becomes_a_product_of_matrices(
    tmp_path: Path, equation: str, shapes: Sequence[tuple[int, ...]]
) -> None:
    names = [f"x{number}" for number in range(len(shapes))]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    replaced, model, difference = both(tmp_path, [node], dict(zip(names, shapes, strict=True)))
    assert replaced == {"Einsum": 1}
    assert difference < 1e-6
    kinds = {one.op_type for one in model.graph.node}
    assert kinds <= {"Reshape", "Transpose", "MatMul"}
    read = {name for one in model.graph.node for name in one.input}
    assert {one.name for one in model.graph.initializer} <= read


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bk", [(2, 3, 4), (2, 4, 5)]),
        ("ii->i", [(3, 3)]),
        ("...ij,...jk->...ik", [(1, 3, 4), (2, 4, 5)]),
        ("ij->i", [(3, 4)]),
    ],
)
def test_an_einsum_that_sums_one_operand_takes_a_diagonal_or_repeats_an_axis_stays(
    tmp_path: Path, equation: str, shapes: Sequence[tuple[int, ...]]
) -> None:
    names = [f"x{number}" for number in range(len(shapes))]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    assert both(tmp_path, [node], dict(zip(names, shapes, strict=True)))[0] == {}


def test_a_transposition_of_few_axes_stays(tmp_path: Path) -> None:
    node = helper.make_node("Transpose", ["x"], ["y"], perm=(1, 0, 2, 4, 3))
    assert both(tmp_path, [node], {"x": (2, 3, 4, 5, 6)})[0] == {}


def test_every_order_of_seven_axes_is_reached() -> None:
    shape = (2, 1, 3, 2, 1, 2, 3)
    values = np.arange(np.prod(shape)).reshape(shape)
    for order in itertools.islice(itertools.permutations(range(7)), 0, 5040, 37):
        found = values
        for given, move in steps(*merged(shape, order)):
            assert len(given) <= MOST_AXES
            found = found.reshape(given).transpose(move)
        assert (found.ravel() == values.transpose(order).ravel()).all()
