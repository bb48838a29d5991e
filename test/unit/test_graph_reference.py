"""Graph files: what their reference computes, in which precision, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from generators.models.given_recipe import GivenRecipe
from generators.recipes.graph_file import derive_graph
from generators.suites.render import render_given
from hardware.cell import GRAPH_TASK, Cell
from hardware.errors import BrokenInput, ModelError, ModelMissing
from hardware.target import Target
from hardware.testing.checkpoints import CHECKPOINTS_VARIABLE
from hardware.testing.graph_files import graph_file, open_reference
from hardware.testing.graph_reference import OnnxReference
from hardware.testing.graph_weights import graph_hash, weight_files

RNG = np.random.default_rng(0)
TABLE, MATRIX = RNG.normal(size=(20, 16)), RNG.normal(size=(16, 5))


def save(
    file: Path,
    nodes: list[onnx.NodeProto],
    constants: dict[str, np.ndarray],
    inputs: dict[str, tuple[int, list[int | str | None]]],
    rank: int = 2,
    **options: object,
) -> Path:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, *one) for name, one in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(file), **options)
    return file


def lookup(file: Path, **options: object) -> Path:
    """A table looked up by `ids`, times a mask that is cast, times a matrix."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Cast", ["mask"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["wide", "axis"], ["column"]),
        helper.make_node("Mul", ["rows", "column"], ["kept"]),
        helper.make_node("MatMul", ["kept", "matrix"], ["y"]),
    ]
    constants = {
        "table": TABLE.astype(np.float32),
        "matrix": MATRIX.astype(np.float32),
        "axis": np.array([2]),
    }
    inputs = {name: (TensorProto.INT64, ["batch", "seq"]) for name in ("ids", "mask")}
    return save(file, nodes, constants, inputs, rank=3, **options)


def test_the_reference_is_float64_throughout(tmp_path: Path) -> None:
    evaluator = open_reference(lookup(tmp_path / "net.onnx"))
    ids = np.arange(6).reshape(2, 3)
    got = evaluator({"ids": ids, "mask": np.ones((2, 3), np.int64)})["y"]
    want = TABLE.astype(np.float32).astype(np.float64)[ids] @ MATRIX.astype(np.float32).astype(np.float64)
    assert np.abs(got - want).max() < 1e-14
    assert evaluator.said == ""


def test_a_graph_that_cannot_be_widened_says_so(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("BlackmanWindow", ["length"], ["window"]),
        helper.make_node("Mul", ["x", "window"], ["y"]),
    ]
    file = save(tmp_path / "net.onnx", nodes, {"length": np.array(8)}, {"x": (TensorProto.FLOAT, [4, 8])})
    evaluator = open_reference(file)
    evaluator({"x": RNG.normal(size=(4, 8)).astype(np.float32)})
    assert "float32" in evaluator.said


