"""Target `openvino`: Intel's runtime on its CPU device, or on the device that the variant names (`openvino:NPU`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ..cell import GRAPH_TASK
from ..command_names import as_runnable
from ..file_formats import format_name
from ..inventory.target_status import TargetStatus
from .base import BaseBackend, DeviceInfo, FileInput, ModelInput, Runnable

if TYPE_CHECKING:
    from ..inventory.hardware_info import HardwareInfo
    from ..target import Target
    from .base import Inputs

CHOICES = ("AUTO", "HETERO", "MULTI", "BATCH")
"""OpenVINO's devices that stand for a choice between devices: evidence says which one it took (`executed_on`)."""

_FACTS = {
    "capabilities": "OPTIMIZATION_CAPABILITIES",
    "architecture": "DEVICE_ARCHITECTURE",
    "memory": "GPU_DEVICE_TOTAL_MEM_SIZE",
    "npu_memory": "NPU_DEVICE_TOTAL_MEM_SIZE",
    "driver": "NPU_DRIVER_VERSION",
}
"""Facts that a device reports, by OpenVINO's property; each plugin has some of them."""


class OpenVINOBackend(BaseBackend):
    """OpenVINO's CPU plugin unless a variant names a device. Precision hints are set and read back."""

    EXTRA = "openvino"
    BACKEND_NAME = "openvino"
    WATCHED_GRAPH = "ir"
    READS = ("onnx", "ir", "tflite")
    CALLED_BY_SCRIPTS = True
    OPERATORS_TRIED = True
    LISTS_ALL = True
    OPTIMUM_EXPORTS = True
    EXPIRES_ON = ("openvino", "optimum-intel", "torch", "transformers")
    EXPIRES_ALSO_ON: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "int8": ("nncf",),
        GRAPH_TASK: ("onnx",),
        **dict.fromkeys(("GPU", "NPU", *CHOICES), ("intel_driver", "intel_firmware")),
    }
    CAN = frozenset({"generate", "save"})
    WARM_IMPORTS = ("openvino", "optimum.intel", "optimum.exporters.openvino")
    PRECISIONS = ("float32", "bfloat16", "float16", "int8")
    COMPUTES_IN: ClassVar[Mapping[str, str]] = {"int8": "float32"}
    VARIANTS = ("CPU", "GPU", "NPU", *CHOICES)
    DEADLINE_S = 600.0  # in seconds: a model is exported, verified and compiled, for prompts and for tokens

    @classmethod
    def expected(cls, inventory: HardwareInfo) -> TargetStatus:
        version = inventory.packages.get("openvino")
        reason = f"openvino {version} is installed; only the library can list its devices"
        if version is None:
            reason = "openvino isn't installed: pip install openvino"
        return TargetStatus(target=cls.BACKEND_NAME, expected=version is not None, reason=reason)

    @property
    def device(self) -> str:
        """OpenVINO's own name of the device: `CPU`, `GPU.1`, `HETERO:CPU`."""
        variant = self.target.variant or "CPU"
        if variant in CHOICES:
            import openvino

            seen = openvino.Core().available_devices
            return f"{variant}:{','.join(seen[:1] if variant == 'BATCH' else seen)}"
        return variant if self.target.index is None else f"{variant}.{self.target.index}"

    @property
    def is_choice(self) -> bool:
        """Whether OpenVINO chooses between devices."""
        return self.target.variant in CHOICES

    @classmethod
    def is_shared(cls, target: Target) -> bool:
        """Return True for the host's processor only; a GPU or NPU isn't shared."""
        return target.variant in ("", "CPU")

    def is_asked_device(self, name: str) -> bool:
        """Whether a name from `EXECUTION_DEVICES` is the device of this target; a choice stands for all of them."""
        if self.is_choice:
            return True
        return name.strip("()") == self.device or name.strip("()").split(".")[0] == self.device

    def _check_availability(self) -> str:
        try:
            import openvino
        except ImportError:
            return as_runnable("openvino isn't installed (pip install -r requirements.txt)")
        devices = openvino.Core().available_devices
        if self.is_choice:
            return "" if devices else f"{self.target} selects a device automatically, but OpenVINO sees none"
        if not any(name == self.device or name.split(".")[0] == self.device for name in devices):
            return f"OpenVINO sees no {self.device}; it sees {', '.join(devices) or 'nothing'}"
        return ""

    @property
    def device_count(self) -> int:
        import openvino

        kind = self.target.variant or "CPU"
        return sum(name.split(".")[0] == kind for name in openvino.Core().available_devices)

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        import openvino

        if self.is_choice:  # it is one of those that are there
            device = self.device.partition(":")[2].split(",")[0]
            full = openvino.Core().get_property(device, "FULL_DEVICE_NAME")
            return self.device_info(self.device, f"{self.device}, {str(full).strip()}", device_id=device_id)
        name = self.device if device_id == self.device_id else f"{self.target.variant}.{device_id}"
        core = openvino.Core()
        known = set(core.get_property(name, "SUPPORTED_PROPERTIES"))
        facts: dict[str, Any] = {k: core.get_property(name, asked) for k, asked in _FACTS.items() if asked in known}
        capable = facts.pop("capabilities", [])
        if name not in CHOICES:  # a choice between devices has no arithmetic of its own
            facts["bf16"] = "BF16" in capable
        npu_memory = facts.pop("npu_memory", None) or (self.host_memory() if name == "CPU" else None)
        facts.setdefault("memory", npu_memory)
        if "driver" in facts:
            facts["driver"] = str(facts["driver"])  # a number for an NPU
        return self.device_info(
            name,
            str(core.get_property(name, "FULL_DEVICE_NAME")).strip(),
            device_id=device_id,
            capabilities=", ".join(sorted(capable)),
            **facts,
        )

    def known_answer(self) -> tuple[float, float, float]:
        import numpy as np
        import openvino
        from openvino import opset13 as ops

        from ..known_answer import question

        left, right = question()
        parameter = ops.parameter(left.shape, np.float32)
        product = ops.tanh(ops.matmul(parameter, ops.constant(right), False, False))
        model = openvino.Model([ops.reduce_sum(product, np.array([0]), False)], [parameter], "known_answer")
        compiled = openvino.Core().compile_model(model, self.device, {"INFERENCE_PRECISION_HINT": "f32"})
        answer = compiled([left])[0]
        return float(answer[0]), float(answer[1]), float(answer[2])

    def load(self, model_input: ModelInput, example_inputs: Inputs, precision: str) -> Runnable:
        self.require(precision)
        from ._openvino_runnable import OpenVINORunnable

        return OpenVINORunnable(self, model_input, example_inputs, precision)

    def load_file(self, file_input: FileInput, example_inputs: Inputs, precision: str) -> Runnable:
        if format_name(file_input.file) not in self.READS:
            return super().load_file(file_input, example_inputs, precision)
        self.require(precision)
        from ._openvino_runnable import OpenVINOGraph

        return OpenVINOGraph(self, file_input, example_inputs, precision)
