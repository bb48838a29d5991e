"""References of graph files: several implementations, inputs by name, scales over inputs, limits by what rounding
costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from generators.model_profile import profile_of
from generators.models.given_recipe import draw_inputs
from generators.recipes.graph_file import derive_graph
from generators.recipes.graph_inputs import Port, attempts, states_of
from generators.suites.render import render_given
from hardware.backends import _exported_runnable
from hardware.backends.base import FileInput
from hardware.backends.factory import get_backend
from hardware.cell import GRAPH_TASK, Cell
from hardware.errors import BrokenInput, ModelError, ModelMissing, UsageError
from hardware.export.onnx_decoding_graphs import is_dynamic
from hardware.target import Target
from hardware.testing import graph_ladder, measurement
from hardware.testing.checkpoints import CHECKPOINTS_VARIABLE
from hardware.testing.graph_files import GraphTest, open_reference
from hardware.testing.graph_ladder import AGREED, ALONE, EXACT, agree
from hardware.testing.graph_operators import torch_operators
from hardware.testing.measurement import Ambiguous
from hardware.testing.tolerances import file_rule
from hardware.testing.user_inputs import given_inputs, inputs_hash, read_inputs

FLOAT = TensorProto.FLOAT
RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def save(
    file: Path,
    nodes: list[Any],
    constants: dict[str, Any],
    inputs: dict[str, tuple[int, Any]],
    outputs: dict[str, int],
    opset: int = 17,
) -> Path:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, *one) for name, one in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(made, str(file))
    return file


def one_node(file: Path, kind: str, data: Any, *constants: Any, opset: int = 17, **attributes: Any) -> Path:
    names = [f"c{place}" for place in range(len(constants))]
    node = helper.make_node(kind, ["x", *names], ["y"], **attributes)
    given = dict(zip(names, constants, strict=True))
    return save(file, [node], given, {"x": (FLOAT, list(data.shape))}, {"y": FLOAT}, opset)


@pytest.fixture(autouse=True)
def _own_references(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))


IMAGE, SOUND = drawn(2, 4, 9, 8), drawn(2, 4, 15)
OPERATORS: dict[str, tuple[str, Any, tuple[Any, ...], dict[str, Any]]] = {
    "convolution": ("Conv", IMAGE, (drawn(6, 4, 3, 3), drawn(6)), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    "same size": ("Conv", IMAGE, (drawn(6, 4, 4, 3),), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same size, lower": ("Conv", IMAGE, (drawn(6, 4, 4, 3),), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "valid": ("Conv", IMAGE, (drawn(6, 4, 4, 3),), {"auto_pad": "VALID"}),
    "groups and dilation": ("Conv", IMAGE, (drawn(4, 1, 3, 3),), {"group": 4, "dilations": [2, 1]}),
    "along one axis": ("Conv", SOUND, (drawn(3, 4, 5),), {"pads": [2, 2]}),
    "transposed": (
        "ConvTranspose",
        IMAGE,
        (drawn(4, 3, 3, 3), drawn(3)),
        {"pads": [1, 0, 1, 2], "strides": [2, 2], "output_padding": [1, 0]},
    ),
    "transposed along one axis": ("ConvTranspose", SOUND, (drawn(4, 2, 4),), {"strides": [3], "group": 2}),
    "normalization": (
        "BatchNormalization",
        IMAGE,
        (drawn(4), drawn(4), drawn(4), np.abs(drawn(4))),
        {"epsilon": 1e-3, "opset": 9},
    ),
    "largest": ("MaxPool", IMAGE, (), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}),
    "largest, rounded up": ("MaxPool", IMAGE, (), {"kernel_shape": [2, 3], "strides": [2, 3], "ceil_mode": 1}),
    "largest of all": ("GlobalMaxPool", SOUND, (), {}),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_the_evaluator_compute_what_onnx_runtime_does(tmp_path: Path, name: str) -> None:
    kind, data, constants, attributes = OPERATORS[name]
    file = one_node(tmp_path / "node.onnx", kind, data, *constants, **attributes)
    evaluator = ReferenceEvaluator(onnx.load(str(file)), new_ops=list(torch_operators()))
    (got,) = evaluator.run(None, {"x": data})
    (want,) = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"]).run(None, {"x": data})
    assert got.shape == want.shape
    assert np.abs(got - want).max() < 1e-5


def convolution(file: Path) -> Path:
    return one_node(file, "Conv", IMAGE, drawn(6, 4, 3, 3))


def test_the_reference_is_the_most_exact_that_another_implementation_confirms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = one_node(tmp_path / "product.onnx", "MatMul", drawn(3, 4), drawn(4, 5))
    reference = open_reference(product)
    assert reference({"x": drawn(3, 4)})["y"].dtype == np.float64
    assert (reference.method, reference.said) == (EXACT[0], "")
    file = convolution(tmp_path / "convolution.onnx")
    reference = open_reference(file)
    exact = reference({"x": IMAGE})["y"]
    assert (reference.method, reference.said) == (EXACT[1], "")

    class Wrong(torch_operators()[0]):
        op_domain = ""

        def _run(self, *arrays: Any, **given: Any) -> Any:
            (found,) = super()._run(*arrays, **given)
            return (found[..., ::-1],)

    Wrong.__name__ = "Conv"
    monkeypatch.setattr("hardware.testing.graph_operators.torch_operators", lambda: (Wrong,))
    monkeypatch.setattr(measurement, "keeps_references", False)
    reference = open_reference(file)
    other = reference({"x": IMAGE + 1})["y"]
    assert reference.method == reference.said == AGREED
    assert other.shape == exact.shape
    monkeypatch.setattr(graph_ladder.Ladder, "_by_openvino", lambda *_: {"y": exact * 2})
    reference = open_reference(file)
    reference({"x": IMAGE + 2})
    assert reference.is_alone
    assert reference.said.startswith("float32 by ONNX Runtime alone")


def test_a_reference_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = convolution(tmp_path / "convolution.onnx")
    first = open_reference(file)({"x": IMAGE})
    monkeypatch.setattr(graph_ladder.Ladder, "trusted", lambda *_: pytest.fail("computed again"))
    again = open_reference(file)
    assert np.array_equal(again({"x": IMAGE})["y"], first["y"])
    assert again.method == EXACT[1]


def test_two_implementations_may_round_and_choose_differently_but_not_more() -> None:
    one = {"y": np.linspace(0, 1, 40), "choice": np.arange(40)}
    assert agree(one, {"y": one["y"] + 1e-3, "choice": np.where(one["choice"] == 7, 8, one["choice"])})
    assert not agree(one, {**one, "y": one["y"] + 0.1})
    assert agree(one, {**one, "y": one["y"] + 0.1}, {"y": 20.0})
    assert not agree(one, {**one, "choice": one["choice"][::-1]})
    assert not agree(one, {**one, "y": one["y"][:-1]})
    assert not agree({"y": np.array([1.0, np.nan])}, {"y": np.array([1.0, 2.0])})


def test_inputs_follow_from_names_types_and_shapes() -> None:
    ports = {
        "sound": Port(dtype="float32", shape=("batch", "")),
        "state": Port(dtype="float32", shape=(2, "", 128)),
        "sr": Port(dtype="int64", shape=()),
        "lengths": Port(dtype="int64", shape=("batch",)),
        "ids": Port(dtype="int64", shape=("batch", ""), rows=30),
        "attention_mask": Port(dtype="int64", shape=("batch", "")),
        "pixels": Port(dtype="uint8", shape=("batch", "", "", 3)),
        "speed": Port(dtype="float32", shape=(1,)),
    }
    tried = [draw_inputs(specs, sizes) for specs, sizes in attempts(ports)]
    first = tried[0]
    assert first["state"].shape == (2, 2, 128)
    assert (first["sr"].shape, int(first["sr"])) == ((), 16000)
    assert first["ids"].shape == first["attention_mask"].shape == (2, 16)
    assert first["ids"].max() < 30
    assert first["pixels"].shape == (2, 64, 64, 3)
    assert first["pixels"].max() > 200
    assert first["speed"].tolist() == [1.0]
    assert first["lengths"].tolist() == [16, 16], "the longest axis that isn't an image's or a state's"
    assert max(one["sound"].shape[1] for one in tried) == 48000
    assert (2, 48, 320, 3) in {one["pixels"].shape for one in tried}
    assert len({str(one["sound"].shape) + str(one["pixels"].shape) for one in tried}) <= len(tried)


def probability(file: Path) -> Path:
    """One probability for each row: its few numbers have nearly no spread, its inputs have."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Sigmoid", ["z"], ["y"])]
    return save(file, nodes, {"w": drawn(64, 1)}, {"x": (FLOAT, ["batch", 64])}, {"y": FLOAT})


