"""The versions under which something was measured: what decides whether evidence still speaks of this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..backends.factory import backend_class, known_targets
from ..cell import DIFFUSION_TASKS, GRAPH_TASK, Cell
from ..detection import HardwareInfo

FAULT_VARIABLE = "HWCOMPAT_SIMULATED_FAULT"
"""What the simulated device is told to do wrong: a version of that device, and gone when the variable is."""

ABSENT = "absent"
"""The version of what isn't installed: going away and coming are moves too."""

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


def relevant_versions(cell: Cell, versions: Mapping[str, str]) -> dict[str, str]:
    """Those versions whose change invalidates evidence on the cell's target; all where the target isn't known."""
    if cell.target.name not in known_targets():
        return dict(versions)
    backend = backend_class(cell.target.name)
    names = {*backend.EXPIRES_ON, "hwcompat"}  # our own checks, tolerances and proofs too
    if cell.task == GRAPH_TASK:
        names |= set(backend.FILE_RUNTIMES)
    if cell.task in DIFFUSION_TASKS:
        names.add("diffusers")
    return {name: versions.get(name, ABSENT) for name in sorted(names)}


def moved_versions(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """What differs `then` from `now`, in words, for each name in `now`: `torch 2.12.0, now 2.13.0`."""
    return tuple(
        f"{name} {then.get(name, ABSENT)}, now {version}"
        for name, version in sorted(now.items())
        if then.get(name, ABSENT) != version
    )
