"""`HardwareAdapter`: choose a device by memory and speed, with the reasons against the others. The names are those of
earlier abstraction layers; figures have a source, or are `None`."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwcompat.hardware.backends.factory import declarations_of
from hwcompat.hardware.command_names import as_runnable
from hwcompat.hardware.errors import UsageError, did_you_mean, echo
from hwcompat.hardware.target import HardwareVendor, vendor_named

from .placement_device import PRECISIONS, Device, Figure, devices_of, free_now

if TYPE_CHECKING:
    from hwcompat.hardware.detection import HardwareInfo, ProbeResult

GB = 2**30
"""Bytes of a gigabyte in earlier layers."""


@dataclass(frozen=True, kw_only=True)
class OptimalDevice:
    """The chosen device; false if none fits. `reasons` says why each other device wasn't chosen."""

    device: Device | None
    reasons: dict[str, str]
    why: str

    def __bool__(self) -> bool:
        return self.device is not None

    @property
    def capabilities(self) -> Device | None:
        """The device under its earlier name: `capabilities.device_name`, `capabilities.tflops`."""
        return self.device

    @property
    def vendor(self) -> HardwareVendor | None:
        """The vendor of the device; `None` for an unknown one, and if no device fits."""
        return _vendor(self.device) if self.device is not None else None

    @property
    def device_string(self) -> str:
        """Torch's name of the device (`cuda:0`, also for ROCm). Empty if there is none."""
        return _torch_name(self.device) if self.device is not None else ""


class HardwareAdapter:
    """The devices of all vendors of a machine.

    With `enable_hal` devices of all vendors are considered, otherwise the processor and those that this torch was
    built for. The inventory is read once; free memory is read each time.
    """

    def __init__(self, enable_hal: bool = False, *, inventory: HardwareInfo | None = None) -> None:
        self._hal = enable_hal
        self._given = inventory

    @functools.cached_property
    def inventory(self) -> HardwareInfo:
        """The inventory of this machine, or the given one."""
        from hwcompat.hardware.detection import detect

        return self._given or detect()

    def is_hal_enabled(self) -> bool:
        """Whether devices of all vendors are considered."""
        return self._hal

    def discover_devices(self) -> tuple[Device, ...]:
        """Return every considered device, the processor first, with its figures and why it may be unusable."""
        found = devices_of(self.inventory, free=None if self._given else free_now)
        if self._hal:
            return found
        built_for = self.inventory.torch.kind
        return tuple(one for one in found if one.target == built_for or _is_in_every_build(one.target))

    def get_optimal_device_hal(
        self,
        memory_requirement_gb: float,
        compute_requirement_tflops: float,
        preferred_vendors: Sequence[str | HardwareVendor] | None = None,
        *,
        precision: str = "float32",
    ) -> OptimalDevice:
        """Return the fastest device with this much free memory (2^30 bytes) and this many TFLOPS in a precision.

        Accelerators come before the processor, which isn't its maker's accelerator; of them those of preferred
        vendors first, in their order. An unknown speed only meets the requirement 0, and the reason says how to
        measure it. Raises `UsageError`.
        """
        wanted = [vendor_named(one) for one in preferred_vendors or ()]
        devices = self.discover_devices()
        fitting, reasons = _fitting(devices, memory_requirement_gb, compute_requirement_tflops, wanted, precision)
        if not fitting:
            asked = f"{memory_requirement_gb:g} GiB and {compute_requirement_tflops:g} TFLOPS in {precision}"
            return OptimalDevice(device=None, reasons=reasons, why=f"no device here has {asked}")
        chosen, *others = fitting
        reasons |= {one.name: _why_after(chosen, one, wanted, precision) for one in others}
        why = _absent(wanted, devices) + _reason_for(chosen, wanted, precision)
        return OptimalDevice(device=chosen, reasons=reasons, why=why)

    def get_optimal_device_placement(
        self, memory_gb: float, compute_tflops: float, preferred_vendor: str | HardwareVendor | None = None
    ) -> list[str]:
        """Return torch's names of all devices that fit, the best first, or an empty list. The older call."""
        wanted = [vendor_named(preferred_vendor)] if preferred_vendor else []
        fitting, _ = _fitting(self.discover_devices(), memory_gb, compute_tflops, wanted, "float32")
        return [_torch_name(one) for one in fitting]

    def get_cross_vendor_capabilities(self) -> dict[str, Any]:
        """Return totals of all devices: their number (`cross_vendor_devices`), vendors (`vendor_distribution`), free
        memory of the usable ones (`available_memory_gb`, in 2^30 bytes, shared memory counted once), and each device
        with its figures. Unknown values are `None` and in no sum."""
        devices = self.discover_devices()
        unified = {one.model for one in self.inventory.accelerators if one.memory_type == "unified"}
        usable = [one for one in devices if not one.unusable]
        own = [one for one in usable if one.target == "cpu" or one.device_name not in unified]
        known = [one.room for one in own if one.room is not None]
        makers = {one.name: str(_vendor(one) or one.vendor.lower()) for one in devices}
        return {
            "hal_enabled": self._hal,
            "cross_vendor_devices": len(devices),
            "usable_devices": len(usable),
            "vendor_distribution": dict(Counter(makers.values())),
            "available_memory_gb": round(sum(known) / GB, 2) if known else None,
            "memory_unknown": sorted(one.name for one in own if one.room is None),
            "device_details": [
                {"name": one.name, "vendor": makers[one.name], "unusable": one.unusable, "capabilities": one}
                for one in devices
            ],
        }

    def probe(self, device: Device) -> ProbeResult:
        """Run the known-answer test on a device of this machine, which proves that it can be used."""
        from hwcompat.hardware.detection import probe

        return probe(device.selector)


