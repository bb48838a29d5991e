"""The first module or node that is wrong by itself is named, whatever follows from it."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

from hardware.errors import NothingMatched, UsageError
from hardware.testing.reference import as_reference
from hwcompat.plugins.triage.localization.graph_nodes import GraphNode, GraphRuns, TracedValues, localize_graph
from hwcompat.plugins.triage.localization.localization_result import ErrorPlace, Localization, LocalizationOutcome
from hwcompat.plugins.triage.localization.tensor_errors import error_of, padding_of
from hwcompat.plugins.triage.localization.torch_modules import localize_modules
from hwcompat.plugins.triage.localize_command import exit_code, localization_json, localization_markdown

TOLERANCE = 2e-5
SCHEMA = Path(__file__).parents[2] / "reports" / "schemas" / "localization.json"


class Block(torch.nn.Module):
    """A layer that is called twice, with a computation of its own between its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 6)
        self.second = torch.nn.Linear(6, 6)
        self.factor = 1.0

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, dict[str, Any]]:
        hidden = torch.tanh(self.first(x)) * self.factor
        hidden = hidden if mask is None else hidden * mask[..., None]
        return x + self.second(hidden), {"hidden": hidden}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(9, 6)
        self.shared = Block()
        self.head = torch.nn.Linear(6, 4)
        self.flipped = False

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.embed(ids)
        kept = torch.ones_like(mask) if self.flipped else mask
        for _ in range(2):
            hidden, _ = self.shared(hidden, mask=kept.to(hidden.dtype))
        return {"logits": self.head(hidden)}


INPUTS = {"ids": np.arange(8).reshape(2, 4), "mask": np.array([[1, 1, 1, 1], [1, 1, 0, 0]])}


class OnCpu:
    """What `localize_modules` asks of a runnable."""

    precision, device, dtype = "float32", torch.device("cpu"), torch.float32

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model.eval()

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        with torch.no_grad():
            found = self.model(**{name: torch.as_tensor(one) for name, one in inputs.items()})
        return {name: one.double().numpy() for name, one in found.items()}


def localized(broken: Any, *, masked: bool = True, **named: Any) -> Localization:
    runnable: Any = OnCpu(broken)
    inputs = INPUTS if masked else {**INPUTS, "mask": np.ones_like(INPUTS["mask"])}
    return localize_modules(runnable, as_reference(Model()), inputs, cell="c", tolerance=TOLERANCE, **named)


def test_a_model_that_computes_right_agrees_everywhere() -> None:
    found = localized(Model())
    assert found.finding is LocalizationOutcome.AGREES
    assert found.place is None
    assert found.compared == 9  # the model, two calls of three modules, the table and the head
    assert exit_code(found) == 0


def test_a_wrong_weight_is_named_at_its_first_call_with_shapes_and_dtypes() -> None:
    model = Model()
    with torch.no_grad():
        model.shared.second.weight *= 1.05
    found = localized(model)
    assert found.place is not None
    assert (found.finding, found.place.name, found.place.call) == (LocalizationOutcome.NAMED, "shared.second", 0)
    assert [(one.name, one.call) for one in found.others] == [("shared.second", 1)]
    assert (found.place.shape, found.place.dtype, found.place.expected_dtype) == ((2, 4, 6), "float32", "float64")
    assert found.place.input_error is not None
    assert found.place.input_error < TOLERANCE < (found.place.own_error or 0)
    assert exit_code(found) == 1


def test_what_a_module_computes_between_its_parts_is_its_own() -> None:
    model = Model()
    model.shared.factor = 1.02
    found = localized(model)
    assert found.place is not None
    assert (found.place.name, found.place.tensor) == ("shared", "input that it hands to second")


def test_a_dropped_mask_is_the_fault_of_who_drops_it() -> None:
    model = Model()
    model.flipped = True
    found = localized(model)
    assert found.place is not None
    assert (found.place.name, found.place.tensor) == ("", "mask that it hands to shared")


