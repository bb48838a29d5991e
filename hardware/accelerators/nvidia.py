"""NVIDIA GPUs through NVML (nvidia-ml-py), and through the PCI bus where driver or library is missing."""

from __future__ import annotations

from typing import Any, ClassVar

from ..machine import Machine
from ._nvml import OPENING, Nvml, Opening
from ._pci import DISPLAY_CLASS, PciDevice, pci_accelerators
from .base import (
    AcceleratorBackend,
    AcceleratorInfo,
    DriverState,
    HardwareState,
    LibraryState,
    NoSuchIndex,
    Reading,
    VendorFacts,
    bus_only,
)

PCI_VENDOR_ID = 0x10DE

_HBM_STACK_BITS = 1024
_FIRST_ARCHITECTURE_WITHOUT_DDR = 5  # Volta; older cards exist with plain DDR memory

THROTTLE_REASONS = {
    0x002: "applications_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "thermal",
    0x040: "thermal",
    0x080: "power_limit",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}
"""NVML's bits (nvml.h, nvmlClocksEventReasons). An idle GPU (0x1) isn't throttled."""

_GPU_IDLE = 0x001

_EXTRA = {
    "uuid": "nvmlDeviceGetUUID",
    "nvml_architecture": "nvmlDeviceGetArchitecture",
    "memory_bus_bits": "nvmlDeviceGetMemoryBusWidth",
    "pcie_width": "nvmlDeviceGetMaxPcieLinkWidth",
    "pcie_gen_now": "nvmlDeviceGetCurrPcieLinkGeneration",
}