def case_of(file: Path, device: str, **more: Any) -> GraphTest:
    recipe = derive_graph(str(file))
    cell = f"{file.name}@{str(recipe.weights_hash)[:8]}/{GRAPH_TASK}/{device}/float32"
    inputs = draw_inputs(recipe.inputs, recipe.sizes)
    given = {name: getattr(recipe, name) for name in ("scales", "parts", "float32_costs", "not_compared")} | more
    return GraphTest(cell, lambda: file, inputs, gain=None, outputs=recipe.outputs, weights="checkpoint", **given)


def test_a_probability_is_judged_by_its_spread_over_inputs(tmp_path: Path) -> None:
    recipe = derive_graph(str(probability(tmp_path / "p.onnx")))
    assert 0.2 < recipe.scales["y"] < 0.6
    assert recipe.float32_costs == {}, "the usual limit allows what float32 costs"


def two_outputs(file: Path) -> Path:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Tanh", ["y"], ["z"])]
    return save(file, nodes, {"w": drawn(16, 8)}, {"x": (FLOAT, ["batch", 16])}, {"y": FLOAT, "z": FLOAT})


def test_the_limit_of_each_output_follows_from_what_float32_costs_it(tmp_path: Path) -> None:
    rule = file_rule()
    with case_of(two_outputs(tmp_path / "t.onnx"), "cpu", float32_costs={"z": 1e-5}) as case:
        own, scales = case._scales, case._judged_scales
        assert scales == {"y": own["y"], "z": own["z"] * rule.factor * 1e-5 / 2e-5}
        assert "not_judged" not in case._conditions(None)
        assert case._conditions(None)["sensitive"] == "z by 1.0e-05"
    with case_of(two_outputs(tmp_path / "t.onnx"), "cpu", float32_costs={"z": 1e-2}) as case:
        assert case._conditions(None)["not_judged"] == "z", "the other output is judged"
        got, want = case.run(case.inputs), case.reference(case.inputs)
        for name, wrong in (("y", True), ("z", False)):
            moved = {**got.arrays, name: got.arrays[name] + 1e-2 * own[name]}
            assert (case.error(type(got)(arrays=moved, masks={}, inputs=case.inputs), want) > case.tolerance) is wrong


