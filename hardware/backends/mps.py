"""Target `mps`: Apple GPUs through PyTorch, with its fallback to the host disabled."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..inventory.target_status import TargetStatus, host_status
from ._torch import TorchBackend
from .base import DeviceInfo

if TYPE_CHECKING:
    from ..inventory.hardware_info import HardwareInfo


class AppleBackend(TorchBackend):
    """Apple GPUs. Metal isn't safe after a fork, so suites run in fresh processes."""

    BACKEND_NAME = "mps"
    DEVICE_TYPE = "mps"
    VENDOR = "Apple"
    ALIASES = ("apple",)
    AUTO_ORDER = 5
    CALLED_BY_SCRIPTS = True
    EXPIRES_ON = ("torch", "transformers", "macos")
    FORK_SAFE = False

    @classmethod
    def expected(cls, inventory: HardwareInfo) -> TargetStatus:
        if inventory.host.system != "Darwin":
            reason = f"needs macOS; this is {inventory.host.system}"
            return TargetStatus(target=cls.BACKEND_NAME, expected=False, reason=reason)
        return host_status(inventory, target=cls.BACKEND_NAME)

    def _setup_environment(self) -> None:
        # If this variable is 1, operators without a Metal kernel silently run on the host.
        os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "0"

    def _device_missing(self, torch: Any) -> str:
        if not torch.backends.mps.is_built():
            return "this torch is built without MPS"
        if not torch.backends.mps.is_available():
            return "torch is built for MPS, but no Metal device was found (needs macOS 12.3 or later)"
        return ""

    def _device_count(self, torch: Any) -> int:
        return 1

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        return self.device_info(str(self.torch_device()), "mps")  # torch.mps reports no properties
