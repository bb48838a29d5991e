"""An ONNX graph with the values of all its nodes, as one graph and as nodes that are apart from each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .graphs import GraphRuns, Node, Values

if TYPE_CHECKING:
    from hardware.compare import Array

Compute = Callable[[Path, Mapping[str, "Array"]], Values]
"""Runs a file with inputs and gives its outputs by name."""

_GIVEN = "given."


class OnnxRuns(GraphRuns):
    """One ONNX file. `compute` runs a file on the device; `device_file` is another file to run there, where what runs
    isn't what was converted. Files are written into `folder`."""

    def __init__(
        self,
        file: Path,
        inputs: Mapping[str, Array],
        compute: Compute,
        folder: Path,
        *,
        device_file: Path | None = None,
    ) -> None:
        import onnx

        self._model: Any = onnx.load(str(file))
        self._device: Any = onnx.load(str(device_file)) if device_file else self._model
        self._inputs = dict(inputs)
        self._compute, self._folder = compute, folder
        self._files = 0
        constants = {one.name for one in self._model.graph.initializer}
        self._results = [one.name for one in self._model.graph.output]
        self.nodes = [
            Node(
                name=node.name or node.output[0],
                operator=node.op_type,
                module=module_of(node.name or node.output[0]),
                takes=tuple(one for one in node.input if one and one not in constants),
                gives=tuple(one for one in node.output if one),
            )
            for node in self._model.graph.node
            if node.op_type != "Constant"
        ]
        self._types: dict[str, int] = {}

    def on_cpu(self) -> Values:
        found = compute_on_cpu(self._written(_exposed(self._model)), self._inputs)
        self._types = {name: _type_of(one) for name, one in {**self._inputs, **found}.items()}
        self._shapes = {name: list(one.shape) for name, one in {**self._inputs, **found}.items()}
        return found

    def on_device(self) -> Values:
        return self._compute(self._written(_exposed(self._device, self._types, self._shapes)), self._inputs)

    def apart(self, given: Values) -> Values:
        model, needed = _taken_apart(self._device, self._types, self._shapes)
        known = {**self._inputs, **given}
        inputs = {f"{_GIVEN}{name}": known[name] for name in needed}
        return self._compute(self._written(model), inputs)

    def outputs(self, values: Values) -> dict[str, Array]:
        return {name: values[name] for name in self._results if name in values}

    def plain(self) -> dict[str, Array]:
        return dict(self._compute(self._written(self._device), self._inputs))

    def _written(self, model: Any) -> Path:
        import onnx

        self._files += 1
        file = self._folder / f"{self._files}.onnx"
        onnx.save(model, str(file))
        return file


def compute_on_cpu(file: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a file on ONNX Runtime's CPU provider, without its optimisations of the graph."""
    from hardware.export.onnx import session_on_host

    session = session_on_host(file)
    given = {one.name: np.asarray(inputs[one.name], order="C") for one in session.get_inputs()}
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, given)), strict=True))


def module_of(name: str) -> str:
    """The module that torch's exporter names a node after: `/model/encoder/layer.0/MatMul` is of
    `encoder.layer.0`."""
    parts = name.split("/")
    if len(parts) < 3 or parts[0]:
        return ""
    path = parts[1:-1]
    return ".".join(path[1:] if path[0] == "model" else path)


def _type_of(array: Array) -> int:
    import onnx

    return int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))


def _copy(model: Any) -> Any:
    import onnx

    found = onnx.ModelProto()
    found.CopyFrom(model)
    return found


def _exposed(
    model: Any, types: Mapping[str, int] | None = None, shapes: Mapping[str, list[int]] | None = None
) -> Any:
    """The graph with what all nodes give as outputs; types are inferred where they aren't known."""
    import onnx

    found = _copy(model)
    graph = found.graph
    known = {one.name for one in graph.output}
    inferred = {one.name: one for one in onnx.shape_inference.infer_shapes(model).graph.value_info}
    for name in _given_by(graph.node):
        if name in known:
            continue
        if types is not None and shapes is not None:
            if name in types:
                graph.output.append(onnx.helper.make_tensor_value_info(name, types[name], shapes[name]))
        elif name in inferred:
            graph.output.append(inferred[name])
    return found


def _given_by(nodes: Iterable[Any]) -> list[str]:
    return [name for node in nodes if node.op_type != "Constant" for name in node.output if name]


def _taken_apart(model: Any, types: Mapping[str, int], shapes: Mapping[str, list[int]]) -> tuple[Any, list[str]]:
    """The graph with each node reading inputs of its own, and the names of the tensors that these stand for."""
    import onnx

    found = _copy(model)
    graph = found.graph
    tensors = {*_given_by(graph.node), *(one.name for one in graph.input)}
    needed: dict[str, None] = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in tensors and name in types:
                needed[name] = None
                node.input[place] = f"{_GIVEN}{name}"
    del graph.input[:], graph.output[:], graph.value_info[:]
    make = onnx.helper.make_tensor_value_info
    graph.input.extend(make(f"{_GIVEN}{name}", types[name], shapes[name]) for name in needed)
    graph.output.extend(make(name, types[name], shapes[name]) for name in _given_by(graph.node) if name in types)
    return found, list(needed)
