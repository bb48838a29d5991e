"""Graph files: what their reference computes, in which precision, and which are refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from generators.compatibility.rules import load_rules
from generators.model_profile import profile_of
from generators.models.given_recipe import GivenRecipe
from generators.plan import PlanChoice, plan_suite
from generators.recipes.graph_file import derive_graph
from generators.suites.render import render_given
from hardware.backends._onnx import OnnxRunnable, missing_runtime
from hardware.backends._onnx_probe import SIZE, overflows, write_overflow
from hardware.backends.base import FileInput, Unsupported
from hardware.backends.factory import get_backend
from hardware.basic_detection import inventory_here
from hardware.cell import GRAPH_TASK, Cell
from hardware.errors import BrokenInput, ModelError, ModelMissing
from hardware.target import Target
from hardware.testing.checkpoints import CHECKPOINTS_VARIABLE
from hardware.testing.graph_files import graph_file, open_reference
from hardware.testing.graph_reference import OnnxReference
from hardware.testing.graph_weights import graph_hash, weight_files

RNG = np.random.default_rng(0)
TABLE, MATRIX = RNG.normal(size=(20, 16)).astype(np.float32), RNG.normal(size=(16, 5)).astype(np.float32)
FLOAT = TensorProto.FLOAT


def save(file: Path, nodes: list[Any], constants: dict[str, Any], inputs: dict[str, Any], **options: Any) -> Path:
    """A file with the output `y`; `inputs` have a type and a shape, `constants` are arrays or tensors."""
    rank, result, opsets = (options.pop(name, one) for name, one in (("rank", 2), ("result", FLOAT), ("opsets", [])))
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, *one) for name, one in inputs.items()],
        [helper.make_tensor_value_info("y", result, [None] * rank)],
        [numpy_helper.from_array(a, name) if isinstance(a, np.ndarray) else a for name, a in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), *opsets], ir_version=9)
    onnx.save(model, str(file), **options)
    return file


def lookup(file: Path, **options: Any) -> Path:
    """A table looked up by `ids`, times a mask that is cast, times a matrix."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Cast", ["mask"], ["wide"], to=FLOAT),
        helper.make_node("Unsqueeze", ["wide", "axis"], ["column"]),
        helper.make_node("Mul", ["rows", "column"], ["kept"]),
        helper.make_node("MatMul", ["kept", "matrix"], ["y"]),
    ]
    inputs = {name: (TensorProto.INT64, ["batch", "seq"]) for name in ("ids", "mask")}
    return save(file, nodes, {"table": TABLE, "matrix": MATRIX, "axis": np.array([2])}, inputs, rank=3, **options)


def external(folder: Path) -> Path:
    """The same with its weights in `net.data`."""
    folder.mkdir(exist_ok=True)
    options = {"save_as_external_data": True, "location": "net.data", "size_threshold": 0, "convert_attribute": True}
    return lookup(folder / "net.onnx", **options)


def half(file: Path, kept: int, given: int = FLOAT) -> Path:
    """A product whose weights are kept in the type `kept`, with inputs and outputs of the type `given`."""
    inside = [helper.make_node("Cast", ["x"], ["narrow"], to=kept)] if kept != given else []
    product = helper.make_node("MatMul", ["narrow" if inside else "x", "matrix"], ["wide" if inside else "y"])
    outside = [helper.make_node("Cast", ["wide"], ["y"], to=given)] if inside else []
    weights = helper.make_tensor("matrix", kept, MATRIX.shape, MATRIX.ravel())
    return save(file, [*inside, product, *outside], {"matrix": weights}, {"x": (given, ["batch", 16])}, result=given)


def test_the_reference_is_float64_throughout_or_says_so(tmp_path: Path) -> None:
    evaluator = open_reference(lookup(tmp_path / "net.onnx"))
    ids = np.arange(6).reshape(2, 3)
    got = evaluator({"ids": ids, "mask": np.ones((2, 3), np.int64)})["y"]
    assert np.abs(got - TABLE.astype(np.float64)[ids] @ MATRIX.astype(np.float64)).max() < 1e-14
    assert evaluator.said == ""
    nodes = [
        helper.make_node("BlackmanWindow", ["length"], ["window"]),
        helper.make_node("Mul", ["x", "window"], ["y"]),
    ]
    file = save(tmp_path / "window.onnx", nodes, {"length": np.array(8)}, {"x": (FLOAT, [4, 8])})
    evaluator = open_reference(file)
    evaluator({"x": RNG.normal(size=(4, 8)).astype(np.float32)})
    assert "float32" in evaluator.said


