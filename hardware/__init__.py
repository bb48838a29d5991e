"""Ground floor: what a machine has, and how a model runs on it. Importing this imports nothing else."""

from __future__ import annotations

from typing import Any

_WHERE = {
    "HardwareInfo": "detection",
    "Inventory": "detection",
    "ProbeResult": "detection",
    "detect": "detection",
    "probe": "detection",
    "targets": "detection",
    "TargetStatus": "expected_targets",
    "Cell": "cell",
    "Target": "target",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
