"""AMD GPUs as `amd-smi` and `rocm-smi` print them, for a machine without the Python binding of their library.

Sources: the JSON of amd-smi 24 to 26 (ROCm 6.1 to 7.x; a list, since 7.0 under `gpu_data`) and of rocm-smi.
"""

from __future__ import annotations

from typing import Any

from ..machine import Machine, Reading, Tool
from ._amdgpu import Cards, placed
from ._figures import (
    AMD_VIOLATIONS,
    celsius,
    drawn,
    generation_of,
    gfx_named,
    given,
    memory_kind,
    number,
    pci_address,
    percent,
    positive,
    rates,
    share,
    size,
    text,
    without,
)
from ._sources import Source
from .base import AcceleratorInfo

_UNITS = {"b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30}


class _AmdTool(Source):
    """What both tools share: which devices there are is said by one command, and how they do by one."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._cards = Cards(machine)

    def _placed(self, info: AcceleratorInfo) -> AcceleratorInfo:
        address = info.extra_info.get("pci_address")
        return placed(self.machine, info, self._cards.at(address) if address else None)


class AmdSmiSource(_AmdTool):
    """`amd-smi static --json` and `amd-smi metric --json`."""

    NAME = "amd-smi"

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._facts = Tool(machine, "amd-smi", "static", "--json", keep=True)
        self._figures = Tool(machine, "amd-smi", "metric", "--json")

    def count(self) -> Reading[int]:
        told = self._facts.json()
        return told if told.value is None else given(len(_gpus(told.value)) or None, "amd-smi lists no device")

    def _static(self, index: int) -> dict[str, Any]:
        return _at(_gpus(self._facts.json().value), index)

    def _metric(self, index: int) -> dict[str, Any]:
        return _at(_gpus(self._figures.json().value), index)

    def temperature(self, index: int) -> Reading[float]:
        group = _table(self._metric(index), "temperature")
        found = (celsius(group.get(name)) for name in ("edge", "hotspot", "mem"))
        return given(next((one for one in found if one is not None), None), "amd-smi doesn't report temperature")

    def memory(self, index: int) -> Reading[dict[str, int]]:
        group = _table(self._metric(index), "mem_usage")
        card = self._placed(self.describe(index))
        kind = "gtt" if card.memory_bytes and card.memory_bytes == card.extra_info.get("gtt_bytes") else "vram"
        used = _bytes(group.get(f"used_{kind}"), least=0)
        return given(share(_bytes(group.get(f"total_{kind}")), used), "amd-smi doesn't report used memory")

    def utilization(self, index: int) -> Reading[dict[str, float | None]]:
        group = _table(self._metric(index), "usage")
        compute, memory = percent(group.get("gfx_activity")), percent(group.get("umc_activity"))
        return rates(compute, memory, "amd-smi doesn't report load")

    def power(self, index: int) -> Reading[float]:
        group = _table(self._metric(index), "power")
        found = (drawn(group.get(name)) for name in ("socket_power", "current_socket_power", "average_socket_power"))
        return given(next((one for one in found if one is not None), None), "amd-smi doesn't report power")

    def throttle(self, index: int) -> Reading[tuple[str, ...]]:
        metric = self._metric(index)
        limits = {name: text(_table(metric, "throttle").get(f"{name}_violation_status")) for name in AMD_VIOLATIONS}
        if any(limits.values()):
            active = [AMD_VIOLATIONS[name] for name, state in limits.items() if (state or "").upper() == "ACTIVE"]
            return Reading(value=tuple(dict.fromkeys(active)))
        status = (text(_table(metric, "power").get("throttle_status")) or "").upper()
        known: dict[str, tuple[str, ...]] = {"UNTHROTTLED": (), "THROTTLED": ("reason_not_told",)}
        return given(known.get(status), "amd-smi doesn't report throttling")

    def close(self) -> None:
        self._facts.forget()
        self._figures.forget()
        self._cards.forget()

    def describe(self, index: int) -> AcceleratorInfo:
        gpu = self._static(index)
        asic, bus, vram = _table(gpu, "asic"), _table(gpu, "bus"), _table(gpu, "vram")
        firmware = _table(gpu, "ifwi") or _table(gpu, "vbios")
        driver = _table(gpu, "driver")
        generation = number((text(bus.get("pcie_interface_version")) or "").lower().removeprefix("gen"))
        is_told = generation is not None and 1 <= generation <= 9
        info = AcceleratorInfo(
            vendor="AMD",
            device_type="gpu",
            model=text(asic.get("market_name")) or "unknown",
            index=index,
            compute_capability=gfx_named(asic.get("target_graphics_version")),
            memory_bytes=_bytes(vram.get("size")),
            memory_type=memory_kind(vram.get("type")),
            bus_type="pcie" if bus else None,
            pcie_gen=int(generation or 0) if is_told else generation_of(bus.get("max_pcie_speed")),
            bandwidth_gbps=positive(vram.get("max_bandwidth")),
            driver_version=text(driver.get("version")) or text(driver.get("driver_version")),
            firmware_version=text(firmware.get("version")),
            extra_info=without(
                {
                    "pci_address": pci_address(bus.get("bdf")),
                    "compute_units": _whole(asic.get("num_compute_units")),
                    "form_factor": text(bus.get("slot_type")),
                    "power_limit_w": positive(_table(gpu, "limit").get("socket_power")),
                    "compute_partition": text(_table(gpu, "partition").get("compute_partition")),
                    "memory_partition": text(_table(gpu, "partition").get("memory_partition")),
                    "reason": None if gpu else f"amd-smi lists no device {index} any more",
                }
            ),
        )
        return self._placed(info)


_ROCM_SMI = (
    *("rocm-smi", "--showproductname", "--showbus", "--showmeminfo", "vram", "gtt", "--showuse", "--showmemuse"),
    *("--showtemp", "--showpower", "--showmaxpower", "--showvbios", "--showdriverversion", "--json"),
)


class RocmSmiSource(_AmdTool):
    """`rocm-smi --json`, the older tool. Its keys are written with other capitals from version to version."""

    NAME = "rocm-smi"

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._tool = Tool(machine, *_ROCM_SMI)

    def count(self) -> Reading[int]:
        told = self._tool.json()
        return told if told.value is None else given(len(self._list(told.value)) or None, "rocm-smi lists no device")

    def _list(self, told: Any) -> list[dict[str, Any]]:
        tables = told if isinstance(told, dict) else {}
        names = sorted(
            (name for name in tables if name.startswith("card") and name[4:].isdecimal()),
            key=lambda name: (len(name), name),
        )
        return [{str(key).lower(): value for key, value in _table(tables, name).items()} for name in names]

    def _static(self, index: int) -> dict[str, Any]:
        return _at(self._list(self._tool.json().value), index)

    def temperature(self, index: int) -> Reading[float]:
        card = self._static(index)
        found = (celsius(card.get(f"temperature (sensor {name}) (c)")) for name in ("edge", "junction", "memory"))
        return given(next((one for one in found if one is not None), None), "rocm-smi doesn't report temperature")

    def memory(self, index: int) -> Reading[dict[str, int]]:
        card = self._static(index)
        info = self.describe(index)
        kind = "gtt" if info.memory_bytes and info.memory_bytes == info.extra_info.get("gtt_bytes") else "vram"
        used = number(card.get(f"{kind} total used memory (b)"))
        total = size(card.get(f"{kind} total memory (b)"))
        return given(share(total, None if used is None else int(used)), "rocm-smi doesn't report used memory")

    def utilization(self, index: int) -> Reading[dict[str, float | None]]:
        card = self._static(index)
        # "GPU Memory Allocated (VRAM%)" says how full the memory is, not how busy.
        memory = percent(card.get("gpu memory read/write activity (%)"))
        return rates(percent(card.get("gpu use (%)")), memory, "rocm-smi doesn't report load")

    def power(self, index: int) -> Reading[float]:
        card = self._static(index)
        names = ("current socket graphics package power (w)", "average graphics package power (w)")
        found = (drawn(card.get(name)) for name in names)
        return given(next((one for one in found if one is not None), None), "rocm-smi doesn't report power")

    def close(self) -> None:
        self._tool.forget()
        self._cards.forget()

    def describe(self, index: int) -> AcceleratorInfo:
        card = self._static(index)
        told = self._tool.json().value
        system = {str(key).lower(): value for key, value in _table(told, "system").items()}
        series, model = text(card.get("card series")), text(card.get("card model"))
        info = AcceleratorInfo(
            vendor="AMD",
            device_type="gpu",
            model=next((name for name in (series, model) if name and not name.startswith("0x")), "unknown"),
            index=index,
            compute_capability=gfx_named(card.get("gfx version")),
            memory_bytes=size(card.get("vram total memory (b)")),
            bus_type="pcie" if text(card.get("pci bus")) else None,
            driver_version=text(system.get("driver version")),
            firmware_version=text(card.get("vbios version")),
            extra_info=without(
                {
                    "pci_address": pci_address(card.get("pci bus")),
                    "power_limit_w": positive(card.get("max graphics package power (w)")),
                    "reason": None if card else f"rocm-smi lists no device {index} any more",
                }
            ),
        )
        return self._placed(info)


def _gpus(told: Any) -> list[dict[str, Any]]:
    if isinstance(told, dict):
        told = told.get("gpu_data", [told] if "gpu" in told else [])
    return [one for one in told if isinstance(one, dict) and "gpu" in one] if isinstance(told, list) else []


def _at(tables: list[dict[str, Any]], index: int) -> dict[str, Any]:
    return tables[index] if index < len(tables) else {}


def _table(tables: Any, name: str) -> dict[str, Any]:
    found = tables.get(name) if isinstance(tables, dict) else None
    return found if isinstance(found, dict) else {}


def _bytes(written: Any, least: int = 1) -> int | None:
    """Bytes of `{"value": 8176, "unit": "MB"}`, whose unit is one of 2^20 bytes."""
    unit = _UNITS.get(str(written.get("unit", "MB")).lower()) if isinstance(written, dict) else _UNITS["mb"]
    found = number(written)
    if unit is None or found is None:
        return None
    return 0 if found == 0 and least == 0 else size(found, unit)


def _whole(written: Any) -> int | None:
    found = positive(written)
    return None if found is None else int(found)
