"""Accelerators as the PCI bus shows them, with no driver and no vendor library.

Source of the layout: the kernel's `Documentation/ABI/testing/sysfs-bus-pci`; of the classes: pci.ids.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..machine import Library, LiveMachine, Machine, Reading

DISPLAY_CLASS = 0x03
PROCESSING_ACCELERATOR_CLASS = 0x12

ID_DATABASES = (
    Path("/usr/share/misc/pci.ids"),
    Path("/usr/share/hwdata/pci.ids"),
    Path("/usr/share/pci.ids"),
)
_DEVICES = "/sys/bus/pci/devices"


@dataclass(frozen=True, kw_only=True)
class PciDevice:
    """A graphics or processing device; `name` is empty where the id database isn't installed."""

    address: str
    vendor_id: int
    device_id: int
    class_code: int
    name: str = ""


def pci_accelerators(machine: Machine | None = None) -> tuple[PciDevice, ...] | None:
    """Display controllers (class 03) and processing accelerators (12) by address; `None` without a bus."""
    machine = machine or LiveMachine()
    addresses = machine.names(_DEVICES)
    if addresses is None:
        return None
    found = [device for address in addresses if (device := _read(machine, address)) is not None]
    return _named(found, machine) if found else ()


def _read(machine: Machine, address: str) -> PciDevice | None:
    # A device that is unplugged while we read has no numbers any more; it is not there.
    code = machine.number(f"{_DEVICES}/{address}/class", 16)
    if code is None or code >> 16 not in (DISPLAY_CLASS, PROCESSING_ACCELERATOR_CLASS):
        return None
    vendor, device = (machine.number(f"{_DEVICES}/{address}/{name}", 16) for name in ("vendor", "device"))
    if vendor is None or device is None or not (0 <= vendor <= 0xFFFF and 0 <= device <= 0xFFFF):
        return None
    return PciDevice(address=address, vendor_id=vendor, device_id=device, class_code=code)


def _named(devices: list[PciDevice], machine: Machine) -> tuple[PciDevice, ...]:
    wanted = {(device.vendor_id, device.device_id) for device in devices}
    told = machine.library(PciNames).ask("names", sorted([list(one) for one in wanted])).value or []
    names = {(vendor, device): name for vendor, device, name in told}
    return tuple(replace(device, name=names.get((device.vendor_id, device.device_id), "")) for device in devices)


class PciNames(Library):
    """The PCI id database (pci.ids), which the system's packages bring."""

    NAME = "pci_ids"

    def ask(self, function: str, *arguments: Any) -> Reading[Any]:
        """`names` of a list of (vendor, device): a list of (vendor, device, name) for those that are known."""
        database = next((path for path in ID_DATABASES if path.is_file()), None)
        if database is None:
            return Reading(value=None, reason="no pci.ids is installed (Debian: pci.ids, Fedora: hwdata)")
        wanted = {(vendor, device) for vendor, device in arguments[0]}
        found = _names(wanted, database)
        return Reading(value=[[vendor, device, name] for (vendor, device), name in sorted(found.items())])


def _names(wanted: set[tuple[int, int]], database: Path) -> dict[tuple[int, int], str]:
    """Vendor lines begin in column 0 with four hexadecimal digits, device lines with one tab."""
    names: dict[tuple[int, int], str] = {}
    vendor_id, vendor_name = -1, ""
    with database.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(("#", "\t\t", "\n")):
                continue
            if line.startswith("C "):
                break
            number, _, name = line.strip().partition("  ")
            try:
                identity = int(number, 16)
            except ValueError:
                continue
            if not line.startswith("\t"):
                vendor_id, vendor_name = identity, name
            elif (vendor_id, identity) in wanted:
                names[vendor_id, identity] = f"{vendor_name} {name}"
    return names
