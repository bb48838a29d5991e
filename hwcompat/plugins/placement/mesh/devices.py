"""The devices that a mesh can be planned on: the accelerators of an inventory, or ranks that share one processor."""

from __future__ import annotations

from dataclasses import replace

from hardware.detection import HardwareInfo
from hwcompat.plugins.placement.device import Device, Figure
from hwcompat.plugins.placement.devices import devices_of


def accelerators_of(inventory: HardwareInfo, machine: str = "") -> tuple[Device, ...]:
    """The accelerators that a driver lists; `machine` stands in front of their names where there are several.

    Whether this torch can use one isn't asked: a plan may be for other machines. What no target reaches is among
    them, so that a plan can say why it doesn't fit.
    """
    _, *accelerators = devices_of(inventory, label=machine)
    pairs = zip(accelerators, inventory.accelerators, strict=True)
    return tuple(device for device, listed in pairs if listed.index is not None)


def processor_ranks(inventory: HardwareInfo, ranks: int) -> tuple[Device, ...]:
    """`ranks` processes on the one processor of a machine, each with its share of the memory."""
    processor = devices_of(inventory)[0]
    if ranks == 1:
        return (processor,)
    share = processor.memory_total
    if share.value is not None:
        share = Figure(value=share.value // ranks, source=f"1/{ranks} of {share.source}")
    return tuple(replace(processor, name=f"{processor.name}/{rank}", memory_total=share) for rank in range(ranks))
