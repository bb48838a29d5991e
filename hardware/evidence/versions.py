"""The versions that decide whether evidence still applies to this machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ..backends.factory import backend_class, class_of, known_targets, plugged_versions
from ..cell import DIFFUSION_TASKS, Cell
from ..inventory.hardware_info import HardwareInfo
from ..target import Target
from .revisions import (
    CHECK,
    PREFIX,
    checker_versions,
    earlier_revisions,
    is_older,
    modified_parts,
    parts_for,
    revision_of,
)

FAULT_VARIABLE = "HWCOMPAT_SIMULATED_FAULT"
"""The variable with the fault of the simulated device, which counts as a version of that device."""

SDK_VARIABLE = "QNN_SDK_ROOT"
"""The folder of Qualcomm's SDK, whose libraries are used instead of those in the wheel."""

ABSENT = "absent"
"""The version of what isn't installed: installing and removing are changes too."""

RELEASE = "0.1.0"
"""The version of hwcompat, defined only here: the wheel reads it."""

BROWSER_OF_PAGE = "browser of the page"
"""The version of the browser that ran a page of checks, which is part of the device."""

DRIVEN = ("playwright", "chromium (webgpu)", "@sparticuz/chromium (webnn)")
"""What controls a browser on this machine; results of a page on another machine don't depend on it."""


def versions_of(inventory: HardwareInfo) -> dict[str, str]:
    """Return versions by name: packages by distribution, `python`, `hwcompat`, `macos`, `<vendor>_driver`,
    `<vendor>_firmware`, torch's runtimes as `cuda (torch)`, `qnn_sdk`, and `checker/<part>` for each part of the
    checking code (`revisions.py`). Unknown versions are left out."""
    host, torch = inventory.host, inventory.torch
    found = machine_versions(
        inventory.packages,
        [(device.vendor, device.driver_version, device.firmware_version) for device in inventory.accelerators],
        builds={"cuda": torch.cuda, "hip": torch.hip, "xpu": torch.xpu},
        python=host.python_version,
        macos=host.release if host.system == "Darwin" else None,
    )
    found["hwcompat"] = RELEASE  # for information only: revisions expire evidence
    found |= checker_versions()
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
    """Return the versions that an inventory holds, from plain data: `devices` are vendor, driver and firmware,
    `builds` the runtimes that torch was built with. If devices of a vendor differ, all are named."""
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
    """Return 12 hexadecimal digits over names and sizes of an SDK's libraries, which differ between releases."""
    files = sorted((f"{path.parent.name}/{path.name}", path.stat().st_size) for path in sdk.glob("lib/*/*Qnn*"))
    return hashlib.sha256(repr(files).encode()).hexdigest()[:12]


def expired_by(name: str) -> tuple[str, ...]:
    """Return the targets with evidence that a change of this version expires."""
    part = name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""
    found = []
    for target in known_targets():
        classes = [class_of(Target(name=target, variant=one)) for one in ("", *backend_class(target).VARIANTS)]
        always = [one for backend in classes for one in backend.EXPIRES_ON]
        sometimes = [one for backend in classes for names in backend.EXPIRES_ALSO_ON.values() for one in names]
        exports = any(backend.EXPORTS for backend in classes)
        parts = parts_for(Target(name=target), part.removeprefix(CHECK), exports=exports) if part else ()
        if name in (*always, *sometimes, "diffusers", _plugin(target)) or part in parts:
            found.append(target)
    return tuple(found)


def relevant_versions(cell: Cell, versions: Mapping[str, str], check: str = "") -> dict[str, str]:
    """Return the versions whose change expires results on the cell's target; all if the target isn't known.

    The backend declares them in `EXPIRES_ON` and `EXPIRES_ALSO_ON`. Parts of the checking code are added as
    revisions, without fingerprints: those of all checks, and with `check` that of this check. Evidence from before
    revisions were declared has those in `revisions.toml`; if there are none, `hwcompat` remains, with the hash of its
    code.
    """
    if cell.target.name not in known_targets():
        others = {name: value for name, value in versions.items() if not name.startswith(PREFIX)}
        return others | _revisions(cell.target, versions, check, exports=True)
    backend = class_of(cell.target)
    names = set(backend.EXPIRES_ON)
    for kind in (cell.target.variant, cell.precision, cell.task):
        names |= set(backend.EXPIRES_ALSO_ON.get(kind, ()))
    if cell.target.name in plugged_versions():
        names.add(_plugin(cell.target.name))
    if cell.task in DIFFUSION_TASKS:
        names.add("diffusers")
    found = {name: versions.get(name, ABSENT) for name in sorted(names)}
    return found | _revisions(cell.target, versions, check, exports=backend.EXPORTS)


