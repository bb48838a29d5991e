"""Localization with torch and ONNX: the first module or node that is wrong by itself is named."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hardware.testing.reference import as_reference
from hwcompat.plugins.triage.localization.graph_nodes import TracedValues, localize_graph
from hwcompat.plugins.triage.localization.localization_result import Localization, LocalizationOutcome
from hwcompat.plugins.triage.localization.torch_modules import localize_modules
from hwcompat.plugins.triage.localize_command import exit_code

TOLERANCE = 2e-5


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


def localized(broken: Any, **named: Any) -> Localization:
    runnable: Any = OnCpu(broken)
    return localize_modules(runnable, as_reference(Model()), INPUTS, cell="c", tolerance=TOLERANCE, **named)


def test_a_right_model_agrees_everywhere() -> None:
    found = localized(Model())
    assert (found.finding, found.place) == (LocalizationOutcome.AGREES, None)
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


def test_the_module_that_computes_wrongly_between_its_parts_is_named() -> None:
    factor, flipped, nan = Model(), Model(), Model()
    factor.shared.factor = 1.02
    flipped.flipped = True
    nan.shared.first.register_forward_hook(lambda _module, _given, out: out * math.nan)
    for model, place in (
        (factor, ("shared", "input passed to second")),
        (flipped, ("", "mask passed to shared")),
    ):
        found = localized(model).place
        assert found is not None
        assert (found.name, found.tensor) == place
    found = localized(nan).place
    assert found is not None
    assert (found.name, found.own_error) == ("shared.first", math.inf)


def test_an_error_that_the_cpu_has_too_is_no_fault_of_a_device() -> None:
    model = Model()
    with torch.no_grad():
        model.head.weight *= 1.05
    control: Any = OnCpu(copy.deepcopy(model))
    assert localized(model, control=lambda: control).finding is LocalizationOutcome.PRECISION
    clean: Any = OnCpu(Model())
    assert localized(model, control=lambda: clean).finding is LocalizationOutcome.NAMED


def test_no_hooks_are_left_and_a_device_that_breaks_says_where() -> None:
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
