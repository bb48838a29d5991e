"""Find outputs of an `.onnx` file that can be trusted: from several implementations, the most exact first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ..compare import Array, is_whole, scale_of
from .graph_outputs import NO_PARTS, Parts, masked_alike, shaken, with_parts

log = logging.getLogger(__name__)

_NEWER_OPSET = 21
_FAR = 1e-2
"""The largest difference, relative to an output's scale, of two correct implementations: faults of an evaluator
(other shapes, normalization by another mean) are larger, rounding in float32 is smaller."""
_FAR_QUANTIZED = 0.1
"""The same for quantized files: a value on the border of two steps goes to either."""
_SAME = 0.95
"""The share of whole numbers, such as chosen classes, that two correct implementations have in common at least."""
_FLOATING = (1, 10, 11, 16)
"""FLOAT, FLOAT16, DOUBLE and BFLOAT16 in onnx.TensorProto.DataType."""
_DOUBLE = 11
EXACT = ("float64 by ONNX Runtime", "float64 by onnx's evaluator")
AGREED = "float32, in which ONNX Runtime and OpenVINO agree"
ALONE = "{} alone, because no other implementation runs it or agrees"

Arrays = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class Trusted:
    """Outputs by name, and how they were computed."""

    arrays: dict[str, Array]
    method: str


@dataclass(frozen=True, kw_only=True)
class _Source:
    """One way to evaluate a file: how it is named, whose code it is, the method that computes, and in which dtype."""

    method: str
    implementation: str
    compute: str
    is_wide: bool = False


_SOURCES = (
    _Source(method=EXACT[0], implementation="ONNX Runtime", compute="_by_wide_session", is_wide=True),
    _Source(method=EXACT[1], implementation="onnx's evaluator", compute="_by_evaluator", is_wide=True),
    _Source(method="float32 by ONNX Runtime", implementation="ONNX Runtime", compute="_by_session"),
    _Source(method="float32 by OpenVINO", implementation="OpenVINO", compute="_by_openvino"),
)
"""The most exact first: float64 by ONNX Runtime, where it has the kernels, and by onnx's evaluator."""


