"""Ground floor: what a machine has, and how a model runs on it. Importing this imports nothing else."""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
"""ONNX Runtime tells its maker of each process and session from version 1.29 on, as soon as it is imported, and
keeps an id of the machine (https://github.com/microsoft/onnxruntime/pull/27379). Here it doesn't, unless a user
wants it."""

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
"""huggingface_hub tells which library asks it for what."""

sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # None: as if it weren't installed
"""OpenVINO tells its maker of its import and of conversions, whoever imports it (optimum does, for ONNX too), and
NNCF of what it compresses. Both do without this package where it isn't there. The variable that they heed, `CI`, is
heeded by other programs too."""

_WHERE = {
    "HardwareInfo": "detect",
    "Inventory": "detect",
    "ProbeResult": "detect",
    "probe": "detect",
    "targets": "detect",
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
