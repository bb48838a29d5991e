"""Base of the web targets: ONNX Runtime Web in a separate browser for each model, driven by a worker, and the same
provider without a browser.

The worker's environment (`make setup-web`) holds Playwright, ONNX Runtime Web and the Chromium that has WebNN; the
browser reaches only loopback.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..command_names import as_runnable
from ..errors import BackendUnavailable
from ..evidence.record import COARSE, Stage
from ..inventory.target_status import TargetStatus
from ..model.outputs import ruled_out
from ..workers import WorkerError, browsers, web_folder, without_browser
from ..workers.worker import SCRIPTS
from ._web_placement import WHOLE
from ._worker_backend import OnnxWorkerBackend, reason_of
from .base import FileInput, ModelInput, Runnable, Unsupported

if TYPE_CHECKING:
    from ..inventory.hardware_info import HardwareInfo
    from .base import Array, Inputs

PASS_LIMIT_S = 90.0
_BESIDE_S = 20.0
"""Seconds that a call may take beyond the waits for the page."""

_REFUSED = "(not supported|unsupported|not implemented)"
ERROR_PATTERNS = (
    (
        r"Web(GPU|NN) is not supported in|Failed to get GPU adapter|navigator\.(gpu|ml) is undefined",
        "browser_required",
    ),
    (r"device (was )?lost|context (is |was )?lost|device is destroyed|A valid external Instance", "context_lost"),
    (r"out of memory|bad_alloc|memory access out of bounds|Array buffer allocation failed", "out_of_memory"),
    (r"shader-f16|f16 (type )?(used )?without|requires f16|float16.*not supported", "unsupported_dtype"),
    (r"Could not find an implementation|Failed to find kernel", "unsupported_operator"),
    (rf"\b(op|operator|node|kernel|MLGraphBuilder)\b.{{0,200}}\b{_REFUSED}", "unsupported_operator"),
    (rf"\b{_REFUSED}.{{0,80}}\b(op|operator|node|kernel)\b", "unsupported_operator"),
)
"""Error types by the runtime's message, as regular expressions: the first match counts.

