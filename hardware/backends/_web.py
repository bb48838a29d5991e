"""What the web targets share: ONNX Runtime Web in a browser of its own for each model, driven by a worker.

The worker's environment (`make setup-web`) holds Playwright, ONNX Runtime Web and the Chromium that has WebNN; the
browser reaches loopback alone.
"""

from __future__ import annotations

import re
import tempfile
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..evidence.record import COARSE, Stage
from ..workers import WorkerError, environment_of, web_folder
from ..workers.process import SCRIPT as ONNX_SCRIPT
from ._in_worker import WorkerBackend, reason_of
from ._outputs import ruled_out
from ._web_placement import WHOLE
from .base import ModelSubject, Runnable, Unsupported

if TYPE_CHECKING:
    from .base import Array, Inputs

PASS_LIMIT_S = 90.0
UNSEEN = "what the browser does with a shader or a graph of WebNN, and what a kernel does inside itself"

ERROR_PATTERNS = (
    (r"device (was )?lost|context (is |was )?lost|device is destroyed|A valid external Instance", "context_lost"),
    (r"out of memory|bad_alloc|memory access out of bounds|Array buffer allocation failed", "out_of_memory"),
    (r"shader-f16|f16 (type )?(used )?without|float16.*not supported", "unsupported_dtype"),
    (
        r"not implemented|unsupported|not supported|Could not find an implementation|Failed to find kernel",
        "unsupported_operator",
    ),
)
"""What a page's message holds, as a regular expression, and the error type of it; the first that fits counts."""