def test_dimensions_that_may_change_get_small_sizes_and_indices_stay_in_their_table(tmp_path: Path) -> None:
    recipe = derive_graph(str(lookup(tmp_path / "net.onnx")))
    assert (recipe.subject, recipe.task, recipe.outputs) == ("checkpoint", GRAPH_TASK, ("y",))
    assert (recipe.sizes, recipe.other_sizes) == ({"batch": 2, "seq": 8}, {"batch": 3, "seq": 16})
    assert (recipe.inputs["ids"].low, recipe.inputs["ids"].high) == (0, 20)
    assert (recipe.inputs["mask"].low, recipe.inputs["mask"].high) == (0, 2)
    assert recipe.parameters == TABLE.size + MATRIX.size
    assert recipe.weights_hash == graph_hash(tmp_path / "net.onnx")
    assert GivenRecipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_dimensions_without_a_usable_name_get_one(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    file = save(
        tmp_path / "net.onnx", [node], {}, {"x": (TensorProto.FLOAT, [None, "class", "seed", "a-b", 3])}, rank=5
    )
    assert open_reference(file).inputs()["x"] == ("float32", ("batch", "class_size", "seed_size", "a_b", 3), 0)


def test_the_suite_finds_the_file_by_its_hash_and_names_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = lookup(tmp_path / "net.onnx")
    recipe = derive_graph(str(file))
    text = render_given(recipe, Cell(model="net.onnx", task=GRAPH_TASK, target=Target(name="cpu")), ())
    assert str(tmp_path) not in text
    checks = ("builds", "matches_reference", "save_reload", "runs_natively")
    assert [line[9:].partition("(")[0] for line in text.splitlines() if line.startswith("def test_")] == list(checks)
    compile(text, "suite", "exec")
    (tmp_path / "another.onnx").write_bytes(b"no file of this kind")
    monkeypatch.setenv(CHECKPOINTS_VARIABLE, str(tmp_path))
    cell = "net.onnx/graph-forward/cpu/float32"
    assert recipe.weights_hash is not None
    assert graph_file(cell, recipe.weights_hash) == file
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    with pytest.raises(ModelMissing, match="has its hash"):
        graph_file(cell, recipe.weights_hash)


def external(tmp_path: Path) -> Path:
    return lookup(
        tmp_path / "net.onnx",
        save_as_external_data=True,
        location="net.data",
        size_threshold=0,
        convert_attribute=True,
    )


def test_external_data_counts_in_the_hash_and_must_be_there(tmp_path: Path) -> None:
    file = external(tmp_path)
    before = graph_hash(file)
    data = tmp_path / "net.data"
    data.write_bytes(data.read_bytes()[:-1] + b"\7")
    assert graph_hash(file) != before
    data.unlink()
    with pytest.raises(BrokenInput, match=r"'net\.data' does not lie beside it"):
        derive_graph(str(file))


def test_keys_of_external_data_that_onnx_does_not_know_change_nothing(tmp_path: Path) -> None:
    file = external(tmp_path)
    file.write_bytes(file.read_bytes().replace(b"length", b"lEngth"))
    assert b"lEngth" in file.read_bytes()
    assert weight_files(file) == (tmp_path / "net.data",)


def test_external_data_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    file = external(tmp_path)
    file.write_bytes(file.read_bytes().replace(b"net.data", b"net\xff\xfe\xfdxx"))
    with pytest.raises(BrokenInput, match="names its weights in no text"):
        weight_files(file)


def test_external_data_outside_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    file = external(tmp_path / "inside")
    (tmp_path / "secret.data").write_bytes((tmp_path / "inside" / "net.data").read_bytes())
    file.write_bytes(file.read_bytes().replace(b"net.data", b"../x.dat"))
    with pytest.raises(BrokenInput, match="outside its folder"):
        derive_graph(str(file))


@pytest.mark.parametrize("content", [b"hello", b"\x08\x09\x12", bytes(range(256)) * 40])
def test_what_is_no_onnx_file_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(BrokenInput) as caught:
        derive_graph(str(tmp_path / "net.onnx"))
    assert "\n" not in str(caught.value)


def test_an_operator_without_an_evaluator_has_no_reference(tmp_path: Path) -> None:
    node = helper.make_node("FusedThing", ["x"], ["y"], domain="com.example")
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(tmp_path / "net.onnx"))
    with pytest.raises(ModelError, match=r"no independent reference.*FusedThing"):
        derive_graph(str(tmp_path / "net.onnx"))


def test_a_graph_of_chance_and_one_that_is_constant_are_refused(tmp_path: Path) -> None:
    chance = helper.make_node("RandomNormalLike", ["x"], ["y"])
    inputs = {"x": (TensorProto.FLOAT, [2, 3])}
    with pytest.raises(ModelError, match="another result each time"):
        derive_graph(str(save(tmp_path / "chance.onnx", [chance], {}, inputs)))
    zero = helper.make_node("Mul", ["x", "zero"], ["y"])
    with pytest.raises(ModelError, match="same number everywhere"):
        derive_graph(str(save(tmp_path / "zero.onnx", [zero], {"zero": np.zeros(1, np.float32)}, inputs)))


def test_a_file_that_does_not_fit_into_memory_is_refused_with_the_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("generators.recipes.graph_file.free_bytes", lambda: 1000)
    with pytest.raises(ModelError, match=r"needs about .* GB, and 0\.0 GB are free"):
        derive_graph(str(lookup(tmp_path / "net.onnx")))


def test_without_onnx_the_reason_holds_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = lookup(tmp_path / "net.onnx")
    monkeypatch.setitem(sys.modules, "onnx.reference", None)
    with pytest.raises(ModelError, match="pip install -r requirements-onnx"):
        OnnxReference(file)


def test_without_onnxruntime_the_target_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from hardware.backends._onnx import missing_runtime

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install -r requirements-onnx" in missing_runtime()


@pytest.mark.parametrize("content", ["", "<net", "<html></html>", "<?xml version='1.0'?><net version='99'></net>"])
def test_what_is_no_openvino_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "net.xml").write_text(content, encoding="utf-8")
    (tmp_path / "net.bin").write_bytes(b"")
    with pytest.raises(BrokenInput, match="cannot be read"):
        derive_graph(str(tmp_path / "net.xml"))


