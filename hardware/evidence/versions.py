"""The versions under which something was measured: what decides whether evidence still speaks of this machine."""

from __future__ import annotations

from ..detection import HardwareInfo

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
    for device in inventory.accelerators:
        if device.driver_version:
            found[f"{device.vendor.lower()}_driver"] = device.driver_version
    return found
