"""NVIDIA GPUs through NVML (nvidia-ml-py), the kernel's files on a Jetson, and the PCI bus without driver."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ...machine import SourceReading
from ...values import data_file
from ._lazy_library import LazyLibrary, StartResult, no_library, not_loaded, one_line_of, plain
from ._pci import DISPLAY_CLASS
from ._sources import LibrarySource, Source, SourcedAccelerators
from ._tool_values import Extra, bits_named, celsius, generation, given, percent, positive, rates, size, watts
from .vendor import AcceleratorInfo, DriverState

PCI_VENDOR_ID = 0x10DE

_HBM_STACK_BITS = 1024
_FIRST_ARCHITECTURE_WITHOUT_DDR = 5  # Volta; older cards may have plain DDR memory

_SLICES = "mig_slices"
"""A pseudo-function: name, UUID and memory of each MIG slice of a device."""

_PROCESSES = "compute_processes"
"""A pseudo-function: process id and bytes of each process that computes on a device."""

_OF_NO_DEVICE = ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")

_EXTRA = {
    "uuid": "nvmlDeviceGetUUID",
    "nvml_architecture": "nvmlDeviceGetArchitecture",
    "memory_bus_bits": "nvmlDeviceGetMemoryBusWidth",
    "pcie_width": "nvmlDeviceGetMaxPcieLinkWidth",
    "pcie_gen_now": "nvmlDeviceGetCurrPcieLinkGeneration",
    "cuda_cores": "nvmlDeviceGetNumGpuCores",
}
_CORES, _LINKS = (Path(__file__).with_name(f"nvidia_{name}.toml") for name in ("cores", "links"))

_GPU_IDLE = 0x001

_NO_LIBRARY = no_library("NVIDIA's library libnvidia-ml can't be loaded; it comes with the NVIDIA driver")


class Nvml(LazyLibrary):
    """The guarded, thread-safe access to NVML. Handles are requested for each call, so that devices can't be
    confused.

    Functions of a device (`nvmlDevice...`) take its index first. Structures are returned as tables.
    """

    NAME = "nvml"

    def _start(self) -> StartResult:
        if sys.platform == "linux":
            try:
                ctypes.CDLL("libnvidia-ml.so.1")
            except OSError as error:
                return not_loaded(
                    "libnvidia-ml.so.1", error, "the NVIDIA driver"
                )  # before the binding, whose import takes longer than the rest of the list
        try:
            import pynvml
        except ImportError as error:
            return no_library(
                f"the Python package nvidia-ml-py can't be imported ({error}): pip install nvidia-ml-py"
            )
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return _refused(pynvml, error)
        self._binding = pynvml
        return StartResult()

    def _stop(self, binding: Any) -> None:
        binding.nvmlShutdown()

    def _answer(self, function: str, *arguments: Any) -> SourceReading[Any]:
        import pynvml

        own = {_SLICES: _slices, _PROCESSES: _processes}
        call = own.get(function) or getattr(pynvml, function, None)
        if call is None:
            return SourceReading(value=None, reason=f"this version of nvidia-ml-py has no {function}")
        try:
            if function in own or (function.startswith("nvmlDevice") and function not in _OF_NO_DEVICE):
                arguments = (pynvml.nvmlDeviceGetHandleByIndex(arguments[0]), *arguments[1:])
            return SourceReading(value=plain(call(*arguments)))
        except pynvml.NVMLError as error:
            return SourceReading(value=None, reason=f"{function}: {error}")
        except (OSError, TypeError, ValueError) as error:  # a binding and a driver of different versions
            return SourceReading(value=None, reason=f"{function}: {one_line_of(error)}")


def _slices(card: Any) -> list[dict[str, Any]]:
    """Return the slices of a card in MIG mode, or of the part of it that a container has."""
    import pynvml

    found: list[dict[str, Any]] = []
    for position in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        try:
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, position)
        except pynvml.NVMLError_NotFound:
            continue
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        found.append(
            {
                "name": plain(pynvml.nvmlDeviceGetName(handle)),
                "uuid": plain(pynvml.nvmlDeviceGetUUID(handle)),
                "memory_bytes": int(memory.total),
            }
        )
    return found


def _processes(card: Any) -> list[dict[str, Any]]:
    """Return the processes that compute on a card, with None for memory that isn't known."""
    import pynvml

    try:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(card)
    except pynvml.NVMLError_FunctionNotFound:  # of older drivers
        found = pynvml.nvmlDeviceGetComputeRunningProcesses_v2(card)
    return [{"pid": int(one.pid), "bytes": one.usedGpuMemory} for one in found]


