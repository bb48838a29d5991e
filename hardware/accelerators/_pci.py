"""Accelerators as the PCI bus shows them, with no driver and no vendor library.

Source of the layout: the kernel's `Documentation/ABI/testing/sysfs-bus-pci`; of the classes: pci.ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

DISPLAY_CLASS = 0x03
PROCESSING_ACCELERATOR_CLASS = 0x12

ID_DATABASES = (
    Path("/usr/share/misc/pci.ids"),
    Path("/usr/share/hwdata/pci.ids"),
    Path("/usr/share/pci.ids"),
)


@dataclass(frozen=True, kw_only=True)
class PciDevice:
    """A graphics or processing device; `name` is empty where the id database isn't installed."""

    address: str
    vendor_id: int
    device_id: int
    class_code: int
    name: str = ""


def pci_accelerators(
    sys_root: Path = Path("/sys"), *, id_databases: Iterable[Path] = ID_DATABASES
) -> tuple[PciDevice, ...] | None:
    """Display controllers (class 03) and processing accelerators (12) by address; `None` without a bus."""
    folder = sys_root / "bus" / "pci" / "devices"
    if not folder.is_dir():
        return None
    found = [device for path in sorted(folder.iterdir()) if (device := _read(path)) is not None]
    return _named(found, id_databases) if found else ()


def _read(folder: Path) -> PciDevice | None:
    vendor, device, code = (_hexadecimal(folder / name) for name in ("vendor", "device", "class"))
    if vendor is None or device is None or code is None:
        return None
    if code >> 16 not in (DISPLAY_CLASS, PROCESSING_ACCELERATOR_CLASS):
        return None
    return PciDevice(address=folder.name, vendor_id=vendor, device_id=device, class_code=code)


def _hexadecimal(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"), 16)
    except (OSError, ValueError):
        # A device that is unplugged while we read has no numbers any more; it is not there.
        return None


def _named(devices: list[PciDevice], id_databases: Iterable[Path]) -> tuple[PciDevice, ...]:
    database = next((path for path in id_databases if path.is_file()), None)
    if database is None:
        return tuple(devices)
    names = _names({(device.vendor_id, device.device_id) for device in devices}, database)
    return tuple(replace(device, name=names.get((device.vendor_id, device.device_id), "")) for device in devices)


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