def boxes(file: Path) -> Path:
    """Four coordinates in pixels and two small scores for each place, and logits with a mask of -1e9."""
    scale = np.array([300, 300, 300, 300, 1e-3, 1e-3], np.float32)[:, None]
    mask = np.array([0, 0, -1e9, 0, 0, 0, 0, -1e9], np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("Mul", ["z", "scale"], ["y"]),
        helper.make_node("Add", ["z", "mask"], ["masked"]),
        helper.make_node("Mul", ["masked", "tiny"], ["zero"]),
        helper.make_node("Mul", ["z", "tiny"], ["small"]),
    ]
    constants = {"w": drawn(16, 8), "scale": scale, "mask": mask, "tiny": np.array(1e-20, np.float32)}
    return save(
        file, nodes, constants, {"x": (FLOAT, ["batch", 6, 16])}, {"y": FLOAT, "masked": FLOAT, "small": FLOAT}
    )


def test_small_values_beside_large_ones_are_judged_by_their_own_scale(tmp_path: Path) -> None:
    file = boxes(tmp_path / "b.onnx")
    recipe = derive_graph(str(file))
    assert recipe.parts == {"y[:, 4:6]": ("y", 1, 4, 6)}
    assert 1e-4 < recipe.scales["y[:, 4:6]"] < 1e-2 < 100 < recipe.scales["y"]
    assert recipe.scales["masked"] < 100, "the mask isn't in it"
    with case_of(file, "cpu") as case:
        got, want = case.run(case.inputs), case.reference(case.inputs)
        assert case.error(got, want) <= case.tolerance
        faults = {"y": (0, 4, 0), "masked": (0, 0, 0), "small": (0, 0, 0)}
        for name, place in faults.items():
            moved = {key: one.copy() for key, one in got.arrays.items()}
            moved[name][place] *= 1.5
            wrong = type(got)(arrays=moved, masks={}, inputs=case.inputs)
            assert case.error(wrong, want) > case.tolerance, name
            case.measured.comparison = None
        unmasked = {**got.arrays, "masked": np.maximum(got.arrays["masked"], -5)}
        assert case.error(type(got)(arrays=unmasked, masks={}, inputs=case.inputs), want) > case.tolerance


