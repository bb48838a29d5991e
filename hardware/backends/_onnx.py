"""Run `.onnx` files on the host through ONNX Runtime, without its graph optimizations."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..command_names import as_runnable
from ..evidence.record import Stage
from ..model.outputs import numbers_of
from ..step_times import timed_step
from .base import BaseBackend, Execution, FileInput, Runnable, Unsupported, coarsest

if TYPE_CHECKING:
    from .base import Array, Inputs

_PROVIDER = "CPUExecutionProvider"
_NAMES = {"float": "float32", "double": "float64", "float16": "float16", "bfloat16": "bfloat16"}
COMPUTE = ("MatMul", "Gemm", "Conv", "ConvTranspose", "Attention", "LSTM", "GRU", "Einsum", "QLinearMatMul")

_WHOLE = frozenset(
    {
        *("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv", "QGemm", "QAttention"),
        *("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "DynamicQuantizeLSTM"),
    }
)
"""Products of whole numbers, as ONNX Runtime names them:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""


def missing_runtime() -> str:
    """Return why ONNX Runtime is missing, or an empty string."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return as_runnable("onnxruntime isn't installed (pip install 'hwcompat[onnx]')")
    return ""


class OnnxRunnable(Runnable):
    """An `.onnx` file in an inference session on the host's processor."""

    can = frozenset({"save"})

    def __init__(self, backend: BaseBackend, file_input: FileInput, example: Inputs, precision: str) -> None:
        reason = missing_runtime()
        if reason:
            raise Unsupported(reason, error_type="missing_dependency", stage=Stage.LOAD)
        self.backend, self.file_input, self.precision = backend, file_input, precision
        self.example = dict(example)
        self.conditions: Mapping[str, str] = {"runtime": "onnxruntime", "optimisation": "O0"}
        self.session = self._session(file_input.file)
        self.actual_dtype = self.execution().dtype

    def _session(self, file: Path, **settings: Any) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        for name, value in settings.items():
            setattr(options, name, value)
        if "optimized_model_filepath" in settings:  # else it names files of weights that stay where they are
            options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
        try:
            with timed_step("compile"):
                return onnxruntime.InferenceSession(str(file), options, providers=[_PROVIDER])
        except Exception as error:  # onnxruntime has an error class for each of its statuses
            text = " ".join(str(error).split())
            is_newer = "Unsupported model IR version" in text
            raise Unsupported(
                f"ONNX Runtime can't load {file.name}: {text[-200:] if is_newer else text[:500]}",
                error_type="unsupported_format" if is_newer else "unsupported_operator",
                stage=Stage.COMPILE,
            ) from error

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        return _numbers(self.session, inputs)

    def execution(self) -> Execution:
        """Return the nodes that ran and the provider of each, from the runtime's profile of another run."""
        native: Counter[str] = Counter()
        offloaded: Counter[str] = Counter()
        dtypes: Counter[str] = Counter()
        with tempfile.TemporaryDirectory(prefix="hwcompat-") as folder:
            prefix = str(Path(folder) / "profile")
            session = self._session(self.file_input.file, enable_profiling=True, profile_file_prefix=prefix)
            _numbers(session, self.example)
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        for event in events:
            facts = event.get("args", {})
            if event.get("cat") != "Node" or "provider" not in facts:
                continue
            name = str(facts["op_name"])
            (native if facts["provider"] == _PROVIDER else offloaded)[f"onnx.{name}"] += 1
            kinds = [kind for one in facts.get("output_type_shape", ()) for kind in one if kind in _NAMES]
            if name in _WHOLE:
                dtypes["int8"] += 1
            elif name in COMPUTE and kinds:
                dtypes[_NAMES[kinds[0]]] += 1
        return Execution(
            native=dict(native),
            offloaded=dict(offloaded),
            dtype=coarsest(dtypes) or _dtype_of(self.session),
            device="cpu",
            unseen="computation inside an ONNX Runtime kernel",
            host_allowed=self.backend.HOST_ALLOWED,
        )

    def watched(self, inputs: Inputs) -> tuple[dict[str, Array], Mapping[str, int]]:
        """Return no operators left to the host: it is the target, and the session has no other provider."""
        return self(**inputs), {}

    def save_and_reload(self, folder: Path) -> Runnable:
        """Let the runtime write the graph as it has read it, and load the written file."""
        file = folder / "model.onnx"
        self._session(self.file_input.file, optimized_model_filepath=str(file))
        return type(self)(self.backend, FileInput(file=file), self.example, self.precision)

    def close(self) -> None:
        del self.session


def _numbers(session: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
    given = {name: np.asarray(value, order="C") for name, value in inputs.items()}
    names = [output.name for output in session.get_outputs()]
    return numbers_of(dict(zip(names, session.run(names, given), strict=True)))


def _dtype_of(session: Any) -> str:
    """Return the dtype of the floating-point outputs, for a graph without products (`tensor(float)` is float32)."""
    kinds = [str(output.type).removeprefix("tensor(").removesuffix(")") for output in session.get_outputs()]
    return next((_NAMES[kind] for kind in kinds if kind in _NAMES), "unknown")
