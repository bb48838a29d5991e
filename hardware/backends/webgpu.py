"""Target `webgpu`: ONNX Runtime Web on the WebGPU of a browser (`make setup-web`).

Variant `webgpu:native` is the same provider without a browser (`_native_webgpu.py`). A software adapter (SwiftShader,
or a fallback adapter) is no GPU, and every report says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..evidence.record import Stage
from ..software import adapter_conditions, adapter_name, is_software
from ._web import WebBackend
from .base import BaseBackend, DeviceInfo, ModelInput, Unsupported

_F16 = "shader-f16"
NATIVE = "native"


class WebGPUBackend(WebBackend):
    """The browser's adapter; no floating-point operator may run on the host."""

    BACKEND_NAME = "webgpu"
    EXPIRES_ON = (
        *("onnxruntime-web (webgpu)", "chromium (webgpu)", "playwright"),
        *("onnx", "onnxruntime", "torch", "transformers"),
    )
    ALIASES = ("browser", "chrome", "chromium", "edge")
    VARIANTS = (NATIVE,)
    VARIANTS_NEED: ClassVar[Mapping[str, tuple[str, str]]] = {NATIVE: ("onnxruntime-webgpu", "make setup-web")}
    BROWSER_PACKAGE = "chromium (webgpu)"
    API = "webgpu"
    FIXED_SHAPES = False
    BUNDLE = "ort.webgpu.min.mjs"
    WASM = "ort-wasm-simd-threaded.asyncify.wasm"
    PROVIDER = "WebGpuExecutionProvider"
    UNSEEN = "shader compilation in the browser; computation inside a kernel"
    COARSE_OPERATORS = ("Sin", "Cos")

    @classmethod
    def of_variant(cls, variant: str) -> type[BaseBackend]:
        from ._native_webgpu import NativeWebGPUBackend

        return NativeWebGPUBackend if variant == NATIVE else cls

    def provider(self) -> Mapping[str, Any]:
        return {"name": "webgpu"}

    @property
    def adapter(self) -> Mapping[str, Any]:
        """Facts about the adapter: vendor, architecture, device, description, fallback, features."""
        found: Mapping[str, Any] = self.described["adapter"]
        return found

    @property
    def is_software(self) -> bool:
        """Whether the adapter is emulated on the host's processor."""
        return is_software(self.adapter)

    @property
    def device(self) -> str:
        return adapter_name(self.adapter)

    def facts(self) -> dict[str, str]:
        return {"runtime": self._runtime_name(), **adapter_conditions(self.adapter)}

    def _runtime_name(self) -> str:
        here = self.described
        return f"onnxruntime-web {here['onnxruntime_web']}, Chromium {here['browser']}"

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        memory = self.host_memory() if self.adapter["fallback"] else None  # WebGPU tells no GPU's memory
        name = f"{self.device} through {self._runtime_name()}"
        return self.device_info("webgpu", name, memory=memory, **self.adapter)

    def load(self, model_input: ModelInput, example_inputs: Any, precision: str) -> Any:
        if precision == "float16" and _F16 not in self.adapter["features"]:
            raise Unsupported(
                f"the adapter has no {_F16}: {self.device}", error_type="unsupported_dtype", stage=Stage.LOAD
            )
        return super().load(model_input, example_inputs, precision)