def test_what_rounding_explains_is_undecided_beyond_the_limit(tmp_path: Path) -> None:
    file = probability(tmp_path / "p.onnx")
    for cost, wrong in ((1e-3, 5e-3), (1e-6, 5e-3)):
        with case_of(file, "cpu", float32_costs={"y": cost}) as case:
            got, want = case.run(case.inputs), case.reference(case.inputs)
            moved = {"y": got.arrays["y"] + wrong * case._scales["y"]}
            changed = type(got)(arrays=moved, masks={}, inputs=case.inputs)
            if cost == 1e-3:
                with pytest.raises(Ambiguous, match="too sensitive to judge"):
                    case.error(changed, want)
                assert case.error(got, want) <= case.tolerance, "two implementations agree"
                case._evaluator.method = ALONE.format("float32 by ONNX Runtime")
                with pytest.raises(Ambiguous, match="no other implementation confirms"):
                    case.error(got, want)
            else:
                assert case.error(changed, want) > case.tolerance


def choices(file: Path) -> Path:
    """A chosen class, its score, and the input itself: an output with another name beside it."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("ArgMax", ["z"], ["chosen"], axis=1),
        helper.make_node("Softmax", ["z"], ["scores"]),
        helper.make_node("Identity", ["scores"], ["again"]),
        helper.make_node("Mul", ["scores", "factor"], ["scaled"]),
    ]
    constants = {"w": drawn(16, 8)}
    outputs = {"chosen": TensorProto.INT64, "again": FLOAT, "scaled": FLOAT}
    return save(file, nodes, constants, {"x": (FLOAT, ["batch", 16]), "factor": (FLOAT, [])}, outputs)


@pytest.mark.parametrize("device", ["cpu", "openvino"])
def test_chosen_classes_are_compared_and_scalars_and_names_are_kept(tmp_path: Path, device: str) -> None:
    if reason := get_backend(Target(name=device)).unavailable():
        pytest.skip(reason)
    with case_of(choices(tmp_path / "c.onnx"), device) as case:
        assert case.inputs["factor"].shape == ()
        got, want = case.run(case.inputs), case.reference(case.inputs)
        assert set(got.arrays) == {"chosen", "again", "scaled"}
        assert case.error(got, want) <= case.tolerance
        other = {**got.arrays, "chosen": 1 - got.arrays["chosen"]}
        wrong = type(got)(arrays=other, masks={}, inputs=case.inputs)
        assert not case.error(wrong, want) <= case.tolerance


def test_a_file_gets_the_sizes_of_its_inputs_unless_it_is_not_valid_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = probability(tmp_path / "p.onnx")
    fixed = _exported_runnable.of_sizes(file, {"x": (3, 64)}, tmp_path)
    assert (is_dynamic(file), is_dynamic(fixed)) == (True, False)
    monkeypatch.setattr(_exported_runnable, "can_load", lambda _: 1 / 0)
    assert _exported_runnable.of_sizes(file, {"x": (2, 64)}, tmp_path) == file


def test_a_scale_is_not_beyond_what_the_inputs_of_a_suite_give(tmp_path: Path) -> None:
    recipe = derive_graph(str(one_node(tmp_path / "e.onnx", "Exp", drawn(4, 64))))
    largest = np.exp(draw_inputs(recipe.inputs, recipe.sizes)["x"]).max()
    assert 0 < recipe.scales["y"] < largest


def test_given_inputs_are_used_instead_of_drawn_ones_and_found_by_their_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = probability(tmp_path / "p.onnx"), tmp_path / "inputs"
    folder.mkdir()
    every = [drawn(1, 64) for _ in range(3)]
    for number, one in enumerate(every):
        np.savez(folder / f"{number}.npz", x=one)
    recipe = derive_graph(str(file), str(folder))
    assert (recipe.inputs["x"].kind, recipe.sizes, recipe.other_sizes) == ("given", {}, {})
    assert recipe.given == inputs_hash([{"x": one} for one in every])
    text = render_given(recipe, Cell.parse(f"p.onnx@0/{GRAPH_TASK}/cpu/float32"), (), inputs_folder="../inputs")
    assert "return given_inputs(INPUTS, seed, suite=__file__, folder=INPUTS_FOLDER)" in text
    assert 'inputs_from="given"' in text
    assert "--inputs '<path of the inputs>'" in text
    (tmp_path / "suites").mkdir()
    suite = str(tmp_path / "suites" / "test_p.py")
    found = [given_inputs(recipe.given, seed, suite=suite, folder="../inputs")["x"] for seed in range(4)]
    assert all(np.array_equal(one, every[place % 3]) for place, one in enumerate(found))
    alone = derive_graph(str(file), str(folder / "1.npz"))
    assert np.array_equal(given_inputs(alone.given, 5, suite=suite, folder="../inputs")["x"], every[1])
    np.savez(folder / "1.npz", x=every[0])
    with pytest.raises(ModelMissing, match="inputs of this suite weren't found"):
        given_inputs(recipe.given, 0, suite=suite, folder="../inputs")
    monkeypatch.setenv(CHECKPOINTS_VARIABLE, str(folder))
    with pytest.raises(ModelMissing):
        given_inputs(recipe.given, 0)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"y": drawn(1, 64)}, "it has x; given are y"),
        ({"x": drawn(1, 64).astype(np.float64)}, r"given is float64 \[1, 64\], it takes float32"),
        ({"x": drawn(1, 63)}, r"given is float32 \[1, 63\]"),
        ({"x": drawn(64)}, r"given is float32 \[64\]"),
    ],
)
def test_inputs_that_are_not_those_of_the_file_are_refused(tmp_path: Path, arrays: Any, reason: str) -> None:
    file = probability(tmp_path / "p.onnx")
    np.savez(tmp_path / "given.npz", **arrays)
    with pytest.raises(ModelError, match=reason):
        derive_graph(str(file), str(tmp_path / "given.npz"))


def test_files_that_are_no_inputs_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.npz").write_text("hello", encoding="utf-8")
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    for name, reason in (("empty", "no .npz file"), ("text.npz", "can't be read"), ("objects.npz", "can't be read")):
        with pytest.raises(BrokenInput, match=reason):
            read_inputs(tmp_path / name)
    with pytest.raises(UsageError, match="takes no --inputs"):
        profile_of("bert", inputs=tmp_path)


def recurrent(file: Path) -> Path:
    """A state that is read and written, and an output that nothing moves."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["read"]),
        helper.make_node("MatMul", ["state", "u"], ["kept"]),
        helper.make_node("Add", ["read", "kept"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["stateN"]),
        helper.make_node("ReduceMean", ["stateN"], ["y"], axes=[1]),
        helper.make_node("Mul", ["read", "zero"], ["deaf"]),
    ]
    constants = {"w": drawn(8, 4), "u": drawn(4, 4), "zero": np.zeros(1, np.float32)}
    inputs = {"x": (FLOAT, ["batch", 8]), "state": (FLOAT, ["batch", 4])}
    return save(file, nodes, constants, inputs, {"y": FLOAT, "stateN": FLOAT, "deaf": FLOAT})


