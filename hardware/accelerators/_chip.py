"""Accelerators that are part of a system-on-chip and on no bus, as the kernel's platform drivers show them."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..machine import Machine

_DRIVERS = "/sys/bus/platform/drivers"
_TABLE = Path(__file__).with_name("chip_devices.toml")


@dataclass(frozen=True, kw_only=True)
class ChipDevice:
    """One device: where the kernel has it (`fdab0000.npu`), the driver, and the device tree's name for it."""

    place: str
    name: str
    kind: str
    driver: str
    compatible: str


def chip_accelerators(machine: Machine) -> tuple[ChipDevice, ...]:
    """What `chip_devices.toml` knows, by driver and place. Empty where the kernel has none of the drivers."""
    found = []
    for known in _known():
        folder = f"{_DRIVERS}/{known['driver']}"
        for place in machine.names(folder) or ():
            event = machine.text(f"{folder}/{place}/uevent") or ""
            told = re.search(r"^OF_COMPATIBLE_0=(\S+)", event, re.MULTILINE)
            if told and told[1].startswith(known["compatible"]):
                found.append(
                    ChipDevice(
                        place=place,
                        name=known["name"],
                        kind=known["kind"],
                        driver=known["driver"],
                        compatible=told[1],
                    )
                )
    return tuple(found)


@functools.cache
def _known() -> list[dict[str, Any]]:
    devices: list[dict[str, Any]] = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["device"]
    return devices
