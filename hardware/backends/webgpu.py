"""Target `webgpu`: ONNX Runtime Web on the WebGPU of a browser (`make setup-web`).

A software adapter (SwiftShader, or what calls itself a fallback) is said in every report: it stands for no GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..evidence.record import Stage
from ._web import WebBackend
from .base import DeviceInfo, ModelSubject, Unsupported

SOFTWARE = ("swiftshader", "llvmpipe", "lavapipe", "basic render driver", "warp")
_F16 = "shader-f16"


class WebGPUBackend(WebBackend):
    """The browser's adapter; nothing floating-point may run on the host."""

    BACKEND_NAME = "webgpu"
    EXPIRES_ON = (
        *("onnxruntime-web (webgpu)", "chromium (webgpu)", "playwright"),
        *("onnx", "onnxruntime", "torch", "transformers"),
    )
    PRECISIONS = ("float32", "float16")
    API = "webgpu"
    BUNDLE = "ort.webgpu.min.mjs"
    PROVIDER = "WebGpuExecutionProvider"
    COMPUTES_IN: ClassVar[Mapping[str, str]] = {}

    def provider(self) -> Mapping[str, Any]:
        return {"name": "webgpu"}

    @property
    def adapter(self) -> Mapping[str, Any]:
        """What the browser says of the adapter: vendor, architecture, device, description, fallback."""
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
        here = self.described
        found = {
            "runtime": f"onnxruntime-web {here['onnxruntime_web']}, Chromium {here['browser']}",
            "adapter": self.device,
        }
        if self.is_software:
            found["stands_in"] = f"a software adapter ({self.adapter['architecture']}), not a GPU"
        return found

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        return self.device_info("webgpu", f"{self.device} in Chromium {self.described['browser']}", **self.adapter)

    def load(self, subject: ModelSubject, example_inputs: Any, precision: str) -> Any:
        if precision == "float16" and _F16 not in self.adapter["features"]:
            raise Unsupported(
                f"the adapter has no {_F16}: {self.device}", error_type="unsupported_dtype", stage=Stage.LOAD
            )
        return super().load(subject, example_inputs, precision)


def is_software(adapter: Mapping[str, Any]) -> bool:
    """Whether an adapter says that it is a fallback, or is one that is known to be software."""
    words = " ".join(str(adapter.get(name, "")) for name in ("vendor", "architecture", "device", "description"))
    return bool(adapter.get("fallback")) or any(name in words.lower() for name in SOFTWARE)