def test_states_are_fed_back_and_outputs_that_nothing_moves_are_named(tmp_path: Path) -> None:
    file = recurrent(tmp_path / "r.onnx")
    recipe = derive_graph(str(file))
    assert (dict(recipe.states), recipe.unmoved) == ({"state": "stateN"}, ("deaf",))
    text = render_given(recipe, Cell.parse(f"r.onnx@0/{GRAPH_TASK}/cpu/float32"), ())
    assert "case.fed_back_error(make_inputs, states)" in text
    assert 'unmoved=("deaf",)' in text

    def inputs_of(seed: int = 0) -> Any:
        return draw_inputs(recipe.inputs, recipe.sizes, seed)

    with case_of(file, "cpu", unmoved=recipe.unmoved) as case:
        assert case.fed_back_error(inputs_of, recipe.states) <= case.tolerance
        assert case._conditions(None)["unmoved"] == "deaf"
        run, steps = case.run, iter(range(9))

        def drifting(inputs: Any) -> Any:
            """A target that loses the state after the second step."""
            return run({**inputs, "state": 0 * inputs["state"]} if next(steps) > 1 else inputs)

        case.run = drifting
        assert case.fed_back_error(inputs_of, recipe.states) > case.tolerance


def test_the_state_of_a_graph_is_found_by_name_and_shape() -> None:
    inputs = {"x": drawn(2, 8), "h": drawn(1, 2, 4), "c": drawn(1, 2, 4), "ids": np.zeros((2, 3), np.int64)}
    outputs = {"y": drawn(2, 1), "hn": drawn(1, 2, 4), "cn": drawn(1, 2, 4)}
    assert states_of(inputs, outputs) == {"h": "hn", "c": "cn"}
    first = {f"{name}0": inputs[name] for name in "hc"}
    assert states_of(first, outputs) == {"h0": "hn", "c0": "cn"}
    assert states_of(inputs, {"y": drawn(2, 1), "next": drawn(1, 2, 4)}) == {}, "which of the two isn't known"
    assert states_of({"memory": drawn(3, 4)}, {"new": drawn(3, 4)}) == {"memory": "new"}
    assert states_of({"x": drawn(3, 4)}, {"y": drawn(3, 4)}) == {}
    assert states_of({"input": drawn(3, 4)}, {"output": drawn(3, 4)}) == {}, "the usual names of a plain layer"
    assert states_of({"x": drawn(3, 4)}, {"max": drawn(3, 4)}) == {}


