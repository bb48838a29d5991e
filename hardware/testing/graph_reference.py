"""Evaluate a graph file: an `.onnx` in several implementations, an `.xml` in OpenVINO's plain kernels.

OpenVINO's `Model.evaluate` is the code behind its constant folding, not one of its device plugins.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import keyword
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ..backends._onnx import COMPUTE
from ..backends.base import coarsest
from ..command_names import as_runnable
from ..compare import Array, ReferenceNotFinite, is_meant
from ..errors import BrokenInput, ModelError, ModelRefused, echo
from ..export.onnx_export import can_load
from ..files import cache_folder
from . import measurement
from .graph_ladder import EXACT, Ladder, openvino_version
from .graph_outputs import NO_PARTS, Parts
from .graph_weights import graph_hash, parts_of, weight_files
from .reference import ReferenceStore

_IMPLEMENTATIONS = ("numpy", "onnx", "onnxruntime", "torch")
_OWN_SOURCES = ("graph_ladder.py", "graph_operators.py", "graph_outputs.py", "graph_reference.py")
_LARGEST_PROTOBUF = 2**31
_RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")


def _is_random(node: Any, constants: Mapping[str, Any]) -> bool:
    """Return whether a node draws numbers: one of `_RANDOM`, or a Dropout in training mode."""
    from onnx import numpy_helper

    if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] in constants:
        return bool(numpy_helper.to_array(constants[node.input[2]]).any())
    return node.op_type in _RANDOM


class GraphReference(ABC):
    """A graph file that can be evaluated. `method` says how the last outputs were computed, `said` the same if that
    isn't float64, `parameters` is a count, and `computes_in` the precision of the file's products, or of its values
    if it has none."""

    said: str = ""
    method: str = ""
    scales: Mapping[str, float] = MappingProxyType({})
    """The spread of each output over several inputs, if it is known: by it two implementations are compared."""
    parts: Parts = NO_PARTS
    output_names: Sequence[str] = ()
    computes_in: str = "float32"
    sizes: Mapping[str, int] = MappingProxyType({})
    """Sizes that dynamic dimensions have in the file's own example."""
    parameters: int

    @property
    def is_alone(self) -> bool:
        """Whether no other implementation confirms the last outputs."""
        return " alone" in self.method

    @abstractmethod
    def inputs(self) -> dict[str, tuple[str, tuple[int | str, ...], int]]:
        """Return by name: NumPy's name of the dtype, the shape (a text names a dynamic dimension, and is empty if it
        has no name), and for indices their number, else 0. An empty dtype means that the file states neither.
        Raises `ModelError` for anything but a tensor of numbers."""

    def examples(self) -> dict[str, Array]:
        """Return the inputs that the file itself holds; empty without any."""
        return {}

    def runs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return every output by name, without a confirmation: to find inputs that the file accepts."""
        return self.evaluate(inputs)

    def rounded(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]] | None:
        """Return outputs in float32 and in float64 of code that no target runs, to compare; None without any."""
        return None

    def with_shaken_weights(self, inputs: Mapping[str, Array]) -> dict[str, Array] | None:
        """Return the outputs if weights change by one unit in the last place; None if they can't be changed."""
        return None

    @abstractmethod
    def evaluate(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return every output by name."""

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs: floating-point ones in float64, and whole numbers. Raises `ReferenceNotFinite`."""
        outputs = {name: value for name, value in self.evaluate(inputs).items() if value.dtype.kind in "fiub"}
        for name, value in outputs.items():
            if not is_meant(value):
                raise ReferenceNotFinite(f"the reference is not finite in {name}: nothing can be compared")
        return {name: one.astype(np.float64) if one.dtype.kind == "f" else one for name, one in outputs.items()}


class OnnxReference(GraphReference):
    """An `.onnx` file in the implementations of `graph_ladder.py`, of which one must confirm another."""

    def __init__(self, file: Path) -> None:
        try:
            import onnx
        except ImportError as error:
            raise ModelError(
                f"{echo(file.name)} cannot be tested",
                why="onnx is not installed",
                fix=as_runnable("Install it with: pip install 'hwcompat[onnx]'"),
            ) from error
        self._file, self._model = file, _checked(file)
        constants = parts_of(self._model.graph, onnx.TensorProto)
        self.parameters = sum(math.prod(one.dims) for one in constants if one.data_type in _FLOATING)
        kept = {one.name: one for one in self._model.graph.initializer}
        for node in parts_of(self._model, onnx.NodeProto):
            tensors = [one.t for one in node.attribute if node.op_type == "Constant" and one.name == "value"]
            kept |= dict.fromkeys(node.output, tensors[0]) if tensors else {}
        chance = sorted({node.op_type for node in parts_of(self._model, onnx.NodeProto) if _is_random(node, kept)})
        if chance:
            raise ModelError(
                f"{echo(file.name)} gives different results each time",
                why=f"it contains the random operator {chance[0]}",
            )
        self.computes_in = _precision_of(self._model)
        self.output_names = [one.name for one in self._model.graph.output]
        self._ladder = Ladder(self._model, file, is_quantized=self.computes_in == "int8")
        if reason := self._ladder.why_not():
            raise ModelError(
                f"{echo(file.name)} has no reference",
                why=f"neither ONNX Runtime nor onnx's evaluator loads it: {reason}",
            )

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
            if dtype.kind == "O":
                raise ModelError(f"the input {echo(given.name)} is text", why="only inputs of numbers are supported")
            if not kind.HasField("shape"):
                raise ModelError(
                    f"the input {echo(given.name)} has no shape",
                    why="the file doesn't say how many dimensions it has",
                    fix="Export it with input shapes.",
                )
            shape = [dimension(axis, one.dim_param or one.dim_value) for axis, one in enumerate(kind.shape.dim)]
            found[given.name] = (dtype.name, tuple(shape), _index_range(self._model.graph, given.name))
        return found

    def runs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return self._ladder.first(inputs)

    def rounded(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]] | None:
        return self._ladder.rounded(inputs)

    def with_shaken_weights(self, inputs: Mapping[str, Array]) -> dict[str, Array] | None:
        return self._ladder.with_shaken_weights(inputs)

    def evaluate(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        store = ReferenceStore(cache_folder("references"))
        kept = store.with_method(self._identity, inputs)
        if kept is None:
            found = self._ladder.trusted(inputs, self.scales, self.parts)
            if found is None:
                why = "; ".join(f"{name}: {reason}" for name, reason in self._ladder.failures.items())
                raise RuntimeError(f"no implementation can evaluate it with these inputs ({why})")
            kept = {name: one for name, one in found.arrays.items() if one.dtype.kind in "fiub"}, found.method
            if measurement.keeps_references:
                store.put(self._identity, inputs, *kept[:1], method=found.method)
        arrays, self.method = kept
        weaker = "" if self.method in EXACT else self.method
        self.said = max(self.said, weaker, key=lambda one: (bool(one), " alone" in one))  # the weakest of all counts
        return arrays

    @property
    def _identity(self) -> str:
        """A hash of the file, of the implementations that evaluate it, and of the scales by which they agree."""
        versions = [f"{name}=={_version_of(name)}" for name in _IMPLEMENTATIONS]
        versions.append(f"OpenVINO {openvino_version()}")
        sources = [(Path(__file__).parent / name).read_bytes() for name in _OWN_SOURCES]
        kinds = [graph_hash(self._file), versions, sorted(self.scales.items()), sorted(self.parts.items())]
        digest = hashlib.sha256(json.dumps(kinds).encode())
        for source in sources:
            digest.update(source)
        return digest.hexdigest()


def _version_of(package: str) -> str:
    """Return the version that a package states itself: its distribution may have another name (onnxruntime-gpu)."""
    try:
        return str(importlib.import_module(package).__version__)
    except ImportError:
        return ""


_FLOATING = (1, 10, 11, 16)
"""FLOAT, FLOAT16, DOUBLE and BFLOAT16 in onnx.TensorProto.DataType."""


_HALF = {10: "float16", 16: "bfloat16"}
"""FLOAT16 and BFLOAT16, which are precisions of a file; float32 and float64 both count as float32."""


_QUANTIZED = {
    *("QuantizeLinear", "DynamicQuantizeLinear", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul"),
    *("MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul", "QAttention", "QGemm"),
}
"""Operators that round values, besides weights, to whole numbers."""


def _precision_of(model: Any) -> str:
    """Return the coarsest precision of a file's products, or else of its inputs, outputs and weights."""
    import onnx

    graph = model.graph
    if {node.op_type for node in parts_of(model, onnx.NodeProto)} & _QUANTIZED:
        return "int8"
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


def _check(file: Path) -> None:
    """Raise the checker's error, unless ONNX Runtime loads the file: it needs less, such as no shapes of outputs."""
    import onnx

    try:
        onnx.checker.check_model(str(file))
    except onnx.checker.ValidationError:
        try:
            can_load(file)
        except Exception:  # an error class for each of its statuses
            pass
        else:
            return
        raise


def _checked(file: Path) -> Any:
    import onnx

    try:
        if file.stat().st_size >= _LARGEST_PROTOBUF:
            raise BrokenInput(
                f"{echo(file.name)} cannot be read",
                why="an ONNX file can have at most 2 GB",
                fix="Save it with its weights as external data.",
            )
        weight_files(file)
        _check(file)
        return onnx.load(str(file))
    except BrokenInput:
        raise
    except OSError as error:
        raise BrokenInput(f"{echo(file.name)} cannot be read", why=error.strerror or str(error)) from error
    except Exception as error:  # protobuf and onnx's checker share no class
        if (newer := _newer(file)) is not None:
            raise newer from error
        broken = "it is truncated" if _is_cut(file) else "it is corrupt, or not an ONNX file"
        why = " ".join(str(error).split())[:200]
        raise BrokenInput(
            f"{echo(file.name)} cannot be read", why=f"{broken}: {why}", fix="Export it again."
        ) from error


def _newer(file: Path) -> ModelRefused | None:
    """Return the refusal of a file of a newer IR version than the installed onnx has; None for another file."""
    import onnx

    try:
        version = onnx.load(str(file), load_external_data=False).ir_version
    except Exception:  # not an ONNX file
        return None
    if version <= onnx.IR_VERSION:
        return None
    return ModelRefused(
        f"{echo(file.name)} has IR version {version} of ONNX",
        why=f"the installed onnx {onnx.__version__} reads up to {onnx.IR_VERSION}",
        fix="Export it for an older opset, or install a newer onnx and onnxruntime.",
        error_type="unsupported_format",
    )


def _is_cut(file: Path) -> bool:
    """Return whether a protobuf's last field is longer than the rest of the file."""
    data, place, kind = file.read_bytes(), 0, 2

    def number() -> int:
        nonlocal place
        found = shift = 0
        while True:
            byte = data[place]
            place, found, shift = place + 1, found | (byte & 127) << shift, shift + 7
            if byte < 128:
                return found

    try:
        while place < len(data):
            kind = number() & 7
            place += {0: 0, 1: 8, 2: 0, 5: 4}[kind]
            length = number() if kind in (0, 2) else 0
            place += length if kind == 2 else 0
    except IndexError:
        return True
    except KeyError:  # no type of a field: not a protobuf
        return False
    return place > len(data)


def dimension(axis: int, size: int | str) -> int | str:
    """Return a size, or the name of a dynamic one: `batch` for a first axis without a name, else an empty text. A sum
    such as `past + length` becomes `past_plus_length`."""
    if isinstance(size, int) and size > 0:
        return size
    size = str(size or "").replace(" + ", "_plus_")
    name = "".join(char if char.isascii() and char.isalnum() else "_" for char in str(size or "")).strip("_").lower()
    if name.isidentifier():
        return f"{name}_size" if name in ("seed", "random", "np") or keyword.iskeyword(name) else name
    return "batch" if axis == 0 else ""


_CARRIES = ("Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Transpose", "Expand", "Flatten", "Slice", "Clip")
_KEEPS = ("Cast", "Identity", "DequantizeLinear", "Mul", "Add", "Div", "Sub")
"""Operators whose output has the shape of their first input, if that is a table of embeddings."""


def _index_range(graph: Any, name: str) -> int:
    """Return the rows of the smallest table in which an input is an index, or 0 if it isn't one."""
    from onnx import numpy_helper

    tables = {one.name: list(one.dims) for one in graph.initializer}
    numbers = {one.name: numpy_helper.to_array(one) for one in graph.initializer if not one.dims or one.dims == [1]}
    reached, sizes = {name: 0}, []  # what is added to the input
    for node in graph.node:  # nodes are in execution order
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value":
                tables[node.output[0]] = list(attribute.t.dims)
                if math.prod(attribute.t.dims) == 1:
                    numbers[node.output[0]] = numpy_helper.to_array(attribute.t)
        source = node.input[0] if node.input else ""
        if node.op_type in _KEEPS and source in tables:
            tables[node.output[0]] = tables[source]
        if node.op_type in _CARRIES and source in reached:
            reached |= dict.fromkeys(node.output, reached[source])
        if node.op_type in ("Add", "Sub") and source in reached and node.input[1] in numbers:
            by = int(numbers[node.input[1]].reshape(()))
            reached[node.output[0]] = reached[source] + (by if node.op_type == "Add" else -by)
        if node.op_type == "Gather" and len(node.input) > 1 and node.input[1] in reached and source in tables:
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            shape = tables[source]
            if not -len(shape) <= axis < len(shape):
                raise ModelError(
                    "its graph can't be run", why=f"a Gather has axis {axis}, but its table has {len(shape)} axes"
                )
            sizes.append(shape[axis] - max(0, reached[node.input[1]]))
    return min(sizes, default=0)