_SHAPES_AND_MASKS = (
    *("Abs", "Add", "And", "ArgMax", "ArgMin", "Cast", "Clip", "Concat", "ConstantOfShape", "CumSum", "Div", "Equal"),
    *("Expand",),
    *("Flatten", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max"),
    *("Min", "Mod", "Mul", "Neg", "NonZero", "Not", "OneHot", "Or", "Pad", "Range", "ReduceMax", "ReduceMin"),
    *("ReduceSum", "Reshape", "ScatterElements", "ScatterND", "Shape", "Sign", "Size", "Slice", "Split", "Squeeze"),
    *("Sub", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor"),
)


class WebBackend(WorkerBackend):
    """Base of `webgpu` and `webnn`."""

    CAN = frozenset({"generate"})
    DEADLINE_S = 300.0
    PRECISIONS = ("float32", "float16", "int8")
    COMPUTES_IN: ClassVar[Mapping[str, str]] = {"int8": "float32"}
    SHARED = True
    RUNTIME = "ONNX Runtime Web"
    SCRIPT = ONNX_SCRIPT.with_name("web_worker.py")
    CALL_LIMIT_S = PASS_LIMIT_S + 60
    HOST_ALLOWED = frozenset(f"onnx.{name}{WHOLE}" for name in _SHAPES_AND_MASKS)

    API: ClassVar[str]
    FIXED_SHAPES: ClassVar[bool]
    """Whether every axis of a file must have a size."""

    BUNDLE: ClassVar[str]
    """The file of ONNX Runtime Web that has the provider."""

    PROVIDER: ClassVar[str]
    """The provider's name in the runtime's log."""

    COARSE_OPERATORS: ClassVar[tuple[str, ...]] = ()
    """Operators that the API's standard lets be coarser than float32."""

    @property
    def device_type(self) -> str:
        """The kind of context that is asked for, where the API has kinds; else empty."""
        return ""

    @abstractmethod
    def provider(self) -> Mapping[str, Any]:
        """The provider's options, as a session takes them."""

    def coarse_in(self, file: Path) -> dict[str, str]:
        """The condition that says which functions of a file may be coarse here; empty where none is in it."""
        import onnx

        operators = {node.op_type for node in onnx.load(str(file), load_external_data=False).graph.node}
        if operators.isdisjoint(self.COARSE_OPERATORS):
            return {}
        return {COARSE: ", ".join(name.lower() for name in self.COARSE_OPERATORS)}

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """What evidence says of browser, runtime and device, and what stands in for a device."""

    def describe(self) -> Mapping[str, Any]:
        return self.call("describe", stage=Stage.LOAD, settings=self._where())

    def _where(self) -> dict[str, Any]:
        python = environment_of(self.BACKEND_NAME).python
        runtime = web_folder(python) if python else Path()
        return {"api": self.API, "runtime": str(runtime.absolute()), "software": False}

    def _settings(self) -> dict[str, Any]:
        return {
            **self._where(),
            "software": bool(self.described.get("software")),
            "bundle": self.BUNDLE,
            "provider": self.provider(),
            "limit_s": PASS_LIMIT_S,
        }

    def ask(self, do: str, *, stage: Stage, **arguments: Any) -> Mapping[str, Any]:
        try:
            return self.call(do, stage=stage, settings=self._settings(), **arguments)
        except WorkerError as error:
            text = reason_of(error)
            kind = "timeout" if error.error_type == "TimeoutError" else _kind_of(text)
            reason = f"{self.runtime_name} doesn't run the model: {text}"
            raise Unsupported(reason, error_type=kind, stage=stage) from error

    def compute(self, file: Path, arrays: Inputs, *, subject: str) -> tuple[dict[str, Array], Mapping[str, Any]]:
        """Floating-point outputs by name as float64, and the proof of where they were computed.

        A browser is of one `subject`: nothing that another model broke is met.
        """
        got, proof = self.run_file(file, arrays, subject=subject)
        numbers = {name: array for name, array in got.items() if array.dtype.kind == "f"}
        return {name: ruled_out(array).astype(np.float64) for name, array in numbers.items()}, proof

    def run_file(self, file: Path, arrays: Inputs, *, subject: str) -> tuple[dict[str, Array], Mapping[str, Any]]:
        """The same with outputs as they are."""
        from ..export.onnx import output_name

        given = {"model": str(file.absolute()), "subject": subject}
        got, proof = self.exchange("run", {"inputs": arrays}, stage=Stage.COMPILE, **given)
        return {output_name(name): array for name, array in got.items()}, proof

    def _check_availability(self) -> str:
        from ..export.onnx import missing_packages

        reason = environment_of(self.BACKEND_NAME).reason or missing_packages()
        if reason:
            return reason
        try:
            return str(self.described.get("reason") or "") or self.refused()
        except (WorkerError, Unsupported) as error:
            return f"{self.runtime_name} doesn't start: {error}"

    def refused(self) -> str:
        """Why this variant isn't offered by a browser that has the API; empty where it is."""
        return ""

    def known_answer(self) -> tuple[float, float, float]:
        from ..export.exported import ONNX
        from ..known_answer import question
        from ._onnx_probe import write_question

        left, right = question()
        with tempfile.TemporaryDirectory(prefix="hwcompat-web-") as name:
            file = Path(name) / ONNX
            write_question(file, right)
            answer = self.compute(file, {"left": left}, subject="question")[0]["answer"]
        return float(answer[0]), float(answer[1]), float(answer[2])

    def computed_in(self, dtype: str) -> str:
        """What a file's products of `dtype` are computed in: a browser may do float16 in float32, which is asked."""
        return "float32" if dtype == "float16" and not self._rounds_to_float16 else dtype

    @cached_property
    def _rounds_to_float16(self) -> bool:
        from ..export.exported import ONNX
        from ._onnx_probe import SIZE, overflows, write_overflow

        with tempfile.TemporaryDirectory(prefix="hwcompat-web-") as name:
            file = Path(name) / ONNX
            write_overflow(file)
            values = np.full((SIZE, SIZE), 300, np.float16)
            return overflows(self.run_file(file, {"values": values}, subject="float16")[0]["root"])

    def load(self, subject: ModelSubject, example_inputs: Inputs, precision: str) -> Runnable:
        if precision not in self.PRECISIONS:
            raise Unsupported(f"{self.target} doesn't compute in {precision}", error_type="unsupported_dtype")
        from ._web_runnable import WebRunnable

        return WebRunnable(self, subject, example_inputs, precision)


def _kind_of(text: str) -> str:
    return next((kind for pattern, kind in ERROR_PATTERNS if re.search(pattern, text, re.IGNORECASE)), "unknown")
