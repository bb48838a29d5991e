"""Target `webgpu`: ONNX Runtime Web on the WebGPU of a browser (`make setup-web`), or the provider without one.

A software adapter (SwiftShader, or what calls itself a fallback) is said in every report: it stands for no GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ..evidence.record import Stage
from ..software_adapters import is_software
from ..workers import Worker
from ._native_webgpu import has_own_device, software_variables
from ._web import WebBackend
from .base import DeviceInfo, ModelSubject, Unsupported

_F16 = "shader-f16"
NATIVE = "native"


class WebGPUBackend(WebBackend):
    """The browser's adapter, or with variant `native` that of ONNX Runtime itself; nothing floating-point may run on
    the host."""

    BACKEND_NAME = "webgpu"
    EXPIRES_ON = (
        *("onnxruntime-web (webgpu)", "chromium (webgpu)", "playwright"),
        *("onnx", "onnxruntime", "torch", "transformers"),
    )
    EXPIRES_ALSO_ON: ClassVar[Mapping[str, tuple[str, ...]]] = {NATIVE: ("onnxruntime-webgpu (webgpu)",)}
    VARIANTS = (NATIVE,)
    API = "webgpu"
    FIXED_SHAPES = False
    BUNDLE = "ort.webgpu.min.mjs"
    PROVIDER = "WebGpuExecutionProvider"
    COARSE_OPERATORS = ("Sin", "Cos")

    @property
    def native(self) -> bool:
        """Whether there is no browser."""
        return self.target.variant == NATIVE

    @property
    def runtime_name(self) -> str:
        return "ONNX Runtime" if self.native else self.RUNTIME

    def new_worker(self, python: Path) -> Worker:
        if not self.native:
            return super().new_worker(python)
        variables = {} if has_own_device() else software_variables()
        script = self.SCRIPT.with_name("webgpu_worker.py")
        return Worker(python, timeout_s=self.CALL_LIMIT_S, script=script, variables=variables)

    def provider(self) -> Mapping[str, Any]:
        return {"name": "webgpu"}

    @property
    def adapter(self) -> Mapping[str, Any]:
        """What is told of the adapter: vendor, architecture, device, description, fallback.

        Without a browser nothing is: it is SwiftShader where nothing else is here.
        """
        if self.native:
            software = not has_own_device()
            names = ("google", "swiftshader") if software else ("", "")
            return {**dict(zip(("vendor", "architecture"), names, strict=True)), "fallback": software, "features": []}
        found: Mapping[str, Any] = self.described["adapter"]
        return found

    @property
    def is_software(self) -> bool:
        """Whether the host's processor plays the adapter."""
        return is_software(self.adapter)

    @property
    def device(self) -> str:
        names = [str(self.adapter[name]) for name in ("vendor", "architecture") if self.adapter[name]]
        return f"{' '.join(names) or 'an adapter without a name'}{' (software)' if self.is_software else ''}"

    def facts(self) -> dict[str, str]:
        found = {"runtime": self._runtime_told(), "adapter": self.device}
        if self.native and not self.is_software:
            found["requested"] = "WebGPU's own choice of adapter, which ONNX Runtime doesn't tell"
        if self.is_software:
            found["stands_in"] = f"a software adapter ({self.adapter['architecture']}), not a GPU"
        return found

    def _runtime_told(self) -> str:
        here = self.described
        if self.native:
            return f"onnxruntime-webgpu {here['onnxruntime']}, without a browser"
        return f"onnxruntime-web {here['onnxruntime_web']}, Chromium {here['browser']}"

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        return self.device_info("webgpu", f"{self.device} through {self._runtime_told()}", **self.adapter)

    def load(self, subject: ModelSubject, example_inputs: Any, precision: str) -> Any:
        if precision == "float16" and _F16 not in self.adapter["features"]:
            raise Unsupported(
                f"the adapter has no {_F16}: {self.device}", error_type="unsupported_dtype", stage=Stage.LOAD
            )
        return super().load(subject, example_inputs, precision)
