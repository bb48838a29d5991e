"""Target `xpu`: Intel GPUs through PyTorch's own support, with its fallback to the host switched off."""

from __future__ import annotations

import os
from typing import Any

from ._torch import TorchBackend


class IntelBackend(TorchBackend):
    """Intel Arc and data-centre GPUs."""

    BACKEND_NAME = "xpu"
    DEVICE_TYPE = "xpu"
    EXPIRES_ON = ("torch", "xpu (torch)", "transformers", "intel_driver")

    def _setup_environment(self) -> None:
        # Set, it sends operators without a kernel to the host without a word.
        os.environ.pop("PYTORCH_ENABLE_XPU_FALLBACK", None)

    def _device_missing(self, torch: Any) -> str:
        if not (hasattr(torch, "xpu") and torch.xpu._is_compiled()):
            return "this torch is built without XPU"
        if not torch.xpu.is_available():
            return "torch is built for XPU, but no Intel GPU can be used (sycl-ls tells more)"
        return ""

    def _own_facts(self, found: Any, device_id: int) -> dict[str, Any]:
        return {
            "driver": found.driver_version or None,
            "bf16": bool(found.has_bfloat16_conversions),
            "architecture": str(found.version),
            "topology": "integrated" if found.is_integrated_gpu else "a card of its own",
        }
