"""Intel GPUs and NPUs through Level Zero (pyzes), xpu-smi, the files of i915, xe and intel_vpu, and the PCI bus."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from ..machine import Machine, Reading
from ._figures import celsius, counted, drawn, given, pci_address, percent, rates, share, size, text
from ._intel_files import VENDOR_ID, IntelGpuFiles, IntelNpuFiles
from ._levelzero import LevelZero
from ._opening import Opening, opening_of
from ._pci import PROCESSING_ACCELERATOR_CLASS, PciDevice
from ._sources import Source, SourcedAccelerators
from ._visibility import with_visibility
from ._xpu_smi import XpuSmiSource, memory_kind
from .base import AcceleratorInfo, DriverState

THROTTLE_REASONS = {
    0x001: "power_limit",
    0x002: "power_limit",
    0x004: "current_limit",
    0x008: "thermal",
    0x010: "power_supply",
    0x020: "sw_range",
    0x040: "hw_range",
    0x080: "voltage",
    0x100: "thermal",
    0x200: "power_limit",
}
"""Level Zero's bits (zes_freq_throttle_reason_flags_t)."""

_GPU_SENSOR, _GLOBAL_SENSOR = 1, 0
_ENGINES_ALL, _ENGINES_COMPUTE = 0, 1


class LevelZeroSource(Source):
    """Sysman of Level Zero. What it keeps from ordinary users (load, some temperatures) is read of the driver's
    files where they have it."""

    NAME = "Level Zero"

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._library = machine.library(LevelZero)
        self._files = IntelGpuFiles(machine)

    def opening(self) -> Opening:
        """The state of library and driver, and why Level Zero doesn't start."""
        return opening_of(self._library)

    def count(self) -> Reading[int]:
        return counted(self._library.ask("count"))

    def _or_files(self, index: int, told: Reading[Any], what: str) -> Reading[Any]:
        if told.value is not None:
            return told
        address = pci_address((self._library.ask("device", index).value or {}).get("pci_address"))
        position = next((at for at, card in enumerate(self._files.cards()) if card.address == address), None)
        if position is None:
            return told
        found: Reading[Any] = getattr(self._files, what)(position)
        return found if found.value is not None else Reading(value=None, reason=f"{told.reason}; {found.reason}")

    def temperature(self, index: int) -> Reading[float]:
        told = self._library.ask("temperatures", index)
        sensors = {kind: celsius(value) for kind, value in told.value or []}
        found = sensors.get(_GPU_SENSOR) or sensors.get(_GLOBAL_SENSOR) or next(iter(sensors.values()), None)
        return self._or_files(index, given(found, told.reason or "Level Zero has no sensor"), "temperature")

    def memory(self, index: int) -> Reading[dict[str, int]]:
        told = self._library.ask("memory", index)
        own = [one for one in told.value or [] if one.get("on_device")]
        total, free = (sum(one.get(f"{name}_bytes") or 0 for one in own) for name in ("size", "free"))
        reason = told.reason or "it has no memory of its own"
        return self._or_files(index, given(share(size(total), total - free), reason), "memory")

    def utilization(self, index: int) -> Reading[dict[str, float | None]]:
        told = self._library.ask("engines", index)
        shares = {kind: share for kind, share in told.value or [] if share is not None}
        found = shares.get(_ENGINES_COMPUTE, shares.get(_ENGINES_ALL))
        compute = None if found is None else percent(100 * min(1.0, found))
        return self._or_files(index, rates(compute, None, told.reason or "no engine is told"), "utilization")

    def power(self, index: int) -> Reading[float]:
        told = self._library.ask("power", index)
        watts = drawn(told.value)
        return self._or_files(index, given(watts, told.reason or "its energy isn't counted"), "power")

    def throttle(self, index: int) -> Reading[tuple[str, ...]]:
        told = self._library.ask("throttle", index)
        reasons = throttle_reasons(told.value) if isinstance(told.value, int) else None
        return self._or_files(index, given(reasons, told.reason or "no clock is told"), "throttle")

    def close(self) -> None:
        self._library.close()
        self._files.close()

    def is_simulated(self) -> bool:
        return "simulated" in str((self._library.ask("device", 0).value or {}).get("name")).lower()

    def describe(self, index: int) -> AcceleratorInfo:
        device, modules = self._library.ask("device", index), self._library.ask("memory", index)
        told = device.value or {}
        integrated = bool(told.get("integrated"))
        own = [one for one in modules.value or [] if one.get("on_device")]
        # Arc tells no physical size; what can be allocated at once (32 bits on many) is no size of the memory.
        memory = size(sum(one.get("physical_bytes") or one.get("size_bytes") or 0 for one in own))
        extra = {
            "uuid": text(told.get("uuid")),
            "pci_address": pci_address(told.get("pci_address")),
            "pci_device_id": f"{told['device_id']:#06x}" if isinstance(told.get("device_id"), int) else None,
            "tiles": told.get("subdevices") or None,
            "max_allocation_bytes": size(told.get("max_allocation_bytes")),
            "reason": device.reason or modules.reason or None,
        }
        if integrated:
            extra["reason"] = "it has no memory of its own and uses the machine's"
        generation = told.get("pcie_gen")
        return AcceleratorInfo(
            vendor="Intel",
            device_type="gpu",
            model=text(told.get("name")) or "unknown",
            index=index,
            memory_bytes=None if integrated else memory,
            memory_type="unified" if integrated else memory_kind(own[0].get("kind")) if own else None,
            bus_type="integrated" if integrated else "pcie" if told else None,
            pcie_gen=generation if isinstance(generation, int) and 1 <= generation <= 9 and not integrated else None,
            driver_version=text(told.get("driver_version")),
            simulated="simulated" in str(told.get("name")).lower(),
            extra_info={key: value for key, value in extra.items() if value is not None},
        )


