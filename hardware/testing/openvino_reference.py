"""Evaluate a file that OpenVINO reads (`.xml`, `.tflite`) node by node with the plain kernels of its core library, in
float32.

Operators without such a kernel are computed by torch in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..compare import Array
from ..errors import BrokenInput, ModelError, echo
from .graph_ladder import agree
from .graph_operators import convolved, window_padding
from .graph_reference import GraphReference, dimension

_CARRIES = ("Convert", "Reshape", "Unsqueeze", "Squeeze", "Transpose", "Broadcast", "StridedSlice", "Slice", "Clamp")
_CHANCE = {"RandomUniform", "Multinomial"}


class OpenVINOReference(GraphReference):
    """A file in OpenVINO's own kernels, without device plugins and fused kernels."""

    said = "float32 with OpenVINO's reference kernels, which no plugin uses"

    def __init__(self, file: Path) -> None:
        try:
            import openvino
        except ImportError as error:
            raise ModelError(
                f"{echo(file.name)} cannot be tested",
                why="openvino is not installed",
                fix="Install it with: pip install -r requirements.txt",
            ) from error
        self._file = file
        if file.suffix.lower() == ".xml" and not file.with_suffix(".bin").is_file():
            raise BrokenInput(
                f"the weights of {echo(file.name)} are missing",
                why=f"{echo(file.with_suffix('.bin').name)} is not in the same folder",
                fix="Copy it there; it was written together with the .xml file.",
            )
        try:
            self._model = openvino.Core().read_model(str(file))
        except RuntimeError as error:
            raise BrokenInput(
                f"{echo(file.name)} cannot be read",
                why=f"it is corrupt, truncated, or not an OpenVINO file: {' '.join(str(error).split())[:200]}",
                fix="Export it again.",
            ) from error
        nodes = self._model.get_ordered_ops()
        self.parameters = sum(
            int(np.prod(node.get_output_shape(0)))
            for node in nodes
            if node.get_type_name() == "Constant" and node.get_output_element_type(0).is_real()
        )
        chance = sorted({node.get_type_name() for node in nodes} & _CHANCE)
        if chance:
            raise ModelError(
                f"{echo(file.name)} gives different results each time",
                why=f"it contains the random operator {chance[0]}",
            )

    def inputs(self) -> dict[str, tuple[str, tuple[int | str, ...], int]]:
        found = {}
        for port in self._model.inputs:
            shape = port.get_partial_shape()
            if shape.rank.is_dynamic:
                raise ModelError(f"the input {echo(port.get_any_name())} has an unknown number of dimensions")
            sizes = [dimension(axis, 0 if one.is_dynamic else one.get_length()) for axis, one in enumerate(shape)]
            dtype = np.dtype(port.get_element_type().to_dtype())
            found[port.get_any_name()] = (dtype.name, tuple(sizes), _index_range(port))
        return found

    def evaluate(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        model = self._model.clone()
        model.reshape({name: list(value.shape) for name, value in inputs.items()})
        names = {port.get_node().get_friendly_name(): port.get_any_name() for port in model.inputs}
        values: dict[tuple[str, int], Array] = {}
        for node in model.get_ordered_ops():
            name = node.get_friendly_name()
            given = [
                values[port.get_source_output().get_node().get_friendly_name(), port.get_source_output().get_index()]
                for port in node.inputs()
            ]
            if node.get_type_name() == "Parameter":
                results = [np.asarray(inputs[names[name]], order="C")]
            elif node.get_type_name() == "Constant":
                results = [np.array(node.data)]
            elif node.get_type_name() == "Result":
                results = given
            else:
                results = self._compute(node, given)
            values |= {(name, index): result for index, result in enumerate(results)}
        outputs = enumerate(zip(model.outputs, model.results, strict=True))
        return {
            port.get_any_name() if port.get_names() else f"output_{n}": values[result.get_friendly_name(), 0]
            for n, (port, result) in outputs
        }

    def _compute(self, node: Any, given: list[Array]) -> list[Array]:
        """Return the outputs of one node from its plain kernel, or from ours if it has none."""
        import openvino

        kind = node.get_type_name()
        if kind in _KERNELS:
            return [_KERNELS[kind](node.get_attributes(), *given).astype(given[0].dtype)]
        outputs = [
            openvino.Tensor(port.get_element_type(), port.get_shape() if port.get_partial_shape().is_static else [0])
            for port in node.outputs()
        ]
        try:
            done = node.evaluate(outputs, [openvino.Tensor(value) for value in given])
        except RuntimeError:
            done = False
        if not done:
            raise ModelError(
                f"{echo(self._file.name)} has no independent reference",
                why=f"OpenVINO's reference kernels don't support {kind}",
                fix="Test the model that it was made from, or its .onnx file.",
            )
        return [np.array(tensor.data) for tensor in outputs]


class LiteReference(OpenVINOReference):
    """A `.tflite` file as OpenVINO reads it, in its plain kernels, and in LiteRT if `ai-edge-litert` is installed: an
    implementation that shares no code with it."""

    said = f"{OpenVINOReference.said}; LiteRT isn't installed (pip install ai-edge-litert)"

    def evaluate(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        try:
            other = self._by_litert(inputs)
        except ImportError:
            return super().evaluate(inputs)
        try:
            found = super().evaluate(inputs)
        except ModelError:  # an operator without a plain kernel
            self.said = "float32 by LiteRT alone"
            return other
        if not agree(found, other, self.scales):
            raise ModelError(
                f"{echo(self._file.name)} has no reference", why="LiteRT and OpenVINO's reference kernels disagree"
            )
        self.said = "float32, in which LiteRT and OpenVINO's reference kernels agree"
        return found

    def _by_litert(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(str(self._file))
        ports = {one["name"]: one["index"] for one in interpreter.get_input_details()}
        for name, value in inputs.items():
            interpreter.resize_tensor_input(ports[name], value.shape)
        interpreter.allocate_tensors()
        for name, value in inputs.items():
            interpreter.set_tensor(ports[name], value)
        interpreter.invoke()
        outputs = interpreter.get_output_details()
        return {one["name"]: np.array(interpreter.get_tensor(one["index"])) for one in outputs}


def _convolution(attributes: Mapping[str, Any], data: Array, weights: Array) -> Array:
    """Convolve (batch, channels, *size) with weights (out, in, *kernel), or (groups, out, in, *kernel) for groups."""
    groups = weights.shape[0] if weights.ndim == data.ndim + 1 else 1
    if weights.ndim == data.ndim + 1:
        weights = weights.reshape(-1, *weights.shape[2:])
    strides, dilations = list(attributes["strides"]), list(attributes["dilations"])
    automatic = str(attributes.get("auto_pad", "explicit"))
    given = (*attributes["pads_begin"], *attributes["pads_end"])
    pads = window_padding(automatic, given, data.shape[2:], weights.shape[2:], strides, dilations)
    return convolved(data, weights, None, pads=pads, strides=strides, dilations=dilations, groups=groups)


def _attention(attributes: Mapping[str, Any], query: Array, key: Array, value: Array, *rest: Array) -> Array:
    """Return softmax(query keyᵀ scale + mask) value, as OpenVINO's documentation defines the operator."""
    query, key, value = (one.astype(np.float64) for one in (query, key, value))
    scale = float(np.ravel(rest[1])[0]) if len(rest) > 1 else 1.0 / np.sqrt(query.shape[-1])
    scores = query @ np.swapaxes(key, -1, -2) * scale
    if attributes.get("causal"):
        scores = np.where(np.tri(scores.shape[-2], scores.shape[-1], dtype=bool), scores, -np.inf)
    elif rest:
        scores = np.where(rest[0], scores, -np.inf) if rest[0].dtype == bool else scores + rest[0]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True) @ value)


_KERNELS: Mapping[str, Callable[..., Array]] = {
    "Convolution": _convolution,
    "GroupConvolution": _convolution,
    "ScaledDotProductAttention": _attention,
}


def _index_range(port: Any) -> int:
    """Return the rows of the smallest table in which an input is an index, or 0 if it isn't one."""
    waiting, seen, sizes = [port], 0, []
    while waiting and seen < 1000:
        seen += 1
        for target in waiting.pop().get_target_inputs():
            node = target.get_node()
            kind = node.get_type_name()
            if kind == "Gather" and target.get_index() == 1 and node.input_value(0).get_partial_shape().is_static:
                axis = int(np.ravel(node.input_value(2).get_node().data)[0]) if _is_constant(node, 2) else 0
                sizes.append(int(node.input_value(0).get_shape()[axis]))
            elif kind in _CARRIES and target.get_index() == 0:
                waiting += node.outputs()
    return min(sizes, default=0)


def _is_constant(node: Any, index: int) -> bool:
    return bool(node.input_value(index).get_node().get_type_name() == "Constant")
