"""NVIDIA GPUs where NVML doesn't tell: as `nvidia-smi -q -x` describes them, and the one inside a Jetson.

Elements are those of NVIDIA's nvsmi_device_v11 to v13 definitions; older and newer names of one figure are both read.
A Jetson's GPU is in the kernel's own files: Jetson Linux Developer Guide (device tree model, GPU load in tenths of a
percent), and the kernel's thermal ABI.
"""

from __future__ import annotations

import re
from typing import Any

from ..machine import Machine, Reading, Tool
from ._figures import Extra, celsius, given, mig_facts, number, pci_address, percent, rates, share, size, text, watts
from ._sources import Source
from .base import AcceleratorInfo

_ELEMENTS = {
    "applications_clocks_setting": "applications_clocks",
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "thermal",
    "hw_thermal_slowdown": "thermal",
    "hw_power_brake_slowdown": "power_limit",
    "display_clocks_setting": "display_clocks",
}
_MIB = 2**20

_MODEL = "/proc/device-tree/model"
_COMPATIBLE = "/proc/device-tree/compatible"
_LOADS = (
    "/sys/devices/platform/gpu.0/load",
    "/sys/devices/gpu.0/load",
    "/sys/class/devfreq/17000000.gpu/device/load",
)
_THERMAL = "/sys/class/thermal"


class NvidiaSmiSource(Source):
    """The tool that comes with NVIDIA's driver."""

    NAME = "nvidia-smi"

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._tool = Tool(machine, "nvidia-smi", "-q", "-x")

    def count(self) -> Reading[int]:
        told = self._log()
        return told if told.value is None else Reading(value=len(told.value.findall("gpu")))

    def temperature(self, index: int) -> Reading[float]:
        return self._figure(index, celsius, "temperature/gpu_temp")

    def power(self, index: int) -> Reading[float]:
        return self._figure(index, watts, *_either("power_readings", "power_draw", "instant_power_draw"))

    def memory(self, index: int) -> Reading[dict[str, int]]:
        gpu = self._gpu(index)
        if gpu.value is None:
            return gpu
        names = ("total", "used", "free")
        found = {name: _mib(_first(gpu.value, f"fb_memory_usage/{name}"), least=0) for name in names}
        total, used, free = (found[name] for name in names)
        if total is None or used is None or free is None or used + free > total:
            return given(share(total, used), f"{self.NAME} doesn't report the memory of device {index}")
        # What the driver keeps for itself is neither used nor free.
        return Reading(value={"total": total, "used": used, "free": free})

    def utilization(self, index: int) -> Reading[dict[str, float | None]]:
        gpu = self._gpu(index)
        if gpu.value is None:
            return gpu
        compute, memory = (percent(_first(gpu.value, f"utilization/{name}_util")) for name in ("gpu", "memory"))
        return rates(compute, memory, f"{self.NAME} doesn't report the utilization of device {index}")

    def throttle(self, index: int) -> Reading[tuple[str, ...]]:
        gpu = self._gpu(index)
        if gpu.value is None:
            return gpu
        for kind in ("clocks_event_reason", "clocks_throttle_reason"):
            states = {name: _first(gpu.value, f"{kind}s/{kind}_{name}") for name in _ELEMENTS}
            if any(text(state) for state in states.values()):
                active = [_ELEMENTS[name] for name, state in states.items() if (text(state) or "") == "Active"]
                return Reading(value=tuple(dict.fromkeys(active)))
        return Reading(value=None, reason=f"{self.NAME} doesn't report the throttling of device {index}")

    def close(self) -> None:
        self._tool.forget()

    def describe(self, index: int) -> AcceleratorInfo:
        told, gpu = self._log(), self._gpu(index)
        if told.value is None or gpu.value is None:
            return AcceleratorInfo(
                vendor="NVIDIA",
                device_type="gpu",
                model="unknown",
                index=index,
                extra_info={"reason": told.reason or gpu.reason},
            )
        log, one = told.value, gpu.value
        name = text(_first(one, "product_name")) or "unknown"
        total = _first(one, "fb_memory_usage/total")
        # N/A is said where there is no memory of its own; a card that is lost says so in words.
        unified = (total or "").strip().lower() in ("n/a", "not supported")
        generation = number(_first(one, "pci/pci_gpu_link_info/pcie_gen/max_link_gen"))
        return AcceleratorInfo(
            vendor="NVIDIA",
            device_type="gpu",
            model=name,
            index=index,
            memory_bytes=_mib(total),
            memory_type="unified" if unified else None,
            bus_type=_bus_type(name, generation, unified),
            pcie_gen=int(generation) if generation is not None and 1 <= generation <= 9 else None,
            driver_version=text(_first(log, "driver_version")),
            firmware_version=text(_first(one, "vbios_version")),
            extra_info=_extra(log, one, index),
        )

    def _log(self) -> Reading[Any]:
        told = self._tool.text()
        if told.value is None:
            return told
        import xml.etree.ElementTree as ElementTree

        try:
            return Reading(value=ElementTree.fromstring(_without_definitions(told.value)))
        except (ElementTree.ParseError, ValueError) as error:
            return Reading(value=None, reason=f"{self.NAME} printed no XML: {error}")

    def _gpu(self, index: int) -> Reading[Any]:
        told = self._log()
        if told.value is None:
            return told
        cards = told.value.findall("gpu")
        return given(cards[index] if index < len(cards) else None, f"{self.NAME} lists no device {index} any more")

    def _figure(self, index: int, meaning: Any, *paths: str) -> Reading[float]:
        gpu = self._gpu(index)
        if gpu.value is None:
            return gpu
        found = (meaning(_first(gpu.value, path)) for path in paths)
        value = next((one for one in found if one is not None), None)
        return given(value, f"{self.NAME} doesn't report the {paths[0].partition('/')[0]} of device {index}")


