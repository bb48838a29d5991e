"""Target `xpu`: Intel GPUs through PyTorch's own support, with its fallback to the host disabled."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..inventory.target_status import TargetStatus, gpu_status
from ._torch import TorchBackend

if TYPE_CHECKING:
    from ..inventory.hardware_info import HardwareInfo


class IntelBackend(TorchBackend):
    """Intel Arc and data-center GPUs."""

    BACKEND_NAME = "xpu"
    DEVICE_TYPE = "xpu"
    VENDOR = "Intel"
    ALIASES = ("intel",)
    AUTO_ORDER = 4
    NEEDS_TORCH_BUILD = True
    COLLECTIVES = "xccl"
    COLLECTIVES_LIBRARY = "oneCCL"
    CALLED_BY_SCRIPTS = True
    EXPIRES_ON = ("torch", "xpu (torch)", "transformers", "intel_driver")

    @classmethod
    def expected(cls, inventory: HardwareInfo) -> TargetStatus:
        return gpu_status(inventory, target=cls.BACKEND_NAME, vendor=cls.VENDOR)

    def _setup_environment(self) -> None:
        # If this variable is set, operators without a kernel silently run on the host.
        os.environ.pop("PYTORCH_ENABLE_XPU_FALLBACK", None)

    def _device_missing(self, torch: Any) -> str:
        if not (hasattr(torch, "xpu") and torch.xpu._is_compiled()):
            return "this torch is built without XPU"
        if not torch.xpu.is_available():
            return "torch is built for XPU, but no Intel GPU can be used (run sycl-ls for details)"
        return ""

    def _own_facts(self, found: Any, device_id: int) -> dict[str, Any]:
        return {
            "driver": found.driver_version or None,
            "bf16": bool(found.has_bfloat16_conversions),
            "architecture": str(found.version),
            "topology": "integrated" if found.is_integrated_gpu else "a discrete GPU",
        }
