"""Target `webnn`: ONNX Runtime Web on the WebNN of a browser (`make setup-web`).

A context of kind `gpu` or `npu` is a request: browsers may run it on the CPU, and no call reports which device ran
it. Evidence states that it was requested.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._web import WebBackend
from .base import DeviceInfo

_CPU = "cpu"


class WebNNBackend(WebBackend):
    """A context of the browser's WebNN: on the CPU (`webnn`), or requested by `webnn:gpu` and `webnn:npu`."""

    BACKEND_NAME = "webnn"
    EXPIRES_ON = (
        *("onnxruntime-web (webnn)", "@sparticuz/chromium (webnn)", "playwright"),
        *("onnx", "onnxruntime", "torch", "transformers"),
    )
    VARIANTS = ("gpu", "npu")
    BROWSER_PACKAGE = "@sparticuz/chromium (webnn)"
    API = "webnn"
    FIXED_SHAPES = True
    BUNDLE = "ort.all.min.mjs"
    WASM = "ort-wasm-simd-threaded.jsep.wasm"
    PROVIDER = "WebNNExecutionProvider"
    UNSEEN = "WebNN graph compilation in the browser; computation inside a kernel"

    @property
    def device_type(self) -> str:
        return self.target.variant or _CPU

    def provider(self) -> Mapping[str, Any]:
        return {"name": "webnn", "deviceType": self.device_type}

    @property
    def device(self) -> str:
        return (
            f"{self.device_type} context" if self.device_type == _CPU else f"{self.device_type} context, as requested"
        )

    def facts(self) -> dict[str, str]:
        here = self.described
        found = {"runtime": f"onnxruntime-web {here['onnxruntime_web']}, Chromium {here['browser']}"}
        if self.device_type != _CPU:
            found["requested"] = f"a context of kind {self.device_type}; the browser doesn't tell what executed"
        return found

    def refused(self) -> str:
        return super().refused() or str(self.described["contexts"][self.device_type].get("reason", ""))

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        context = self.described["contexts"][self.device_type]
        name = f"WebNN's {self.device} in Chromium {self.described['browser']}"
        return self.device_info(
            self.device_type,
            name,
            memory=self.host_memory() if self.device_type == _CPU else None,
            accelerated=context["accelerated"],
            operators=context["operators"],
        )
