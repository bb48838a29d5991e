"""GPUs as Windows and macOS list them, for vendors whose library isn't there: names, drivers, and few figures.

Windows: CIM's `Win32_PnPEntity` (`Status` is `OK` for a working driver) and `Win32_VideoController`; its `AdapterRAM`
has only 32 bits. macOS: `system_profiler`, whose `sppci_device_type` is `spdisplays_egpu` for an external GPU.
"""

from __future__ import annotations

import re

from ...machine import Machine
from ...values import inside, tables, words
from ..system._macos import profiler
from ..system._windows import cim
from ._tool_values import without
from .vendor import AcceleratorInfo

_MAKERS = {
    "AMD": r"advanced micro devices|\bamd\b|\bati\b|\bradeon\b|vendor_amd",
    "Intel": r"\bintel\b|vendor_intel",
    "NVIDIA": r"\bnvidia\b|vendor_nvidia",
}
_UNITS = {"KB": 2**10, "MB": 2**20, "GB": 2**30}


def system_gpus(machine: Machine, vendor: str) -> tuple[AcceleratorInfo, ...]:
    """Return a vendor's display devices; empty on other systems than Windows and macOS."""
    read = {"Windows": _on_windows, "Darwin": _on_macos}.get(machine.host().system)
    return tuple(read(machine, vendor)) if read and vendor in _MAKERS else ()


def _is_of(vendor: str, *texts: str) -> bool:
    return bool(re.search(_MAKERS[vendor], " ".join(texts), re.IGNORECASE))


def _on_windows(machine: Machine, vendor: str) -> list[AcceleratorInfo]:
    classes = cim(machine).value or {}
    drivers = {words(one.get("Name")): words(one.get("DriverVersion")) for one in tables(classes.get("video"))}
    found = []
    for one in tables(classes.get("devices")):
        name, works = words(one.get("Name")), words(one.get("Status")) == "OK"
        is_display = words(one.get("PNPClass")).lower() == "display"
        if not (name and is_display and _is_of(vendor, name, words(one.get("Manufacturer")))):
            continue
        why = "" if works else "the Windows device manager reports a problem"
        found.append(
            AcceleratorInfo(
                vendor=vendor,
                device_type="gpu",
                model=name,
                seen_by="driver" if works else "bus",
                driver_version=drivers.get(name) or None,
                extra_info=without({"seen_through": "device manager", "reason": why or None}),
            )
        )
    return found


def _on_macos(machine: Machine, vendor: str) -> list[AcceleratorInfo]:
    found = []
    for one in tables(inside(profiler(machine).value, "SPDisplaysDataType")):
        name = words(one.get("sppci_model")) or words(one.get("_name"))
        if not (name and _is_of(vendor, name, words(one.get("spdisplays_vendor")))):
            continue
        built_in = words(one.get("sppci_bus")) == "spdisplays_builtin"
        external = words(one.get("sppci_device_type")) == "spdisplays_egpu"
        found.append(
            AcceleratorInfo(
                vendor=vendor,
                device_type="gpu",
                model=name,
                memory_bytes=_size(words(one.get("spdisplays_vram"))),
                memory_type="unified" if built_in else None,
                bus_type="integrated" if built_in else "pcie",
                extra_info=without({"seen_through": "system_profiler", "external": True if external else None}),
            )
        )
    return found


def _size(text: str) -> int | None:
    """Return the bytes of `4 GB`, or None."""
    number = re.fullmatch(r"(\d{1,6}) ([KMG]B)", text)
    return int(number[1]) * _UNITS[number[2]] if number else None