def test_a_file_with_weights_beside_it_is_saved_with_them(tmp_path: Path) -> None:
    plain, kept = probability(tmp_path / "p.onnx"), tmp_path / "kept"
    kept.mkdir()
    how = {"save_as_external_data": True, "location": "p.data", "size_threshold": 0}
    onnx.save(onnx.load(str(plain)), str(kept / "p.onnx"), **how)
    inputs = {"x": drawn(2, 64)}
    with get_backend(Target(name="cpu")) as backend:
        runnable = backend.load_file(FileInput(file=kept / "p.onnx"), inputs, "float32")
        (tmp_path / "saved").mkdir()
        again = runnable.save_and_reload(tmp_path / "saved")
        assert np.array_equal(again(**inputs)["y"], runnable(**inputs)["y"])


def of_one_node(kind: str, shape: Any, dtype: int = FLOAT, *constants: Any, **attributes: Any) -> Any:
    def made(file: Path) -> Path:
        names = [f"c{place}" for place in range(len(constants))]
        node = helper.make_node(kind, ["x", *names], ["y"], **attributes)
        return save(file, [node], dict(zip(names, constants, strict=True)), {"x": (dtype, shape)}, {"y": FLOAT})

    return made


def tokens(file: Path) -> Path:
    """Ids from 0 to 8, to which the graph adds one, in a table that is a node."""
    nodes = [
        helper.make_node("Constant", [], ["table"], value=numpy_helper.from_array(drawn(10, 4))),
        helper.make_node("Add", ["ids", "one"], ["rows"]),
        helper.make_node("Gather", ["table", "rows"], ["y"]),
    ]
    return save(file, nodes, {"one": np.array(1)}, {"ids": (TensorProto.INT64, ["batch", "length"])}, {"y": FLOAT})