def _refused(pynvml: Any, error: Any) -> StartResult:
    code = error.value
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return _NO_LIBRARY
    driver, advice = {
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (DriverState.MISSING, "is the kernel module nvidia loaded?"),
        pynvml.NVML_ERROR_NO_PERMISSION: (DriverState.DENIED, "may this user open /dev/nvidia*?"),
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            DriverState.UNKNOWN,
            "driver and library have different versions; reboot after a driver update",
        ),
    }.get(code, (DriverState.UNKNOWN, "run nvidia-smi for details"))
    return StartResult(driver=driver, reason=f"NVML failed to start: {error} ({advice})")


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Return the names of NVML's bits, each once. An unknown bit is shown as its number."""
    return bits_named(bits, "nvml", silent=_GPU_IDLE)


class NvmlSource(LibrarySource):
    """NVML, NVIDIA's management library."""

    NAME = "NVML"
    LIBRARY = Nvml
    COUNT = "nvmlDeviceGetCount"

    def read(self, index: int, function: str, *arguments: Any) -> SourceReading[Any]:
        """Return the result of an NVML function for device `index`, or the reason if there is none."""
        return self.library.ask(function, index, *arguments)

    def temperature(self, index: int) -> SourceReading[float]:
        reading = self.read(index, "nvmlDeviceGetTemperature", 0)
        return given(celsius(reading.value), reading.reason or "NVML reports no plausible temperature")

    def memory(self, index: int) -> SourceReading[dict[str, int]]:
        reading = self.read(index, "nvmlDeviceGetMemoryInfo")
        if reading.value is None:
            return reading
        total, used, free = (int(reading.value[name]) for name in ("total", "used", "free"))
        if min(total, used, free) < 0 or used + free > total:
            return SourceReading(value=None, reason="NVML's memory values are inconsistent")
        return SourceReading(value={"total": total, "used": used, "free": free})

    def utilization(self, index: int) -> SourceReading[dict[str, float | None]]:
        reading = self.read(index, "nvmlDeviceGetUtilizationRates")
        if reading.value is None:
            return reading
        compute, memory = percent(reading.value["gpu"]), percent(reading.value["memory"])
        return rates(compute, memory, "NVML reports no plausible load")

    def power(self, index: int) -> SourceReading[float]:
        reading = self.read(index, "nvmlDeviceGetPowerUsage")
        return given(watts(reading.value, per=1000), reading.reason or "NVML reports no plausible power")

    def processes(self, index: int) -> SourceReading[tuple[tuple[int, int | None], ...]]:
        reading = self.read(index, _PROCESSES)
        if reading.value is None:
            return reading
        return SourceReading(value=tuple((one["pid"], one["bytes"]) for one in reading.value))

    def throttle(self, index: int) -> SourceReading[tuple[str, ...]]:
        reading = self.read(index, "nvmlDeviceGetCurrentClocksEventReasons")
        if reading.value is None:
            # Drivers before 535 have only the older name of the function.
            reading = self.read(index, "nvmlDeviceGetCurrentClocksThrottleReasons")
        return given(None if reading.value is None else throttle_reasons(reading.value), reading.reason)

    def describe(self, index: int) -> AcceleratorInfo:
        name = self.read(index, "nvmlDeviceGetName")
        extra = self._extra(index)
        capability = self.read(index, "nvmlDeviceGetCudaComputeCapability").value
        extra |= _cores(capability, extra.get("cuda_cores"))
        extra |= _nvlink(name.value or "")
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
            # Every card with memory of its own reports it (nvml.h, nvmlDeviceGetMemoryInfo: all products).
            memory_type="unified" if unified else _memory_type(extra, memory.value is not None),
            bus_type="integrated" if unified else self._bus_type(index, name.value or ""),
            pcie_gen=generation(self.read(index, "nvmlDeviceGetMaxPcieLinkGeneration").value),
            bandwidth_gbps=self._bandwidth(index, extra.get("memory_bus_bits")),
            driver_version=self.library.ask("nvmlSystemGetDriverVersion").value,
            firmware_version=self.read(index, "nvmlDeviceGetVbiosVersion").value,
            extra_info=extra,
        )

    def _extra(self, index: int) -> Extra:
        extra: Extra = {
            key: value for key, function in _EXTRA.items() if (value := self.read(index, function).value) is not None
        }
        pci = self.read(index, "nvmlDeviceGetPciInfo").value
        if pci is not None:
            extra["pci_address"] = f"{pci['domain']:04x}:{pci['bus']:02x}:{pci['device']:02x}.0"
        limit = watts(self.read(index, "nvmlDeviceGetEnforcedPowerLimit").value, per=1000)
        if limit is not None:
            extra["power_limit_w"] = limit
        mig = self.read(index, "nvmlDeviceGetMigMode").value
        if mig is not None:
            slices = self.read(index, _SLICES) if mig[0] else SourceReading[Any](value=[])
            extra.update(_mig_facts(bool(mig[0]), slices.value or [], slices.reason))
        cuda = self.library.ask("nvmlSystemGetCudaDriverVersion_v2").value
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
        """Return two transfers per clock over the whole bus, as NVIDIA's deviceQuery sample computes it."""
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
    LIBRARY_SOURCE = NvmlSource
    _library: NvmlSource
    MODULES = ("nvidia",)

    def files(self) -> tuple[Source, ...]:
        from ._jetson import TegraSource, is_jetson

        return (TegraSource(self.machine),) if is_jetson(self.machine) else ()

    def status(self) -> StartResult:
        opened = self._library.status()
        return replace(opened, reason=opened.reason or self._library.count().reason)

    def finished(self, devices: tuple[AcceleratorInfo, ...]) -> tuple[AcceleratorInfo, ...]:
        from ._visibility import with_visibility

        by_bus = self.machine.variable("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        names = [
            [str(value) for key, value in one.extra_info.items() if key == "uuid" or key.endswith("_uuid")]
            for one in devices
        ]
        # Without that order CUDA counts the fastest first; equal ones keep the order of the bus.
        numbered = by_bus or len({one.model for one in devices}) == 1
        return with_visibility(devices, self.machine, ("CUDA_VISIBLE_DEVICES",), names, numbered=numbered)


