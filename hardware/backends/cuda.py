"""Target `cuda`: NVIDIA GPUs through PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..inventory.target_status import TargetStatus, gpu_status
from ._torch import TorchBackend
from .base import ModelInput, Runnable

if TYPE_CHECKING:
    from ..inventory.hardware_info import HardwareInfo

_BF16_SINCE = (8, 0)
_FP8_SINCE = (8, 9)
"""Compute capabilities. Source: CUDA C++ Programming Guide, "Arithmetic Instructions" and tensor core data types."""

_WHEELS = ("nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12")
"""Libraries of torch's products and convolutions; pip may replace these wheels without torch."""


class NVIDIABackend(TorchBackend):
    """NVIDIA GPUs. float32 means float32: TF32 is used only for the precision `tf32`."""

    BACKEND_NAME = "cuda"
    DEVICE_TYPE = "cuda"
    VENDOR = "NVIDIA"
    ALIASES = ("nvidia", "gpu")
    AUTO_ORDER = 1
    NEEDS_TORCH_BUILD = True
    COLLECTIVES = "nccl"
    CALLED_BY_SCRIPTS = True
    EXPIRES_ON = ("torch", "cuda (torch)", "transformers", "nvidia_driver", *_WHEELS)
    PRECISIONS = ("float32", "tf32", "bfloat16", "float16")

    @classmethod
    def expected(cls, inventory: HardwareInfo) -> TargetStatus:
        return gpu_status(inventory, target=cls.BACKEND_NAME, vendor=cls.VENDOR)

    def _device_missing(self, torch: Any) -> str:
        if torch.version.hip:
            return "this torch is built for ROCm; the target is called rocm"
        if not torch.version.cuda:
            return "this torch is built without CUDA"
        if not torch.cuda.is_available():
            return "torch is built for CUDA, but no CUDA device can be used (run nvidia-smi for details)"
        return ""

    def load(self, model_input: ModelInput, example_inputs: Any, precision: str) -> Runnable:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        return super().load(model_input, example_inputs, precision)

    def _own_facts(self, found: Any, device_id: int) -> dict[str, Any]:
        from ..inventory.vendors.nvidia import Nvml

        capability = (found.major, found.minor)
        nvml = Nvml()
        driver = nvml.ask("nvmlSystemGetDriverVersion").value
        nvml.close()
        return {
            "capability": f"{found.major}.{found.minor}",
            "driver": driver,
            "bf16": capability >= _BF16_SINCE,
            "fp8_supported": capability >= _FP8_SINCE,
            "multiprocessors": found.multi_processor_count,
            "topology": self._topology(device_id),
        }
