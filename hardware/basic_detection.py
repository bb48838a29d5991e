"""A minimal inventory from torch, used when the detection fails."""

from __future__ import annotations

import json
import sys
from typing import Any

from .command_line import note
from .inventory.hardware_info import HardwareInfo
from .inventory.system.main_memory import MemoryInfo
from .inventory.system.processor import CPUInfo
from .inventory.vendors.vendor import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts
from .plain_text import one_line
from .process import Ended, run
from .software import TorchBuild, read_host

_LIMIT_S = 120.0
_LONGEST = 200

# In a child process: this one doesn't import torch, and a driver that kills its process doesn't kill this one.
_ASK = """
import json, torch
found = []
if torch.cuda.is_available():
    vendor = "AMD" if torch.version.hip else "NVIDIA"
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        found.append([vendor, properties.name, i, properties.total_memory])
if hasattr(torch, "xpu") and torch.xpu.is_available():
    for i in range(torch.xpu.device_count()):
        properties = torch.xpu.get_device_properties(i)
        found.append(["Intel", properties.name, i, properties.total_memory])
if torch.backends.mps.is_available():
    found.append(["Apple", "GPU of this Mac", 0, None])
version = torch.version
built = {"version": torch.__version__, "cuda": version.cuda, "hip": version.hip, "xpu": getattr(version, "xpu", None)}
print(json.dumps({"devices": found, "torch": built}))
"""


def detect() -> HardwareInfo:
    """Return the inventory. Raises any error of the detection, also if its module is missing."""
    from .detection import detect as found

    return found()


def detect_somehow() -> HardwareInfo:
    """Return the inventory; if the detection raises, what torch reports, with the reason in `detection_failure`."""
    try:
        return detect()
    except Exception as error:  # from any part: the command goes on
        return _basic(one_line(f"{type(error).__name__}: {error}", longest=_LONGEST))


def inventory_here() -> HardwareInfo:
    """Return the inventory for a command, and report a failed detection on standard error."""
    inventory = detect_somehow()
    if inventory.detection_failure:
        note(f"hardware detection failed: {inventory.detection_failure}")
    return inventory


def _basic(failure: str) -> HardwareInfo:
    found_by_torch, why = _read_torch()
    devices = tuple(
        AcceleratorInfo(
            vendor=vendor,
            device_type="gpu",
            model=model,
            index=index,
            memory_bytes=memory,
            extra_info={"told_by": "torch"},
        )
        for vendor, model, index, memory in found_by_torch.get("devices", ())
    )
    torch = TorchBuild(**found_by_torch["torch"]) if "torch" in found_by_torch else TorchBuild(reason=why)
    return HardwareInfo(
        host=read_host(),
        cpu=CPUInfo(),
        memory=MemoryInfo(
            total_bytes=None, available_bytes=None, swap_total_bytes=None, swap_free_bytes=None, reason=failure
        ),
        accelerators=devices,
        vendors=tuple(
            VendorFacts(
                vendor=name,
                hardware=HardwareState.PRESENT,
                driver=DriverState.OK,
                library=LibraryState.UNKNOWN,
                read_through="torch",
            )
            for name in dict.fromkeys(one.vendor for one in devices)
        ),
        torch=torch,
        detection_failure=f"{failure}; using what torch reports instead"
        + (f", which fails too: {why}" if why else ""),
    )


def _read_torch() -> tuple[dict[str, Any], str]:
    """Return what torch reports, and the reason if it reports nothing."""
    try:
        done = run([sys.executable, "-P", "-c", _ASK], limit_s=_LIMIT_S)
        return (json.loads(done.stdout), "") if done.returncode == 0 else ({}, one_line(_why(done), longest=_LONGEST))
    except (OSError, ValueError) as error:
        return {}, one_line(str(error), longest=_LONGEST)


def _why(done: Ended) -> str:
    last = done.stderr.strip().rpartition("\n")[2]
    return last if last and not done.timed_out else f"its process {done.how}"
