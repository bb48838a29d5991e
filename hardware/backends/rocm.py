"""Target `rocm`: AMD GPUs through a PyTorch that is built for ROCm, whose devices are called `cuda` too."""

from __future__ import annotations

from typing import Any

from ._torch import TorchBackend


class AMDBackend(TorchBackend):
    """Told from `cuda` by torch's build, never by the device's name."""

    BACKEND_NAME = "rocm"
    DEVICE_TYPE = "cuda"
    EXPIRES_ON = ("torch", "transformers", "amd_driver")

    def _device_missing(self, torch: Any) -> str:
        if not torch.version.hip:
            return "this torch is built without ROCm"
        if not torch.cuda.is_available():
            return "torch is built for ROCm, but no device can be used (rocminfo tells more)"
        return ""

    def _own_facts(self, found: Any) -> dict[str, Any]:
        return {"architecture": getattr(found, "gcnArchName", "unknown")}
