"""Target `cuda`: NVIDIA GPUs through PyTorch."""

from __future__ import annotations

from typing import Any

from ._torch import TorchBackend
from .base import ModelSubject, Runnable


class NVIDIABackend(TorchBackend):
    """float32 means float32: TF32 is used only when `tf32` was asked for."""

    BACKEND_NAME = "cuda"
    DEVICE_TYPE = "cuda"
    EXPIRES_ON = ("torch", "transformers", "nvidia_driver")
    PRECISIONS = ("float32", "tf32", "bfloat16", "float16")

    def _device_missing(self, torch: Any) -> str:
        if torch.version.hip:
            return "this torch is built for ROCm; the target is called rocm"
        if not torch.version.cuda:
            return "this torch is built without CUDA"
        if not torch.cuda.is_available():
            return "torch is built for CUDA, but no CUDA device can be used (nvidia-smi tells more)"
        return ""

    def load(self, subject: ModelSubject, example_inputs: Any, precision: str) -> Runnable:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        return super().load(subject, example_inputs, precision)

    def _own_facts(self, found: Any) -> dict[str, Any]:
        return {"capability": f"{found.major}.{found.minor}"}
