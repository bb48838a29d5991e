"""The versions under which something was measured: what decides whether evidence still speaks of this machine."""

from __future__ import annotations

import os

from ..detection import HardwareInfo

FAULT_VARIABLE = "HWCOMPAT_SIMULATED_FAULT"
"""What the simulated device is told to do wrong: a version of that device, and gone when the variable is."""

VERSION = "0.1.0"
"""Our own version, as in pyproject.toml."""


def versions_of(inventory: HardwareInfo) -> dict[str, str]:
    """Versions by name: packages by distribution, `python`,
    `hwcompat`, `macos` and `<vendor>_driver`. What isn't known is left out."""
    found = {name: version for name, version in inventory.packages.items() if version}
    found["python"] = inventory.host.python_version
    found["hwcompat"] = VERSION
    if inventory.host.system == "Darwin":
        found["macos"] = inventory.host.release
    if fault := os.environ.get(FAULT_VARIABLE):
        found["simulated_fault"] = fault
    for device in inventory.accelerators:
        if device.driver_version:
            found[f"{device.vendor.lower()}_driver"] = device.driver_version
    return found