def test_dimensions_that_may_change_get_names_and_small_sizes_and_indices_stay_in_their_table(tmp_path: Path) -> None:
    recipe = derive_graph(str(lookup(tmp_path / "net.onnx")))
    assert (recipe.subject, recipe.task, recipe.outputs) == ("checkpoint", GRAPH_TASK, ("y",))
    assert (recipe.sizes, recipe.other_sizes) == ({"batch": 2, "seq": 16}, {"batch": 3, "seq": 32})
    assert (recipe.inputs["ids"].low, recipe.inputs["ids"].high) == (0, 20)
    assert (recipe.inputs["mask"].low, recipe.inputs["mask"].high) == (0, 2)
    assert recipe.parameters == TABLE.size + MATRIX.size
    assert recipe.weights_hash == graph_hash(tmp_path / "net.onnx")
    assert GivenRecipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    node, shape = helper.make_node("Relu", ["x"], ["y"]), [None, "class", "seed", "a-b", 3]
    file = save(tmp_path / "names.onnx", [node], {}, {"x": (FLOAT, shape)}, rank=5)
    assert open_reference(file).inputs()["x"] == ("float32", ("batch", "class_size", "seed_size", "a_b", 3), 0)


def test_the_suite_finds_the_file_by_its_hash_and_names_no_path(tmp_path, monkeypatch):
    file = lookup(tmp_path / "net.onnx")
    recipe = derive_graph(str(file))
    text = render_given(recipe, Cell(model="net.onnx", task=GRAPH_TASK, target=Target(name="cpu")), ())
    assert str(tmp_path) not in text
    checks = ["builds", "matches_reference", "save_reload", "runs_natively"]
    assert [line[9:].partition("(")[0] for line in text.splitlines() if line.startswith("def test_")] == checks
    compile(text, "suite", "exec")
    (tmp_path / "another.onnx").write_bytes(b"no file of this kind")
    monkeypatch.setenv(CHECKPOINTS_VARIABLE, str(tmp_path))
    cell = "net.onnx/graph-forward/cpu/float32"
    assert recipe.weights_hash is not None
    assert graph_file(cell, recipe.weights_hash) == file
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    with pytest.raises(ModelMissing, match="has the expected hash"):
        graph_file(cell, recipe.weights_hash)


def test_external_data_counts_in_the_hash_and_must_be_in_the_folder(tmp_path: Path) -> None:
    file = external(tmp_path / "whole")
    before, data = graph_hash(file), file.with_name("net.data")
    data.write_bytes(data.read_bytes()[:-1] + b"\7")
    assert graph_hash(file) != before
    file.write_bytes(file.read_bytes().replace(b"length", b"lEngth"))  # a key that onnx doesn't know
    assert b"lEngth" in file.read_bytes()
    assert weight_files(file) == (data,)
    data.unlink()
    with pytest.raises(BrokenInput, match=r"'net\.data' is not in the same folder"):
        derive_graph(str(file))
    (tmp_path / "secret.data").write_bytes(b"weights")
    for name, name_of, reason in (
        ("binary", b"net\xff\xfe\xfdxx", "has an invalid name of a weight file"),
        ("outside", b"../x.dat", "outside its folder"),
    ):
        file = external(tmp_path / name)
        file.write_bytes(file.read_bytes().replace(b"net.data", name_of))
        with pytest.raises(BrokenInput, match=reason):
            weight_files(file)
        with pytest.raises(BrokenInput):
            derive_graph(str(file))


def test_files_that_cannot_be_read_are_refused_in_one_line(tmp_path: Path) -> None:
    file, ir = tmp_path / "net.onnx", tmp_path / "net.xml"
    for content in (b"hello", b"\x08\x09\x12", bytes(range(256)) * 40):
        file.write_bytes(content)
        with pytest.raises(BrokenInput) as caught:
            derive_graph(str(file))
        assert "\n" not in str(caught.value)
    ir.write_text("<net/>", encoding="utf-8")
    with pytest.raises(BrokenInput, match=r"'net\.bin' is not in the same folder"):
        derive_graph(str(ir))
    ir.with_suffix(".bin").write_bytes(b"")
    for text in ("", "<net", "<html></html>", "<?xml version='1.0'?><net version='99'></net>"):
        ir.write_text(text, encoding="utf-8")
        with pytest.raises(BrokenInput, match="cannot be read"):
            derive_graph(str(ir))
    with pytest.raises(BrokenInput, match=r"'gone.onnx' cannot be read") as gone:
        open_reference(tmp_path / "gone.onnx")
    assert gone.value.why == "No such file or directory"