def only_one_row(file: Path) -> Path:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["z"]), helper.make_node("MatMul", ["z", "w"], ["y"])]
    constants = {"shape": np.array([1, 8]), "w": drawn(8, 3)}
    return save(file, nodes, constants, {"x": (FLOAT, ["batch", 8])}, {"y": FLOAT})


@pytest.mark.parametrize(
    ("made", "shape", "range_of_values"),
    [
        (tokens, (2, 16), (0, 8)),
        (only_one_row, (1, 8), (-9, 9)),
        (of_one_node("Acos", ["batch", 8]), (2, 8), (0, 1)),
        (of_one_node("MaxPool", ["batch", 1, "samples"], kernel_shape=[400]), (2, 1, 512), (-9, 9)),
        (of_one_node("ReduceSum", ["samples"]), (16,), (-9, 9)),
        (of_one_node("Relu", ["sequence_length", 8]), (16, 8), (-9, 9)),
        (of_one_node("ReduceMax", ["height", "width", 3]), (64, 64, 3), (0, 1)),
    ],
    ids=[
        "ids of a table",
        "one row",
        "cosines",
        "a long window",
        "a sound",
        "a sequence",
        "an image without a batch",
    ],
)
def test_inputs_that_a_file_accepts_are_found(
    tmp_path: Path, made: Any, shape: tuple[int, ...], range_of_values: tuple[int, int]
) -> None:
    recipe = derive_graph(str(made(tmp_path / "m.onnx")))
    (array,) = draw_inputs(recipe.inputs, recipe.sizes).values()
    assert array.shape == shape
    low, high = range_of_values
    assert low <= array.min()
    assert array.max() <= high
    assert high == 9 or array.max() > high / 2, "most of the range is used"


def test_sizes_that_are_sums_follow_the_others() -> None:
    past, length = "past_length", "length"
    ports = {
        "past_key": Port(dtype="float32", shape=("batch", 2, past, 4)),
        "ids": Port(dtype="int64", shape=("batch", length), rows=9),
        "mask": Port(dtype="int64", shape=("batch", f"{past}_plus_{length}")),
        "places": Port(dtype="int64", shape=("batch", f"total_{length}")),
    }
    _, sizes = next(attempts(ports))
    assert sizes[f"{past}_plus_{length}"] == sizes[f"total_{length}"] == sizes[past] + sizes[length]


