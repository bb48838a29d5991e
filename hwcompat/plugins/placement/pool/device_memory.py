"""Memory of devices as the machine and its runtimes report it: total, free, and allocated."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from hwcompat.hardware.inventory.system.main_memory import cgroup_files_bytes, read_memory


@dataclass(frozen=True, kw_only=True)
class MemoryReading:
    """Memory of one device in bytes; `None`, with a reason, if it is unknown."""

    total_bytes: int | None = None
    free_bytes: int | None = None
    reason: str = ""

    @property
    def used_share(self) -> float | None:
        """The used share, by any process, from 0 to 1."""
        if not self.total_bytes or self.free_bytes is None:
            return None
        return 1 - min(self.free_bytes, self.total_bytes) / self.total_bytes


ReadMemory = Callable[[str], MemoryReading]


def read_device(device: str) -> MemoryReading:
    """Return the memory of a device, by the pool's name of it (`cpu`, `cuda:1`). Never raises.

    For `cpu` it is the host's memory, or its control group's if that is less; the group's file cache counts as free.
    For others it is what torch's allocator reports (`torch.cuda.mem_get_info`, `torch.xpu.mem_get_info`,
    `torch.mps.recommended_max_memory`).
    """
    if device == "cpu":
        return _host()
    try:
        return _of_torch(device)
    except Exception as error:  # a driver may raise anything; then there is no reading
        return MemoryReading(reason=f"{type(error).__name__}: {error}")


def _host() -> MemoryReading:
    memory = read_memory()
    if memory.usable_bytes is None or memory.available_bytes is None:
        return MemoryReading(reason=memory.reason or "the system doesn't report its free memory")
    free = memory.available_bytes
    if memory.cgroup_limit_bytes is not None and memory.cgroup_used_bytes is not None:
        left = memory.cgroup_limit_bytes - memory.cgroup_used_bytes + cgroup_files_bytes()
        free = max(0, min(free, left))
    return MemoryReading(total_bytes=memory.usable_bytes, free_bytes=free)


def _of_torch(device: str) -> MemoryReading:
    module, index = _torch_module(device)
    if module is None:
        return MemoryReading(reason=f"the runtime of {device} doesn't report its memory")
    if hasattr(module, "mem_get_info"):
        free, total = module.mem_get_info(index)
        return MemoryReading(total_bytes=int(total), free_bytes=int(free))
    if hasattr(module, "recommended_max_memory"):  # mps
        total = int(module.recommended_max_memory())
        return MemoryReading(total_bytes=total, free_bytes=max(0, total - int(module.driver_allocated_memory())))
    return MemoryReading(reason=f"torch doesn't report the memory of {device}")


def _torch_module(device: str) -> tuple[Any, int]:
    """Return torch's module for a device (`torch.cuda`), if it is loaded and runs there, and the device's index."""
    from hwcompat.hardware.backends.factory import backend_class, known_targets

    name, _, index = device.partition(":")
    torch = sys.modules.get("torch")
    kind = getattr(backend_class(name), "DEVICE_TYPE", None) if name in known_targets() else name
    module = getattr(torch, kind, None) if torch is not None and kind else None
    return module, int(index) if index.isdigit() else 0


def allocated_bytes(device: str) -> int | None:
    """Return the bytes that torch's allocator has allocated on a device; `None` for the host, and without a count."""
    if device == "cpu":
        return None
    try:
        module, index = _torch_module(device)
        if hasattr(module, "memory_allocated"):
            return int(module.memory_allocated(index))
        if hasattr(module, "current_allocated_memory"):  # mps
            return int(module.current_allocated_memory())
    except Exception:  # as above
        return None
    return None


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    return int(psutil.Process().memory_info().rss)


def give_back(device: str) -> None:
    """Have torch release its cached memory of a device; does nothing for the host."""
    if device == "cpu":
        return
    module, _ = _torch_module(device)
    if hasattr(module, "empty_cache"):
        module.empty_cache()
