"""Intel GPUs as `xpu-smi` prints them, for a machine without the Python binding of Level Zero.

Source: Intel's user guide of xpu-smi 1.2 and 1.3 (`discovery -j`, `stats -j`); figures are of the device, or one for
each of its tiles.
"""

from __future__ import annotations

from typing import Any

from ..machine import Machine, Reading, Tool
from ._figures import celsius, drawn, given, number, pci_address, percent, positive, rates, share, size, text, without
from ._sources import Source
from .base import AcceleratorInfo

_MIB = 2**20


class XpuSmiSource(Source):
    """Intel's tool for its GPUs."""

    NAME = "xpu-smi"

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._list = Tool(machine, "xpu-smi", "discovery", "-j", keep=True)
        self._details: dict[int, Tool] = {}
        self._stats: dict[int, Tool] = {}

    def count(self) -> Reading[int]:
        told = self._list.json()
        return told if told.value is None else given(len(self._devices()) or None, "xpu-smi lists no device")

    def _devices(self) -> list[dict[str, Any]]:
        told = self._list.json().value
        devices = told.get("device_list") if isinstance(told, dict) else None
        every = [one for one in devices if isinstance(one, dict)] if isinstance(devices, list) else []
        return [one for one in every if text(one.get("device_type")) in ("GPU", None)]

    def _number(self, index: int) -> int:
        """The tool's own number of a device."""
        devices = self._devices()
        found = number(devices[index].get("device_id")) if index < len(devices) else None
        return index if found is None or not 0 <= found < 1000 else int(found)

    def _asked(self, kept: dict[int, Tool], command: str, index: int) -> dict[str, Any]:
        device = self._number(index)
        tool = kept.setdefault(
            device, Tool(self.machine, "xpu-smi", command, "-d", str(device), "-j", keep=command == "discovery")
        )
        told = tool.json().value
        return told if isinstance(told, dict) else {}

    def _figures(self, index: int, name: str) -> list[float]:
        """A figure of the device, or else those of its tiles."""
        told = self._asked(self._stats, "stats", index)
        tiles = told.get("tile_level")
        groups = [told.get("device_level")]
        if isinstance(tiles, list):
            groups.append([one for tile in tiles if isinstance(tile, dict) for one in tile.get("data_list") or ()])
        for group in groups:
            found = [
                value
                for one in (group if isinstance(group, list) else ())
                if isinstance(one, dict)
                and one.get("metrics_type") == f"XPUM_STATS_{name}"
                and (value := number(one.get("value"))) is not None
            ]
            if found:
                return found
        return []

    def temperature(self, index: int) -> Reading[float]:
        found = [value for one in self._figures(index, "GPU_CORE_TEMPERATURE") if (value := celsius(one)) is not None]
        return given(max(found, default=None), "xpu-smi doesn't report temperature")

    def memory(self, index: int) -> Reading[dict[str, int]]:
        used, total = self._figures(index, "MEMORY_USED"), self.describe(index).memory_bytes
        return given(share(total, int(sum(used) * _MIB) if used else None), "xpu-smi doesn't report used memory")

    def utilization(self, index: int) -> Reading[dict[str, float | None]]:
        compute, memory = (
            percent(sum(found) / len(found)) if (found := self._figures(index, name)) else None
            for name in ("GPU_UTILIZATION", "MEMORY_BANDWIDTH")
        )
        return rates(compute, memory, "xpu-smi doesn't report load")

    def power(self, index: int) -> Reading[float]:
        found = self._figures(index, "POWER")
        return given(drawn(sum(found)) if found else None, "xpu-smi doesn't report power")

    def close(self) -> None:
        for tool in (self._list, *self._details.values(), *self._stats.values()):
            tool.forget()

    def describe(self, index: int) -> AcceleratorInfo:
        devices = self._devices()
        told = {**(devices[index] if index < len(devices) else {}), **self._asked(self._details, "discovery", index)}
        address = pci_address(told.get("pci_bdf_address"))
        integrated = address == "0000:00:02.0"
        generation = positive(told.get("pcie_generation"))
        memory = None if integrated else size(told.get("memory_physical_size_byte"))
        extra = {
            "pci_address": address,
            "pci_device_id": text(told.get("pci_device_id")),
            "uuid": text(told.get("uuid")),
            "tiles": _whole(told.get("number_of_tiles")),
            "max_allocation_bytes": size(told.get("max_mem_alloc_size_byte")),
            "reason": None if told else f"xpu-smi lists no device {index} any more",
        }
        if integrated:
            extra["reason"] = "it has no memory of its own and uses the machine's"
        return AcceleratorInfo(
            vendor="Intel",
            device_type="gpu",
            model=text(told.get("device_name")) or "unknown",
            index=index,
            memory_bytes=memory,
            memory_type="unified" if integrated else None,
            bus_type="integrated" if integrated else "pcie" if address else None,
            pcie_gen=int(generation) if generation and generation <= 9 and not integrated else None,
            driver_version=text(told.get("driver_version")),
            firmware_version=text(told.get("gfx_firmware_version")),
            extra_info=without(extra),
        )


def _whole(written: Any) -> int | None:
    found = positive(written)
    return None if found is None else int(found)
