"""Target `rocm`: AMD GPUs through a PyTorch that is built for ROCm, whose devices are named `cuda` too."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..inventory.target_status import TargetStatus, gpu_status
from ._torch import TorchBackend

if TYPE_CHECKING:
    from ..inventory.hardware_info import HardwareInfo

_BF16 = ("gfx908", "gfx90a", "gfx94", "gfx95", "gfx11", "gfx12")
_FP8 = ("gfx94", "gfx95", "gfx12")
"""Architectures with matrix instructions for these types. Source: ROCm, "Data types and precision support"."""


class AMDBackend(TorchBackend):
    """AMD GPUs. Distinguished from `cuda` by torch's build, never by the device's name."""

    BACKEND_NAME = "rocm"
    DEVICE_TYPE = "cuda"
    VENDOR = "AMD"
    ALIASES = ("amd", "hip")
    AUTO_ORDER = 2
    NEEDS_TORCH_BUILD = True
    COLLECTIVES = "nccl"
    COLLECTIVES_LIBRARY = "RCCL"
    CALLED_BY_SCRIPTS = True
    EXPIRES_ON = ("torch", "hip (torch)", "transformers", "amd_driver")

    @classmethod
    def expected(cls, inventory: HardwareInfo) -> TargetStatus:
        return gpu_status(inventory, target=cls.BACKEND_NAME, vendor=cls.VENDOR)

    def _device_missing(self, torch: Any) -> str:
        if not torch.version.hip:
            return "this torch is built without ROCm"
        if not torch.cuda.is_available():
            return "torch is built for ROCm, but no device can be used (run rocminfo for details)"
        return ""

    def _own_facts(self, found: Any, device_id: int) -> dict[str, Any]:
        architecture = str(getattr(found, "gcnArchName", "")).partition(":")[0]
        return {
            "capability": architecture or None,
            "driver": _driver(),
            "bf16": architecture.startswith(_BF16),
            "fp8_supported": architecture.startswith(_FP8),
            "topology": self._topology(device_id),
        }


def _driver() -> str | None:
    """Return the version of the amdgpu module; the module in the kernel's own tree has none."""
    with suppress(OSError):
        return Path("/sys/module/amdgpu/version").read_text(encoding="ascii").strip() or None
    return None
