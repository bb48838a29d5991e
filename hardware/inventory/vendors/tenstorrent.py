"""Tenstorrent cards, with the files of their kernel driver: `tt-smi` initializes the chips, and isn't run."""

from __future__ import annotations

from collections.abc import Mapping

from ...machine import SourceReading
from ._node_vendor import NodeAccelerators, ToolDevice
from ._tool_values import celsius, text, watts


class TenstorrentAccelerators(NodeAccelerators):
    """Inventory and telemetry of Tenstorrent cards. Models are compiled for one: no framework has a name for it."""

    VENDOR_NAME = "Tenstorrent"
    TOOL = "the driver tt-kmd"

    def told(self) -> SourceReading[Mapping[str, ToolDevice]]:
        found: dict[str, ToolDevice] = {}
        for address, number, card in self.of_class("tt_card_type"):
            place = f"{self.known['class']}/{self.known['entry']}{number}"
            monitors = f"{place}/device/hwmon"
            monitor = f"{monitors}/{next(iter(self.machine.names(monitors) or ()), 'none')}"
            found[address] = ToolDevice(
                number=number,
                model=f"Tenstorrent {card}" if text(card) else "",
                firmware_version=text(self.machine.text(f"{place}/tt_fw_bundle_ver")),
                temperature=celsius(self.machine.text(f"{monitor}/temp1_input"), per=1000),
                power=watts(self.machine.text(f"{monitor}/power1_input"), per=1e6),
            )
        return SourceReading(value=found, reason="" if found else "tt-kmd lists no device")
