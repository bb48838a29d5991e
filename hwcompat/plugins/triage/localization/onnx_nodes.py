"""An ONNX graph with the values of all its nodes, as one graph and with each node separate."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.hardware.testing.graph_weights import parts_of

from .graph_nodes import GraphNode, GraphRuns, Values

if TYPE_CHECKING:
    from hwcompat.hardware.compare import Array

Compute = Callable[[Path, Mapping[str, "Array"]], Values]
"""Runs a file with inputs and returns its outputs by name."""

_GIVEN = "given."


class OnnxRuns(GraphRuns):
    """One ONNX file. `compute` runs a file on the device, which gets `device_model`: the converted one, or another
    one. Files are written into `folder`."""

    def __init__(self, file: Path, inputs: Mapping[str, Array], compute: Compute, folder: Path) -> None:
        import onnx

        self._model: Any = onnx.load(str(file))
        self.device_model = self._model
        self._inputs = dict(inputs)
        self._compute, self._folder = compute, folder
        self._files = 0
        self._known: dict[str, Array] = {}
        self.read_nodes()

    def read_nodes(self) -> None:
        """Read the nodes of the graph."""
        constants = {one.name for one in self._model.graph.initializer}
        self.nodes = [
            GraphNode(
                name=node.name or node.output[0],
                operator=node.op_type,
                module=module_of(node.name or node.output[0]),
                takes=tuple(one for one in node.input if one and one not in constants),
                gives=tuple(one for one in node.output if one),
            )
            for node in self._model.graph.node
            if node.op_type != "Constant"
        ]

    def on_cpu(self) -> Values:
        import onnx

        values = onnx.shape_inference.infer_shapes(self._model).graph.value_info
        found = compute_on_cpu(self._exposed(self._model, {one.name: one for one in values}), self._inputs)
        self._known = {**self._inputs, **found}
        return found

    def on_device(self) -> Values:
        known = {name: self._info(name) for name in self._known}
        return self._compute(self._exposed(self.device_model, known), self._inputs)

    def apart(self, given: Values, kept: Sequence[int] | None = None) -> Values:
        """Return the values of all nodes, or of those with these numbers, each with inputs of its own."""
        from onnx import numpy_helper

        model = copy.deepcopy(self.device_model)
        graph = model.graph
        if kept is not None:
            chosen = [graph.node[number] for number in kept]
            constants = [node for node in graph.node if node.op_type == "Constant"]
            del graph.node[:]
            graph.node.extend([*constants, *chosen])
        tensors = {*given_by(self.device_model.graph), *(one.name for one in graph.input)} & self._known.keys()
        needed: dict[str, None] = {}
        for node in (part for one in graph.node for part in parts_of(one, type(one))):
            for place, name in enumerate(node.input):
                if name in tensors:
                    needed[name] = None
                    node.input[place] = f"{_GIVEN}{name}"
        known = {**self._known, **given}
        constant = [name for name in needed if name not in self._inputs and self._as_constant(known[name])]
        del graph.input[:], graph.output[:], graph.value_info[:]
        graph.initializer.extend(numpy_helper.from_array(known[name], f"{_GIVEN}{name}") for name in constant)
        needed = {name: None for name in needed if name not in constant}
        graph.input.extend(self._info(name, _GIVEN) for name in needed)
        graph.output.extend(self._info(name) for name in given_by(graph) if name in self._known)
        return self._compute(self._write_model(model), {f"{_GIVEN}{name}": known[name] for name in needed})

    def _as_constant(self, array: Array) -> bool:
        """Whether a node's input is a constant where nodes run separately."""
        return False

    def outputs(self, values: Values) -> dict[str, Array]:
        return {one.name: values[one.name] for one in self._model.graph.output if one.name in values}

    def plain(self) -> dict[str, Array]:
        return dict(self._compute(self._write_model(self.device_model), self._inputs))

    def _info(self, name: str, prefix: str = "") -> Any:
        """Return the description of a known input or output of a graph."""
        import onnx

        kind = onnx.helper.np_dtype_to_tensor_dtype(self._known[name].dtype)
        return onnx.helper.make_tensor_value_info(f"{prefix}{name}", kind, list(self._known[name].shape))

    def _exposed(self, model: Any, known: Mapping[str, Any]) -> Path:
        """Write the graph with the known results of all nodes as outputs, and return the file."""
        found = copy.deepcopy(model)
        there = {one.name for one in found.graph.output}
        names = [name for name in given_by(found.graph) if name in known and name not in there]
        found.graph.output.extend(known[name] for name in names)
        return self._write_model(found)

    def _write_model(self, model: Any) -> Path:
        import onnx

        self._files += 1
        file = self._folder / f"{self._files}.onnx"
        onnx.save(model, str(file))
        return file


def compute_on_cpu(file: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of a file on ONNX Runtime's CPU provider, without its graph optimizations."""
    from hwcompat.hardware.export.onnx_export import session_on_host

    session = session_on_host(file)
    given = {one.name: np.asarray(inputs[one.name], order="C") for one in session.get_inputs()}
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, given)), strict=True))


def module_of(name: str) -> str:
    """Return the module after which torch's exporter named a node: `encoder.layer.0` for
    `/model/encoder/layer.0/MatMul`."""
    parts = name.split("/")
    if len(parts) < 3 or parts[0]:
        return ""
    path = parts[1:-1]
    return ".".join(path[1:] if path[0] == "model" else path)


def given_by(graph: Any) -> list[str]:
    """Return the names of the results of a graph's nodes."""
    return [name for node in graph.node if node.op_type != "Constant" for name in node.output if name]
