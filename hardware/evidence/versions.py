"""The versions under which something was measured: what decides whether evidence still speaks of this machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ..backends.factory import backend_class, class_of, known_targets, plugged_versions
from ..cell import DIFFUSION_TASKS, Cell
from ..detection import HardwareInfo
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


def versions_of(inventory: HardwareInfo) -> dict[str, str]:
    """Versions by name: packages by distribution, `python`, `hwcompat`, `macos`, `<vendor>_driver`,
    `<vendor>_firmware`, what torch was built with as `cuda (torch)`, `qnn_sdk`, and `checker/<part>` for each part of
    the checking code (`revisions.py`). What isn't known is left out."""
    host, torch = inventory.host, inventory.torch
    found = machine_versions(
        inventory.packages,
        [(device.vendor, device.driver_version, device.firmware_version) for device in inventory.accelerators],
        builds={"cuda": torch.cuda, "hip": torch.hip, "xpu": torch.xpu},
        python=host.python_version,
        macos=host.release if host.system == "Darwin" else None,
    )
    found["hwcompat"] = RELEASE  # for information: what expires evidence is the revisions
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
    """Return the versions whose change invalidates results on the cell's target: all where the target isn't known.

    The backend declares them, in `EXPIRES_ON` and `EXPIRES_ALSO_ON`. Parts of the checking code are added as their
    revisions, without fingerprints: those that all checks rest on, and with `check` that of this check. Evidence from
    before revisions were declared has those that `revisions.toml` states for it; where it states none, `hwcompat`
    remains, with the hash of the code of then.
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
    """Say what has changed between `then` and `now`, for each name in `now`.

    For example `torch 2.12.0, now 2.13.0` and `revision 1 of the check backward, now 2`.
    Of parts of the checking code the revisions are compared, and `hwcompat` isn't compared. What a page of checks
    measured doesn't rest on what drives browsers here.
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
    """Say what has changed between the versions of a run and those of now for a cell, with its checks where they are
    named."""
    page = {BROWSER_OF_PAGE: then[BROWSER_OF_PAGE]} if BROWSER_OF_PAGE in then else {}
    found: list[str] = []
    for check in checks or ("",):
        found += moved_versions(relevant_versions(cell, then, check) | page, relevant_versions(cell, now, check))
    return tuple(dict.fromkeys(found))


def sealed_versions(cell: Cell, versions: Mapping[str, str], checks: Iterable[str]) -> dict[str, str]:
    """Return the versions of this machine that a page of some checks carries: what its results rest on.

    What drives browsers here isn't part of them. Parts of the checking code keep their fingerprints.
    """
    names = {name for check in ("", *checks) for name in relevant_versions(cell, versions, check)}
    return {name: versions.get(name, ABSENT) for name in sorted(names - {*DRIVEN})} | {"hwcompat": RELEASE}


def library_versions(versions: Mapping[str, str]) -> dict[str, str]:
    """Return versions without the parts of the checking code: what a page shows."""
    return {name: version for name, version in versions.items() if not name.startswith(PREFIX)}


def comparable_versions(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the versions of two runs as they may differ: of the checking code its revisions, or `hwcompat` where one
    of the runs is from before they were declared."""
    if is_older(before) or is_older(after):
        return library_versions(before), library_versions(after)
    first, second = (
        {name: revision_of(one) if name.startswith(PREFIX) else one for name, one in versions.items()}
        for versions in (before, after)
    )
    return first | {"hwcompat": RELEASE}, second | {"hwcompat": RELEASE}


def modified_for(cell: Cell, versions: Mapping[str, str], checks: Iterable[str] = ()) -> tuple[str, ...]:
    """The parts that results of some checks of a cell rest on and whose code in that run was never declared: such
    results don't count. A target that isn't known rests on all parts."""
    modified = modified_parts(versions)
    if not modified or cell.target.name not in known_targets():
        return modified
    exports = class_of(cell.target).EXPORTS
    needed = {part for check in ("", *checks) for part in parts_for(cell.target, check, exports=exports)}
    return tuple(part for part in modified if part in needed)