def test_nan_is_named_where_it_comes_from() -> None:
    model = Model()
    model.shared.first.register_forward_hook(lambda _module, _given, out: out * math.nan)
    found = localized(model)
    assert found.place is not None
    assert found.place.name == "shared.first"
    assert found.place.own_error == math.inf


def test_what_is_as_far_off_on_the_cpu_is_no_fault_of_a_device() -> None:
    model = Model()
    with torch.no_grad():
        model.head.weight *= 1.05
    control: Any = OnCpu(copy.deepcopy(model))
    assert localized(model, control=lambda: control).finding is LocalizationOutcome.PRECISION
    clean: Any = OnCpu(Model())
    assert localized(model, control=lambda: clean).finding is LocalizationOutcome.NAMED


def test_watching_leaves_no_hooks_and_a_device_that_breaks_says_where() -> None:
    model = Model()
    places: list[str] = []
    localized(model, progress=places.append)
    assert "shared.first" in places
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())

    def refuse(*_: Any) -> None:
        raise RuntimeError("no such kernel")

    model.shared.second.register_forward_pre_hook(refuse)
    with pytest.raises(RuntimeError, match="no such kernel"):
        localized(model, progress=places.append)
    assert places[-1] == "shared.second"


def test_errors_are_by_scale_and_padding_and_rounding_are_none() -> None:
    want = np.array([[[1.0, 2.0], [3.0, 4.0]]])
    got = want + np.array([[[0.0, 0.0], [9.0, 9.0]]])
    how: dict[str, Any] = {"precision": "float32", "tolerance": TOLERANCE}
    (padding,) = padding_of({"attention_mask": np.array([[1, 0]]), "token_type_ids": np.array([[1, 0]])})
    assert error_of(got, want, **how) == pytest.approx(9 / want.std())
    assert error_of(got, want, **how, padding=[padding]) == 0
    assert error_of(got * math.nan, want, **how, padding=[padding], finite=True) == math.inf
    assert error_of(got[..., :1], want, **how) == math.inf
    assert error_of(got, want * math.nan, **how) is None
    near = 1e6 + np.array([0.0, 1e-3])
    assert (error_of(near + 0.1, near, **how) or 0) < TOLERANCE  # float32 holds no more digits
    assert (error_of(near + 9.0, near, **how) or 0) > TOLERANCE


NODES = [
    GraphNode(name="a", operator="MatMul", module="m", takes=("x",), gives=("a",)),
    GraphNode(name="b", operator="Add", module="m", takes=("a",), gives=("b",)),
    GraphNode(name="c", operator="Tanh", module="", takes=("b",), gives=("c",)),
]


class Chain(GraphRuns):
    """x+1, times 2, minus 3; `wrong` breaks nodes by name: on the device, or with `converted` everywhere."""

    nodes = NODES

    def __init__(self, wrong: str = "", *, converted: bool = False) -> None:
        self.wrong, self.converted = wrong, converted

    def _values(self, wrong: str, given: Any = None) -> dict[str, Any]:
        found: dict[str, Any] = {"x": np.arange(1.0, 5.0)}
        steps: dict[str, Any] = {"a": lambda x: x**2, "b": lambda x: np.sin(x) * 2, "c": lambda x: np.exp(x) - 3}
        for node in NODES:
            value = steps[node.name]((given or found)[node.takes[0]] if node.takes[0] != "x" else found["x"])
            found[node.name] = value * 1.1 if node.name == wrong else value
        return {name: found[name] for name in steps}

    def on_cpu(self) -> dict[str, Any]:
        return self._values(self.wrong if self.converted else "")

    def on_device(self) -> dict[str, Any]:
        return self._values(self.wrong)

    def apart(self, given: Any) -> dict[str, Any]:
        return self._values(self.wrong, given)

    def outputs(self, values: Any) -> dict[str, Any]:
        return {"y": values["c"]}

    def plain(self) -> dict[str, Any]:
        return self.outputs(self.on_device())


