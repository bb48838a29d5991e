"""The names of `hwcompat.plugins.placement` under their earlier path, imported on first use."""

from __future__ import annotations

from typing import Any

from .plugins import found

_WHERE = {
    "Assignment": "workloads",
    "Device": "placement_device",
    "HardwareAdapter": "adapter",
    "Misfit": "workloads",
    "OptimalDevice": "adapter",
    "Placement": "workloads",
    "Workload": "workloads",
    "auto_detect_best_adapter": "adapter",
    "place": "place",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found(f"hwcompat.plugins.placement.{_WHERE[name]}:{name}")