def test_graphs_without_a_reference_are_refused_with_the_reason(tmp_path, monkeypatch):
    file, inputs = tmp_path / "net.onnx", {"x": (FLOAT, [2, 3])}
    custom = helper.make_node("FusedThing", ["x"], ["y"], domain="com.example")
    for node, constants, reason in (
        (custom, {}, r"has no reference.*FusedThing"),
        (helper.make_node("RandomNormalLike", ["x"], ["y"]), {}, "different results each time"),
        (helper.make_node("Mul", ["x", "zero"], ["y"]), {"zero": np.zeros(1, np.float32)}, "constant outputs"),
    ):
        save(file, [node], constants, inputs, opsets=[helper.make_opsetid("com.example", 1)])
        with pytest.raises(ModelError, match=reason):
            derive_graph(str(file))
    for strange in (
        helper.make_node("Identity", [], ["z"]),
        helper.make_node("Gather", ["table", "ids"], ["z"], axis=7),
        helper.make_node("Gather", ["matrix"], ["z"]),
    ):
        model = onnx.load(lookup(file))
        model.graph.node.append(strange)
        file.write_bytes(model.SerializeToString())
        with pytest.raises((ModelError, BrokenInput)):
            derive_graph(str(file))
    monkeypatch.setattr("generators.recipes.graph_file.free_bytes", lambda: 1000)
    with pytest.raises(ModelError, match=r"needs about .* GB, but 0\.0 GB are free"):
        derive_graph(str(lookup(file)))


def test_an_openvino_file_with_an_input_of_any_rank_or_without_a_reference_is_refused(
    tmp_path: Path,
) -> None:
    openvino = pytest.importorskip("openvino")
    from openvino import opset13

    given = opset13.parameter(openvino.PartialShape.dynamic(), np.float32, name="given")
    openvino.save_model(openvino.Model([opset13.relu(given)], [given]), tmp_path / "any.xml")
    with pytest.raises(ModelError, match="the input 'given' has an unknown number of dimensions"):
        open_reference(tmp_path / "any.xml").inputs()
    pixels = opset13.parameter([2, 4, 8], np.float32, name="pixels")
    ones = [opset13.constant(np.ones(shape, np.float32)) for shape in ((2, 1, 3), (1, 12, 8), (1, 12, 3), (1, 12))]
    lengths = opset13.constant(np.array([4, 4]))
    sequence = opset13.lstm_sequence(pixels, ones[0], ones[0], lengths, *ones[1:], 3, "forward")
    openvino.save_model(openvino.Model([sequence.output(0)], [pixels], "net"), tmp_path / "net.xml")
    with pytest.raises(ModelError, match="no independent reference"):
        derive_graph(str(tmp_path / "net.xml"))


def test_a_missing_library_is_reported_with_the_command_that_installs_it(tmp_path, monkeypatch):
    file = lookup(tmp_path / "net.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ModelError, match=r"pip install -e '\.\[onnx\]'"):
        OnnxReference(file)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install -e '.[onnx]'" in missing_runtime()
    with pytest.raises(Unsupported, match=r"onnxruntime isn't installed .pip install") as caught:
        OnnxRunnable(None, None, {}, "float32")
    assert caught.value.error_type == "missing_dependency"


def test_a_file_is_tested_in_the_precision_that_it_computes_in(tmp_path: Path) -> None:
    rules, inventory = load_rules(), inventory_here()
    for kept, given, precision in (
        (TensorProto.FLOAT16, TensorProto.FLOAT16, "float16"),
        (TensorProto.FLOAT16, FLOAT, "float16"),
        (TensorProto.BFLOAT16, FLOAT, "bfloat16"),
        (FLOAT, FLOAT, "float32"),
    ):
        file = half(tmp_path / f"{kept}-{given}.onnx", kept, given)
        assert OnnxReference(file).computes_in == precision
        profile = profile_of(str(file))
        choice = PlanChoice(target=Target(name="cpu"), required=True)
        suite = plan_suite(profile, choice, "float32", rules, inventory)
        assert suite.cell.precision == precision
        assert (precision in profile.note) == (precision != "float32")
        assert ('execution.dtype in ("float16", "float32", "float64")' in suite.text) == (precision == "float16")


def test_a_runtime_widens_a_float16_file_and_never_narrows_it(tmp_path: Path) -> None:
    file = half(tmp_path / "half.onnx", TensorProto.FLOAT16, TensorProto.FLOAT16)
    inputs = {"x": RNG.normal(size=(3, 16)).astype(np.float16)}
    for target in ("cpu", "openvino"):
        runnable = get_backend(target).load_file(FileInput(file=file), inputs, "float16")
        assert runnable.execution().dtype in ("float16", "float32")
        assert np.abs(runnable(**inputs)["y"] - OnnxReference(file)(inputs)["y"]).max() < 0.02
        runnable.close()


def test_the_probe_of_float16_overflows_in_an_evaluator_that_rounds_each_product(tmp_path: Path) -> None:
    from onnx.reference import ReferenceEvaluator

    write_overflow(tmp_path / "model.onnx")
    values = np.full((SIZE, SIZE), 300, np.float16)
    with np.errstate(over="ignore"):
        (rounded,) = ReferenceEvaluator(str(tmp_path / "model.onnx")).run(None, {"values": values})
    assert rounded.dtype == np.float16
    assert overflows(rounded)
