"""An OpenVINO graph with the values of all its nodes, as one graph and with each node separate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.hardware.export.exported import RESULT

from .graph_nodes import GraphNode, GraphRuns, Values

if TYPE_CHECKING:
    from hwcompat.hardware.compare import Array

_NOT_COMPUTED = ("Parameter", "Result", "Constant", "ReadValue", "Assign")
_EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


class OpenVINORuns(GraphRuns):
    """One `.xml` file with one graph without state. `device_file` runs on the device: the same file or another one.
    `inputs` are all inputs of the graph, by name."""

    def __init__(self, file: Path, inputs: Mapping[str, Array], device: str, options: Mapping[str, str]) -> None:
        import openvino

        self._core = openvino.Core()
        self._file = self.device_file = file
        self._inputs = dict(inputs)
        self._device, self._options = device, dict(options)
        model = self._read(file)
        self._results = {_input_of(port): _output_name(port) for port in model.outputs}
        self.nodes = [
            GraphNode(
                name=node.get_friendly_name(),
                operator=node.get_type_name(),
                module=module_of(node.get_friendly_name()),
                takes=tuple(_tensor(one.get_source_output()) for one in node.inputs() if not _is_constant(one)),
                gives=tuple(_tensor(one) for one in node.outputs()),
            )
            for node in _readable_nodes(model)
        ]

    def on_cpu(self) -> Values:
        return self._exposed(self._file, "CPU", _EXACT)

    def on_device(self) -> Values:
        return self._exposed(self.device_file, self._device, self._options)

    def apart(self, given: Values) -> Values:
        import openvino

        model = self._read(self.device_file)
        ports = [one for node in _readable_nodes(model) for one in node.outputs() if _tensor(one) in given]
        parameters, results = [], []
        for port in ports:
            parameter = openvino.opset13.parameter(list(given[_tensor(port)].shape), port.get_element_type())
            for taker in list(port.get_target_inputs()):
                taker.replace_source_output(parameter.output(0))
            parameters.append(parameter)
            results.append(openvino.opset13.result(port))
        cut = openvino.Model(results, [*model.get_parameters(), *parameters], "apart")
        arrays = [*self._arrays(model), *(np.asarray(given[_tensor(port)], order="C") for port in ports)]
        got = self._core.compile_model(cut, self._device, self._options)(arrays)
        return {_tensor(port): np.array(got[number]) for number, port in enumerate(ports)}

    def outputs(self, values: Values) -> dict[str, Array]:
        return {self._results[tensor]: values[tensor] for tensor in self._results if tensor in values}

    def plain(self) -> dict[str, Array]:
        model = self._read(self.device_file)
        got = self._core.compile_model(model, self._device, self._options)(self._arrays(model))
        return {_output_name(port): np.array(got[number]) for number, port in enumerate(model.outputs)}

    def _read(self, file: Path) -> Any:
        model = self._core.read_model(file)
        model.reshape(dict(zip(model.inputs, (list(one.shape) for one in self._arrays(model)), strict=True)))
        return model

    def _arrays(self, model: Any) -> list[Array]:
        return [np.asarray(self._inputs[_input_name(port, self._inputs)], order="C") for port in model.inputs]

    def _exposed(self, file: Path, device: str, options: Mapping[str, str]) -> Values:
        model = self._read(file)
        model.add_outputs([one for node in _readable_nodes(model) for one in node.outputs()])
        got = self._core.compile_model(model, device, dict(options))(self._arrays(model))
        return {_input_of(port): np.array(got[number]) for number, port in enumerate(model.outputs)}


def module_of(name: str) -> str:
    """Return the module in a node's name: `encoder` for `__module.model.encoder/aten::add/Add`."""
    head = name.partition("/")[0]
    return head.removeprefix("__module.").removeprefix("model.") if head.startswith("__module.") else ""


def _readable_nodes(model: Any) -> list[Any]:
    return [node for node in model.get_ordered_ops() if node.get_type_name() not in _NOT_COMPUTED]


def _is_constant(port: Any) -> bool:
    return bool(port.get_source_output().get_node().get_type_name() == "Constant")


def _tensor(port: Any) -> str:
    return f"{port.get_node().get_friendly_name()}:{port.get_index()}"


def _input_of(result: Any) -> str:
    """Return the tensor that an output of the model reads."""
    return _tensor(result.get_node().input(0).get_source_output())


def _input_name(port: Any, inputs: Mapping[str, Any]) -> str:
    names = {*port.get_names(), str(port.get_node().get_friendly_name())}
    return next((name for name in sorted(names) if name in inputs), min(names, default=""))


def _output_name(port: Any) -> str:
    node = str(port.get_node().get_friendly_name())
    return node.removeprefix(RESULT) if node.startswith(RESULT) else str(port.get_any_name())
