"""The machines that work is placed on: this one, and others by their inventories."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hardware.detection import HardwareInfo
from hardware.errors import UsageError, echo
from hardware.inventory_file import read_inventory
from hwcompat.plugins.placement.device import Device
from hwcompat.plugins.placement.devices import devices_of, free_now


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine: its label (empty where it is the only one), its inventory, and its devices."""

    label: str
    inventory: HardwareInfo
    devices: tuple[Device, ...]


def machines_of(here: HardwareInfo, files: Sequence[Path]) -> tuple[Machine, ...]:
    """This machine where no files were named; else those whose inventories the files hold, named after the files.

    Raises `UsageError` for two files of one name, `BrokenInput` for one that holds no inventory.
    """
    if not files:
        return (Machine(label="", inventory=here, devices=devices_of(here, free=free_now)),)
    found: dict[str, Machine] = {}
    for path in files:
        label = re.sub(r"[^A-Za-z0-9._-]", "-", path.stem)[:40] or "machine"
        if label in found:
            raise UsageError(f"{echo(label)} is the name of two machines", fix="Rename one of the files.")
        inventory = read_inventory(path)
        found[label] = Machine(label=label, inventory=inventory, devices=devices_of(inventory, label=label))
    return tuple(found.values())