def test_one_set_of_given_ids_is_enough_and_outputs_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    file = tokens(tmp_path / "t.onnx")
    model = onnx.load(str(file))
    words = numpy_helper.from_array(np.array([b"a", b"b"], dtype=object))
    model.graph.node.append(helper.make_node("Constant", [], ["words"], value=words))
    model.graph.output.append(helper.make_tensor_value_info("words", TensorProto.STRING, [2]))
    onnx.save(model, str(file))
    np.savez(tmp_path / "one.npz", ids=np.array([[1, 2, 3]]))
    recipe = derive_graph(str(file), str(tmp_path / "one.npz"))
    assert (recipe.outputs, recipe.not_compared) == (("y",), ("words",))
    text = render_given(recipe, Cell.parse(f"t.onnx@0/{GRAPH_TASK}/cpu/float32"), ())
    assert 'not_compared=("words",)' in text


def test_empty_outputs_are_equal_and_a_random_layer_in_training_is_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Slice", ["y", "zero", "zero", "one"], ["boxes"]),
    ]
    ends = {"zero": np.array([0]), "one": np.array([1])}
    file = save(
        tmp_path / "e.onnx", nodes, {"w": drawn(16, 8), **ends}, {"x": (FLOAT, [2, 16])}, {"y": FLOAT, "boxes": FLOAT}
    )
    with case_of(file, "cpu") as case:
        got, want = case.run(case.inputs), case.reference(case.inputs)
        assert want.arrays["boxes"].size == 0
        assert case.error(got, want) <= case.tolerance
        wrong = {**got.arrays, "boxes": np.zeros((0, 9), np.float32)}
        assert not case.error(type(got)(arrays=wrong, masks={}, inputs=case.inputs), want) <= case.tolerance
    nodes = [
        helper.make_node("Constant", [], ["train"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("Dropout", ["x", "ratio", "train"], ["y"]),
    ]
    constants = {"ratio": np.array(0.5, np.float32)}
    random = save(tmp_path / "d.onnx", nodes, constants, {"x": (FLOAT, [2, 16])}, {"y": FLOAT})
    with pytest.raises(ModelError, match="random operator Dropout"):
        derive_graph(str(random))


def test_a_part_beyond_the_limit_is_undecided_where_rounding_is_allowed_for(tmp_path: Path) -> None:
    file = boxes(tmp_path / "b.onnx")
    with case_of(file, "cpu") as case:
        got, want = case.run(case.inputs), case.reference(case.inputs)
        moved = {name: one.copy() for name, one in got.arrays.items()}
        moved["y"][:, 4:] = 0
        case._settled = lambda natural, settle: type(natural)(max_rel_error=0.0, max_abs_error=0.0, worst="y")
        with pytest.raises(Ambiguous, match=r"y\[:, 4:6\].*rounding"):
            case.error(type(got)(arrays=moved, masks={}, inputs=case.inputs), want)


def test_errors_that_add_up_over_steps_are_kept_as_they_are_judged(tmp_path: Path) -> None:
    file = recurrent(tmp_path / "r.onnx")
    recipe = derive_graph(str(file))

    def inputs_of(seed: int = 0) -> Any:
        return draw_inputs(recipe.inputs, recipe.sizes, seed)

    with case_of(file, "cpu", unmoved=recipe.unmoved) as case:
        run, steps = case.run, iter(range(9))

        def drifting(inputs: Any) -> Any:
            """A target whose error is half of the limit in each step, and adds up."""
            found = run(inputs)
            far = 0.5 * case.tolerance * (next(steps) + 1) * case._scales["stateN"]
            return type(found)(
                arrays={**found.arrays, "stateN": found.arrays["stateN"] + far}, masks={}, inputs=inputs
            )

        case.run = drifting
        assert case.fed_back_error(inputs_of, recipe.states) <= case.tolerance
        assert 0 < case.measured.comparison.max_rel_error <= case.tolerance