Only an unsupported operator is `unsupported_operator`. Pages with checks read these patterns too.
"""

_SHAPES_AND_MASKS = (
    *("Abs", "Add", "And", "ArgMax", "ArgMin", "Cast", "Clip", "Concat", "ConstantOfShape", "CumSum", "Div", "Equal"),
    *(
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
    ),
    *("Max", "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "OneHot", "Or", "Pad", "Range", "ReduceMax", "ReduceMin"),
    *("ReduceSum", "Reshape", "ScatterElements", "ScatterND", "Shape", "Sign", "Size", "Slice", "Split", "Squeeze"),
    *("Sub", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor"),
)


class NodesBackend(OnnxWorkerBackend):
    """Base of targets whose runtime's log says which node ran where."""

    CAN = frozenset({"generate"})
    DEADLINE_S = 300.0
    PRECISIONS = ("float32", "float16", "int8")
    COMPUTES_IN: ClassVar[Mapping[str, str]] = {"int8": "float32"}
    SHARED = True
    LISTS_ALL = True
    HOST_ALLOWED = frozenset(f"onnx.{name}{WHOLE}" for name in _SHAPES_AND_MASKS)

    FIXED_SHAPES: ClassVar[bool]
    """Whether every axis of a file needs a size."""

    UNSEEN: ClassVar[str]
    """Parts of a pass that the runtime doesn't report."""

    COARSE_OPERATORS: ClassVar[tuple[str, ...]] = ()
    """Operators that the API's standard allows to be coarser than float32."""

    def coarse_in(self, file: Path) -> dict[str, str]:
        """Return the condition that names the functions of a file that may be coarse here; empty without any."""
        import onnx

        operators = {node.op_type for node in onnx.load(str(file), load_external_data=False).graph.node}
        if operators.isdisjoint(self.COARSE_OPERATORS):
            return {}
        return {COARSE: ", ".join(name.lower() for name in self.COARSE_OPERATORS)}

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Return conditions for evidence: the runtime, the browser, the device, and an emulator if there is one."""

    @abstractmethod
    def session_settings(self) -> dict[str, Any]:
        """Return the settings of a session as the worker expects them."""

    def ask(self, do: str, *, stage: Stage, **arguments: Any) -> Mapping[str, Any]:
        try:
            return self.call(do, stage=stage, settings=self.session_settings(), **arguments)
        except WorkerError as error:
            text = reason_of(error)
            kind = "timeout" if error.error_type == "TimeoutError" else _kind_of(text)
            reason = f"{self.RUNTIME} doesn't run the model: {text}"
            raise Unsupported(reason, error_type=kind, stage=stage) from error

    def runnable_of(self, source: ModelInput | FileInput, example: Inputs, precision: str) -> Runnable:
        from ._web_runnable import WebRunnable

        return WebRunnable(self, source, example, precision)

    def belongs_to(self, weights: str) -> Mapping[str, str]:
        """Give each model its own browser, so that no model meets what another broke."""
        return {"weights": weights}

    def numbers(self, array: Array) -> Array:
        import numpy as np

        return ruled_out(array).astype(np.float64)

    def computed_in(self, dtype: str) -> str:
        """Return the dtype in which products of `dtype` are computed: float16 may be float32 (measured)."""
        return "float32" if dtype == "float16" and not self._rounds_to_float16 else dtype

    @cached_property
    def _rounds_to_float16(self) -> bool:
        import numpy as np

        from ._onnx_probe import SIZE, overflows, write_overflow

        values = np.full((SIZE, SIZE), 300, np.float16)
        return overflows(self.answer_of(write_overflow, {"values": values}, "float16")["root"])


class WebBackend(NodesBackend):
    """Base of `webgpu` and `webnn`."""

    IN_BROWSER = True
    RUNTIME = "ONNX Runtime Web"
    SCRIPT = SCRIPTS / "web_worker.py"
    CALL_LIMIT_S = browsers.START_LIMIT_S + 2 * PASS_LIMIT_S + _BESIDE_S  # a start, opening and a pass

    API: ClassVar[str]

    BROWSER_PACKAGE: ClassVar[str]
    """Package of the browser, as inventories name it."""

    @classmethod
    def expected(cls, inventory: HardwareInfo) -> TargetStatus:
        """Return whether the browser and the runtime are installed; only the browser reports its device."""
        installed = inventory.packages.get(cls.BROWSER_PACKAGE)
        runtime = inventory.packages.get(f"onnxruntime-web ({cls.BACKEND_NAME})")
        reason = "" if runtime else as_runnable("onnxruntime-web isn't set up: make setup-web")
        reason = reason or ("" if installed else without_browser(cls.BACKEND_NAME))
        if reason:
            return TargetStatus(target=cls.BACKEND_NAME, expected=False, reason=f"needs a browser: {reason}")
        here = f"onnxruntime-web {runtime} and Chromium {installed} installed; only the browser can report its device"
        return TargetStatus(target=cls.BACKEND_NAME, expected=True, reason=here, device_name="browser")

    @property
    def device_type(self) -> str:
        """The kind of context that is requested, or an empty string if the API has no kinds."""
        return ""

    BUNDLE: ClassVar[str]
    """File of ONNX Runtime Web that has the provider."""

    WASM: ClassVar[str]
    """WebAssembly file of this bundle."""

    @abstractmethod
    def provider(self) -> Mapping[str, Any]:
        """Return the provider's options for a session."""

    def describe(self) -> Mapping[str, Any]:
        return self.call("describe", stage=Stage.LOAD, settings=self.places())

    def places(self) -> dict[str, Any]:
        """Return the environment's files for the worker. Raises `BackendUnavailable` if one is missing."""
        here = self.environment
        if here.python is None or here.browser is None or here.browser.path is None:
            raise BackendUnavailable(f"{self.target} not found", why=self.missing())
        places = {"runtime": web_folder(here.python), "browser": here.browser.path}
        return {"api": self.API, "software": False, **{name: str(one.absolute()) for name, one in places.items()}}

    def session_settings(self) -> dict[str, Any]:
        return {
            **self.places(),
            "software": bool(self.described.get("software")),
            "bundle": self.BUNDLE,
            "wasm": self.WASM,
            "provider": self.provider(),
            "limit_s": PASS_LIMIT_S,
        }

    def not_installed(self) -> str:
        return self.missing()

    def missing(self) -> str:
        here = self.environment
        return here.reason or (here.browser.reason if here.browser else "")


def _kind_of(text: str) -> str:
    return next((kind for pattern, kind in ERROR_PATTERNS if re.search(pattern, text, re.IGNORECASE)), "unknown")