def _revisions(target: Target, versions: Mapping[str, str], check: str, *, exports: bool) -> dict[str, str]:
    parts = parts_for(target, check, exports=exports)
    if not is_older(versions):
        return {PREFIX + part: revision_of(versions.get(PREFIX + part, ABSENT)) for part in parts}
    if (earlier := earlier_revisions(versions, target)) is not None:
        return {PREFIX + part: str(earlier.get(part, 1)) for part in parts}
    return {"hwcompat": versions["hwcompat"]} if "hwcompat" in versions else {}


def _plugin(target: str) -> str:
    return f"plug-in {target}"


def moved_versions(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return what changed between `then` and `now`, for each name in `now`.

    For example `torch 2.12.0, now 2.13.0` and `revision 1 of the check backward, now 2`. Of parts of the checking
    code only revisions are compared, and `hwcompat` isn't. For results of a page, what controls browsers here isn't
    either.
    """
    without = (*(DRIVEN if BROWSER_OF_PAGE in then else ()), "hwcompat")
    found = []
    for name, version in sorted(now.items()):
        before = then.get(name, ABSENT)
        if name in without or before == version:
            continue
        if not name.startswith(PREFIX):
            found.append(f"{name} {before}, now {version}")
        elif is_older(then):
            found.append(f"hwcompat {then.get('hwcompat', ABSENT)}, before revisions were declared")
        elif revision_of(before) != revision_of(version):
            found.append(_moved_part(name.removeprefix(PREFIX), revision_of(before), revision_of(version)))
    return tuple(dict.fromkeys(found))


def _moved_part(part: str, before: str, now: str) -> str:
    was = f"revision {before} of the {part}" if before != ABSENT else f"no revision of the {part}"
    return f"{was}, now {now}"


def expiry_reasons(
    cell: Cell, then: Mapping[str, str], now: Mapping[str, str], checks: Collection[str] = ()
) -> tuple[str, ...]:
    """Return what changed between the versions of a run and today's for a cell, with its checks if they are named."""
    page = {BROWSER_OF_PAGE: then[BROWSER_OF_PAGE]} if BROWSER_OF_PAGE in then else {}
    found: list[str] = []
    for check in checks or ("",):
        found += moved_versions(relevant_versions(cell, then, check) | page, relevant_versions(cell, now, check))
    return tuple(dict.fromkeys(found))


def recorded_versions(cell: Cell, versions: Mapping[str, str], checks: Iterable[str]) -> dict[str, str]:
    """Return the versions of this machine that a page of checks carries.

    What controls browsers here is left out. Parts of the checking code keep their fingerprints.
    """
    names = {name for check in ("", *checks) for name in relevant_versions(cell, versions, check)}
    return {name: versions.get(name, ABSENT) for name in sorted(names - {*DRIVEN})} | {"hwcompat": RELEASE}


def library_versions(versions: Mapping[str, str]) -> dict[str, str]:
    """Return versions without the parts of the checking code, for display."""
    return {name: version for name, version in versions.items() if not name.startswith(PREFIX)}


def comparable_versions(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the versions of two runs in comparable form: revisions of the checking code, or `hwcompat` if one of the
    runs is from before they were declared."""
    if is_older(before) or is_older(after):
        return library_versions(before), library_versions(after)
    first, second = (
        {name: revision_of(one) if name.startswith(PREFIX) else one for name, one in versions.items()}
        for versions in (before, after)
    )
    return first | {"hwcompat": RELEASE}, second | {"hwcompat": RELEASE}


def modified_for(cell: Cell, versions: Mapping[str, str], checks: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the parts that results of a cell's checks depend on and whose code in that run was never declared: such
    results don't count. An unknown target depends on all parts."""
    modified = modified_parts(versions)
    if not modified or cell.target.name not in known_targets():
        return modified
    exports = class_of(cell.target).EXPORTS
    needed = {part for check in ("", *checks) for part in parts_for(cell.target, check, exports=exports)}
    return tuple(part for part in modified if part in needed)
