"""`Device`: one device that can run workloads, with its figures, and the devices of machines.

A figure has a source, or it is `None` and has a reason. Sources are the inventory, drivers, saved stress runs, and
tables; a measurement takes precedence over a vendor's table.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hwcompat.hardware.backends.factory import backend_class, built_in_targets
from hwcompat.hardware.errors import UsageError, echo
from hwcompat.hardware.inventory_file import read_inventory
from hwcompat.plugins.stress.limits import (
    accelerator_bandwidth,
    accelerator_limit,
    estimated_limit,
    estimated_processor_limit,
    memory_limit,
    processor_limit,
)
from hwcompat.plugins.stress.stress_result import Figure as Figure

from .saved_rates import measured_rate

if TYPE_CHECKING:
    from hwcompat.hardware.detection import HardwareInfo
    from hwcompat.hardware.inventory.vendors.vendor import AcceleratorInfo


class Estimate(Figure):
    """A figure that takes the place of an unknown one."""


PRECISIONS = ("float32", "tf32", "bfloat16", "float16", "int8")

RAM, MAIN_MEMORY = "ram", "main memory"
"""The name of the host's memory in stress runs."""

Free = Callable[["AcceleratorInfo"], int | None]


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device of one machine.

    `name` is unique among all considered devices (`cuda:0`; `lab1/cuda:0` with several machines), `target` its name
    in a cell (`cuda`). Memory is in bytes, `tflops` by precision (`float32`), `bandwidth_gbps` in 10^9 bytes a
    second.
    """

    name: str
    target: str
    vendor: str = ""
    device_name: str = ""
    memory_total: Figure = field(default_factory=Figure)
    memory_free: Figure = field(default_factory=Figure)
    tflops: Mapping[str, Figure] = field(default_factory=dict)
    bandwidth_gbps: Figure = field(default_factory=Figure)
    estimated_tflops: Figure = field(default_factory=Figure)
    """A rate that it exceeds in every precision, for placement where the rate is unknown: its float32 rate, else a
    conservative estimate."""
    unusable: str = ""
    """Why no model can run on it now; empty if one may (only a probe proves it)."""

    @property
    def selector(self) -> str:
        """Its selector on its machine: `cuda:1` of `lab1/cuda:1`, and `cpu` for every rank on a processor."""
        return self.target if self.target == "cpu" else self.name.rpartition("/")[2]

    @property
    def room(self) -> int | None:
        """Usable bytes: the free memory if known, otherwise the total; None if both are unknown."""
        known = (one.value for one in (self.memory_free, self.memory_total) if one.value is not None)
        return next((int(value) for value in known), None)

    @property
    def memory_gb(self) -> float | None:
        """All of its memory, in 2^30 bytes."""
        return None if self.memory_total.value is None else round(self.memory_total.value / 2**30, 2)

    @property
    def free_memory_gb(self) -> float | None:
        """Its free memory, in 2^30 bytes."""
        return None if self.memory_free.value is None else round(self.memory_free.value / 2**30, 2)


@dataclass(frozen=True, kw_only=True)
class PlacementMachine:
    """One machine: its label (empty if it is the only one), its inventory, and its devices."""

    label: str
    inventory: HardwareInfo
    devices: tuple[Device, ...]


def machines_of(here: HardwareInfo, files: Sequence[Path]) -> tuple[PlacementMachine, ...]:
    """Return this machine if no files are named; else those whose inventories the files hold, named after the files.

    Raises `UsageError` for two files of one name, `BrokenInput` for one without an inventory.
    """
    if not files:
        return (PlacementMachine(label="", inventory=here, devices=devices_of(here, free=free_now)),)
    found: dict[str, PlacementMachine] = {}
    for path in files:
        label = re.sub(r"[^A-Za-z0-9._-]", "-", path.stem)[:40] or "machine"
        if label in found:
            raise UsageError(f"two machines have the name {echo(label)}", fix="Rename one of the files.")
        inventory = read_inventory(path)
        found[label] = PlacementMachine(label=label, inventory=inventory, devices=devices_of(inventory, label=label))
    return tuple(found.values())


def free_now(device: AcceleratorInfo) -> int | None:
    """Return the free bytes of a device of this machine by its driver; None if it doesn't report them."""
    from hwcompat.hardware.inventory.vendors import get_all_accelerator_backends

    for backend in get_all_accelerator_backends():
        if device.vendor == backend.VENDOR_NAME and device.index is not None:
            usage = backend.get_memory_usage(device.index)
            return None if usage is None else usage["free"]
    return None


