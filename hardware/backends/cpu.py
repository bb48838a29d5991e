"""Target `cpu`: PyTorch on the host's processor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ..cell import GRAPH_TASK
from ..inventory.target_status import TargetStatus, host_status
from ._torch import TorchBackend
from .base import DeviceInfo, FileInput, Runnable

if TYPE_CHECKING:
    import torch

    from ..inventory.hardware_info import HardwareInfo
    from .base import Inputs


class CPUBackend(TorchBackend):
    """The host, which is always available. Half precisions compute in their own dtype, without autocast."""

    BACKEND_NAME = "cpu"
    DEVICE_TYPE = "cpu"
    AUTO_ORDER = 6
    COLLECTIVES = "gloo"
    READS = ("onnx", *TorchBackend.READS)
    CALLED_BY_SCRIPTS = True
    INDEXED = False
    EXPIRES_ALSO_ON: ClassVar[Mapping[str, tuple[str, ...]]] = {GRAPH_TASK: ("onnx", "onnxruntime")}
    FILE_PRECISIONS = ("int8",)
    SHARED = True
    UNSEEN = ""  # the host is the target: there is no other place to run

    @classmethod
    def expected(cls, inventory: HardwareInfo) -> TargetStatus:
        return host_status(inventory, target=cls.BACKEND_NAME)

    def torch_device(self) -> torch.device:
        import torch

        return torch.device("cpu")

    def _device_missing(self, torch: Any) -> str:
        return ""

    def _device_count(self, torch: Any) -> int:
        return 1

    def empty_cache(self) -> None:
        """Do nothing: torch caches no host memory."""

    def synchronize(self) -> None:
        """Do nothing: calls on the host are synchronous."""

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        from ..inventory.system.processor import read_cpu

        cpu = read_cpu()
        return self.device_info(
            "cpu",
            cpu.model or "CPU",
            memory=self.host_memory(),
            bf16=any("BF16" in name.upper() for name in cpu.instruction_sets),
            topology=f"{cpu.sockets or 1} socket(s), {cpu.usable_threads or cpu.threads} threads",
        )

    def load_file(self, file_input: FileInput, example_inputs: Inputs, precision: str) -> Runnable:
        if file_input.file.suffix.lower() != ".onnx":
            return super().load_file(file_input, example_inputs, precision)
        from ._onnx import OnnxRunnable

        return OnnxRunnable(self, file_input, example_inputs, precision)
