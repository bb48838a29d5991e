"""A placement as text: where each model goes and why, what each device has to do, and how near the bound that is."""

from __future__ import annotations

from collections.abc import Sequence

from hardware.plain_text import columns, folded, printable, size_text
from hwcompat.plugins.placement.device import Device, Figure
from hwcompat.plugins.placement.workloads import Mode, Placement


def placement_text(found: Placement, devices: Sequence[Device], planned_in_s: float) -> str:
    """Two tables, what has no place with the reasons, and the figures; it ends in a newline."""
    names = {device.name: device.device_name for device in devices}
    lines: list[str] = []
    if found.assignments:
        rows = [
            [one.workload, one.device, size_text(one.memory_bytes), _seconds(one.seconds), one.reason]
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
    lines += columns(["device", "models", "memory", "a pass of each", "name"], loads)
    for misfit in found.misfits:
        lines += ["", f"No place for {misfit.workload}:"]
        for device, why in misfit.reasons.items():
            lines += folded(f"  {device}: ", why, indent=4)
    lines.append("")
    for remark in (_judged(found, planned_in_s), *found.remarks):
        lines += folded("", remark)
    return "".join(f"{printable(line)}\n" for line in lines)


def _seconds(figure: Figure) -> str:
    return "unknown" if figure.value is None else f"{figure.value:.3g} s"


def _judged(found: Placement, planned_in_s: float) -> str:
    how = "all loaded at once" if found.mode is Mode.TOGETHER else "one after the other"
    text = f"Placed {len(found.assignments)} of {len(found.assignments) + len(found.misfits)} ({how}), {found.method}"
    if found.gap is None:
        return f"{text}; no times are known. Planned in {planned_in_s:.2f} s."
    return (
        f"{text}: the longest device takes {found.makespan_s:.3g} s, no placement takes less than "
        f"{found.bound_s:.3g} s ({100 * found.gap:.1f} % above the bound). Planned in {planned_in_s:.2f} s."
    )