def devices_of(inventory: HardwareInfo, *, free: Free | None = None, label: str = "") -> tuple[Device, ...]:
    """Return the processor and each accelerator that a driver or the bus shows, in the inventory's order.

    `free` returns the free memory of an accelerator, and is None for another machine; `label` names a machine if
    there are several (`lab1/cuda:0`). Devices without a target are included, with the reason in `unusable`.
    """
    found = [_processor(inventory, here=free is not None)]
    found += [_accelerator(inventory, *named, free) for named in _named(inventory)]
    return tuple(replace(one, name=f"{label}/{one.name}") if label else one for one in found)


def accelerators_of(inventory: HardwareInfo, machine: str = "") -> tuple[Device, ...]:
    """Return the accelerators that a driver lists; `machine` prefixes their names if there are several machines.

    Whether this torch can use one isn't checked: a plan may be for other machines. Devices without a target are
    included, so that a plan can say why they don't fit.
    """
    _, *accelerators = devices_of(inventory, label=machine)
    pairs = zip(accelerators, inventory.accelerators, strict=True)
    return tuple(device for device, listed in pairs if listed.index is not None)


def processor_ranks(inventory: HardwareInfo, ranks: int) -> tuple[Device, ...]:
    """Return `ranks` processes on the one processor of a machine, each with its share of the memory."""
    processor = _processor(inventory, here=False)
    if ranks == 1:
        return (processor,)
    share = processor.memory_total
    if share.value is not None:
        share = Figure(value=share.value // ranks, source=f"1/{ranks} of {share.source}")
    return tuple(replace(processor, name=f"{processor.name}/{rank}", memory_total=share) for rank in range(ranks))


def known_devices(inventory: HardwareInfo) -> dict[str, tuple[str, str]]:
    """Return model and driver version of the devices of stress runs by name (`cuda:0`, `cpu`, `ram`)."""
    found = {"cpu": (inventory.cpu.model, ""), RAM: (MAIN_MEMORY, "")}
    for one, target, name in _named(inventory):
        if target and one.index is not None:
            found[name] = (one.model, one.driver_version or "")
    return found


def _named(inventory: HardwareInfo) -> Iterator[tuple[AcceleratorInfo, str, str]]:
    """Yield each accelerator with its target (empty if there is none) and its name."""
    numbers: dict[str, int] = {}
    for one in inventory.accelerators:
        target = next((name for name in built_in_targets() if _reaches(name, one)), "")
        number = one.index if one.index is not None else numbers.get(target, 0)
        numbers[target] = number + 1
        yield one, target, f"{target or f'{one.vendor.lower()}-{one.device_type}'}:{number}"


def _reaches(target: str, accelerator: AcceleratorInfo) -> bool:
    backend = backend_class(target)
    is_own = bool(backend.VENDOR) and accelerator.vendor == backend.VENDOR
    return is_own and accelerator.device_type in backend.VENDOR_DEVICES


def _processor(inventory: HardwareInfo, *, here: bool) -> Device:
    memory, cpu = inventory.memory, inventory.cpu
    rates, _ = _kept_figures(inventory, "cpu", cpu.model, here=here)
    _, bandwidth = _kept_figures(inventory, RAM, MAIN_MEMORY, here=here)
    available = memory.available_bytes
    if available is not None and memory.cgroup_limit_bytes is not None:
        available = min(available, memory.cgroup_limit_bytes - (memory.cgroup_used_bytes or 0))
    tflops = {name: _first(rates[name], processor_limit(cpu, name)) for name in PRECISIONS}
    return Device(
        name="cpu",
        target="cpu",
        vendor=cpu.vendor,
        device_name=cpu.model,
        memory_total=_bytes(memory.usable_bytes, "the system, and its control group's limit", memory.reason),
        memory_free=_bytes(available, "the system, now", memory.reason) if here else _not_here(),
        tflops=tflops,
        bandwidth_gbps=_first(bandwidth, memory_limit(memory)),
        estimated_tflops=_estimate(tflops, estimated_processor_limit(cpu)),
        unusable=_unusable(inventory, "cpu"),
    )


def _accelerator(
    inventory: HardwareInfo, accelerator: AcceleratorInfo, target: str, name: str, free: Free | None
) -> Device:
    model, driver = accelerator.model, accelerator.driver_version or ""
    rates, bandwidth = _kept_figures(inventory, name, model, driver, here=free is not None)
    usable = accelerator.extra_info.get("usable_memory_bytes")
    total = usable if isinstance(usable, int) else accelerator.memory_bytes
    if accelerator.memory_type == "unified" and inventory.memory.usable_bytes is not None:
        total = min(total or inventory.memory.usable_bytes, inventory.memory.usable_bytes)
    no_total = f"neither driver nor bus reports the memory of {model}"
    no_free = "its driver doesn't report its free memory"
    hidden = accelerator.extra_info.get("hidden_by")
    seen = "" if accelerator.seen_by != "bus" else "found on the bus only: no driver lists it"
    tflops = {each: _first(rates[each], _table(accelerator, each)) for each in PRECISIONS}
    gbps = _first(bandwidth, accelerator_bandwidth(model, accelerator))
    return Device(
        name=name,
        target=target,
        vendor=accelerator.vendor,
        device_name=model,
        memory_total=_bytes(total, "its driver", no_total),
        memory_free=_bytes(free(accelerator), "its driver, now", no_free) if free is not None else _not_here(),
        tflops=tflops,
        bandwidth_gbps=gbps,
        estimated_tflops=Figure() if accelerator.simulated else _estimate(tflops, estimated_limit(gbps)),
        unusable=seen or (f"{hidden} hides it" if hidden else "") or _unusable(inventory, target),
    )


def _kept_figures(
    inventory: HardwareInfo, name: str, model: str, driver: str = "", *, here: bool
) -> tuple[Mapping[str, Figure], Figure]:
    if not here:
        return defaultdict(Figure), Figure()
    return measured_rate(name, model, torch=inventory.torch.version or "", driver=driver)


def _table(accelerator: AcceleratorInfo, precision: str) -> Figure:
    if accelerator.simulated:
        return Figure(reason="a simulated device has no limit")
    return accelerator_limit(accelerator.model, precision, accelerator)


def _estimate(tflops: Mapping[str, Figure], otherwise: Figure) -> Figure:
    known = tflops["float32"]
    if known.value is None:
        return otherwise
    return Figure(value=known.value, source=f"conservative estimate: its float32 rate, {known.source}")


def _unusable(inventory: HardwareInfo, target: str) -> str:
    from hwcompat.hardware.expected_targets import targets

    if not target:
        return "no target supports it"
    status = next((one for one in targets(inventory) if one.target == target), None)
    return "" if status is None or status.expected else status.reason


def _bytes(value: int | None, source: str, reason: str) -> Figure:
    return Figure(reason=reason) if value is None else Figure(value=float(value), source=source)


def _not_here() -> Figure:
    return Figure(reason="only the machine itself can report its free memory")


def _first(kept: Figure, table: Figure) -> Figure:
    """Return the measured figure, else the table's; if neither has a value, one with both reasons."""
    if kept.value is not None:
        return kept
    if table.value is not None:
        return Figure(value=table.value, source=table.source, reason=kept.reason)
    return Figure(reason="; ".join(filter(None, (kept.reason, table.reason))))