def auto_detect_best_adapter(inventory: HardwareInfo | None = None) -> HardwareAdapter:
    """Return an adapter: over all vendors if devices of several can be used, else over torch's own."""
    adapter = HardwareAdapter(enable_hal=True, inventory=inventory)
    vendors = {one.vendor for one in adapter.discover_devices() if one.target != "cpu" and not one.unusable}
    return adapter if len(vendors) > 1 else HardwareAdapter(enable_hal=False, inventory=inventory)


def why_not(device: Device, memory_bytes: float, tflops: float, precision: str) -> str:
    """Return why a device doesn't fit: what is missing, and how much, or what is unknown; empty if it fits."""
    if device.unusable:
        return f"unusable: {device.unusable}"
    found = []
    room = device.room
    if memory_bytes and room is None:
        found.append(f"memory unknown: {device.memory_total.reason or device.memory_free.reason}")
    elif room is not None and room < memory_bytes:
        found.append(f"{(memory_bytes - room) / GB:.1f} GiB of memory missing ({room / GB:.1f} GiB are free)")
    speed = device.tflops.get(precision, Figure(reason=f"no figure for {precision}"))
    if tflops and speed.value is None:
        fix = as_runnable(f"hwcompat devices stress {device.selector} --keep measures it")
        found.append(f"speed in {precision} unknown ({speed.reason}); {fix}")
    elif speed.value is not None and speed.value < tflops:
        found.append(f"{tflops - speed.value:.3g} TFLOPS missing ({speed.value:.3g} in {precision}, {speed.source})")
    return "; ".join(found)


def _fitting(
    devices: Sequence[Device], memory_gb: float, tflops: float, wanted: Sequence[HardwareVendor], precision: str
) -> tuple[list[Device], dict[str, str]]:
    """Return the devices that fit, the best first, and why the others don't. Raises `UsageError`."""
    _check(memory_gb, tflops, precision)
    refused = {one.name: why_not(one, memory_gb * GB, tflops, precision) for one in devices}
    fitting = sorted(
        (one for one in devices if not refused[one.name]), key=lambda one: _order(one, wanted, precision)
    )
    return fitting, {name: why for name, why in refused.items() if why}


def _check(memory_gb: float, tflops: float, precision: str) -> None:
    for value, what in ((memory_gb, "memory"), (tflops, "compute")):
        if not 0 <= value < float("inf"):
            raise UsageError(f"{value!r} isn't a valid requirement of {what}", fix="Give a number of 0 or more.")
    if precision not in PRECISIONS:
        fix = f"{did_you_mean(precision, PRECISIONS)} Known: {', '.join(PRECISIONS)}.".strip()
        raise UsageError(f"rates have no precision {echo(precision)}", fix=fix)


def _is_in_every_build(target: str) -> bool:
    """Whether torch computes on a target, whatever torch was built for."""
    facts = declarations_of(target)
    return bool(facts.DEVICE_TYPE) and not facts.NEEDS_TORCH_BUILD


def _torch_name(device: Device) -> str:
    torch_calls_it = declarations_of(device.target).DEVICE_TYPE or device.target
    return torch_calls_it + device.selector.removeprefix(device.target)


def _order(device: Device, wanted: Sequence[HardwareVendor], precision: str) -> tuple[bool, int, float, float, str]:
    speed = device.tflops.get(precision, Figure()).value
    return (
        device.target == "cpu",
        _place_among(device, wanted),
        -(speed or 0.0),
        -(device.room or 0),
        device.name,
    )


def _place_among(device: Device, wanted: Sequence[HardwareVendor]) -> int:
    """Return the place of an accelerator's vendor among those that are preferred; the last for any other device."""
    vendor = _vendor(device) if device.target != "cpu" else None
    return wanted.index(vendor) if vendor in wanted else len(wanted)


def _reason_for(device: Device, wanted: Sequence[HardwareVendor], precision: str) -> str:
    speed = device.tflops.get(precision, Figure())
    fast = f"{speed.value:.3g} TFLOPS in {precision} ({speed.source})" if speed.value else "speed unknown"
    liked = "of a preferred vendor; " if _place_among(device, wanted) < len(wanted) else ""
    return f"{liked}{(device.room or 0) / GB:.1f} GiB free, {fast}"


def _absent(wanted: Iterable[HardwareVendor], devices: Iterable[Device]) -> str:
    """Return the preferred vendors without a device here."""
    here = {_vendor(one) for one in devices if one.target != "cpu"}
    missing = [str(one) for one in wanted if one not in here]
    return f"no device of the preferred vendor {' or '.join(missing)} found; " if missing else ""


def _why_after(chosen: Device, other: Device, wanted: Sequence[HardwareVendor], precision: str) -> str:
    """Return why a device that fits wasn't chosen: the first criterion in which the two differ."""
    before, after = _order(chosen, wanted, precision), _order(other, wanted, precision)
    reasons = (
        f"{chosen.name} is an accelerator",
        f"{chosen.name} is of a preferred vendor",
        f"{chosen.name} is faster" if other.tflops.get(precision, Figure()).value else "speed unknown",
        f"{chosen.name} has more memory",
        f"{chosen.name} is equal and comes first",
    )
    return "it fits; " + next(why for why, one, two in zip(reasons, before, after, strict=True) if one != two)


def _vendor(device: Device) -> HardwareVendor | None:
    name = device.vendor.lower()
    return HardwareVendor(name) if name in list(HardwareVendor) else None
