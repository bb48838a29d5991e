"""Target `qnn`: Qualcomm's HTP through ONNX Runtime, in a worker with a separate environment (`make setup-qnn`).

On a Snapdragon, libQnnHtp.so uses the processor. On x86-64, the same file is Qualcomm's emulator of it: the variant
`qnn:emulator`, whose evidence says so. Strict mode refuses a model if any operator would run on the host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..command_names import as_runnable
from ..evidence.record import Stage
from ..evidence.versions import SDK_VARIABLE
from ..inventory.target_status import TargetStatus
from ..workers import WorkerError
from ..workers.worker import SCRIPTS
from ._worker_backend import OnnxWorkerBackend, reason_of
from .base import DeviceInfo, FileInput, ModelInput, Runnable, Unsupported

if TYPE_CHECKING:
    from ..inventory.hardware_info import HardwareInfo
    from ..target import Target
    from .base import Array, Inputs

EMULATOR = "emulator"

QNN_OPTIONS: Mapping[str, str] = {"backend_type": "htp"}
EMULATED_OPTIONS: Mapping[str, str] = {"soc_model": "60", "htp_arch": "73"}
"""The emulated SoC. Without its model, the emulator runs out of memory on transformers (MEM_ALLOC 1002)."""

STRICT: Mapping[str, str] = {"session.disable_cpu_ep_fallback": "1"}
RECORD: Mapping[str, str] = {"session.record_ep_graph_assignment_info": "1"}
OPTIMIZATION = "ORT_DISABLE_ALL"
"""The file runs without optimization: constants were folded in the export."""

_REAL_MACHINES = ("aarch64", "arm64")
_SDK_FOLDERS = {
    "x86_64": "x86_64-linux-clang",
    "aarch64": "aarch64-oe-linux-gcc11.2",
    "arm64": "aarch64-windows-msvc",
}


class QNNBackend(OnnxWorkerBackend):
    """QNN's HTP backend on a Snapdragon, or its emulator for that variant; nothing may run on the host."""

    EXTRA = "qnn"
    BACKEND_NAME = "qnn"
    VENDOR = "Qualcomm"
    VENDOR_DEVICES = ("npu",)
    WATCHED_GRAPH = "onnx"
    CALLED_BY_SCRIPTS = True
    OPERATORS_TRIED = True
    EXPIRES_ON = (
        *("onnxruntime-qnn", "onnxruntime (qnn)", "qnn_sdk", "qualcomm_driver", "qualcomm_firmware"),
        *("onnx", "onnxruntime", "torch", "transformers"),
    )
    CAN = frozenset({"save"})
    PRECISIONS = ("float32", "float16", "int8")
    VARIANTS = (EMULATOR,)
    VARIANTS_NEED: ClassVar[Mapping[str, tuple[str, str]]] = {EMULATOR: ("onnxruntime-qnn", "make setup-qnn")}
    DEADLINE_S = 600.0  # its compiler prepares every graph for HTP
    COMPUTES_IN: ClassVar[Mapping[str, str]] = {"float32": "float16"}
    SHARED = True
    RUNTIME = "QNN"
    PROVIDER = "QNNExecutionProvider"
    PACKAGE = "onnxruntime-qnn"
    SCRIPT = SCRIPTS / "onnx_worker.py"
    CALL_LIMIT_S = 120.0
    """In seconds. The emulator compiles most tiny models in seconds, and needs minutes for some operators."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._arithmetic = ""

    @classmethod
    def expected(cls, inventory: HardwareInfo) -> TargetStatus:
        version = inventory.packages.get(cls.PACKAGE)
        if version is None:
            reason = as_runnable(f"{cls.PACKAGE} isn't set up: make setup-qnn")
            return TargetStatus(target=cls.BACKEND_NAME, expected=False, reason=reason)
        expected = _may_have_htp(inventory)
        reason = f"{cls.PACKAGE} {version} is installed" if expected else _no_htp(inventory.host.machine)
        name = "HTP" if expected else ""
        return TargetStatus(target=cls.BACKEND_NAME, expected=expected, reason=reason, device_name=name)

    @classmethod
    def variant_absent(cls, variant: str, inventory: HardwareInfo) -> str:
        return _no_emulator(inventory.host.machine) if variant == EMULATOR and _may_have_htp(inventory) else ""

    # The worker

    def ask(self, do: str, *, stage: Stage, **arguments: Any) -> Mapping[str, Any]:
        """Call the worker for a model in a strict session; `Unsupported` names the operators that QNN refuses."""
        try:
            return self.call(do, stage=stage, settings=self.settings_of(STRICT), **arguments)
        except WorkerError as error:
            left = self._left_to_host(arguments["model"])
            why = f"it leaves {_listed(left)} to the host; " if left else ""
            reason = f"QNN doesn't run the model: {why}{reason_of(error)}"
            raise Unsupported(reason, error_type="unsupported_operator", stage=stage) from error

    def numbers(self, array: Array) -> Array:
        """Return an output as float64; minus infinity for masked entries (at or below float16's smallest number)."""
        import numpy as np

        from ._onnx_probe import FLOAT16_LARGEST

        found: Array = np.where(array <= -FLOAT16_LARGEST, -np.inf, array).astype(np.float64)
        return found

    def settings_of(self, config: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings of a session as the worker expects them."""
        return {
            "module": "onnxruntime_qnn",
            "options": self._options(),
            "config": {**RECORD, **config},
            "optimisation": OPTIMIZATION,
        }

    def _options(self) -> dict[str, str]:
        options = {**QNN_OPTIONS, **(EMULATED_OPTIONS if self.emulated else {})}
        if sdk := os.environ.get(SDK_VARIABLE):
            machine = str(self.described["machine"])
            library = "QnnHtp.dll" if os.name == "nt" else "libQnnHtp.so"
            options.pop("backend_type", None)
            options["backend_path"] = str(Path(sdk) / "lib" / _SDK_FOLDERS.get(machine, machine) / library)
        return options

    def _left_to_host(self, model: str) -> dict[str, int]:
        """Return the operators of a model that QNN refuses, from a session that isn't strict."""
        try:
            found = self.call("placement", stage=Stage.COMPILE, model=model, settings=self.settings_of({}))[
                "assigned"
            ]
        except (WorkerError, Unsupported):
            return {}
        return {op: n for provider, counts in found.items() if provider != self.PROVIDER for op, n in counts.items()}

    # The device

    def refused(self) -> str:
        here = self.described
        if not here["devices"]:
            return "onnxruntime-qnn lists no device"
        has_htp = _is_arm(here["machine"]) or any(one["kind"] == "NPU" for one in here["devices"])
        if self.emulated:
            return _no_emulator(here["machine"]) if has_htp else ""
        return "" if has_htp else _no_htp(here["machine"])

    def describe(self) -> Mapping[str, Any]:
        return self.call("describe", stage=Stage.LOAD, module="onnxruntime_qnn")

    @property
    def emulated(self) -> bool:
        """Whether the HTP is Qualcomm's emulator, because the variant names it."""
        return self.target.variant == EMULATOR

    def facts(self) -> dict[str, str]:
        """Conditions for evidence: the runtime, and the emulator if it is one."""
        here = self.described
        found = {"runtime": f"onnxruntime {here['onnxruntime']}, onnxruntime-qnn {here['onnxruntime_qnn']}"}
        if self.emulated:
            found["emulator"] = f"QNN {here['qnn']}'s HTP emulator on {here['machine']}, not an NPU"
        return found

    @property
    def device(self) -> str:
        """QNN's name of its backend, and whether it is emulated."""
        return "htp (emulator)" if self.emulated else "htp"

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        here = self.described
        soc = ", ".join(f"{name} {value}" for name, value in EMULATED_OPTIONS.items())
        name = f"HTP emulator of QNN {here['qnn']} ({soc}) on {here['machine']}"
        if self.emulated:
            return self.device_info(self.device, name, memory=self.host_memory())
        return self.device_info(self.device, f"Hexagon NPU (HTP), QNN {here['qnn']}")

    def arithmetic(self) -> str:
        """Return the precision in which HTP computes a float32 graph, measured with numbers that only that one gives.

        Raises `Unsupported` if a session doesn't give a known answer: then none of its outputs means anything.
        """
        from ..known_answer import agrees
        from ._onnx_probe import precision_of, values_to_copy, write_copy

        if not self._arithmetic:
            answer = self.known_answer()
            if not agrees(answer):
                raise Unsupported(
                    f"QNN accepts a graph but computes it wrongly: the known-answer test returned {answer}",
                    error_type="numerical_mismatch",
                    stage=Stage.RUN,
                )
            copy = self.answer_of(write_copy, {"values": values_to_copy()}, "copy")["copy"]
            self._arithmetic = precision_of(copy)
        return self._arithmetic

    def runnable_of(self, source: ModelInput | FileInput, example: Inputs, precision: str) -> Runnable:
        from ._qnn_runnable import QNNRunnable

        return QNNRunnable(self, source, example, precision)


def _is_arm(machine: str) -> bool:
    return machine.lower() in _REAL_MACHINES


def _may_have_htp(inventory: HardwareInfo) -> bool:
    """Return whether a machine is a Snapdragon as far as its inventory shows: ARM, or with a Qualcomm NPU."""
    npus = (one for one in inventory.accelerators if one.vendor == QNNBackend.VENDOR and one.device_type == "npu")
    return _is_arm(inventory.host.machine) or any(npus)


def _no_htp(machine: str) -> str:
    return f"no HTP on {machine}; its emulator is {QNNBackend.BACKEND_NAME}:{EMULATOR}"


def _no_emulator(machine: str) -> str:
    return f"no emulator on {machine}; {QNNBackend.BACKEND_NAME} is the HTP itself"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
