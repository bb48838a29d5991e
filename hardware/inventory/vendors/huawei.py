"""Huawei Ascend NPUs, with the table of `npu-smi info`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from ...machine import SourceReading
from ...values import whole
from ._node_vendor import NodeAccelerators, ToolDevice
from ._tool_values import celsius, pci_address, percent, size, watts

_FIRST = re.compile(r"\|\s*(\d+)\s+(\S+)\s*\|\s*(\S+)\s*\|\s*(\S+)\s+(\S+)")
"""NPU and name, health, power and temperature."""
_SECOND = re.compile(
    r"\|\s*\d+(?:\s+(\d+))?\s*\|\s*([0-9A-Fa-f:.]{10,12})\s*\|"
    r"\s*(\S+)\s+(\d+)\s*/\s*(\d+)(?:\s+(\d+)\s*/\s*(\d+))?"
)
"""Number of a chip's node if an NPU has two chips, bus id, load of the AI cores in percent, memory and (not on
inference cards) HBM in MB, used and total."""


class HuaweiAccelerators(NodeAccelerators):
    """Inventory and telemetry of Ascend NPUs."""

    VENDOR_NAME = "Huawei"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {"pytorch": "npu:{index}", "onnxruntime": "CANNExecutionProvider"}
    TOOL = "npu-smi"

    def told(self) -> SourceReading[Mapping[str, ToolDevice]]:
        printed = self.printed("npu-smi", "info")
        found: dict[str, ToolDevice] = {}
        first: re.Match[str] | None = None
        for line in (printed.value or "").splitlines():
            second = _SECOND.match(line)
            if second is None:
                first = _FIRST.match(line) or first
                continue
            chip, bus_id, load, *sizes = second.groups()
            address = pci_address(bus_id)
            if first is None or address is None:
                continue
            own = not whole(sizes[3])
            used, total = sizes[:2] if own else sizes[2:]
            found[address] = ToolDevice(
                number=whole(chip or first[1]),
                model=f"Ascend {first[2].removeprefix('Ascend')}",
                memory_total=size(total, 2**20),
                memory_used=None if (mib := whole(used)) is None else mib * 2**20,
                memory_type=None if own else "HBM",
                power=watts(first[4]),
                temperature=celsius(first[5]),
                compute=percent(load),
                extra={"health": first[3]},
            )
            first = None
        return SourceReading(value=found, reason="" if found else printed.reason or "npu-smi lists no device")
