"""Hardware detection, and the backends that run models on it. Importing this package imports no other module."""

from __future__ import annotations

import os
import sys
from typing import Any

if __name__ == "hardware":
    from hwcompat.checkout import give_full_name

    give_full_name(__name__)

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
"""ONNX Runtime 1.29 and later sends telemetry about processes and sessions as soon as it is imported, and stores a
machine id (https://github.com/microsoft/onnxruntime/pull/27379). It is disabled unless the user enables it."""

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
"""Disable the telemetry of huggingface_hub."""

sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # None: as if it weren't installed
"""OpenVINO and NNCF send telemetry on import and conversion, and optimum imports OpenVINO for ONNX too. Both work
without this package. The environment variable that also disables it, `CI`, changes other programs."""

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
