"""Accelerators that the kernel shows without a vendor library: on the PCI bus, and in a system-on-chip.

Sources: the kernel's `Documentation/ABI/testing/sysfs-bus-pci` and `sysfs-devices-removable` for the layout; pci.ids
for the classes; `bus_devices.toml` for devices in other classes, and for names without pci.ids.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...machine import Library, LiveMachine, Machine, SourceReading
from ...values import data_file, listed, whole, words
from ._tool_values import generation_of

AMD_VENDOR_ID, INTEL_VENDOR_ID = 0x1002, 0x8086
DISPLAY_CLASS = 0x03
PROCESSING_ACCELERATOR_CLASS = 0x12
_VAGUE_CLASSES = (0x00, 0x08, 0x0B, 0x11, 0x40, 0xFF)
"""Unclassified, system peripheral, processor, signal processing, co-processor, unassigned: may be accelerators."""

ID_DATABASES = (
    Path("/usr/share/misc/pci.ids"),
    Path("/usr/share/hwdata/pci.ids"),
    Path("/usr/share/pci.ids"),
)
DEVICES = "/sys/bus/pci/devices"
_DRIVERS = "/sys/bus/platform/drivers"
_BUS_TABLE, _CHIP_TABLE = (Path(__file__).with_name(f"{name}_devices.toml") for name in ("bus", "chip"))


@dataclass(frozen=True, kw_only=True)
class PciDevice:
    """A graphics or processing device.

    `name` is empty if neither pci.ids nor our own table has it. `kind` is `gpu` for a display controller, the kind in
    the table (`npu`, `tpu`, `lpu`, `fpga` …), or empty. `external` is whether it can be unplugged (Thunderbolt), None
    if unknown.
    """

    address: str
    vendor_id: int
    device_id: int
    class_code: int
    name: str = ""
    kind: str = ""
    external: bool | None = None


def pci_accelerators(machine: Machine | None = None) -> tuple[PciDevice, ...] | None:
    """Return display controllers (class 03), processing accelerators (12), and devices of `bus_devices.toml` in
    other classes, by address; None without a bus."""
    machine = machine or LiveMachine()
    if machine in _held:
        return _held[machine]
    return _read_bus(machine)


def devices_of(
    machine: Machine, vendor_id: int, *, device_id: int | None = None, classes: Collection[int] = ()
) -> tuple[PciDevice, ...] | None:
    """Return the devices of one vendor, filtered by id or base class; None without a bus."""
    every = pci_accelerators(machine)
    if every is None:
        return None
    mine = [one for one in every if one.vendor_id == vendor_id and device_id in (None, one.device_id)]
    return tuple(one for one in mine if not classes or one.class_code >> 16 in classes)


@contextlib.contextmanager
def bus_read_once(machine: Machine) -> Iterator[None]:
    """Read the bus of this machine only once during this block."""
    _held[machine] = _read_bus(machine)
    try:
        yield
    finally:
        _held.pop(machine, None)


_held: dict[Machine, tuple[PciDevice, ...] | None] = {}


def _read_bus(machine: Machine) -> tuple[PciDevice, ...] | None:
    addresses = machine.names(DEVICES)
    if addresses is None:
        return None
    found = [device for address in addresses if (device := _read(machine, address)) is not None]
    names = _names_of(machine, {(one.vendor_id, one.device_id) for one in found}) if found else {}
    return tuple(replace(one, name=names.get((one.vendor_id, one.device_id)) or one.name) for one in found)


def pcie_generation(machine: Machine, address: str) -> int | None:
    """Return the newest generation that a device and its slot support; None if unknown."""
    return generation_of((machine.text(f"{DEVICES}/{address}/max_link_speed") or "").partition(" ")[0])


def bound_driver(machine: Machine, address: str) -> str:
    """Return the kernel driver of a device, or an empty text."""
    return (machine.link(f"{DEVICES}/{address}/driver") or "").rpartition("/")[2]


def _read(machine: Machine, address: str) -> PciDevice | None:
    # A device that is unplugged during reading has no numbers and is left out.
    code = machine.number(f"{DEVICES}/{address}/class", 16)
    if code is None or code >> 16 not in (DISPLAY_CLASS, PROCESSING_ACCELERATOR_CLASS, *_VAGUE_CLASSES):
        return None
    vendor, device = (machine.number(f"{DEVICES}/{address}/{name}", 16) for name in ("vendor", "device"))
    if vendor is None or device is None or not (0 <= vendor <= 0xFFFF and 0 <= device <= 0xFFFF):
        return None
    known = _known(vendor, device, code >> 16)
    if code >> 16 in _VAGUE_CLASSES and known is None:
        return None
    removable = {"removable": True, "fixed": False}
    return PciDevice(
        address=address,
        vendor_id=vendor,
        device_id=device,
        class_code=code,
        name=known["name"] if known else "",
        kind="gpu" if code >> 16 == DISPLAY_CLASS else known["kind"] if known else "",
        external=removable.get(machine.text(f"{DEVICES}/{address}/removable") or ""),
    )


def _known(vendor: int, device: int, base_class: int) -> Mapping[str, str] | None:
    """Return name and kind of a device in `bus_devices.toml`. A vendor of accelerators only is listed as a whole."""
    entries = [one for one in data_file(_BUS_TABLE)["device"] if int(one["vendor"], 16) == vendor]
    found = next((one for one in entries if "device" in one and int(one["device"], 16) == device), None)
    if found is None and base_class == PROCESSING_ACCELERATOR_CLASS:
        found = next((one for one in entries if "device" not in one), None)
    return found


def _names_of(machine: Machine, wanted: set[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """Return names by vendor and device, for those in the PCI id database."""
    known = machine.library(PciNames).ask("names", sorted(map(list, wanted))).value
    return {
        (one[0], one[1]): words(one[2])
        for one in listed(known)
        if isinstance(one, list) and len(one) == 3 and (whole(one[0]), whole(one[1])) in wanted
    }


def pci_name(machine: Machine, vendor_id: int, device_id: int) -> str:
    """Return a device's name in the PCI id database, or an empty text."""
    return _names_of(machine, {(vendor_id, device_id)}).get((vendor_id, device_id), "")


