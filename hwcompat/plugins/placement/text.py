"""Devices and the choice among them, as text for a terminal and as plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hardware.plain_text import columns, folded, printable, size_text

from .adapter import OptimalDevice
from .device import Device, Figure

_SHOWN = ("float32", "bfloat16", "float16", "int8")


def device_dict(device: Device) -> dict[str, Any]:
    """A device as plain JSON values; every figure is value, source and reason."""
    return asdict(device)


def choice_dict(found: OptimalDevice) -> dict[str, Any]:
    """What was chosen, as plain JSON values; `device` is null where nothing fits."""
    return {
        "device": found.device_string or None,
        "vendor": str(found.vendor) if found.vendor else None,
        "device_name": found.capabilities.device_name if found.capabilities else None,
        "why": found.why,
        "reasons": dict(found.reasons),
    }


def capabilities_text(devices: Sequence[Device]) -> str:
    """A table of memory, TFLOPS by precision and bandwidth, and below it where each figure is from, or why there is
    none."""
    head = ["device", "memory", "free", *_SHOWN, "GB/s"]
    rows = [_row(one) for one in devices]
    lines = columns(head, rows)
    for device in devices:
        lines += ["", *folded("", f"{device.name}: {device.device_name or 'unknown'}")]
        if device.unusable:
            lines += folded("  can't be used: ", device.unusable, indent=4)
        for name, figure in _figures(device).items():
            told = f"{figure.source}" if figure.value is not None else f"unknown: {figure.reason or 'not reported'}"
            lines += folded(f"  {name}: ", told, indent=4)
    return "".join(f"{printable(line)}\n" for line in lines)


def _row(device: Device) -> list[str]:
    sizes = [_size(device.memory_total), _size(device.memory_free)]
    rates = [_rate(device.tflops.get(name, Figure())) for name in _SHOWN]
    return [device.name, *sizes, *rates, _rate(device.bandwidth_gbps)]


def _size(figure: Figure) -> str:
    return "unknown" if figure.value is None else size_text(int(figure.value))


def _rate(figure: Figure) -> str:
    return "unknown" if figure.value is None else f"{figure.value:.3g}"


def _figures(device: Device) -> Mapping[str, Figure]:
    rates = {f"TFLOPS {name}": device.tflops.get(name, Figure()) for name in _SHOWN}
    return {
        "memory": device.memory_total,
        "free": device.memory_free,
        **rates,
        "GB/s": device.bandwidth_gbps,
    }


def choice_text(found: OptimalDevice) -> str:
    """The answer first, then each other device with its reason."""
    if found.device is None:
        lines = folded("", f"None: {found.why}.", indent=2)
    else:
        lines = folded("", f"{found.device.name}: {found.device.device_name} ({found.why})", indent=2)
    for name, reason in found.reasons.items():
        lines += folded(f"  {name}: ", reason, indent=4)
    return "".join(f"{printable(line)}\n" for line in lines)