class _Joined(Source):
    """Several sources one after the other: GPUs first, then NPUs."""

    def __init__(self, machine: Machine, parts: tuple[Source, ...]) -> None:
        super().__init__(machine)
        self._parts = parts
        self.NAME = ", ".join(part.NAME for part in parts)  # type: ignore[misc]  # of this one pair

    def count(self) -> Reading[int]:
        return Reading(value=sum(part.count().value or 0 for part in self._parts))

    def _part(self, index: int) -> tuple[Source, int]:
        for part in self._parts[:-1]:
            count = part.count().value or 0
            if index < count:
                return part, index
            index -= count
        return self._parts[-1], index

    def temperature(self, index: int) -> Reading[float]:
        part, at = self._part(index)
        return part.temperature(at)

    def memory(self, index: int) -> Reading[dict[str, int]]:
        part, at = self._part(index)
        return part.memory(at)

    def utilization(self, index: int) -> Reading[dict[str, float | None]]:
        part, at = self._part(index)
        return part.utilization(at)

    def power(self, index: int) -> Reading[float]:
        part, at = self._part(index)
        return part.power(at)

    def throttle(self, index: int) -> Reading[tuple[str, ...]]:
        part, at = self._part(index)
        return part.throttle(at)

    def is_simulated(self) -> bool:
        return self._parts[0].is_simulated()

    def describe(self, index: int) -> AcceleratorInfo:
        part, at = self._part(index)
        return replace(part.describe(at), index=index)


class IntelAccelerators(SourcedAccelerators):
    """Inventory and telemetry of Arc and data-centre GPUs, integrated graphics and the NPU, which come in this
    order."""

    VENDOR_NAME = "Intel"
    DEVICE_TYPE = "gpu"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {
        "pytorch": "xpu:{index}",
        "tensorflow": "XPU:{index}",
        "jax": "xpu:{index}",
        "openvino": "GPU.{index}",
        "onnxruntime": "GPU.{index}",
    }
    NPU_STRINGS: ClassVar[dict[str, str]] = {"openvino": "NPU", "onnxruntime": "NPU"}
    PCI_VENDOR_ID = VENDOR_ID
    SOURCES = (LevelZeroSource, XpuSmiSource, IntelGpuFiles)
    MODULES = ("i915", "xe", "intel_vpu")

    def __init__(self, machine: Machine | None = None) -> None:
        super().__init__(machine)
        (self._level_zero,) = (one for one in self.sources if isinstance(one, LevelZeroSource))
        self._npus = IntelNpuFiles(self.machine)
        self._joined: Source | None = None

    def source(self) -> Source | None:
        with self._lock:
            gpus = super().source()
            if not self._npus.count().value:
                return gpus
            if self._joined is None:
                self._joined = _Joined(self.machine, (gpus, self._npus) if gpus else (self._npus,))
            return self._joined

    def shutdown(self) -> None:
        with self._lock:
            self._joined = None
            self._npus.close()
            super().shutdown()

    def opening(self) -> Opening:
        opening = self._level_zero.opening()
        listed = self.list_devices()
        denied = [one.extra_info["reason"] for one in listed if "join group" in str(one.extra_info.get("reason"))]
        if denied and len(denied) == len(listed):
            reason = "; ".join(filter(None, [str(denied[0]), opening.reason]))
            return replace(opening, driver=DriverState.DENIED, reason=reason)
        return opening

    def device_type_of(self, device: PciDevice) -> str:
        return "npu" if device.class_code >> 16 == PROCESSING_ACCELERATOR_CLASS else "gpu"

    def finished(self, devices: tuple[AcceleratorInfo, ...]) -> tuple[AcceleratorInfo, ...]:
        gpus = tuple(one for one in devices if one.device_type == "gpu")
        by_bus = self.machine.variable("ZE_ENABLE_PCI_ID_DEVICE_ORDER") == "1"
        numbered = by_bus or len({one.model for one in gpus}) <= 1
        seen = with_visibility(gpus, self.machine, ("ZE_AFFINITY_MASK",), [()] * len(gpus), numbered=numbered)
        return (*seen, *devices[len(gpus) :])

    def get_framework_device_string(self, device_id: int, framework: str = "pytorch") -> str:
        devices = self.list_devices()
        gpus = sum(one.device_type == "gpu" and one.index is not None for one in devices)
        if not gpus <= device_id < len(devices) or devices[device_id].device_type != "npu":
            return super().get_framework_device_string(device_id, framework)
        return self.named(self.NPU_STRINGS, device_id - gpus, framework)


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Level Zero's bit set as names, each once. A bit that a newer version adds is shown as its number."""
    known = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    unknown = bits & 0xFFFFFFFF & ~sum(THROTTLE_REASONS)
    return tuple(dict.fromkeys([*known, *([f"unknown_{unknown:#x}"] if unknown else [])]))
