"""AMD GPUs through amdsmi, the files of amdgpu, and the PCI bus without driver.

While it is imported, amdsmi prints to stdout and raises `KeyError` without libamd_smi.so, and `AttributeError` for
another version of it. The library is therefore tried first, and ROCm's own binding before pip's.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import io
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ...machine import SourceReading
from ._lazy_library import LazyLibrary, StartResult, no_library, not_loaded, one_line_of, plain
from ._pci import AMD_VENDOR_ID
from ._sources import LibrarySource, Source, SourcedAccelerators
from ._tool_values import (
    celsius,
    generation,
    gfx_named,
    given,
    memory_kind,
    pci_address,
    percent,
    positive,
    rates,
    share,
    size,
    text,
    throttling,
    without,
)
from .vendor import AcceleratorInfo, DriverState

_FILE = "libamd_smi.so"
_ENUMS = {
    "amdsmi_get_temp_metric": ("AmdSmiTemperatureType", "AmdSmiTemperatureMetric"),
    "amdsmi_get_gpu_memory_total": ("AmdSmiMemoryType",),
    "amdsmi_get_gpu_memory_usage": ("AmdSmiMemoryType",),
}
_NO_PERMISSION, _DRIVER_NOT_LOADED, _NO_DRIVER = 10, 34, 51

_VRAM_TYPES = {1: "HBM", 2: "HBM", 3: "HBM", 4: "HBM", 5: "HBM", 10: "DDR", 11: "DDR", 12: "DDR"} | dict.fromkeys(
    range(17, 24), "GDDR"
)
"""amdsmi.h, amdsmi_vram_type_t. Later versions have a fifth HBM."""

_MOST_WATTS = 100_000


class Amdsmi(LazyLibrary):
    """The guarded access to amdsmi. `count` is the number of GPUs.

    Functions take the index of a GPU first; members of the binding's enumerations are given by name.
    """

    NAME = "amdsmi"

    def _call(self, binding: Any, handle: Any, function: str, *arguments: Any) -> Any:
        call = getattr(binding, function, None)
        if call is None:
            raise LookupError(f"this version of amdsmi has no {function}")
        kinds = zip(_ENUMS.get(function, ()), arguments, strict=True)
        return plain(call(handle, *(getattr(binding, kind)[name] for kind, name in kinds)))

    def _stop(self, binding: Any) -> None:
        binding.amdsmi_shut_down()

    def _start(self) -> StartResult:
        if (refused := _unloadable()) is not None:
            return refused
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                self._binding = _binding()
        except Exception as error:  # this import may raise anything: see the module's docstring
            why = f"can't be imported, or doesn't fit the library ({one_line_of(error)})"
            return no_library(f"the Python package amdsmi {why}: pip install amdsmi, in ROCm's version")
        try:
            self._binding.amdsmi_init()
            self._handles = list(self._binding.amdsmi_get_processor_handles())
        except Exception as error:  # as above
            return _refused(error)
        return StartResult()


def _roots() -> list[Path]:
    named = (os.environ.get(name) for name in ("ROCM_HOME", "ROCM_PATH"))
    return [*(Path(one) for one in named if one), Path("/opt/rocm")]


def _unloadable() -> StartResult | None:
    """Return None if the library can be loaded from one of the places where the binding searches, else why not: the
    first refusal of a file that exists."""
    refused: list[StartResult] = []
    spec = None
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("amdsmi")
    beside = [Path(spec.origin).with_name(_FILE)] if spec is not None and spec.origin else []
    for place in [_FILE, *(root / "lib" / _FILE for root in _roots()), *beside]:
        try:
            ctypes.CDLL(str(place))
            return None
        except OSError as error:
            refused.append(not_loaded(_FILE, error, "ROCm (package amd-smi-lib)"))
    return next((one for one in refused if "is installed" in one.reason), refused[0])


def _binding() -> Any:
    """Return the binding of ROCm, or else the one that pip installed."""
    folders = [str(root / "share" / "amd_smi") for root in _roots()]
    sys.path[:0] = folders
    try:
        return importlib.import_module("amdsmi")
    finally:
        for folder in folders:
            sys.path.remove(folder)


def _refused(error: Exception) -> StartResult:
    driver, advice = {
        _DRIVER_NOT_LOADED: (DriverState.MISSING, "is the kernel module amdgpu loaded?"),
        _NO_DRIVER: (DriverState.MISSING, "is the kernel module amdgpu loaded?"),
        _NO_PERMISSION: (DriverState.DENIED, "may this user open /dev/kfd and /dev/dri/renderD*? Join group render"),
    }.get(getattr(error, "err_code", None) or 0, (DriverState.UNKNOWN, "run amd-smi for details"))
    return StartResult(driver=driver, reason=f"amdsmi failed to start: {one_line_of(error)} ({advice})")


class AmdsmiSource(LibrarySource):
    """amdsmi, AMD's management library."""

    NAME = "amdsmi"
    LIBRARY = Amdsmi

    def _table(self, function: str, index: int) -> SourceReading[dict[str, Any]]:
        reading = self.library.ask(function, index)
        if reading.value is not None and not isinstance(reading.value, dict):
            return SourceReading(value=None, reason=f"{function} returned no table")
        return reading

    def temperature(self, index: int) -> SourceReading[float]:
        reason = ""
        for sensor in ("EDGE", "HOTSPOT", "JUNCTION", "VRAM"):
            reading = self.library.ask("amdsmi_get_temp_metric", index, sensor, "CURRENT")
            found = celsius(reading.value)
            if found:  # a missing sensor reads 0 too
                return SourceReading(value=found)
            reason = reason or reading.reason
        return SourceReading(value=None, reason=reason or "no sensor responds")

    def memory(self, index: int) -> SourceReading[dict[str, int]]:
        total = self.library.ask("amdsmi_get_gpu_memory_total", index, "VRAM")
        used = self.library.ask("amdsmi_get_gpu_memory_usage", index, "VRAM")
        taken = used.value if isinstance(used.value, int) else None
        return given(share(size(total.value), taken), total.reason or used.reason or "its values are inconsistent")

    def utilization(self, index: int) -> SourceReading[dict[str, float | None]]:
        reading = self._table("amdsmi_get_gpu_activity", index)
        activity = reading.value or {}
        compute, memory = percent(activity.get("gfx_activity")), percent(activity.get("umc_activity"))
        return rates(compute, memory, reading.reason or "the device doesn't report load")

    def power(self, index: int) -> SourceReading[float]:
        reading = self._table("amdsmi_get_power_info", index)
        names = ("current_socket_power", "socket_power", "average_socket_power")
        found = (positive((reading.value or {}).get(name)) for name in names)
        watts = next((one for one in found if one is not None and one < _MOST_WATTS), None)
        return given(watts, reading.reason or "the device has no power sensor")

    def throttle(self, index: int) -> SourceReading[tuple[str, ...]]:
        violations = self._table("amdsmi_get_violation_status", index)
        if violations.value is not None:
            found = violation_reasons(violations.value)
            if found is not None:
                return SourceReading(value=found)
        metrics = self._table("amdsmi_get_gpu_metrics_info", index)
        status = (metrics.value or {}).get("indep_throttle_status")
        if isinstance(status, bool):
            return SourceReading(value=("reason_not_told",) if status else ())
        return SourceReading(
            value=None, reason=metrics.reason or violations.reason or "the device doesn't report throttling"
        )

    def describe(self, index: int) -> AcceleratorInfo:
        asic, vram = self._table("amdsmi_get_gpu_asic_info", index), self._table("amdsmi_get_gpu_vram_info", index)
        pcie = (self._table("amdsmi_get_pcie_info", index).value or {}).get("pcie_static") or {}
        driver = self._table("amdsmi_get_gpu_driver_info", index).value or {}
        vbios = self._table("amdsmi_get_gpu_vbios_info", index).value or {}
        total = self.library.ask("amdsmi_get_gpu_memory_total", index, "VRAM")
        chip, memory = asic.value or {}, vram.value or {}
        pcie_gen = pcie.get("pcie_interface_version") if isinstance(pcie, dict) else None
        return AcceleratorInfo(
            vendor="AMD",
            device_type="gpu",
            model=text(chip.get("market_name")) or "unknown",
            index=index,
            compute_capability=gfx_named(chip.get("target_graphics_version")),
            memory_bytes=size(total.value) or size(memory.get("vram_size"), 2**20),
            memory_type=_vram_type(memory.get("vram_type")),
            bus_type="pcie" if pcie_gen is not None else None,
            pcie_gen=generation(pcie_gen),
            bandwidth_gbps=positive(memory.get("vram_max_bandwidth")),
            driver_version=text(driver.get("driver_version")),
            firmware_version=text(vbios.get("version")),
            extra_info=without(self._extra(index, chip, asic.reason or total.reason)),
        )

    def _extra(self, index: int, chip: dict[str, Any], reason: str) -> dict[str, Any]:
        cap = positive((self._table("amdsmi_get_power_cap_info", index).value or {}).get("power_cap"), per=1e6)
        node = (self._table("amdsmi_get_gpu_kfd_info", index).value or {}).get("node_id")
        units = chip.get("num_compute_units")
        return {
            "uuid": text(self.library.ask("amdsmi_get_gpu_device_uuid", index).value),
            "pci_address": pci_address(self.library.ask("amdsmi_get_gpu_device_bdf", index).value),
            "compute_units": units if isinstance(units, int) and units > 0 else None,
            "power_limit_w": cap,
            "kfd_node": node if isinstance(node, int) else None,
            "reason": reason or None,
        }


