"""NVIDIA GPUs through NVML (nvidia-ml-py), nvidia-smi, a Jetson's files, and the PCI bus without driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from ..machine import Machine
from ._figures import celsius, counted, generation, given, milliwatts, percent, positive, rates, size
from ._nvidia_smi import NvidiaSmiSource, mig_facts, throttle_reasons
from ._nvml import SLICES, Nvml
from ._opening import Opening, opening_of
from ._pci import DISPLAY_CLASS
from ._sources import Source, SourcedAccelerators
from ._tegra import TegraSource
from ._visibility import with_visibility
from .base import AcceleratorInfo, NoSuchIndex, Reading

__all__ = ["NvidiaAccelerators", "throttle_reasons"]

PCI_VENDOR_ID = 0x10DE

_HBM_STACK_BITS = 1024
_FIRST_ARCHITECTURE_WITHOUT_DDR = 5  # Volta; older cards exist with plain DDR memory

_EXTRA = {
    "uuid": "nvmlDeviceGetUUID",
    "nvml_architecture": "nvmlDeviceGetArchitecture",
    "memory_bus_bits": "nvmlDeviceGetMemoryBusWidth",
    "pcie_width": "nvmlDeviceGetMaxPcieLinkWidth",
    "pcie_gen_now": "nvmlDeviceGetCurrPcieLinkGeneration",
}

Extra = dict[str, str | int | float | bool]


class NvmlSource(Source):
    """NVML, NVIDIA's management library."""

    NAME = "NVML"

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.nvml = machine.library(Nvml)

    def count(self) -> Reading[int]:
        return counted(self.nvml.ask("nvmlDeviceGetCount"))

    def read(self, index: int, function: str, *arguments: Any) -> Reading[Any]:
        """Any NVML function of device `index`: its answer, or why there is none.

        Raises `NoSuchIndex` (an `IndexError`) beyond the driver's range.
        """
        count = self.count()
        if count.value is None:
            return count
        if not 0 <= index < count.value:
            known = f"known are 0 to {count.value - 1}" if count.value else "the driver lists none"
            raise NoSuchIndex(f"there is no NVIDIA device {index}", why=known)
        return self.nvml.ask(function, index, *arguments)

    def opening(self) -> Opening:
        """The state of library and driver, and why NVML doesn't start."""
        return opening_of(self.nvml)

    def temperature(self, index: int) -> Reading[float]:
        told = self.read(index, "nvmlDeviceGetTemperature", 0)
        return given(celsius(told.value), told.reason or "NVML tells no temperature that can be")

    def memory(self, index: int) -> Reading[dict[str, int]]:
        told = self.read(index, "nvmlDeviceGetMemoryInfo")
        if told.value is None:
            return told
        total, used, free = (int(told.value[name]) for name in ("total", "used", "free"))
        if min(total, used, free) < 0 or used + free > total:
            return Reading(value=None, reason="NVML's figures of the memory contradict one another")
        return Reading(value={"total": total, "used": used, "free": free})

    def utilization(self, index: int) -> Reading[dict[str, float | None]]:
        told = self.read(index, "nvmlDeviceGetUtilizationRates")
        if told.value is None:
            return told
        compute, memory = percent(told.value["gpu"]), percent(told.value["memory"])
        return rates(compute, memory, "NVML tells no load that can be")

    def power(self, index: int) -> Reading[float]:
        told = self.read(index, "nvmlDeviceGetPowerUsage")
        watts = milliwatts(told.value)
        return given(watts, told.reason or "NVML tells no power that can be")

    def throttle(self, index: int) -> Reading[tuple[str, ...]]:
        told = self.read(index, "nvmlDeviceGetCurrentClocksEventReasons")
        if told.value is None:
            # Drivers before 535 know the function under its older name only.
            told = self.read(index, "nvmlDeviceGetCurrentClocksThrottleReasons")
        return given(None if told.value is None else throttle_reasons(told.value), told.reason)

    def close(self) -> None:
        self.nvml.close()

    def is_simulated(self) -> bool:
        return "simulated" in (self.nvml.ask("nvmlSystemGetDriverVersion").value or "").lower()

    def describe(self, index: int) -> AcceleratorInfo:
        name = self.read(index, "nvmlDeviceGetName")
        extra = self._extra(index)
        capability = self.read(index, "nvmlDeviceGetCudaComputeCapability").value
        memory = self.read(index, "nvmlDeviceGetMemoryInfo")
        if name.reason or memory.reason:
            extra["reason"] = name.reason or memory.reason
        unified = not name.reason and "not supported" in memory.reason.lower()
        return AcceleratorInfo(
            vendor="NVIDIA",
            device_type="gpu",
            model=name.value or "unknown",
            index=index,
            compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
            memory_bytes=None if memory.value is None else size(memory.value["total"]),
            # Every card with memory of its own tells it (nvml.h, nvmlDeviceGetMemoryInfo: all products).
            memory_type="unified" if unified else _memory_type(extra, memory.value is not None),
            bus_type="integrated" if unified else self._bus_type(index, name.value or ""),
            pcie_gen=generation(self.read(index, "nvmlDeviceGetMaxPcieLinkGeneration").value),
            bandwidth_gbps=self._bandwidth(index, extra.get("memory_bus_bits")),
            driver_version=self.nvml.ask("nvmlSystemGetDriverVersion").value,
            firmware_version=self.read(index, "nvmlDeviceGetVbiosVersion").value,
            simulated=self.is_simulated() or "simulated" in (name.value or "").lower(),
            extra_info=extra,
        )

    def _extra(self, index: int) -> Extra:
        extra: Extra = {
            key: value for key, function in _EXTRA.items() if (value := self.read(index, function).value) is not None
        }
        pci = self.read(index, "nvmlDeviceGetPciInfo").value
        if pci is not None:
            extra["pci_address"] = f"{pci['domain']:04x}:{pci['bus']:02x}:{pci['device']:02x}.0"
        limit = milliwatts(self.read(index, "nvmlDeviceGetEnforcedPowerLimit").value)
        if limit is not None:
            extra["power_limit_w"] = limit
        mig = self.read(index, "nvmlDeviceGetMigMode").value
        if mig is not None:
            slices = self.read(index, SLICES) if mig[0] else Reading[Any](value=[])
            extra.update(mig_facts(bool(mig[0]), slices.value or [], slices.reason))
        cuda = self.nvml.ask("nvmlSystemGetCudaDriverVersion_v2").value
        if cuda is not None:
            extra["cuda_driver_version"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
        return extra

    def _bus_type(self, index: int, name: str) -> str | None:
        if "SXM" in name:
            return "sxm"
        if self.read(index, "nvmlDeviceGetNvLinkState", 0).value == 1:
            return "nvlink"
        return None if self.read(index, "nvmlDeviceGetMaxPcieLinkGeneration").value is None else "pcie"

    def _bandwidth(self, index: int, bus_bits: Any) -> float | None:
        """Two transfers a clock over the whole bus, as NVIDIA's deviceQuery sample computes it."""
        megahertz = self.read(index, "nvmlDeviceGetMaxClockInfo", 2).value
        clock, width = positive(megahertz), positive(bus_bits)
        return None if clock is None or width is None else round(2 * clock * 1e6 * width / 8 / 1e9, 1) or None


class NvidiaAccelerators(SourcedAccelerators):
    """Inventory and telemetry of NVIDIA GPUs, the full tier."""

    VENDOR_NAME = "NVIDIA"
    DEVICE_TYPE = "gpu"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {
        "pytorch": "cuda:{index}",
        "tensorflow": "GPU:{index}",
        "jax": "cuda:{index}",
        "openvino": "NVIDIA.{index}",
        "onnxruntime": "cuda:{index}",
    }
    PCI_VENDOR_ID = PCI_VENDOR_ID
    PCI_CLASSES = (DISPLAY_CLASS,)
    SOURCES = (NvmlSource, NvidiaSmiSource, TegraSource)
    MODULES = ("nvidia",)

    def __init__(self, machine: Machine | None = None) -> None:
        super().__init__(machine)
        (self._nvml,) = (one for one in self.sources if isinstance(one, NvmlSource))

    def read(self, index: int, function: str, *arguments: Any) -> Reading[Any]:
        """Any NVML function of device `index`: its answer, or why there is none.

        Raises `NoSuchIndex` (an `IndexError`) beyond the driver's range.
        """
        return self._nvml.read(index, function, *arguments)

    def opening(self) -> Opening:
        opened = self._nvml.opening()
        return replace(opened, reason=opened.reason or self._nvml.count().reason)

    def finished(self, devices: tuple[AcceleratorInfo, ...]) -> tuple[AcceleratorInfo, ...]:
        by_bus = self.machine.variable("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        names = [
            [str(value) for key, value in one.extra_info.items() if key == "uuid" or key.endswith("_uuid")]
            for one in devices
        ]
        # Without that order CUDA counts the fastest first; equal ones keep the order of the bus.
        numbered = by_bus or len({one.model for one in devices}) == 1
        return with_visibility(devices, self.machine, ("CUDA_VISIBLE_DEVICES",), names, numbered=numbered)


def _memory_type(extra: Extra, has_own_memory: bool) -> str | None:
    """NVML doesn't tell, but one HBM stack has a bus of 1,024 bits and no GDDR card more than 512."""
    bits, architecture = extra.get("memory_bus_bits"), extra.get("nvml_architecture")
    if not isinstance(bits, int) or not has_own_memory:
        return None
    if bits >= _HBM_STACK_BITS:
        return "HBM"
    modern = isinstance(architecture, int) and _FIRST_ARCHITECTURE_WITHOUT_DDR <= architecture < 100
    return "GDDR" if modern else None
