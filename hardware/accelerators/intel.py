"""Intel GPUs and NPUs through Level Zero (pyzes), the files of i915, xe and intel_vpu, and the PCI bus."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ..machine import Reading
from ._figures import (
    bits_named,
    celsius,
    drawn,
    generation,
    given,
    memory_kind,
    pci_address,
    percent,
    rates,
    share,
    size,
    text,
    without,
)
from ._pci import INTEL_VENDOR_ID, PROCESSING_ACCELERATOR_CLASS, PciDevice
from ._sources import LibrarySource, OpenedOnce, Opening, Source, SourcedAccelerators
from .base import AcceleratorInfo, DriverState, LibraryState

if TYPE_CHECKING:
    from ._intel_files import IntelGpuFiles

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
_NO_PERMISSION, _NO_DEPENDENCY, _UNINITIALISED = 0x70010000, 0x70020000, 0x78000001


class LevelZero(OpenedOnce):
    """The one guarded way to Level Zero Sysman, through its Python binding pyzes.

    The binding raises `OSError` while it is imported where libze_loader.so.1 is missing; on Linux it looks for it in
    /usr/lib/x86_64-linux-gnu alone.

    Questions: `count`, and with an index `device`, `memory`, `temperatures`, `throttle`, `power`, `engines`.
    """

    NAME = "levelzero"
    _zes: Any = None
    _devices: Sequence[Any] = ()

    def _answer(self, function: str, *arguments: Any) -> Reading[Any]:
        from ._levelzero import QUESTIONS, LevelZeroError

        zes, devices = self._zes, self._devices
        if zes is None:
            return Reading(value=None, reason="Level Zero was given back while it was asked")
        if function == "count":
            return Reading(value=len(devices))
        question = QUESTIONS.get(function)
        if question is None:
            return Reading(value=None, reason=f"Level Zero isn't asked for {function}")
        try:
            return Reading(value=question(zes, devices[arguments[0]]))
        except IndexError:
            return Reading(value=None, reason=f"Level Zero lists {len(devices)} devices")
        except (LevelZeroError, AttributeError, OSError, ctypes.ArgumentError) as error:  # or a loader of another age
            return Reading(value=None, reason=f"Level Zero, {function}: {error}")

    def _stop(self) -> str:
        # Sysman has no function that ends it; the handles are valid as long as the process.
        self._zes, self._devices = None, ()
        return ""

    def _start(self) -> Opening:
        try:
            import pyzes
        except ImportError as error:
            reason = f"the Python package pyzes can't be imported ({error}): pip install pyzes"
            return Opening(library=LibraryState.MISSING, driver=DriverState.UNKNOWN, reason=reason)
        except Exception as error:  # an OSError on Linux, a plain Exception on Windows
            reason = (
                f"the Level Zero loader can't be loaded ({error}); it comes with the package libze1 or level-zero"
            )
            return Opening(library=LibraryState.MISSING, driver=DriverState.UNKNOWN, reason=reason)
        from ._levelzero import LevelZeroError, gpus

        result = pyzes.zesInit(0)
        if result != pyzes.ZE_RESULT_SUCCESS:
            state, reason = _refused(pyzes, result)
            return Opening(library=LibraryState.OK, driver=state, reason=reason)
        try:
            self._devices = gpus(pyzes)
        except LevelZeroError as error:
            reason = f"Level Zero lists no device: {error}"
            return Opening(library=LibraryState.OK, driver=DriverState.UNKNOWN, reason=reason)
        self._zes = pyzes
        return Opening(library=LibraryState.OK, driver=DriverState.OK)


def _refused(zes: Any, result: int) -> tuple[DriverState, str]:
    from ._levelzero import name_of

    driver, advice = {
        _NO_PERMISSION: (DriverState.DENIED, "may this user open /dev/dri/renderD*? Join group render"),
        _NO_DEPENDENCY: (DriverState.UNKNOWN, "is the package intel-level-zero-gpu or libze-intel-gpu1 installed?"),
        _UNINITIALISED: (DriverState.MISSING, "no driver of Level Zero found a device: is i915 or xe loaded?"),
    }.get(result & 0xFFFFFFFF, (DriverState.UNKNOWN, "xpu-smi may tell more"))
    return driver, f"Level Zero doesn't start: {name_of(zes, result)} ({advice})"


class LevelZeroSource(LibrarySource):
    """Sysman of Level Zero. What it keeps from ordinary users (load, some temperatures) is read of the driver's
    files where they have it."""

    NAME = "Level Zero"
    LIBRARY = LevelZero
    _files: IntelGpuFiles | None = None

    def _or_files(self, index: int, told: Reading[Any], what: str) -> Reading[Any]:
        if told.value is not None:
            return told
        if self._files is None:
            from ._intel_files import IntelGpuFiles

            self._files = IntelGpuFiles(self.machine)
        address = pci_address((self.library.ask("device", index).value or {}).get("pci_address"))
        cards = [card.address for card in self._files.cards()]
        position = cards.index(address) if address in cards else None
        if position is None:
            return told
        found: Reading[Any] = getattr(self._files, what)(position)
        return found if found.value is not None else Reading(value=None, reason=f"{told.reason}; {found.reason}")

    def temperature(self, index: int) -> Reading[float]:
        told = self.library.ask("temperatures", index)
        sensors = {kind: celsius(value) for kind, value in told.value or []}
        found = sensors.get(_GPU_SENSOR) or sensors.get(_GLOBAL_SENSOR) or next(iter(sensors.values()), None)
        return self._or_files(index, given(found, told.reason or "Level Zero has no sensor"), "temperature")

    def memory(self, index: int) -> Reading[dict[str, int]]:
        told = self.library.ask("memory", index)
        own = [one for one in told.value or [] if one.get("on_device")]
        total, free = (sum(one.get(f"{name}_bytes") or 0 for one in own) for name in ("size", "free"))
        reason = told.reason or "it has no memory of its own"
        return self._or_files(index, given(share(size(total), total - free), reason), "memory")

    def utilization(self, index: int) -> Reading[dict[str, float | None]]:
        told = self.library.ask("engines", index)
        shares = {kind: share for kind, share in told.value or [] if share is not None}
        found = shares.get(_ENGINES_COMPUTE, shares.get(_ENGINES_ALL))
        compute = None if found is None else percent(100 * min(1.0, found))
        return self._or_files(index, rates(compute, None, told.reason or "no engine is reported"), "utilization")

    def power(self, index: int) -> Reading[float]:
        told = self.library.ask("power", index)
        watts = drawn(told.value)
        return self._or_files(index, given(watts, told.reason or "its energy isn't counted"), "power")

    def throttle(self, index: int) -> Reading[tuple[str, ...]]:
        told = self.library.ask("throttle", index)
        reasons = throttle_reasons(told.value) if isinstance(told.value, int) else None
        return self._or_files(index, given(reasons, told.reason or "no clock is reported"), "throttle")

    def close(self) -> None:
        super().close()
        self._files = None

    def describe(self, index: int) -> AcceleratorInfo:
        device, modules = self.library.ask("device", index), self.library.ask("memory", index)
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
        return AcceleratorInfo(
            vendor="Intel",
            device_type="gpu",
            model=text(told.get("name")) or "unknown",
            index=index,
            memory_bytes=None if integrated else memory,
            memory_type="unified" if integrated else memory_kind(own[0].get("kind")) if own else None,
            bus_type="integrated" if integrated else "pcie" if told else None,
            pcie_gen=None if integrated else generation(told.get("pcie_gen")),
            driver_version=text(told.get("driver_version")),
            extra_info=without(extra),
        )


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
    PCI_VENDOR_ID = INTEL_VENDOR_ID
    LIBRARY_SOURCE = LevelZeroSource
    MODULES = ("i915", "xe", "intel_vpu")

    def files(self) -> tuple[Source, ...]:
        if not self.on_bus() and self.module_loaded() is False:
            return ()
        from ._intel_files import IntelGpuFiles, IntelNpuFiles

        return IntelGpuFiles(self.machine), IntelNpuFiles(self.machine)

    def opening(self) -> Opening:
        opening = self._library.opening()
        listed = self.list_devices()
        denied = [one.extra_info["reason"] for one in listed if "join group" in str(one.extra_info.get("reason"))]
        if denied and len(denied) == len(listed):
            reason = "; ".join(filter(None, [str(denied[0]), opening.reason]))
            return replace(opening, driver=DriverState.DENIED, reason=reason)
        return opening

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
    """Level Zero's bit set as names, each once. A bit that a newer version adds is shown as its number."""
    return bits_named(bits & 0xFFFFFFFF, THROTTLE_REASONS)