class NvidiaAccelerators(AcceleratorBackend):
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

    def __init__(self, machine: Machine | None = None) -> None:
        super().__init__(machine)
        self._nvml = self.machine.library(Nvml)

    def is_available(self) -> bool:
        return self.get_device_count() > 0

    def get_device_count(self) -> int:
        return self._nvml.ask("nvmlDeviceGetCount").value or 0

    def list_devices(self) -> tuple[AcceleratorInfo, ...]:
        count = self.get_device_count()
        if count:
            return tuple(self._describe(index) for index in range(count))
        return tuple(
            bus_only(device, vendor=self.VENDOR_NAME, device_type=self.DEVICE_TYPE) for device in self._on_bus() or ()
        )

    def facts(self) -> VendorFacts:
        opening = self._opening()
        count = self._nvml.ask("nvmlDeviceGetCount")
        on_bus = self._on_bus()
        module_loaded = self.machine.is_folder("/sys/module/nvidia")
        driver = opening.driver
        if opening.library is LibraryState.MISSING and self.machine.is_folder("/sys/module"):
            driver = DriverState.OK if module_loaded else DriverState.MISSING
        if count.value or on_bus:
            hardware = HardwareState.PRESENT
        elif on_bus is None or module_loaded:
            # GPUs of a system-on-chip aren't on the bus; a loaded driver is a sign of one.
            hardware = HardwareState.UNKNOWN
        else:
            hardware = HardwareState.ABSENT
        simulated = self._is_simulated()
        reason = "the NVIDIA library here calls itself simulated" if simulated else count.reason
        if not reason and not count.value:
            reason = "the driver lists no device"
        return VendorFacts(
            vendor=self.VENDOR_NAME,
            hardware=hardware,
            driver=driver,
            library=opening.library,
            reason=reason,
            on_bus=None if on_bus is None else len(on_bus),
            simulated=simulated,
        )

    def read(self, index: int, function: str, *arguments: Any) -> Reading[Any]:
        """Any NVML function of device `index`: its answer, or why there is none.

        Raises `NoSuchIndex` (an `IndexError`) beyond the driver's range.
        """
        count = self._nvml.ask("nvmlDeviceGetCount")
        if count.value is None:
            return count
        if not 0 <= index < count.value:
            known = f"known are 0 to {count.value - 1}" if count.value else "the driver lists none"
            raise NoSuchIndex(f"there is no NVIDIA device {index}", why=known)
        return self._nvml.ask(function, index, *arguments)

    def _opening(self) -> Opening:
        told = self._nvml.ask(OPENING)
        if told.value is None:
            return Opening(library=LibraryState.MISSING, driver=DriverState.UNKNOWN, reason=told.reason)
        library, driver, reason = told.value
        return Opening(library=LibraryState(library), driver=DriverState(driver), reason=reason)

    def get_temperature(self, index: int) -> float | None:
        celsius = self.read(index, "nvmlDeviceGetTemperature", 0).value
        return None if celsius is None else float(celsius)

    def get_memory_usage(self, index: int) -> dict[str, int] | None:
        memory = self.read(index, "nvmlDeviceGetMemoryInfo").value
        if memory is None:
            return None
        return {name: int(memory[name]) for name in ("total", "used", "free")}

    def get_utilization(self, index: int) -> dict[str, float] | None:
        rates = self.read(index, "nvmlDeviceGetUtilizationRates").value
        return None if rates is None else {"compute": float(rates["gpu"]), "memory": float(rates["memory"])}

    def get_power_usage(self, index: int) -> float | None:
        milliwatts = self.read(index, "nvmlDeviceGetPowerUsage").value
        return None if milliwatts is None else milliwatts / 1000

    def get_throttle_reasons(self, index: int) -> tuple[str, ...] | None:
        bits = self.read(index, "nvmlDeviceGetCurrentClocksEventReasons").value
        if bits is None:
            # Drivers before 535 know the function under its older name only.
            bits = self.read(index, "nvmlDeviceGetCurrentClocksThrottleReasons").value
        return None if bits is None else throttle_reasons(bits)

    def shutdown(self) -> None:
        self._nvml.close()

    def _on_bus(self) -> tuple[PciDevice, ...] | None:
        devices = pci_accelerators(self.machine)
        if devices is None:
            return None
        return tuple(
            device
            for device in devices
            if device.vendor_id == PCI_VENDOR_ID and device.class_code >> 16 == DISPLAY_CLASS
        )

    def _is_simulated(self) -> bool:
        version = self._nvml.ask("nvmlSystemGetDriverVersion").value or ""
        return "simulated" in version.lower()

    def _describe(self, index: int) -> AcceleratorInfo:
        name = self.read(index, "nvmlDeviceGetName")
        extra: dict[str, str | int | float | bool] = {
            key: value for key, function in _EXTRA.items() if (value := self.read(index, function).value) is not None
        }
        pci = self.read(index, "nvmlDeviceGetPciInfo").value
        if pci is not None:
            extra["pci_address"] = f"{pci['domain']:04x}:{pci['bus']:02x}:{pci['device']:02x}.0"
        limit = self.read(index, "nvmlDeviceGetEnforcedPowerLimit").value
        if limit is not None:
            extra["power_limit_w"] = limit / 1000
        mig = self.read(index, "nvmlDeviceGetMigMode").value
        if mig is not None:
            extra["mig_enabled"] = bool(mig[0])
        cuda = self._nvml.ask("nvmlSystemGetCudaDriverVersion_v2").value
        if cuda is not None:
            extra["cuda_driver_version"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
        capability = self.read(index, "nvmlDeviceGetCudaComputeCapability").value
        memory = self.read(index, "nvmlDeviceGetMemoryInfo")
        if name.reason or memory.reason:
            extra["reason"] = name.reason or memory.reason
        return AcceleratorInfo(
            vendor=self.VENDOR_NAME,
            device_type=self.DEVICE_TYPE,
            model=name.value or "unknown",
            index=index,
            compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
            memory_bytes=None if memory.value is None else int(memory.value["total"]),
            memory_type=_memory_type(extra, memory.value is not None),
            bus_type=self._bus_type(index, name.value or ""),
            pcie_gen=self.read(index, "nvmlDeviceGetMaxPcieLinkGeneration").value,
            bandwidth_gbps=self._bandwidth(index, extra.get("memory_bus_bits")),
            driver_version=self._nvml.ask("nvmlSystemGetDriverVersion").value,
            firmware_version=self.read(index, "nvmlDeviceGetVbiosVersion").value,
            simulated=self._is_simulated() or "simulated" in (name.value or "").lower(),
            extra_info=extra,
        )

    def _bus_type(self, index: int, name: str) -> str | None:
        if "SXM" in name:
            return "sxm"
        if self.read(index, "nvmlDeviceGetNvLinkState", 0).value == 1:
            return "nvlink"
        return None if self.read(index, "nvmlDeviceGetMaxPcieLinkGeneration").value is None else "pcie"

    def _bandwidth(self, index: int, bus_bits: Any) -> float | None:
        """Two transfers a clock over the whole bus, as NVIDIA's deviceQuery sample computes it."""
        megahertz = self.read(index, "nvmlDeviceGetMaxClockInfo", 2).value
        if megahertz is None or bus_bits is None:
            return None
        return float(round(2 * megahertz * 1e6 * bus_bits / 8 / 1e9, 1))


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """NVML's bit set as names, each once. A bit that a newer driver adds is shown as its number."""
    known = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    unknown = bits & ~_GPU_IDLE & ~sum(THROTTLE_REASONS)
    return tuple(dict.fromkeys([*known, *([f"unknown_{unknown:#x}"] if unknown else [])]))


def _memory_type(extra: dict[str, str | int | float | bool], has_own_memory: bool) -> str | None:
    """NVML doesn't tell, but one HBM stack has a bus of 1,024 bits and no GDDR card more than 512."""
    bits, architecture = extra.get("memory_bus_bits"), extra.get("nvml_architecture")
    if not isinstance(bits, int) or not has_own_memory:
        return None
    if bits >= _HBM_STACK_BITS:
        return "HBM"
    modern = isinstance(architecture, int) and _FIRST_ARCHITECTURE_WITHOUT_DDR <= architecture < 100
    return "GDDR" if modern else None