def test_an_openvino_file_without_its_weights_says_where_they_belong(tmp_path: Path) -> None:
    (tmp_path / "net.xml").write_text("<net/>", encoding="utf-8")
    with pytest.raises(BrokenInput, match=r"'net\.bin' does not lie beside it"):
        derive_graph(str(tmp_path / "net.xml"))


@pytest.mark.parametrize(
    "strange",
    [
        helper.make_node("Identity", [], ["z"]),
        helper.make_node("Gather", ["table", "ids"], ["z"], axis=7),
        helper.make_node("Gather", ["matrix"], ["z"]),
    ],
    ids=["no input", "no such axis", "no index"],
)
def test_a_node_that_no_runtime_could_run_is_refused(tmp_path, strange):
    model = onnx.load(lookup(tmp_path / "m.onnx"))
    model.graph.node.append(strange)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises((ModelError, BrokenInput)):
        derive_graph(str(tmp_path / "m.onnx"))


def test_a_graph_that_the_system_refuses_is_told_in_the_systems_words(tmp_path):
    with pytest.raises(BrokenInput, match=r"'gone.onnx' cannot be read") as caught:
        open_reference(tmp_path / "gone.onnx")
    assert caught.value.why == "No such file or directory"


def test_an_ir_whose_input_may_have_any_rank_is_refused_by_its_name(tmp_path):
    openvino = pytest.importorskip("openvino")
    from openvino import opset13

    given = opset13.parameter(openvino.PartialShape.dynamic(), np.float32, name="given")
    file = tmp_path / "any.xml"
    openvino.save_model(openvino.Model([opset13.relu(given)], [given]), file)
    with pytest.raises(ModelError, match="the input 'given' may have any number of dimensions"):
        open_reference(file).inputs()


def half(file: Path, kept: int, given: int = TensorProto.FLOAT) -> Path:
    """A product whose weights are kept in the type `kept`, with inputs and outputs of the type `given`."""
    inside = [helper.make_node("Cast", ["x"], ["narrow"], to=kept)] if kept != given else []
    product = helper.make_node("MatMul", ["narrow" if inside else "x", "matrix"], ["wide" if inside else "y"])
    outside = [helper.make_node("Cast", ["wide"], ["y"], to=given)] if inside else []
    weights = helper.make_tensor("matrix", kept, MATRIX.shape, MATRIX.astype(np.float32).ravel())
    graph = helper.make_graph(
        [*inside, product, *outside],
        "graph",
        [helper.make_tensor_value_info("x", given, ["batch", 16])],
        [helper.make_tensor_value_info("y", given, ["batch", 5])],
        [weights],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(file))
    return file


@pytest.mark.parametrize(
    ("kept", "given", "precision"),
    [
        (TensorProto.FLOAT16, TensorProto.FLOAT16, "float16"),
        (TensorProto.FLOAT16, TensorProto.FLOAT, "float16"),
        (TensorProto.BFLOAT16, TensorProto.FLOAT, "bfloat16"),
        (TensorProto.FLOAT, TensorProto.FLOAT, "float32"),
    ],
)
def test_a_file_is_tested_in_the_precision_that_it_computes_in(tmp_path, kept, given, precision):
    from generators.compatibility.rules import load_rules
    from generators.model_profile import profile_of
    from generators.plan import PlanChoice, plan_suite
    from hardware.basic_detection import inventory_here

    file = half(tmp_path / "half.onnx", kept, given)
    assert OnnxReference(file).computes_in == precision
    profile = profile_of(str(file))
    choice = PlanChoice(target=Target(name="cpu"), required=True)
    suite = plan_suite(profile, choice, "float32", load_rules(), inventory_here())
    assert suite.cell.precision == precision
    assert (precision in profile.note) == (precision != "float32")
    assert ('execution.dtype in ("float16", "float32")' in suite.text) == (precision == "float16")


@pytest.mark.parametrize("target", ["cpu", "openvino"])
def test_a_runtime_widens_a_float16_file_and_never_narrows_it(tmp_path, target):
    from hardware.backends.base import FileSubject
    from hardware.backends.factory import get_backend

    file = half(tmp_path / "half.onnx", TensorProto.FLOAT16, TensorProto.FLOAT16)
    inputs = {"x": RNG.normal(size=(3, 16)).astype(np.float16)}
    runnable = get_backend(target).load_file(FileSubject(file=file), inputs, "float16")
    assert runnable.execution().dtype in ("float16", "float32")
    assert np.abs(runnable(**inputs)["y"] - OnnxReference(file)(inputs)["y"]).max() < 0.02
    runnable.close()
