"""ONNX Runtime's WebGPU provider without a browser: which Vulkan it is given, and what can be said of its device."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from ctypes.util import find_library
from pathlib import Path

_DRIVERS = Path("/dev/dri")
_ICD = "vk_swiftshader_icd.json"


def has_own_device() -> bool:
    """Whether the system may have a Vulkan device of its own: on Linux, a render node and a loader."""
    if sys.platform != "linux":
        return True
    return any(_DRIVERS.glob("renderD*")) and find_library("vulkan") is not None


def software_variables() -> Mapping[str, str]:
    """What lets the provider find SwiftShader, which a Chromium brings along; empty where none is here."""
    for name in ("chromium", "chromium-browser"):
        if here := shutil.which(name):
            for folder in (Path(here).resolve().parent, Path("/usr/lib") / name):
                if (folder / _ICD).is_file():
                    return {"VK_ICD_FILENAMES": str(folder / _ICD), "LD_LIBRARY_PATH": str(folder)}
    return {}
