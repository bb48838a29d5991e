"""Intel GPUs and NPUs through Level Zero (pyzes), the files of i915, xe and intel_vpu, and the PCI bus."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from ...machine import SourceReading
from ._lazy_library import LazyLibrary, StartResult, no_library
from ._pci import INTEL_VENDOR_ID, PROCESSING_ACCELERATOR_CLASS, PciDevice
from ._sources import LibrarySource, Source, SourcedAccelerators
from ._tool_values import (
    bits_named,
    celsius,
    generation,
    given,
    memory_kind,
    pci_address,
    percent,
    rates,
    share,
    size,
    text,
    watts,
    without,
)
from .vendor import AcceleratorInfo, DriverState

_GPU_SENSOR, _GLOBAL_SENSOR = 1, 0
_ENGINES_ALL, _ENGINES_COMPUTE = 0, 1
_NO_PERMISSION, _NO_DEPENDENCY, _UNINITIALISED = 0x70010000, 0x70020000, 0x78000001


class LevelZero(LazyLibrary):
    """The guarded access to Level Zero Sysman through its Python binding pyzes.

    The binding raises `OSError` on import without libze_loader.so.1, which it searches on Linux only in
    /usr/lib/x86_64-linux-gnu.

    Functions of a device: `device`, `memory`, `temperatures`, `throttle`, `power`, `engines`.
    """

    NAME = "levelzero"

    def _call(self, binding: Any, handle: Any, function: str, *arguments: Any) -> Any:
        from ._levelzero import QUESTIONS

        return QUESTIONS[function](binding, handle)

    def _start(self) -> StartResult:
        try:
            import pyzes
        except ImportError as error:
            return no_library(f"the Python package pyzes can't be imported ({error}): pip install pyzes")
        except Exception as error:  # OSError on Linux, Exception on Windows
            package = "it comes with the package libze1 or level-zero"
            return no_library(f"the Level Zero loader can't be loaded ({error}); {package}")
        from ._levelzero import LevelZeroError, gpus

        result = pyzes.zesInit(0)
        if result != pyzes.ZE_RESULT_SUCCESS:
            return _refused(pyzes, result)
        try:
            self._handles = gpus(pyzes)
        except LevelZeroError as error:
            return StartResult(driver=DriverState.UNKNOWN, reason=f"Level Zero lists no device: {error}")
        self._binding = pyzes
        return StartResult()


def _refused(zes: Any, result: int) -> StartResult:
    from ._levelzero import name_of

    driver, advice = {
        _NO_PERMISSION: (DriverState.DENIED, "may this user open /dev/dri/renderD*? Join group render"),
        _NO_DEPENDENCY: (DriverState.UNKNOWN, "is the package intel-level-zero-gpu or libze-intel-gpu1 installed?"),
        _UNINITIALISED: (DriverState.MISSING, "no driver of Level Zero found a device: is i915 or xe loaded?"),
    }.get(result & 0xFFFFFFFF, (DriverState.UNKNOWN, "run xpu-smi for details"))
    return StartResult(driver=driver, reason=f"Level Zero failed to start: {name_of(zes, result)} ({advice})")


class LevelZeroSource(LibrarySource):
    """Sysman of Level Zero, which withholds some values (load, some temperatures) from ordinary users."""

    NAME = "Level Zero"
    LIBRARY = LevelZero

    def temperature(self, index: int) -> SourceReading[float]:
        reading = self.library.ask("temperatures", index)
        sensors = {kind: celsius(value) for kind, value in reading.value or []}
        found = sensors.get(_GPU_SENSOR) or sensors.get(_GLOBAL_SENSOR) or next(iter(sensors.values()), None)
        return given(found, reading.reason or "Level Zero has no sensor")

    def memory(self, index: int) -> SourceReading[dict[str, int]]:
        reading = self.library.ask("memory", index)
        own = [one for one in reading.value or [] if one.get("on_device")]
        total, free = (sum(one.get(f"{name}_bytes") or 0 for one in own) for name in ("size", "free"))
        reason = reading.reason or "it has no dedicated memory"
        return given(share(size(total), total - free), reason)

    def utilization(self, index: int) -> SourceReading[dict[str, float | None]]:
        reading = self.library.ask("engines", index)
        shares = {kind: share for kind, share in reading.value or [] if share is not None}
        found = shares.get(_ENGINES_COMPUTE, shares.get(_ENGINES_ALL))
        compute = None if found is None else percent(100 * min(1.0, found))
        return rates(compute, None, reading.reason or "no engine is reported")

    def power(self, index: int) -> SourceReading[float]:
        reading = self.library.ask("power", index)
        return given(watts(reading.value) or None, reading.reason or "its energy isn't reported")

    def throttle(self, index: int) -> SourceReading[tuple[str, ...]]:
        reading = self.library.ask("throttle", index)
        reasons = throttle_reasons(reading.value) if isinstance(reading.value, int) else None
        return given(reasons, reading.reason or "no clock is reported")

    def describe(self, index: int) -> AcceleratorInfo:
        device, modules = self.library.ask("device", index), self.library.ask("memory", index)
        info = device.value or {}
        integrated = bool(info.get("integrated"))
        own = [one for one in modules.value or [] if one.get("on_device")]
        # Arc reports no physical size; the largest allocation (32 bits on many) isn't the size of the memory.
        memory = size(sum(one.get("physical_bytes") or one.get("size_bytes") or 0 for one in own))
        extra = {
            "uuid": text(info.get("uuid")),
            "pci_address": pci_address(info.get("pci_address")),
            "pci_device_id": f"{info['device_id']:#06x}" if isinstance(info.get("device_id"), int) else None,
            "tiles": info.get("subdevices") or None,
            "max_allocation_bytes": size(info.get("max_allocation_bytes")),
            "reason": device.reason or modules.reason or None,
        }
        if integrated:
            extra["reason"] = "it has no dedicated memory and uses the system's"
        return AcceleratorInfo(
            vendor="Intel",
            device_type="gpu",
            model=text(info.get("name")) or "unknown",
            index=index,
            memory_bytes=None if integrated else memory,
            memory_type="unified" if integrated else memory_kind(own[0].get("kind")) if own else None,
            bus_type="integrated" if integrated else "pcie" if info else None,
            pcie_gen=None if integrated else generation(info.get("pcie_gen")),
            driver_version=text(info.get("driver_version")),
            extra_info=without(extra),
        )


class IntelAccelerators(SourcedAccelerators):
    """Inventory and telemetry of Arc and data center GPUs, integrated graphics and the NPU, in this order."""

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
    PCI_VENDOR_ID = INTEL_VENDOR_ID
    LIBRARY_SOURCE = LevelZeroSource
    MODULES = ("i915", "xe", "intel_vpu")

    def files(self) -> tuple[Source, ...]:
        if not self.on_bus() and self.module_loaded() is False:
            return ()
        from ._intel_files import IntelGpuFiles, IntelNpuFiles

        return IntelGpuFiles(self.machine), IntelNpuFiles(self.machine)

    def status(self) -> StartResult:
        status = self._library.status()
        listed = self.list_devices()
        denied = [one.extra_info["reason"] for one in listed if "join group" in str(one.extra_info.get("reason"))]
        if denied and len(denied) == len(listed):
            reason = "; ".join(filter(None, [str(denied[0]), status.reason]))
            return replace(status, driver=DriverState.DENIED, reason=reason)
        return status

    def device_type_of(self, device: PciDevice) -> str:
        return "npu" if device.class_code >> 16 == PROCESSING_ACCELERATOR_CLASS else "gpu"

    def finished(self, devices: tuple[AcceleratorInfo, ...]) -> tuple[AcceleratorInfo, ...]:
        from ._visibility import with_visibility

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
    """Return the names of Level Zero's bits, each once. An unknown bit is shown as its number."""
    return bits_named(bits & 0xFFFFFFFF, "level_zero")
