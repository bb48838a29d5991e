"""Absent devices that torch, the environment and the management library report as present."""

from __future__ import annotations

import os
from typing import Any

from planting_tools import took_effect, wrap


def _yes(*_: Any, **__: Any) -> bool:
    took_effect()
    return True


def _one(*_: Any, **__: Any) -> int:
    took_effect()
    return 1


def _stays_for(device: str) -> None:
    """Make moving to the device do nothing."""
    import torch

    def stays(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if device not in f"{args}{kwargs.get('device', '')}":
            return original(self, *args, **kwargs)
        took_effect()
        left = [one for one in args if device not in str(one)]
        given = {name: one for name, one in kwargs.items() if name != "device" and one is not None}
        return original(self, *left, **given) if left or given else self

    wrap(torch.nn.Module, "to")(stays)
    wrap(torch.Tensor, "to")(stays)


def cuda_counted() -> None:
    import torch

    torch.cuda.device_count = _one
    took_effect()  # The count exists even if it is never read.


def cuda_said_available() -> None:
    import torch

    torch.version.cuda = "13.0"
    torch.cuda.is_available = _yes
    torch.cuda.device_count = _one
    _stays_for("cuda")


def cuda_tensors_that_lie() -> None:
    import torch

    class Lying(torch.Tensor):
        device = property(lambda self: torch.device("cuda", 0))  # type: ignore[assignment]

    def lies(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if "cuda" not in f"{args}{kwargs.get('device', '')}":
            return original(self, *args, **kwargs)
        took_effect()
        given = {name: one for name, one in kwargs.items() if name != "device" and one is not None}
        left = [one for one in args if "cuda" not in str(one)]
        plain = original(self, *left, **given) if left or given else self
        return plain.as_subclass(Lying)

    def moved(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if "cuda" not in f"{args}{kwargs}":
            return original(self, *args, **kwargs)
        for module in self.modules():
            for name, one in module._parameters.items():
                if one is not None:
                    lying = torch.nn.Parameter(one.detach())
                    lying.__class__ = type("LyingParameter", (torch.nn.Parameter,), {"device": Lying.device})
                    module._parameters[name] = lying
            module._buffers.update(
                {n: one.as_subclass(Lying) for n, one in module._buffers.items() if one is not None}
            )
        self.tie_weights()
        return self

    torch.version.cuda = "13.0"
    torch.cuda.is_available = _yes
    torch.cuda.device_count = _one
    wrap(torch.Tensor, "to")(lies)
    wrap(torch.nn.Module, "to")(moved)


def rocm_by_name() -> None:
    import torch

    torch.version.hip = "7.0"
    torch.cuda.is_available = _yes
    torch.cuda.device_count = _one


def mps_fallback() -> None:
    import torch

    os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"
    torch.backends.mps.is_built = _yes
    torch.backends.mps.is_available = _yes


def xpu_fallback() -> None:
    import torch

    os.environ["PYTORCH_ENABLE_XPU_FALLBACK"] = "1"
    torch.version.xpu = "20250300"
    torch.xpu.is_available = _yes
    torch.xpu.device_count = _one
