"""Devices, choices and placements, as text for a terminal and as plain JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwcompat.hardware.plain_text import columns, folded, printable, size_text

from .adapter import OptimalDevice
from .placement_device import Device, Figure
from .workloads import Placement, WorkloadMode

_SHOWN = ("float32", "bfloat16", "float16", "int8")


def choice_dict(found: OptimalDevice) -> dict[str, Any]:
    """Return a choice as plain JSON values; `device` is null if nothing fits."""
    return {
        "schema_version": 1,
        "device": found.device_string or None,
        "vendor": str(found.vendor) if found.vendor else None,
        "device_name": found.device.device_name if found.device else None,
        "why": found.why,
        "reasons": dict(found.reasons),
    }


def capabilities_text(devices: Sequence[Device]) -> str:
    """Return a table of memory, TFLOPS by precision and bandwidth, and below it the source of each figure, or why it
    is missing."""
    rows, sources = [], []
    for device in devices:
        sizes = {"memory": device.memory_total, "free": device.memory_free}
        rates = {f"TFLOPS {name}": device.tflops.get(name, Figure()) for name in _SHOWN}
        rates["GB/s"] = device.bandwidth_gbps
        known = [size_text(None if one.value is None else int(one.value)) for one in sizes.values()]
        rows.append([device.name, *known, *map(_rate, rates.values())])
        sources += ["", *folded("", f"{device.name}: {device.device_name or 'unknown'}")]
        if device.unusable:
            sources += folded("  unusable: ", device.unusable, indent=4)
        for name, one in (sizes | rates).items():
            source = one.source if one.value is not None else f"unknown: {one.reason or 'not reported'}"
            sources += folded(f"  {name}: ", source, indent=4)
    lines = [*columns(["device", "memory", "free", *_SHOWN, "GB/s"], rows), *sources]
    return "".join(f"{printable(line)}\n" for line in lines)


def _rate(figure: Figure, unit: str = "") -> str:
    return "unknown" if figure.value is None else f"{figure.value:.3g}{unit}"


def choice_text(found: OptimalDevice) -> str:
    """Return the chosen device, then each other device with its reason."""
    if found.device is None:
        lines = folded("", f"None: {found.why}.", indent=2)
    else:
        lines = folded("", f"{found.device.name}: {found.device.device_name} ({found.why})", indent=2)
    for name, reason in found.reasons.items():
        lines += folded(f"  {name}: ", reason, indent=4)
    return "".join(f"{printable(line)}\n" for line in lines)


def placement_text(found: Placement, devices: Sequence[Device], planned_in_s: float, currency: str = "") -> str:
    """Return two tables, workloads without a device with the reasons, and totals; ends in a newline."""
    names = {device.name: device.device_name for device in devices}
    lines: list[str] = []
    if found.assignments:
        rows = [
            [one.workload, one.device, size_text(one.memory_bytes), _rate(one.seconds, " s"), one.reason]
            for one in found.assignments
        ]
        lines += [*columns(["model", "device", "memory", "a pass", "because"], rows, right=(2, 3)), ""]
        for one in found.assignments:
            lines += folded(f"{one.workload}: ", one.seconds.source or one.seconds.reason, indent=4)
        lines.append("")
    loads = [
        [
            load.device,
            str(load.workloads),
            f"{size_text(load.memory_used)} of {size_text(load.memory_bytes) if load.memory_bytes else 'unknown'}",
            f"{load.seconds:.3g} s" + (f" and {load.unknown} unknown" if load.unknown else ""),
            names.get(load.device, ""),
        ]
        for load in found.loads
    ]
    lines += columns(["device", "models", "memory", "one pass of each", "name"], loads)
    for misfit in found.misfits:
        lines += ["", f"No device for {misfit.workload}:"]
        for device, why in misfit.reasons.items():
            lines += folded(f"  {device}: ", why, indent=4)
    lines.append("")
    cost = [] if found.cost is None else [f"A pass of each costs {found.cost:.3g} {currency}".strip() + "."]
    for remark in (_totals_text(found, planned_in_s), *cost, *found.remarks):
        lines += folded("", remark)
    return "".join(f"{printable(line)}\n" for line in lines)


def _totals_text(found: Placement, planned_in_s: float) -> str:
    how = "all loaded at once" if found.mode is WorkloadMode.TOGETHER else "one after the other"
    text = f"Placed {len(found.assignments)} of {len(found.assignments) + len(found.misfits)} ({how}), {found.method}"
    if found.gap is None:
        return f"{text}; durations unknown. Planned in {planned_in_s:.2f} s."
    return (
        f"{text}: the slowest device takes {found.makespan_s:.3g} s, {100 * found.gap:.1f} % above the lower bound "
        f"({found.bound_s:.3g} s). Planned in {planned_in_s:.2f} s."
    )
