"""`webgpu:native`: ONNX Runtime's WebGPU provider without a browser, in a worker of `make setup-web`'s environment.

It uses a Vulkan device, or else the SwiftShader of a Chromium. It doesn't report which adapter it uses, nor its
features: a session that can't be opened fails.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from ctypes.util import find_library
from pathlib import Path
from typing import Any, ClassVar

from ..evidence.record import Stage
from ..workers import Worker, environment_of
from ..workers.worker import SCRIPTS
from ._web import PASS_LIMIT_S, NodesBackend
from .base import DeviceInfo

_DRIVERS = Path("/dev/dri")
_ICD = "vk_swiftshader_icd.json"
_IN_BROWSER = "webgpu"


def has_own_device() -> bool:
    """Return whether the system may have a Vulkan device: on Linux, a render node and a loader."""
    if sys.platform != "linux":
        return True
    return any(_DRIVERS.glob("renderD*")) and find_library("vulkan") is not None


def software_variables() -> Mapping[str, str]:
    """Return variables with which the provider finds the browser's SwiftShader; empty without one."""
    browser = environment_of(_IN_BROWSER).browser
    if browser is not None and browser.path is not None:
        for folder in (browser.path.resolve().parent, Path("/usr/lib") / browser.path.name):
            if (folder / _ICD).is_file():
                return {"VK_ICD_FILENAMES": str(folder / _ICD), "LD_LIBRARY_PATH": str(folder)}
    return {}


class NativeWebGPUBackend(NodesBackend):
    """ONNX Runtime's own choice of adapter; no floating-point operator may run on the host."""

    BACKEND_NAME = _IN_BROWSER
    ENVIRONMENT = "webgpu:native"
    EXPIRES_ON = (
        *("onnxruntime-webgpu", "chromium (webgpu)"),  # SwiftShader is Chromium's
        *("onnx", "onnxruntime", "torch", "transformers"),
    )
    VARIANTS = ("native",)
    RUNTIME = "ONNX Runtime"
    SCRIPT = SCRIPTS / "onnx_worker.py"
    CALL_LIMIT_S = 2 * PASS_LIMIT_S
    FIXED_SHAPES = False
    PROVIDER = "WebGpuExecutionProvider"
    UNSEEN = "shader compilation in the driver; computation inside a kernel"
    COARSE_OPERATORS: ClassVar[tuple[str, ...]] = ("Sin", "Cos")

    def new_worker(self, python: Path) -> Worker:
        variables = {} if has_own_device() else software_variables()
        return Worker(python, timeout_s=self.CALL_LIMIT_S, script=self.SCRIPT, variables=variables)

    def describe(self) -> Mapping[str, Any]:
        return self.call("describe", stage=Stage.LOAD, provider=self.PROVIDER)

    def session_settings(self) -> dict[str, Any]:
        return {"provider": self.PROVIDER, "optimisation": "ORT_DISABLE_ALL"}

    @property
    def is_software(self) -> bool:
        """Whether the adapter is emulated on the host's processor, as no other is available."""
        return not has_own_device()

    @property
    def device(self) -> str:
        return "google swiftshader (software)" if self.is_software else "an adapter without a name"

    def facts(self) -> dict[str, str]:
        found = {"runtime": self._runtime_name(), "adapter": self.device}
        if self.is_software:
            return {**found, "stands_in": "a software adapter (swiftshader), not a GPU"}
        return {**found, "requested": "WebGPU's own choice of adapter, which ONNX Runtime doesn't tell"}

    def _runtime_name(self) -> str:
        return f"onnxruntime-webgpu {self.described['onnxruntime']}, no browser"

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        name = f"{self.device} through {self._runtime_name()}"
        memory = self.host_memory() if self.is_software else None
        return self.device_info(self.BACKEND_NAME, name, memory=memory, fallback=self.is_software)
