"""Find the separate Python environment of a target, its packages and its browser, without starting anything."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..command_names import as_runnable
from ..safe_read import is_plain_file
from ..software import package_versions

_ROOT = Path(__file__).parents[2]
_FILE = Path(__file__).with_name("environments.toml")
_DPKG = Path("/var/lib/dpkg/status")
_PACKAGED = Path("/usr/bin")
"""Folder of the programs of distribution packages; programs elsewhere belong to no package."""


@dataclass(frozen=True, kw_only=True)
class Browser:
    """A browser: `path` of its program, or None and the `reason` why there is none, with what to do.

    Evidence names `version` under `name`; it is empty without a browser.
    """

    name: str
    path: Path | None = None
    version: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A target's environment: its interpreter, or the `reason` why there is none, with the command that makes it.

    `versions` are those of the target's own packages, read from their metadata. `browser` is that of a target in a
    browser.
    """

    target: str
    python: Path | None
    reason: str
    versions: Mapping[str, str]
    browser: Browser | None = None


@functools.cache
def _known() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(as_runnable(_FILE.read_text(encoding="utf-8")))


def environment_of(target: str) -> Environment:
    """Return a target's environment: the one its variable names, the repository's, or this one."""
    known = _known()[target]
    named = os.environ.get(known["variable"])
    python = Path(named) if named else _python_in(_ROOT / known["folder"])
    if not named and not is_plain_file(python) and importlib.util.find_spec(known["module"]) is not None:
        python = Path(sys.executable)
    if not is_plain_file(python):
        where = (
            f"{known['variable']} doesn't name a Python interpreter" if named else f"{known['package']} isn't set up"
        )
        return Environment(target=target, python=None, reason=f"{where} ({known['command']})", versions={})
    folder, npm = web_folder(python), known.get("npm", ())
    versions = {**_versions(python, known["versions"]), **_npm_versions(folder, npm)}
    absent = [name for name in (known["package"], *npm) if name not in versions]
    browser = _browser(known["browser"], folder) if "browser" in known else None
    if browser is not None and browser.version:
        versions[browser.name] = browser.version
    are = "isn't" if len(absent) == 1 else "aren't"
    missing = f"{' and '.join(absent)} {are} installed in its environment" if absent else ""
    reason = f"{missing} ({known['command']})" if missing else ""
    here = None if missing else python
    return Environment(target=target, python=here, reason=reason, versions=versions, browser=browser)


def _browser(known: Mapping[str, Any], folder: Path) -> Browser:
    return find_browser(known, folder, _npm_versions(folder, [known["name"]] if "file" in known else ()))


def find_browser(known: Mapping[str, Any], folder: Path, packages: Mapping[str, str]) -> Browser:
    """Return the browser of a table in `environments.toml`: the one its variable names, one in the environment's
    `folder` with the version of one of its `packages`, or the first of the system's programs."""
    name = known["name"]
    if named := os.environ.get(known["variable"]):
        if not is_plain_file(Path(named)):
            return Browser(name=name, reason=f"{known['variable']} doesn't name a file")
        return Browser(name=name, path=Path(named), version=_size_and_date(Path(named)))
    if "file" in known:
        path = folder / known["file"]
        if path.is_file() and name in packages:
            return Browser(name=name, path=path, version=packages[name])
    for program, package in known.get("programs", {}).items():
        if found := shutil.which(program):
            path = Path(found)
            packaged = path.parent.resolve() == _PACKAGED and _debian_version(package)
            return Browser(name=name, path=path, version=packaged or _size_and_date(path))
    return Browser(name=name, reason=known["missing"])


def _size_and_date(file: Path) -> str:
    """Return a version for a program that belongs to no package."""
    found = file.resolve().stat()
    return f"{found.st_size} bytes of {datetime.fromtimestamp(found.st_mtime, UTC):%Y-%m-%d}"


def _debian_version(package: str) -> str:
    """Return the version of an installed package; dpkg also lists removed ones."""
    try:
        listed = _DPKG.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    entry = f"\n{listed}".partition(f"\nPackage: {package}\n")[2].partition("\n\n")[0]
    fields = dict(line.split(": ", 1) for line in entry.splitlines() if ": " in line and not line.startswith(" "))
    return fields.get("Version", "") if fields.get("Status", "").endswith(" installed") else ""


def without_browser(target: str) -> str:
    """Return what a missing browser of a target needs. Looks for nothing."""
    return str(_known()[target]["browser"]["missing"])


def environment_versions() -> dict[str, str]:
    """Return the versions in such environments, by `package` if only one has it, else by `package (target)`."""
    found: dict[str, str] = {}
    for target, known in _known().items():
        for package, version in environment_of(target).versions.items():
            found[package if package == known["package"] else f"{package} ({target})"] = version
    return found


def web_folder(python: Path) -> Path:
    """Return the folder of an environment for npm packages and browsers."""
    return python.parents[1] / "web"


def _npm_versions(folder: Path, packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        with contextlib.suppress(OSError, ValueError, KeyError):
            facts = json.loads((folder / "node_modules" / package / "package.json").read_text(encoding="utf-8"))
            found[package] = str(facts["version"])
    return found


def _python_in(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def _versions(python: Path, packages: list[str]) -> dict[str, str]:
    found = package_versions(packages, _site_packages(python))
    return {package: version for package, version in found.items() if version}


def _site_packages(python: Path) -> Iterator[str]:
    if python == Path(sys.executable):
        yield from sys.path
        return
    for pattern in ("lib/python3*/site-packages", "Lib/site-packages"):
        yield from map(str, python.parents[1].glob(pattern))
