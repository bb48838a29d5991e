"""Evaluate a graph file without the runtimes under test: in ONNX's evaluator in float64, or OpenVINO's plain kernels.

OpenVINO's `Model.evaluate` is the code behind its constant folding, not one of its device plugins.
"""

from __future__ import annotations

import keyword
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..backends._onnx import COMPUTE
from ..backends.base import coarsest
from ..command_names import as_runnable
from ..compare import Array, ReferenceNotFinite
from ..errors import BrokenInput, ModelError, echo
from .graph_weights import parts_of, weight_files

_NEWER_OPSET = 21
_LARGEST_PROTOBUF = 2**31
_RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")


class GraphReference(ABC):
    """A graph file that can be evaluated. `said` names limits of the reference, `parameters` is a count, and
    `computes_in` the precision of the file's products, or of its values if it has none."""

    said: str = ""
    computes_in: str = "float32"
    parameters: int

    @abstractmethod
    def inputs(self) -> dict[str, tuple[str, tuple[int | str, ...], int]]:
        """Return by name: NumPy's name of the dtype, the shape (a text names a dynamic dimension), and for indices
        their number, else 0. Raises `ModelError` for anything but a tensor of numbers."""

    @abstractmethod
    def evaluate(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return every output by name."""

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the floating-point outputs in float64. Raises `ReferenceNotFinite`."""
        outputs = {name: value for name, value in self.evaluate(inputs).items() if value.dtype.kind == "f"}
        for name, value in outputs.items():
            if not np.isfinite(value).all():
                raise ReferenceNotFinite(f"the reference is not finite in {name}: nothing can be compared")
        return {name: value.astype(np.float64) for name, value in outputs.items()}


class OnnxReference(GraphReference):
    """An `.onnx` file in onnx's evaluator, which is NumPy throughout: in float64 if all of it can be widened."""

    def __init__(self, file: Path) -> None:
        try:
            import onnx
            from onnx.reference import ReferenceEvaluator
        except ImportError as error:
            raise ModelError(
                f"{echo(file.name)} cannot be tested",
                why="onnx is not installed",
                fix=as_runnable("Install it with: pip install 'hwcompat[onnx]'"),
            ) from error
        self._model = _checked(file)
        self.parameters = sum(
            math.prod(one.dims) for one in self._model.graph.initializer if one.data_type in _FLOATING
        )
        chance = sorted({node.op_type for node in parts_of(self._model.graph, onnx.NodeProto)} & set(_RANDOM))
        if chance:
            raise ModelError(
                f"{echo(file.name)} gives different results each time",
                why=f"it contains the random operator {chance[0]}",
            )
        try:
            known = _in_known_versions(self._model)
            self._plain = ReferenceEvaluator(known)
            self._wide = ReferenceEvaluator(_widened(known))
        except (NotImplementedError, RuntimeError, TypeError) as error:
            raise ModelError(
                f"{echo(file.name)} has no independent reference",
                why=f"onnx cannot evaluate it: {' '.join(str(error).split())[:200]}",
            ) from error
        self._names = [output.name for output in self._model.graph.output]
        self.computes_in = _precision_of(self._model)

    def inputs(self) -> dict[str, tuple[str, tuple[int | str, ...], int]]:
        from onnx import helper

        held = {one.name for one in self._model.graph.initializer}
        found = {}
        for given in self._model.graph.input:
            if given.name in held:
                continue
            kind = given.type.tensor_type
            if not given.type.HasField("tensor_type") or kind.elem_type == 0:
                raise ModelError(
                    f"the input {echo(given.name)} is not a tensor", why="only tensor inputs are supported"
                )
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
            shape = [dimension(axis, one.dim_param or one.dim_value) for axis, one in enumerate(kind.shape.dim)]
            found[given.name] = (dtype.name, tuple(shape), _index_range(self._model.graph, given.name))
        return found

    def evaluate(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        wide = {n: v.astype(np.float64) if v.dtype.kind == "f" else v for n, v in inputs.items()}
        try:
            outputs = dict(zip(self._names, self._wide.run(None, wide), strict=True))
            self.said = _narrowed(outputs)
        except Exception as error:  # operators that require float32 may raise any class
            self.said = f"float32, because float64 fails with {type(error).__name__}"
            outputs = dict(zip(self._names, self._plain.run(None, dict(inputs)), strict=True))
        return {name: np.asarray(value) for name, value in outputs.items()}


def _narrowed(outputs: Mapping[str, Array]) -> str:
    """Return why the outputs of a widened graph aren't float64 throughout, or an empty text."""
    floating = {name: value for name, value in outputs.items() if getattr(value, "dtype", np.dtype(int)).kind == "f"}
    for name, value in floating.items():
        exact = value.size > 8 and (value.astype(np.float32) == value).all() and len(np.unique(value)) > 8
        if value.dtype != np.float64 or exact:
            return f"partly float32: {name} has no more digits"
    return ""


_FLOATING = (1, 10, 11, 16)
"""FLOAT, FLOAT16, DOUBLE and BFLOAT16 in onnx.TensorProto.DataType."""
_DOUBLE = 11


_HALF = {10: "float16", 16: "bfloat16"}
"""FLOAT16 and BFLOAT16, which are precisions of a file; float32 and float64 both count as float32."""


def _precision_of(model: Any) -> str:
    """Return the coarsest precision of a file's products, or else of its inputs, outputs and weights."""
    import onnx

    graph = model.graph
    try:
        known = onnx.shape_inference.infer_shapes(model).graph.value_info
    except ValueError:  # more than 2 GB
        known = graph.value_info
    kinds = {one.name: one.type.tensor_type.elem_type for one in (*known, *graph.input, *graph.output)}
    weights = {one.name: one.data_type for one in graph.initializer}
    products = [node for node in graph.node if node.op_type in COMPUTE]
    found = {kinds.get(node.output[0], 0) for node in products if node.output}
    found |= {weights[name] for node in products for name in node.input if name in weights}
    if not products:
        found = {*kinds.values(), *weights.values()}
    return coarsest(_HALF[kind] for kind in found if kind in _HALF) or "float32"


def _checked(file: Path) -> Any:
    import onnx

    broken = "it is corrupt, truncated, or not an ONNX file"
    try:
        if file.stat().st_size >= _LARGEST_PROTOBUF:
            raise BrokenInput(
                f"{echo(file.name)} cannot be read",
                why="an ONNX file can have at most 2 GB",
                fix="Save it with its weights as external data.",
            )
        weight_files(file)
        onnx.checker.check_model(str(file))
        return onnx.load(str(file))
    except BrokenInput:
        raise
    except OSError as error:
        raise BrokenInput(f"{echo(file.name)} cannot be read", why=error.strerror or str(error)) from error
    except Exception as error:  # protobuf and onnx's checker share no class
        why = " ".join(str(error).split())[:200]
        raise BrokenInput(
            f"{echo(file.name)} cannot be read", why=f"{broken}: {why}", fix="Export it again."
        ) from error


def _in_known_versions(model: Any) -> Any:
    """Return the model, converted to a newer opset if the evaluator has only newer versions of an operator."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    try:
        ReferenceEvaluator(model)
    except (NotImplementedError, RuntimeError) as error:
        if "version" not in str(error):
            raise
        return onnx.version_converter.convert_version(model, _NEWER_OPSET)
    return model


def _widened(model: Any) -> Any:
    """Return a copy of the model in which every floating-point value, cast and type is float64."""
    import onnx
    from onnx import helper, numpy_helper

    wide = onnx.ModelProto.FromString(model.SerializeToString())
    for graph in parts_of(wide, onnx.GraphProto):
        del graph.value_info[:]
    for tensor in list(parts_of(wide, onnx.TensorProto)):
        if tensor.data_type in _FLOATING:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for kind in parts_of(wide, onnx.TypeProto.Tensor):
        if kind.elem_type in _FLOATING:
            kind.elem_type = _DOUBLE
    for node in parts_of(wide, onnx.NodeProto):
        for attribute in list(node.attribute):
            if attribute.name in ("to", "dtype", "output_dtype") and attribute.i in _FLOATING:
                attribute.i = _DOUBLE
            if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                numbers = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                tensor = numpy_helper.from_array(np.asarray(numbers, dtype=np.float64))
                node.attribute.remove(attribute)
                node.attribute.append(helper.make_attribute("value", tensor))
    return wide


def dimension(axis: int, size: int | str) -> int | str:
    """Return a size, or the name of a dynamic one, which is the same for one axis in all inputs."""
    if isinstance(size, int) and size > 0:
        return size
    name = "".join(char if char.isascii() and char.isalnum() else "_" for char in str(size or "")).strip("_").lower()
    if name.isidentifier():
        return f"{name}_size" if name in ("seed", "random", "np") or keyword.iskeyword(name) else name
    return "batch" if axis == 0 else f"size_{axis}"


_CARRIES = ("Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Transpose", "Expand", "Flatten", "Slice", "Clip")


def _index_range(graph: Any, name: str) -> int:
    """Return the rows of the smallest table in which an input is an index, or 0 if it isn't one."""
    tables = {one.name: list(one.dims) for one in graph.initializer}
    reached, sizes = {name}, []
    for node in graph.node:  # nodes are in execution order
        if node.op_type in _CARRIES and node.input and node.input[0] in reached:
            reached |= set(node.output)
        if node.op_type == "Gather" and len(node.input) > 1 and node.input[1] in reached and node.input[0] in tables:
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            shape = tables[node.input[0]]
            if not -len(shape) <= axis < len(shape):
                raise ModelError(
                    "its graph can't be run", why=f"a Gather has axis {axis}, but its table has {len(shape)} axes"
                )
            sizes.append(shape[axis])
    return min(sizes, default=0)
