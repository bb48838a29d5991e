"""The devices of a machine with their figures: from its inventory, its drivers, stress runs that were kept, tables.

What was measured goes before what a maker's table says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hardware.backends.factory import backend_class, built_in_targets
from hwcompat.plugins.stress.limits import accelerator_bandwidth, accelerator_limit, memory_limit, processor_limit

from .device import Device, Figure
from .kept_rates import measured, read_rates

if TYPE_CHECKING:
    from hardware.accelerators.base import AcceleratorInfo
    from hardware.detection import HardwareInfo

PRECISIONS = ("float32", "tf32", "bfloat16", "float16", "int8")

RAM, MAIN_MEMORY = "ram", "main memory"
"""What stress calls the host's memory."""

Free = Callable[["AcceleratorInfo"], int | None]


def free_now(device: AcceleratorInfo) -> int | None:
    """Bytes that are free on a device of this machine, as its driver says; None where it doesn't tell."""
    from hardware.accelerators import get_all_accelerator_backends

    for backend in get_all_accelerator_backends():
        if device.vendor == backend.VENDOR_NAME and device.index is not None:
            usage = backend.get_memory_usage(device.index)
            return None if usage is None else usage["free"]
    return None


def devices_of(inventory: HardwareInfo, *, free: Free | None = None, label: str = "") -> tuple[Device, ...]:
    """The processor and each accelerator that a driver or the bus shows, in the inventory's order.

    `free` asks what is free on an accelerator, and is left out for a machine that isn't this one; `label` names a
    machine where several are looked at (`lab1/cuda:0`). Devices that no target of ours reaches are among them, with
    the reason in `unusable`.
    """
    here = free is not None
    before = f"{label}/" if label else ""
    found = [_processor(inventory, before, here=here)]
    numbers: dict[str, int] = {}
    for accelerator in inventory.accelerators:
        target = _target_of(accelerator)
        number = accelerator.index if accelerator.index is not None else numbers.get(target, 0)
        numbers[target] = number + 1
        found.append(
            _accelerator(inventory, accelerator, target, f"{before}{_name(accelerator, target, number)}", free)
        )
    return tuple(found)


def known_devices(inventory: HardwareInfo) -> dict[str, tuple[str, str]]:
    """Model and driver version of what stress loads, by its name there (`cuda:0`, `cpu`, `ram`)."""
    found = {"cpu": (inventory.cpu.model, ""), RAM: (MAIN_MEMORY, "")}
    for one in inventory.accelerators:
        if (target := _target_of(one)) and one.index is not None:
            found[_name(one, target, one.index)] = (one.model, one.driver_version or "")
    return found


def _target_of(accelerator: AcceleratorInfo) -> str:
    """The target that reaches a device; empty where none does."""
    for target in built_in_targets():
        backend = backend_class(target)
        is_own = bool(backend.VENDOR) and accelerator.vendor == backend.VENDOR
        if is_own and accelerator.device_type in backend.VENDOR_DEVICES:
            return target
    return ""


def _name(accelerator: AcceleratorInfo, target: str, number: int) -> str:
    return f"{target or f'{accelerator.vendor.lower()}-{accelerator.device_type}'}:{number}"


def _processor(inventory: HardwareInfo, before: str, *, here: bool) -> Device:
    memory, cpu = inventory.memory, inventory.cpu
    name = "cpu"
    kept, why = read_rates(name, cpu.model) if here else (None, "")
    rates, _ = measured(kept, why, torch=inventory.torch.version or "", driver="", precisions=PRECISIONS)
    ram, ram_why = read_rates(RAM, MAIN_MEMORY) if here else (None, "")
    _, bandwidth = measured(ram, ram_why, torch=inventory.torch.version or "", driver="", precisions=())
    tables = {precision: processor_limit(cpu, precision) for precision in PRECISIONS}
    total = memory.usable_bytes
    available = memory.available_bytes
    if available is not None and memory.cgroup_limit_bytes is not None:
        available = min(available, memory.cgroup_limit_bytes - (memory.cgroup_used_bytes or 0))
    return Device(
        name=f"{before}{name}",
        target=name,
        vendor=cpu.vendor,
        device_name=cpu.model,
        memory_total=_bytes(total, "the system, and its control group's limit", memory.reason),
        memory_free=_bytes(available, "the system, now", memory.reason) if here else _not_here(),
        tflops={precision: _first(rates[precision], tables[precision]) for precision in PRECISIONS},
        bandwidth_gbps=_first(bandwidth, memory_limit(memory)),
        unusable=_unusable(inventory, name),
    )


def _accelerator(
    inventory: HardwareInfo, accelerator: AcceleratorInfo, target: str, name: str, free: Free | None
) -> Device:
    here = free is not None
    kept, why = read_rates(name, accelerator.model) if here else (None, "")
    driver = accelerator.driver_version or ""
    rates, bandwidth = measured(kept, why, torch=inventory.torch.version or "", driver=driver, precisions=PRECISIONS)
    usable = accelerator.extra_info.get("usable_memory_bytes")
    total = usable if isinstance(usable, int) else accelerator.memory_bytes
    if accelerator.memory_type == "unified" and inventory.memory.usable_bytes is not None:
        total = min(total or inventory.memory.usable_bytes, inventory.memory.usable_bytes)
    silent = f"neither driver nor bus reports the memory of {accelerator.model}"
    unasked = "its driver doesn't report how much of its memory is free"
    hidden = accelerator.extra_info.get("hidden_by")
    seen = "" if accelerator.seen_by != "bus" else "only the bus shows it: no driver lists it"
    return Device(
        name=name,
        target=target,
        vendor=accelerator.vendor,
        device_name=accelerator.model,
        memory_total=_bytes(total, "its driver", silent),
        memory_free=_bytes(free(accelerator), "its driver, now", unasked) if free is not None else _not_here(),
        tflops={precision: _first(rates[precision], _table(accelerator, precision)) for precision in PRECISIONS},
        bandwidth_gbps=_first(bandwidth, accelerator_bandwidth(accelerator.model, accelerator)),
        unusable=seen or (f"{hidden} hides it" if hidden else "") or _unusable(inventory, target),
    )


def _table(accelerator: AcceleratorInfo, precision: str) -> Figure:
    if accelerator.simulated:
        return Figure(reason="a simulated device has no limit of its own")
    return accelerator_limit(accelerator.model, precision)


def _unusable(inventory: HardwareInfo, target: str) -> str:
    from hardware.detection import targets

    if not target:
        return "no target here reaches it"
    status = next((one for one in targets(inventory) if one.target == target), None)
    return "" if status is None or status.expected else status.reason


def _bytes(value: int | None, source: str, reason: str) -> Figure:
    return Figure(reason=reason) if value is None else Figure(value=float(value), source=source)


def _not_here() -> Figure:
    return Figure(reason="only the machine itself tells what is free now")


def _first(measured_one: Figure, other: Figure) -> Figure:
    """What was measured, else what the table says; where neither does, both reasons."""
    if measured_one.value is not None:
        return measured_one
    if other.value is not None:
        return Figure(value=other.value, source=other.source, reason=measured_one.reason)
    return Figure(reason="; ".join(filter(None, (measured_one.reason, other.reason))))