class AmdAccelerators(SourcedAccelerators):
    """Inventory and telemetry of AMD GPUs, the full tier. PyTorch's ROCm build calls them `cuda`."""

    VENDOR_NAME = "AMD"
    DEVICE_TYPE = "gpu"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {
        "pytorch": "cuda:{index}",
        "tensorflow": "GPU:{index}",
        "jax": "rocm:{index}",
        "onnxruntime": "cuda:{index}",
    }
    PCI_VENDOR_ID = AMD_VENDOR_ID
    LIBRARY_SOURCE = AmdsmiSource
    MODULES = ("amdgpu",)

    def files(self) -> tuple[Source, ...]:
        if not (self.module_loaded() or self.machine.may_open("/dev/kfd") is not None or self.on_bus()):
            return ()
        from ._amdgpu import AmdgpuSource

        return (AmdgpuSource(self.machine),)

    def metric(self, device: AcceleratorInfo, what: str) -> SourceReading[Any]:
        if what == "memory" and device.memory_type == "unified":  # only the files tell the memory of programs
            return self.of_files(device, what, SourceReading(value=None, reason="amdsmi doesn't report it"))
        return super().metric(device, what)

    def status(self) -> StartResult:
        status = self._library.status()
        if self.machine.may_open("/dev/kfd") is False:  # it belongs to group render, and a container may lack it
            why = "/dev/kfd can't be opened by this user: join group render (and video)"
            return replace(status, driver=DriverState.DENIED, reason="; ".join(filter(None, [why, status.reason])))
        if not self.driven() and self._files:
            reasons = filter(None, [status.reason, self._files[0].count().reason])
            return replace(status, reason="; ".join(dict.fromkeys(reasons)))
        return status

    def finished(self, devices: tuple[AcceleratorInfo, ...]) -> tuple[AcceleratorInfo, ...]:
        from ._amdgpu import AmdgpuSource, placed
        from ._visibility import with_visibility

        for files in self._files:
            if isinstance(files, AmdgpuSource):
                cards = [files.at(one.extra_info.get("pci_address")) for one in devices]
                devices = tuple(placed(self.machine, one, card) for one, card in zip(devices, cards, strict=True))
        # The runtime counts devices in the order of KFD nodes, amdsmi by address.
        nodes = [one.extra_info.get("kfd_node") for one in devices]
        numbers = [node for node in nodes if isinstance(node, int)]
        numbered = numbers == sorted(numbers) and len(numbers) == len(devices)
        names = [[str(one.extra_info["uuid"])] if "uuid" in one.extra_info else [] for one in devices]
        variables = ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"]
        if self.machine.variable("HIP_VISIBLE_DEVICES") is None:
            variables[1] = "CUDA_VISIBLE_DEVICES"
        return with_visibility(devices, self.machine, variables, names, numbered=numbered)


def violation_reasons(status: dict[str, Any]) -> tuple[str, ...] | None:
    """Return the limits that throttle the clocks; None if the device reports none of them."""
    names = throttling("amd_violations")
    states = {name: status.get(f"active_{name}") for name in names}
    if not any(isinstance(state, bool) for state in states.values()):
        return None
    return tuple(dict.fromkeys(names[name] for name, state in states.items() if state is True))


def _vram_type(written: Any) -> str | None:
    return _VRAM_TYPES.get(written) if isinstance(written, int) else memory_kind(written)