def _cores(capability: Any, cuda_cores: Any) -> Extra:
    """Return the numbers of multiprocessors and tensor cores, by those of one (`nvidia_cores.toml`)."""
    known = data_file(_CORES)["of_a_multiprocessor"]
    one = known.get(f"{capability[0]}.{capability[1]}") if capability else None
    if one is None or not isinstance(cuda_cores, int) or cuda_cores % one["cuda"]:
        return {}
    count = cuda_cores // one["cuda"]
    return {"sm_count": count, **({"tensor_cores": count * one["tensor"]} if one["tensor"] else {})}


def _nvlink(name: str) -> Extra:
    """Return the rate of all NVLinks of a card, both directions together (`nvidia_links.toml`)."""
    known = data_file(_LINKS)["nvlink_gbps"].items()
    return next(({"nvlink_gbps": rate} for start, rate in known if name.startswith(start)), {})


def _memory_type(extra: Extra, has_own_memory: bool) -> str | None:
    """Return the memory type by the bus: one HBM stack has 1,024 bits, and a GDDR card at most 512."""
    bits, architecture = extra.get("memory_bus_bits"), extra.get("nvml_architecture")
    if not isinstance(bits, int) or not has_own_memory:
        return None
    if bits >= _HBM_STACK_BITS:
        return "HBM"
    modern = isinstance(architecture, int) and _FIRST_ARCHITECTURE_WITHOUT_DDR <= architecture < 100
    return "GDDR" if modern else None


def _mig_facts(enabled: bool, slices: Sequence[dict[str, Any]], reason: str = "") -> Extra:
    """Return the slices of a card in MIG mode. A program gets one slice, so `usable_memory_bytes` is that of the
    smallest."""
    facts: Extra = {"mig_enabled": enabled}
    sizes = [one["memory_bytes"] for one in slices if one.get("memory_bytes")]
    for position, one in enumerate(slices):
        facts[f"mig_{position}"] = one.get("name") or "an unnamed MIG instance"
        if one.get("memory_bytes"):
            facts[f"mig_{position}_memory_bytes"] = one["memory_bytes"]
        if one.get("uuid"):
            facts[f"mig_{position}_uuid"] = one["uuid"]
    if enabled and sizes:
        facts["usable_memory_bytes"] = min(sizes)
    elif enabled:
        facts["mig_reason"] = reason or "the card is in MIG mode without an instance: nothing can run on it"
    return facts