def graph(runs: Chain) -> Localization:
    right = Chain()._values("")
    traced = TracedValues(right.values(), [])
    return localize_graph(
        runs, traced, {"y": right["c"]}, cell="c", tolerance=TOLERANCE, precision="float32", masks={}
    )


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_the_broken_node_is_named_on_the_device_and_in_the_graph(name: str, converted: bool) -> None:
    found = graph(Chain(name, converted=converted))
    assert found.place is not None
    assert (found.finding, found.place.name) == (LocalizationOutcome.NAMED, name)
    assert not found.others
    assert any("itself is wrong" in one for one in found.notes) is converted


def test_a_graph_that_is_right_agrees() -> None:
    assert graph(Chain()).finding is LocalizationOutcome.AGREES


def test_an_onnx_node_is_named_among_nodes_that_read_inputs_of_their_own(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from hwcompat.plugins.triage.localization.onnx_nodes import OnnxRuns, compute_on_cpu

    make = onnx.helper

    def write(file: Path, second: str) -> Path:
        nodes = [
            make.make_node("Tanh", ["x"], ["t"], "one"),
            make.make_node(second, ["t"], ["s"], "two"),
            make.make_node("Mul", ["s", "x"], ["y"], "three"),
        ]
        places = [make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "xy"]
        graph = make.make_graph(nodes, "g", places[:1], places[1:])
        onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8), str(file))
        return file

    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    tanh = np.tanh(x.astype(np.float64))
    want = {"y": np.exp(tanh) * x}
    runs = OnnxRuns(write(tmp_path / "right.onnx", "Exp"), {"x": x}, compute_on_cpu, tmp_path)
    runs.device_model = onnx.load(str(write(tmp_path / "wrong.onnx", "Sin")))
    traced = TracedValues([], [])
    found = localize_graph(runs, traced, want, cell="c", tolerance=TOLERANCE, precision="float32", masks={})
    assert found.place is not None
    assert (found.place.name, found.place.kind, found.place.shape) == ("two", "Exp", (2, 3))
    assert not found.others
    assert found.compared == 3


def said() -> Localization:
    place = ErrorPlace(name="a.`<b>`", kind="Linear", own_error=math.inf, error=0.5, shape=(2, 3), dtype="float16")
    return Localization(
        cell="bert/fill-mask/cpu/float32",
        finding=LocalizationOutcome.NAMED,
        granularity="module",
        reference="r",
        tolerance=TOLERANCE,
        outputs_error=math.inf,
        place=place,
        others=(place,),
        compared=3,
        notes=("<script>",),
    )


def test_json_keeps_its_schema_and_comes_back() -> None:
    data = json.loads(localization_json(said(), "2026-01-01T00:00:00+00:00"))
    jsonschema.validate(data, json.loads(SCHEMA.read_text(encoding="utf-8")))
    del data["schema_version"], data["timestamp"]
    assert Localization.from_dict(data) == said()


def test_the_first_line_says_where_and_foreign_text_is_no_markup() -> None:
    text = localization_markdown(said())
    assert "wrong by itself" in text.splitlines()[0]
    assert "float16 [2, 3]" in text
    assert "<script>" not in text


def test_what_can_not_be_localized_is_refused_with_the_next_step() -> None:
    from hwcompat.plugins.triage.localization.localize_cell import checked_cell

    with pytest.raises(UsageError, match="cpu"):
        checked_cell("bert/fill-mask/cup/float32")
    with pytest.raises(UsageError, match="bert"):
        checked_cell("bertt/fill-mask/cpu/float32")
    with pytest.raises(NothingMatched, match="fill-mask"):
        checked_cell("bert/fill-mosk/cpu/float32")
    with pytest.raises(NothingMatched, match="openvino"):
        checked_cell("bert/fill-mask/tpu/float32")
    with pytest.raises(NothingMatched, match="int8"):
        checked_cell("bert/fill-mask/openvino/int8")
    assert checked_cell("bert/fill-mask/cpu/float32").model == "bert"
