"""Target `cpu`: PyTorch on the host's processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._torch import TorchBackend
from .base import DeviceInfo

if TYPE_CHECKING:
    import torch


class CPUBackend(TorchBackend):
    """Always there. Half precisions compute in their own dtype, without autocast."""

    BACKEND_NAME = "cpu"
    DEVICE_TYPE = "cpu"
    INDEXED = False
    UNSEEN = ""  # the host is the target: there is no other place to run

    def torch_device(self) -> torch.device:
        import torch

        return torch.device("cpu")

    def _device_missing(self, torch: Any) -> str:
        return ""

    def _device_count(self, torch: Any) -> int:
        return 1

    def empty_cache(self) -> None:
        """The host's memory has no cache of torch's."""

    def get_device_info(self) -> DeviceInfo:
        from ..system.cpu import read_cpu

        return self.device_info("cpu", read_cpu().model or "CPU")
