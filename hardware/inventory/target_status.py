"""Whether a target may be available on a machine according to its inventory, and the rules common to GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .hardware_info import HardwareInfo
    from .vendors.vendor import AcceleratorInfo

_PCI_VENDORS = {"NVIDIA": 0x10DE, "AMD": 0x1002, "Intel": 0x8086}


@dataclass(frozen=True, kw_only=True)
class TargetStatus:
    """Whether a target may be available. `expected` doesn't mean usable, which only a probe verifies.

    `reason` is why it isn't expected, or a remark on one that is. `memory_bytes` is the memory of one device, the
    smallest if there are several, None if unknown.
    """

    target: str
    expected: bool
    reason: str = ""
    memory_bytes: int | None = None
    device_name: str = ""


@dataclass(frozen=True, kw_only=True)
class NumberedCard:
    """A device that has a number in frameworks: `index` is its number in the inventory."""

    index: int
    memory_bytes: int | None


def cards_of(inventory: HardwareInfo, vendor: str) -> tuple[NumberedCard, ...]:
    """Return a vendor's GPUs as frameworks number them; none if their order is unknown."""
    found = numbered(inventory, vendor)
    return tuple(NumberedCard(index=one.index or 0, memory_bytes=_capacity(inventory, one)) for one in found)


def numbered(inventory: HardwareInfo, vendor: str | None) -> list[AcceleratorInfo]:
    """Return a vendor's GPUs as frameworks number them: those that no variable hides, if all are of one model.

    CUDA counts the fastest first, and equal ones in the order of the bus:
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables
    """
    every = [one for one in inventory.accelerators if one.vendor == vendor and one.device_type == "gpu"]
    seen = [one for one in every if "hidden_by" not in one.extra_info]
    unsure = len({one.model for one in seen}) > 1 or any("maybe_hidden_by" in one.extra_info for one in seen)
    return [] if unsure or any(one.index is None for one in seen) else seen


def gpu_status(inventory: HardwareInfo, *, target: str, vendor: str) -> TargetStatus:
    """Return the status of a vendor's GPUs in torch, which needs the right build and a real device."""
    every = [one for one in inventory.accelerators if one.vendor == vendor and one.device_type == "gpu"]
    hiding = [str(one.extra_info["hidden_by"]) for one in every if "hidden_by" in one.extra_info]
    devices = [one for one in every if "hidden_by" not in one.extra_info]
    torch, wrong_build = inventory.torch, ""
    if torch.version is None:
        wrong_build = torch.reason
    elif torch.kind != target:
        wrong_build = f"torch {torch.version} is built for {torch.kind}, not for {target}"
    hidden = f"{hiding[0]} hides every device" if every and not devices else ""
    reason = "; ".join(filter(None, [wrong_build, _no_device(inventory, vendor, every), hidden]))
    sizes = [size for one in devices if (size := _capacity(inventory, one)) is not None]
    return TargetStatus(
        target=target,
        expected=not reason,
        reason=reason,
        memory_bytes=min(sizes, default=None),
        device_name=device_names(devices),
    )


def host_status(inventory: HardwareInfo, *, target: str) -> TargetStatus:
    """Return the status of a target that computes in the host's memory."""
    return TargetStatus(
        target=target,
        expected=inventory.torch.version is not None,
        reason=inventory.torch.reason,
        memory_bytes=inventory.memory.usable_bytes,
        device_name=inventory.cpu.model,
    )


def _capacity(inventory: HardwareInfo, device: AcceleratorInfo) -> int | None:
    """Return the memory of a device for a program: that of a slice of a partitioned card, and at most the
    machine's if it is unified."""
    usable = device.extra_info.get("usable_memory_bytes")
    size = usable if isinstance(usable, int) else device.memory_bytes
    if device.memory_type != "unified":
        return size
    return min((one for one in (size, inventory.memory.usable_bytes) if one is not None), default=None)


def _no_device(inventory: HardwareInfo, vendor: str, devices: list[AcceleratorInfo]) -> str:
    facts = next((one for one in inventory.vendors if one.vendor == vendor), None)
    if any(one.simulated for one in devices):
        return f"the {vendor} library here is simulated"
    if facts is not None and facts.driver == "denied":
        return f"this user may not use the {vendor} GPU: {facts.reason}"
    if facts is not None:
        listed = any(one.seen_by == "driver" for one in devices)
        return "" if listed else f"no {vendor} GPU is seen by a driver ({facts.state}): {facts.reason}"
    if inventory.on_bus is None:
        return f"can't tell whether this machine has an {vendor} GPU"
    on_bus = any(one.vendor_id == _PCI_VENDORS[vendor] for one in inventory.on_bus)
    return "" if on_bus else f"no {vendor} GPU is on the bus"


def device_names(devices: list[AcceleratorInfo]) -> str:
    """Return the models of devices, each once with its count."""
    counts: dict[str, int] = {}
    for one in devices:
        counts[one.model] = counts.get(one.model, 0) + 1
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts.items())
