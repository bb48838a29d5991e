"""Level Zero Sysman through its binding pyzes; structures and handles aren't returned."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from typing import Any

_GPU = 1
_INTEGRATED_FLAG = 1
_BETWEEN_SAMPLES_S = 0.05


class LevelZeroError(Exception):
    """A function returned an error."""


def gpus(zes: Any) -> list[Any]:
    """Return the handles of all GPUs. Raises `LevelZeroError` on failure."""
    every = [
        device
        for driver in _list(zes, "zesDriverGet", zes.zes_driver_handle_t)
        for device in _list(zes, "zesDeviceGet", zes.zes_device_handle_t, driver)
    ]
    return [one for one in every if _properties(zes, one).core.type == _GPU]


def name_of(zes: Any, result: int) -> str:
    """Return the binding's name of a result."""
    names = (name for name in dir(zes) if name.startswith("ZE_RESULT_") and getattr(zes, name) == result)
    return next(names, f"result {result & 0xFFFFFFFF:#x}")


def _check(zes: Any, function: str, *arguments: Any) -> None:
    result = getattr(zes, function)(*arguments)
    if result != zes.ZE_RESULT_SUCCESS:
        raise LevelZeroError(f"{function}: {name_of(zes, result)}")


def _list(zes: Any, function: str, kind: Any, *parent: Any) -> list[Any]:
    count = ctypes.c_uint32(0)
    _check(zes, function, *parent, ctypes.byref(count), None)
    handles = (kind * count.value)()
    if count.value:
        _check(zes, function, *parent, ctypes.byref(count), handles)
    return [kind(handles[position]) if isinstance(handles[position], int) else handles[position]
            for position in range(count.value)]  # fmt: skip


def _filled(zes: Any, function: str, handle: Any, kind: str, stype: str = "") -> Any:
    structure = getattr(zes, kind)()
    if stype:
        structure.stype = getattr(zes, f"ZES_STRUCTURE_TYPE_{stype}")
    _check(zes, function, handle, ctypes.byref(structure))
    return structure


def _properties(zes: Any, device: Any) -> Any:
    return _filled(zes, "zesDeviceGetProperties", device, "zes_device_properties_t", "DEVICE_PROPERTIES")


def _text(value: bytes) -> str:
    return value.decode(errors="replace").strip()


def _device(zes: Any, device: Any) -> dict[str, Any]:
    properties = _properties(zes, device)
    pci = _filled(zes, "zesDevicePciGetProperties", device, "zes_pci_properties_t", "PCI_PROPERTIES")
    where, speed = pci.address, pci.maxSpeed
    return {
        "name": _text(properties.core.name) or _text(properties.modelName),
        "device_id": properties.core.deviceId,
        "integrated": bool(properties.core.flags & _INTEGRATED_FLAG),
        "max_allocation_bytes": properties.core.maxMemAllocSize,
        "subdevices": properties.numSubdevices,
        "driver_version": _text(properties.driverVersion),
        "uuid": bytes(properties.core.uuid.id).hex(),
        "pci_address": f"{where.domain:04x}:{where.bus:02x}:{where.device:02x}.{where.function:x}",
        "pcie_gen": speed.gen,
        "pcie_width": speed.width,
    }


def _memory(zes: Any, device: Any) -> list[dict[str, Any]]:
    modules = []
    for handle in _list(zes, "zesDeviceEnumMemoryModules", zes.zes_mem_handle_t, device):
        properties = _filled(zes, "zesMemoryGetProperties", handle, "zes_mem_properties_t", "MEM_PROPERTIES")
        state = _filled(zes, "zesMemoryGetState", handle, "zes_mem_state_t", "MEM_STATE")
        kinds = {
            getattr(zes, name): name.removeprefix("ZES_MEM_TYPE_") for name in dir(zes) if "ZES_MEM_TYPE_" in name
        }
        modules.append(
            {
                "kind": kinds.get(properties.type, ""),
                "on_device": properties.location == zes.ZES_MEM_LOC_DEVICE,
                "physical_bytes": properties.physicalSize,
                "size_bytes": state.size,
                "free_bytes": state.free,
                "bus_bits": properties.busWidth,
            }
        )
    return modules


def _temperatures(zes: Any, device: Any) -> list[list[Any]]:
    found = []
    for handle in _list(zes, "zesDeviceEnumTemperatureSensors", zes.zes_temp_handle_t, device):
        properties = _filled(zes, "zesTemperatureGetProperties", handle, "zes_temp_properties_t", "TEMP_PROPERTIES")
        celsius = ctypes.c_double()
        _check(zes, "zesTemperatureGetState", handle, ctypes.byref(celsius))
        found.append([properties.type, celsius.value])
    return found


def _throttle(zes: Any, device: Any) -> int | None:
    bits: int | None = None
    for handle in _list(zes, "zesDeviceEnumFrequencyDomains", zes.zes_freq_handle_t, device):
        state = _filled(zes, "zesFrequencyGetState", handle, "zes_freq_state_t", "FREQ_STATE")
        bits = (bits or 0) | state.throttleReasons
    return bits


def _power(zes: Any, device: Any) -> float | None:
    """Return the power in W of the first domain, the whole card, over 50 ms."""
    domains = _list(zes, "zesDeviceEnumPowerDomains", zes.zes_pwr_handle_t, device)
    if not domains:
        return None
    sample = functools.partial(_filled, zes, "zesPowerGetEnergyCounter", domains[0], "zes_power_energy_counter_t")
    return _rate(sample, "energy")  # microjoules per microsecond


def _engines(zes: Any, device: Any) -> list[list[Any]]:
    """Return type and busy share of each group of engines over 50 ms."""
    found = []
    for handle in _list(zes, "zesDeviceEnumEngineGroups", zes.zes_engine_handle_t, device):
        properties = _filled(zes, "zesEngineGetProperties", handle, "zes_engine_properties_t", "ENGINE_PROPERTIES")
        if properties.type not in (zes.ZES_ENGINE_GROUP_ALL, zes.ZES_ENGINE_GROUP_COMPUTE_ALL):
            continue
        sample = functools.partial(_filled, zes, "zesEngineGetActivity", handle, "zes_engine_stats_t")
        share = _rate(sample, "activeTime")
        found.append([properties.type, share])
    return found


def _rate(sample: Callable[[], Any], field: str) -> float | None:
    """Return the rate of a counter by the structure's own clock."""
    first = sample()
    time.sleep(_BETWEEN_SAMPLES_S)
    second = sample()
    elapsed = second.timestamp - first.timestamp
    return (getattr(second, field) - getattr(first, field)) / elapsed if elapsed > 0 else None


QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "device": _device,
    "memory": _memory,
    "temperatures": _temperatures,
    "throttle": _throttle,
    "power": _power,
    "engines": _engines,
}