class PciNames(Library):
    """The PCI id database (pci.ids) of the system's packages."""

    NAME = "pci_ids"

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        """Return for `names` and a list of (vendor, device) a list of (vendor, device, name) for those with a
        name."""
        database = next((path for path in ID_DATABASES if path.is_file()), None)
        if database is None:
            return SourceReading(value=None, reason="no pci.ids is installed (Debian: pci.ids, Fedora: hwdata)")
        wanted = {(vendor, device) for vendor, device in arguments[0]}
        found = _names(wanted, database)
        return SourceReading(value=[[vendor, device, name] for (vendor, device), name in sorted(found.items())])


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


@dataclass(frozen=True, kw_only=True)
class ChipDevice:
    """One device: its place in the kernel (`fdab0000.npu`), its driver, and its name in the device tree."""

    place: str
    name: str
    kind: str
    driver: str
    compatible: str


def chip_accelerators(machine: Machine) -> tuple[ChipDevice, ...]:
    """Return the devices of `chip_devices.toml`, by driver and place. Empty if the kernel has none of the drivers."""
    found = []
    for known in data_file(_CHIP_TABLE)["device"]:
        folder = f"{_DRIVERS}/{known['driver']}"
        for place in machine.names(folder) or ():
            event = machine.text(f"{folder}/{place}/uevent") or ""
            compatible = re.search(r"^OF_COMPATIBLE_0=(\S+)", event, re.MULTILINE)
            if compatible and compatible[1].startswith(known["compatible"]):
                found.append(
                    ChipDevice(
                        place=place,
                        name=known["name"],
                        kind=known["kind"],
                        driver=known["driver"],
                        compatible=compatible[1],
                    )
                )
    return tuple(found)
