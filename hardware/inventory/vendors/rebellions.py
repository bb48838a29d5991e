"""Rebellions NPUs, with the table of `rbln-smi` (`rbln-stat` of older drivers)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from ...machine import SourceReading
from ...values import whole
from ._node_vendor import NodeAccelerators, ToolDevice
from ._tool_values import celsius, number, pci_address, percent, watts

_COLUMNS = 8
_UNITS = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class RebellionsAccelerators(NodeAccelerators):
    """Inventory and telemetry of Rebellions NPUs."""

    VENDOR_NAME = "Rebellions"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {"pytorch": "rbln:{index}"}
    TOOL = "rbln-smi"

    def told(self) -> SourceReading[Mapping[str, ToolDevice]]:
        printed = self.printed("rbln-smi")
        if printed.value is None:
            printed = self.printed("rbln-stat")
        found: dict[str, ToolDevice] = {}
        for line in (printed.value or "").splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) < _COLUMNS or (address := pci_address(cells[3])) is None:
                continue
            used, _, total = cells[-2].partition("/")
            found[address] = ToolDevice(
                number=whole(cells[2].removeprefix("rbln")),
                model=f"Rebellions {cells[1]}",
                temperature=celsius(cells[4].rstrip("C")),
                power=watts(cells[5].rstrip("W")),
                memory_used=_bytes(used),
                memory_total=_bytes(total) or None,
                compute=percent(cells[-1]),
            )
        return SourceReading(value=found, reason="" if found else printed.reason or "rbln-smi lists no device")


def _bytes(written: str) -> int | None:
    """Return a size such as `15.7GiB` or `0.0B`; the tool writes GB for GiB too."""
    found = re.fullmatch(r"([\d.]{1,12})\s*([BKMGT])(?:i?B)?", written.strip())
    value = number(found[1]) if found else None
    return None if found is None or value is None else int(value * _UNITS[found[2]])
