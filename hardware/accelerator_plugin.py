"""What a vendor's file from outside the repository builds on; docs/ADDING_A_VENDOR.md says how.

Importing this imports no framework and no vendor's library: `python -m hardware list` pays for it.
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
