"""The versions under which something was measured: what decides whether evidence still speaks of this machine."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..backends.factory import backend_class, class_of, known_targets, plugged_versions
from ..cell import DIFFUSION_TASKS, Cell
from ..detection import HardwareInfo
from ..package_files import package_files
from ..target import Target

FAULT_VARIABLE = "HWCOMPAT_SIMULATED_FAULT"
"""What the simulated device is told to do wrong: a version of that device, and gone when the variable is."""

SDK_VARIABLE = "QNN_SDK_ROOT"
"""The folder of Qualcomm's SDK whose libraries compute instead of those in the wheel."""

ABSENT = "absent"
"""The version of what isn't installed: going away and coming are moves too."""

RELEASE = "0.1.0"
"""Our own version, the one place where it stands: the wheel takes it from here."""

BROWSER_OF_PAGE = "browser of the page"
"""The version of the browser in which somebody opened a page of checks: there it is a part of the device."""

DRIVEN = ("playwright", "chromium (webgpu)", "@sparticuz/chromium (webnn)")
"""What drives a browser here: it has no part in what a page measured elsewhere."""

_CHECKING = (
    "backends",
    "export",
    "testing",
    "workers",
    "changes.py",
    "output_masks.py",
    "known_answer.py",
    "privateuse1.py",
)
"""Our own code that a verdict rests on."""


@functools.cache
def own_version() -> str:
    """Our own version, and behind it a hash of the code that checks: evidence expires with an edit of it."""
    return f"{RELEASE}+{hash_of_checking(Path(__file__).parents[1])}"


def hash_of_checking(root: Path) -> str:
    """A hash of the code in the package at `root` that a verdict rests on: 12 hexadecimal digits.

    A bundle carries the same files, so that what it measures is of the same version at home.
    """
    digest = hashlib.sha256()
    for name, path in package_files(root).items():
        if name.partition("/")[0] in _CHECKING:
            digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def versions_of(inventory: HardwareInfo) -> dict[str, str]:
    """Versions by name: packages by distribution, `python`, `hwcompat`, `macos`, `<vendor>_driver`,
    `<vendor>_firmware`, what torch was built with as `cuda (torch)`, and `qnn_sdk`. What isn't known is left out."""
    host, torch = inventory.host, inventory.torch
    found = machine_versions(
        inventory.packages,
        [(device.vendor, device.driver_version, device.firmware_version) for device in inventory.accelerators],
        builds={"cuda": torch.cuda, "hip": torch.hip, "xpu": torch.xpu},
        python=host.python_version,
        macos=host.release if host.system == "Darwin" else None,
    )
    found["hwcompat"] = own_version()
    found |= {_plugin(name): version for name, version in plugged_versions().items()}
    if fault := os.environ.get(FAULT_VARIABLE):
        found["simulated_fault"] = fault
    if sdk := os.environ.get(SDK_VARIABLE):
        found["qnn_sdk"] = _hash_of_libraries(Path(sdk))
    return found


def machine_versions(
    packages: Mapping[str, str | None],
    devices: Iterable[tuple[str, str | None, str | None]],
    *,
    builds: Mapping[str, str | None],
    python: str,
    macos: str | None,
) -> dict[str, str]:
    """Those of `versions_of` that an inventory holds, from its parts as plain data: `devices` are vendor, driver and
    firmware, `builds` the runtimes that torch was built with. Where devices of a vendor differ, all are named."""
    found = {name: version for name, version in packages.items() if version}
    found["python"] = python
    if macos:
        found["macos"] = macos
    found |= {f"{name} (torch)": version for name, version in builds.items() if version}
    several: dict[str, set[str]] = {}
    for vendor, driver, firmware in devices:
        for part, version in (("driver", driver), ("firmware", firmware)):
            if version:
                several.setdefault(f"{vendor.lower()}_{part}", set()).add(version)
    return found | {name: ", ".join(sorted(versions)) for name, versions in several.items()}


def _hash_of_libraries(sdk: Path) -> str:
    """Names and sizes of the libraries of an SDK, which are other ones in each release, as 12 hexadecimal digits."""
    files = sorted((f"{path.parent.name}/{path.name}", path.stat().st_size) for path in sdk.glob("lib/*/*Qnn*"))
    return hashlib.sha256(repr(files).encode()).hexdigest()[:12]


def expired_by(name: str) -> tuple[str, ...]:
    """The targets some of whose evidence a change of this version invalidates."""
    found = []
    for target in known_targets():
        classes = [class_of(Target(name=target, variant=one)) for one in ("", *backend_class(target).VARIANTS)]
        always = [one for backend in classes for one in backend.EXPIRES_ON]
        sometimes = [one for backend in classes for names in backend.EXPIRES_ALSO_ON.values() for one in names]
        if name in (*always, *sometimes, "hwcompat", "diffusers", _plugin(target)):
            found.append(target)
    return tuple(found)


def relevant_versions(cell: Cell, versions: Mapping[str, str]) -> dict[str, str]:
    """Those versions whose change invalidates evidence on the cell's target; all where the target isn't known.

    The backend declares them, in `EXPIRES_ON` and `EXPIRES_ALSO_ON`; what all targets have in common is added here.
    """
    if cell.target.name not in known_targets():
        return dict(versions)
    backend = class_of(cell.target)
    names = {*backend.EXPIRES_ON, "hwcompat"}  # our own checks, tolerances and proofs too
    for kind in (cell.target.variant, cell.precision, cell.task):
        names |= set(backend.EXPIRES_ALSO_ON.get(kind, ()))
    if cell.target.name in plugged_versions():
        names.add(_plugin(cell.target.name))
    if cell.task in DIFFUSION_TASKS:
        names.add("diffusers")
    return {name: versions.get(name, ABSENT) for name in sorted(names)}


def _plugin(target: str) -> str:
    return f"plug-in {target}"


def moved_versions(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """What differs `then` from `now`, in words, for each name in `now`: `torch 2.12.0, now 2.13.0`.

    What a page of checks measured doesn't rest on what drives browsers here.
    """
    without = DRIVEN if BROWSER_OF_PAGE in then else ()
    return tuple(
        f"{name} {then.get(name, ABSENT)}, now {version}"
        for name, version in sorted(now.items())
        if name not in without and then.get(name, ABSENT) != version
    )
