"""Target `cpu`: PyTorch on the host's processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._torch import TorchBackend
from .base import DeviceInfo, FileSubject, Runnable

if TYPE_CHECKING:
    import torch

    from .base import Inputs


class CPUBackend(TorchBackend):
    """Always there. Half precisions compute in their own dtype, without autocast."""

    BACKEND_NAME = "cpu"
    DEVICE_TYPE = "cpu"
    INDEXED = False
    FILE_RUNTIMES = ("onnxruntime",)
    SHARED = True
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

    def load_file(self, subject: FileSubject, example_inputs: Inputs, precision: str) -> Runnable:
        if subject.file.suffix.lower() != ".onnx":
            return super().load_file(subject, example_inputs, precision)
        from ._onnx import OnnxRunnable

        return OnnxRunnable(self, subject, example_inputs, precision)
