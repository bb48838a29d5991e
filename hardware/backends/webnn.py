"""Target `webnn`: ONNX Runtime Web on the WebNN of a browser (`make setup-web`).

A context of kind `gpu` or `npu` is a wish: browsers give one and may run it on the CPU, and no call tells which. What
is said of such a run is that it was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._web import WebBackend
from .base import DeviceInfo

_CPU = "cpu"


class WebNNBackend(WebBackend):
    """A context of the browser's WebNN: `webnn` is its CPU one, `webnn:gpu` and `webnn:npu` ask for others."""

    BACKEND_NAME = "webnn"
    EXPIRES_ON = (
        *("onnxruntime-web (webnn)", "@sparticuz/chromium (webnn)", "playwright"),
        *("onnx", "onnxruntime", "torch", "transformers"),
    )
    VARIANTS = ("gpu", "npu")
    API = "webnn"
    FIXED_SHAPES = True
    BUNDLE = "ort.all.min.mjs"
    PROVIDER = "WebNNExecutionProvider"

    @property
    def kind(self) -> str:
        """The kind of context that is asked for."""
        return self.target.variant or _CPU

    def provider(self) -> Mapping[str, Any]:
        return {"name": "webnn", "deviceType": self.kind}

    @property
    def device(self) -> str:
        return f"{self.kind} context" if self.kind == _CPU else f"{self.kind} context, as requested"

    def facts(self) -> dict[str, str]:
        here = self.described
        found = {"runtime": f"onnxruntime-web {here['onnxruntime_web']}, Chromium {here['browser']}"}
        if self.kind != _CPU:
            found["requested"] = f"a context of kind {self.kind}; the browser doesn't tell what executed"
        return found

    def refused(self) -> str:
        return super().refused() or str(self.described["contexts"][self.kind].get("reason", ""))

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        context = self.described["contexts"][self.kind]
        name = f"WebNN's {self.device} in Chromium {self.described['browser']}"
        return self.device_info(self.kind, name, accelerated=context["accelerated"], operators=context["operators"])
