"""AMD's XDNA NPUs in Ryzen AI processors, with the files of the driver amdxdna."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...machine import SourceReading
from ._node_vendor import NodeAccelerators, ToolDevice
from ._tool_values import text


class XdnaAccelerators(NodeAccelerators):
    """Inventory of XDNA NPUs. The driver's files have no telemetry."""

    VENDOR_NAME = "XDNA"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {"onnxruntime": "VitisAIExecutionProvider"}
    """ONNX Runtime has a provider and no device."""
    TOOL = "the driver amdxdna"

    def told(self) -> SourceReading[Mapping[str, ToolDevice]]:
        found: dict[str, ToolDevice] = {}
        for address, number, name in self.of_class("device/vbnv"):
            firmware = self.machine.text(f"{self.known['class']}/{self.known['entry']}{number}/device/fw_version")
            found[address] = ToolDevice(
                number=number,
                model=f"AMD XDNA NPU ({name})" if text(name) else "",
                memory_type="unified",
                firmware_version=text(firmware),
            )
        return SourceReading(value=found, reason="" if found else "amdxdna lists no device")