class Ladder:
    """The implementations that evaluate one `.onnx` file. `failures` says why each of them couldn't."""

    def __init__(self, model: Any, file: Path, *, is_quantized: bool = False) -> None:
        self._model, self._file = model, file
        self._far = _FAR_QUANTIZED if is_quantized else _FAR
        self._names = [output.name for output in model.graph.output]
        self.failures: dict[str, str] = {}

    def why_not(self) -> str:
        """Return why neither ONNX Runtime nor onnx's evaluator loads the file; empty if one does."""
        reason = ""
        for name in ("_plain_session", "_evaluator"):
            try:
                getattr(self, name)
            except Exception as error:  # each implementation has error classes of its own
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            else:
                return ""
        return reason

    def first(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs of ONNX Runtime, or of onnx's evaluator if the runtime can't load the file. Raises its
        error."""
        try:
            session = self._plain_session
        except Exception:  # an error class for each of its statuses
            return self._by_evaluator(_wide(inputs))
        return self._session_outputs(session, inputs)

    def trusted(
        self, inputs: Arrays, scales: Mapping[str, float] = MappingProxyType({}), parts: Parts = NO_PARTS
    ) -> Trusted | None:
        """Return the outputs of the first of `_SOURCES` that another implementation confirms, also those `parts` that
        have scales of their own. Without confirmation they are those of a single implementation. Returns None if none
        can evaluate the file."""
        given = {True: _wide(inputs), False: inputs}
        found: dict[str, dict[str, Array] | None] = {}

        def outputs(source: _Source) -> dict[str, Array] | None:
            if source.method not in found:
                compute = partial(getattr(self, source.compute), given[source.is_wide])
                found[source.method] = self._tried(source.method, compute)
            return found[source.method]

        for source in _SOURCES:
            for witness in reversed(_SOURCES):  # the fastest first
                if witness.implementation == source.implementation:
                    continue
                one, other = outputs(source), outputs(witness) if outputs(source) is not None else None
                if (
                    one is not None
                    and other is not None
                    and agree(with_parts(one, parts), with_parts(other, parts), scales, self._far)
                ):
                    return Trusted(arrays=one, method=source.method if source.is_wide else AGREED)
        for source in sorted(_SOURCES, key=lambda one: one.compute != "_by_session"):
            alone = outputs(source)
            if alone is not None:
                return Trusted(arrays=alone, method=ALONE.format(source.method))
        return None

    def rounded(self, inputs: Arrays) -> tuple[dict[str, Array], dict[str, Array]] | None:
        """Return the outputs of onnx's evaluator in float32 and in float64, to compare; None if it can't run it."""
        plain = self._tried("float32 by onnx's evaluator", partial(self._evaluated, self._narrow_evaluator, inputs))
        wide = self._tried(EXACT[1], partial(self._by_evaluator, _wide(inputs)))
        return None if plain is None or wide is None else (plain, wide)

    def with_shaken_weights(self, inputs: Arrays) -> dict[str, Array] | None:
        """Return ONNX Runtime's outputs with weights that differ by one unit in the last place; None if it can't."""
        compute = partial(self._by_shaken_session, inputs)
        return self._tried("float32 by ONNX Runtime with other weights", compute)

    def _tried(self, name: str, compute: Callable[[], dict[str, Array]]) -> dict[str, Array] | None:
        try:
            return compute()
        except Exception as error:  # each implementation has error classes of its own
            self.failures[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            log.debug("%s: %s", name, self.failures[name])
            return None

    @cached_property
    def _known(self) -> Any:
        """The model, converted to a newer opset if the evaluator has only newer versions of an operator."""
        import onnx
        from onnx.reference import ReferenceEvaluator

        try:
            ReferenceEvaluator(self._model)
        except (NotImplementedError, RuntimeError) as error:
            if "version" not in str(error):
                raise
            return onnx.version_converter.convert_version(self._model, _NEWER_OPSET)
        return self._model

    @cached_property
    def _plain_session(self) -> Any:
        return _session(str(self._file))

    @cached_property
    def _wide_session(self) -> Any:
        return _session(widened(self._model).SerializeToString())

    @cached_property
    def _evaluator(self) -> Any:
        return _evaluator_of(widened(self._known))

    def _narrow_evaluator(self) -> Any:
        return _evaluator_of(self._known)

    def _by_session(self, inputs: Arrays) -> dict[str, Array]:
        return self._session_outputs(self._plain_session, inputs)

    def _by_wide_session(self, inputs: Arrays) -> dict[str, Array]:
        return self._session_outputs(self._wide_session, inputs)

    @cached_property
    def _shaken_session(self) -> Any:
        import onnx
        from onnx import numpy_helper

        from .graph_weights import parts_of

        moved = onnx.ModelProto.FromString(self._model.SerializeToString())
        for number, one in enumerate(list(parts_of(moved, onnx.TensorProto))):
            if one.data_type == onnx.TensorProto.FLOAT and len(one.dims) > 1:  # others may be sizes
                array = shaken(numpy_helper.to_array(one), number)
                one.CopyFrom(numpy_helper.from_array(array, one.name))
        return _session(moved.SerializeToString())

    def _by_shaken_session(self, inputs: Arrays) -> dict[str, Array]:
        return self._session_outputs(self._shaken_session, inputs)

    def _by_evaluator(self, inputs: Arrays) -> dict[str, Array]:
        return self._evaluated(lambda: self._evaluator, inputs)

    def _evaluated(self, evaluator: Callable[[], Any], inputs: Arrays) -> dict[str, Array]:
        with np.errstate(all="ignore"):  # masked entries overflow
            found = evaluator().run(None, dict(inputs))
        return {name: np.asarray(one) for name, one in zip(self._names, found, strict=True)}

    def _session_outputs(self, session: Any, inputs: Arrays) -> dict[str, Array]:
        given = {name: np.ascontiguousarray(one).reshape(one.shape) for name, one in inputs.items()}
        found = zip(self._names, session.run(self._names, given), strict=True)
        return {name: np.asarray(one) for name, one in found}

    @cached_property
    def _openvino(self) -> Any:
        import openvino

        settings = {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "ACCURACY"}
        return openvino.Core().compile_model(str(self._file), "CPU", settings)

    def _by_openvino(self, inputs: Arrays) -> dict[str, Array]:
        request = self._openvino.create_infer_request()
        results = request.infer([inputs[name] for name in self._input_names()])
        return {name: np.array(results[index]) for index, name in enumerate(self._names)}

    def _input_names(self) -> Iterator[str]:
        held = {one.name for one in self._model.graph.initializer}
        return (one.name for one in self._model.graph.input if one.name not in held)


def _evaluator_of(model: Any) -> Any:
    from onnx.reference import ReferenceEvaluator

    from .graph_operators import torch_operators

    return ReferenceEvaluator(model, new_ops=list(torch_operators()))


def _wide(inputs: Arrays) -> dict[str, Array]:
    return {name: one.astype(np.float64) if one.dtype.kind == "f" else one for name, one in inputs.items()}


def openvino_version() -> str:
    """Return the version of OpenVINO; empty if it isn't installed."""
    try:
        import openvino
    except ImportError:
        return ""
    return str(openvino.__version__)


def _session(model: str | bytes) -> Any:
    """Return a session of ONNX Runtime on the CPU that leaves the graph as it is."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def agree(
    first: Arrays, second: Arrays, scales: Mapping[str, float] = MappingProxyType({}), far: float = _FAR
) -> bool:
    """Return whether two implementations computed the same, up to rounding and to choices that it decides. An output
    without a scale has that of its numbers."""
    second, first = masked_alike(second, first)
    for name, one in first.items():
        other = second[name]
        if one.shape != other.shape:
            return False
        if is_whole(one) or is_whole(other):
            if one.size and np.mean(one == other) < _SAME:
                return False
            continue
        if one.dtype.kind != "f":
            continue
        finite = np.isfinite(one)
        if not np.array_equal(finite, np.isfinite(other)):
            return False
        if finite.any() and np.abs(one[finite] - other[finite]).max() > far * scales.get(name, scale_of(one[finite])):
            return False
    return True


def widened(model: Any) -> Any:
    """Return a copy of a model in which every floating-point value, cast and type is float64."""
    import onnx
    from onnx import helper, numpy_helper

    from .graph_weights import parts_of

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
