"""The devices that a mesh can be planned on: the accelerators of an inventory, or ranks that share one processor."""

from __future__ import annotations

from ..accelerators.base import AcceleratorInfo
from ..detection import HardwareInfo
from ..placement.device import Device, Figure
from ..target_vendors import TARGET_VENDORS

_OTHERS = {"Intel": "openvino:NPU", "AMD": "npu", "Apple": "coreml"}
"""What computes on a device of a vendor of GPUs that is none."""


def accelerators_of(inventory: HardwareInfo, machine: str = "") -> tuple[Device, ...]:
    """The accelerators that a driver lists, as devices; `machine` stands in front of their names where there are
    several machines. What isn't a GPU keeps its own target, so that a plan can say why it doesn't fit."""
    count: dict[str, int] = {}
    found = []
    for one in inventory.accelerators:
        if one.index is None:
            continue
        target = _target(one)
        number = count[target] = count.get(target, -1) + 1
        name = f"{target}:{number}"
        found.append(
            Device(
                name=f"{machine}/{name}" if machine else name,
                target=name if target in TARGET_VENDORS else target,
                vendor=one.vendor,
                device_name=one.model,
                memory_total=_memory(one),
            )
        )
    return tuple(found)


def processor_ranks(inventory: HardwareInfo, ranks: int, target: str = "cpu") -> tuple[Device, ...]:
    """`ranks` processes on the one processor of a machine, each with its share of the memory."""
    usable = inventory.memory.usable_bytes
    if usable is None:
        memory = Figure(reason=inventory.memory.reason or "the system tells none")
    else:
        memory = Figure(value=usable // ranks, source=f"1/{ranks} of the machine's memory" if ranks > 1 else "system")
    return tuple(
        Device(
            name=f"{target}/{rank}" if ranks > 1 else target,
            target=target,
            device_name=inventory.cpu.model or "processor",
            memory_total=memory,
        )
        for rank in range(ranks)
    )


def _target(one: AcceleratorInfo) -> str:
    by_vendor = {vendor: target for target, vendor in TARGET_VENDORS.items()}
    if one.device_type != "gpu" and one.vendor in _OTHERS:
        return _OTHERS[one.vendor]
    return by_vendor.get(one.vendor, one.vendor.lower())


def _memory(one: AcceleratorInfo) -> Figure:
    if one.memory_bytes is None:
        return Figure(reason="its driver tells none")
    return Figure(value=one.memory_bytes, source="driver")
