"""Intel Gaudi (Habana Labs), with `hl-smi`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...machine import SourceReading
from ...values import whole
from ._node_vendor import NodeAccelerators, ToolDevice
from ._tool_values import celsius, pci_address, percent, size, text, watts

_ASKED = "bus_id,index,name,driver_version,memory.total,memory.used,utilization.aip,temperature.aip,power.draw"


class GaudiAccelerators(NodeAccelerators):
    """Inventory and telemetry of Gaudi accelerators."""

    VENDOR_NAME = "Habana"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {"pytorch": "hpu:{index}"}
    TOOL = "hl-smi"

    def told(self) -> SourceReading[Mapping[str, ToolDevice]]:
        printed = self.printed("hl-smi", "-Q", _ASKED, "-f", "csv,noheader,nounits")
        found: dict[str, ToolDevice] = {}
        for line in (printed.value or "").splitlines():
            values = [one.strip() for one in line.split(",")]
            if len(values) != len(_ASKED.split(",")) or (address := pci_address(values[0])) is None:
                continue
            _, index, name, driver, total, used, load, degrees, power = values
            found[address] = ToolDevice(
                number=whole(index),
                model=f"Intel Gaudi {name}" if text(name) else "",
                driver_version=text(driver),
                memory_total=size(total, 2**20),
                memory_used=None if (mib := whole(used)) is None else mib * 2**20,
                memory_type="HBM",
                compute=percent(load),
                temperature=celsius(degrees),
                power=watts(power),
            )
        return SourceReading(value=found, reason="" if found else printed.reason or "hl-smi lists no device")