def _without_definitions(log: str) -> str:
    # A document type could name entities, which a reading has no use for.
    return re.sub(r"<!(?:DOCTYPE|ENTITY)[^>\[]*(?:\[.*?\]\s*)?>", "", log, flags=re.DOTALL)


def _either(group: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{group}/{name}" for prefix in ("", "gpu_") for name in names)


def _first(element: Any, path: str) -> str | None:
    found: str | None = element.findtext(path)
    return found


def _mib(written: str | None, least: int = 1) -> int | None:
    found = number(written)
    if found == 0 and least == 0:
        return 0
    return size(found, _MIB)


def _bus_type(name: str, generation: float | None, unified: bool) -> str | None:
    if unified:
        return "integrated"
    if "SXM" in name:
        return "sxm"
    return None if generation is None else "pcie"


def _extra(log: Any, one: Any, index: int) -> Extra:
    slices = [
        {
            "name": text(_first(part, "name")) or f"slice {_first(part, 'gpu_instance_id') or position}",
            "uuid": text(_first(part, "uuid")),
            "memory_bytes": _mib(_first(part, "fb_memory_usage/total")),
        }
        for position, part in enumerate(one.findall("mig_devices/mig_device"))
    ]
    limit = next(
        (
            watts
            for path in (*_either("power_readings", "enforced_power_limit", "current_power_limit", "power_limit"),)
            if (watts := number(_first(one, path))) is not None
        ),
        None,
    )
    mode = text(_first(one, "mig_mode/current_mig"))
    told = {
        "uuid": text(_first(one, "uuid")),
        "architecture": text(_first(one, "product_architecture")),
        "pci_address": pci_address(_first(one, "pci/pci_bus_id") or one.get("id")),
        "power_limit_w": limit,
        "cuda_driver_version": text(_first(log, "cuda_version")),
        **(mig_facts(mode == "Enabled", slices) if mode else {}),
    }
    return {key: value for key, value in told.items() if value is not None}


class TegraSource(Source):
    """The GPU of a Jetson, which has no memory of its own."""

    NAME = "the device tree"

    def count(self) -> Reading[int]:
        return Reading(value=1)

    def describe(self, index: int) -> AcceleratorInfo:
        names = [
            word for word in (self.machine.text(_COMPATIBLE) or "").split("\0") if word.startswith("nvidia,tegra")
        ]
        model = (self.machine.text(_MODEL) or "").strip("\0 \n")
        version = (self.machine.text("/sys/module/nvidia/version") or "") or None
        return AcceleratorInfo(
            vendor="NVIDIA",
            device_type="gpu",
            model=f"GPU of {model or 'an NVIDIA system-on-chip'}",
            index=index,
            memory_type="unified",
            bus_type="integrated",
            driver_version=version,
            extra_info={
                "system_on_chip": names[-1].partition(",")[2] if names else "tegra",
                "reason": "it has no memory of its own and uses the machine's",
            },
        )

    def temperature(self, index: int) -> Reading[float]:
        for zone in self.machine.names(_THERMAL) or ():
            kind = (self.machine.text(f"{_THERMAL}/{zone}/type") or "").lower()
            millidegrees = number(self.machine.text(f"{_THERMAL}/{zone}/temp"))
            if kind.startswith("gpu") and millidegrees is not None:
                return given(celsius(millidegrees / 1000), "its sensor is switched off")
        return Reading(value=None, reason="no thermal zone of the GPU is there")

    def utilization(self, index: int) -> Reading[dict[str, float | None]]:
        for path in _LOADS:
            permille = number(self.machine.text(path))
            if permille is not None and 0 <= permille <= 1000:
                return rates(permille / 10, None, "")
        return Reading(value=None, reason="no load of the GPU is there")
