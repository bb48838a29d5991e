"""The public API for a vendor plugin; see docs/ADDING_A_VENDOR.md.

Importing this module imports no framework and no vendor library, which keeps `hwcompat devices list` fast.
"""

from .inventory.vendors._pci import PciDevice, bound_driver, pci_accelerators, pcie_generation
from .inventory.vendors.vendor import (
    AcceleratorBackend,
    AcceleratorInfo,
    DriverState,
    HardwareState,
    LibraryState,
    NoSuchIndex,
    VendorFacts,
    bus_only,
)
from .machine import Library, LiveMachine, Machine, SourceReading

__all__ = [
    "AcceleratorBackend",
    "AcceleratorInfo",
    "DriverState",
    "HardwareState",
    "Library",
    "LibraryState",
    "LiveMachine",
    "Machine",
    "NoSuchIndex",
    "PciDevice",
    "SourceReading",
    "VendorFacts",
    "bound_driver",
    "bus_only",
    "pci_accelerators",
    "pcie_generation",
]
