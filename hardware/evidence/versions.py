"""The versions under which something was measured: what decides whether evidence still speaks of this machine."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..backends.factory import backend_class, known_targets, plugged_versions
from ..cell import DIFFUSION_TASKS, GRAPH_TASK, Cell
from ..detection import HardwareInfo

FAULT_VARIABLE = "HWCOMPAT_SIMULATED_FAULT"
"""What the simulated device is told to do wrong: a version of that device, and gone when the variable is."""

ABSENT = "absent"
"""The version of what isn't installed: going away and coming are moves too."""

RELEASE = "0.1.0"
"""Our own version, as in pyproject.toml."""

_CHECKING = ("backends", "export", "testing", "workers", "output_masks.py", "known_answer.py", "privateuse1.py")
"""Our own code that a verdict rests on."""


@functools.cache
def own_version() -> str:
    """Our own version, and behind it a hash of the code that checks: evidence expires with an edit of it."""
    return f"{RELEASE}+{hash_of_checking(Path(__file__).parents[1])}"


def hash_of_checking(root: Path) -> str:
    """A hash of the code in the package at `root` that a verdict rests on: 12 hexadecimal digits."""
    paths = [path for name in _CHECKING for path in (root / name, *(root / name).rglob("*"))]
    digest = hashlib.sha256()
    for path in sorted(path for path in paths if path.suffix in (".py", ".toml")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def versions_of(inventory: HardwareInfo) -> dict[str, str]:
    """Versions by name: packages by distribution, `python`,
    `hwcompat`, `macos` and `<vendor>_driver`. What isn't known is left out."""
    drivers = [(device.vendor, device.driver_version) for device in inventory.accelerators]
    host = inventory.host
    macos = host.release if host.system == "Darwin" else None
    found = machine_versions(inventory.packages, drivers, python=host.python_version, macos=macos)
    found["hwcompat"] = own_version()
    found |= {_plugin(name): version for name, version in plugged_versions().items()}
    if fault := os.environ.get(FAULT_VARIABLE):
        found["simulated_fault"] = fault
    return found


def machine_versions(
    packages: Mapping[str, str | None],
    drivers: Iterable[tuple[str, str | None]],
    *,
    python: str,
    macos: str | None,
) -> dict[str, str]:
    """Those of `versions_of` that an inventory holds, from its parts as plain data; `drivers` are by vendor."""
    found = {name: version for name, version in packages.items() if version}
    found["python"] = python
    if macos:
        found["macos"] = macos
    found |= {f"{vendor.lower()}_driver": version for vendor, version in drivers if version}
    return found


def expired_by(name: str) -> tuple[str, ...]:
    """The targets whose evidence a change of this version invalidates, of whatever kind of model."""
    found = []
    for target in known_targets():
        backend = backend_class(target)
        if name in (*backend.EXPIRES_ON, *backend.FILE_RUNTIMES, "hwcompat", "diffusers", _plugin(target)):
            found.append(target)
    return tuple(found)


def relevant_versions(cell: Cell, versions: Mapping[str, str]) -> dict[str, str]:
    """Those versions whose change invalidates evidence on the cell's target; all where the target isn't known."""
    if cell.target.name not in known_targets():
        return dict(versions)
    backend = backend_class(cell.target.name)
    names = {*backend.EXPIRES_ON, "hwcompat"}  # our own checks, tolerances and proofs too
    if cell.target.name in plugged_versions():
        names.add(_plugin(cell.target.name))
    if cell.task == GRAPH_TASK:
        names |= set(backend.FILE_RUNTIMES)
    if cell.task in DIFFUSION_TASKS:
        names.add("diffusers")
    return {name: versions.get(name, ABSENT) for name in sorted(names)}


def _plugin(target: str) -> str:
    return f"plug-in {target}"


def moved_versions(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """What differs `then` from `now`, in words, for each name in `now`: `torch 2.12.0, now 2.13.0`."""
    return tuple(
        f"{name} {then.get(name, ABSENT)}, now {version}"
        for name, version in sorted(now.items())
        if then.get(name, ABSENT) != version
    )
