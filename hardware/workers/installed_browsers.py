"""Which browser a target takes and of which version, without starting one: `browser` in `environments.toml`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..untrusted import is_plain_file

_DPKG = Path("/var/lib/dpkg/status")
_PACKAGED = Path("/usr/bin")
"""Where distributions' packages put programs: one elsewhere was not theirs."""


@dataclass(frozen=True, kw_only=True)
class Browser:
    """A browser: `path` of its program, or None and the `reason` why there is none, with what to do.

    Evidence names `version` under `name`; it is empty where there is no browser.
    """

    name: str
    path: Path | None = None
    version: str = ""
    reason: str = ""


def find_browser(known: Mapping[str, Any], folder: Path, packages: Mapping[str, str]) -> Browser:
    """The browser of a table in `environments.toml`: what its variable names, what lies in the environment's `folder`
    with the version of one of its `packages`, or the first of the system's programs."""
    name = known["name"]
    if named := os.environ.get(known["variable"]):
        if not is_plain_file(Path(named)):
            return Browser(name=name, reason=f"{known['variable']} names no file")
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
    """The version of what no package tells of."""
    told = file.resolve().stat()
    return f"{told.st_size} bytes of {datetime.fromtimestamp(told.st_mtime, UTC):%Y-%m-%d}"


def _debian_version(package: str) -> str:
    """The version of an installed package; of one that was removed, dpkg keeps an entry too."""
    try:
        listed = _DPKG.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    entry = f"\n{listed}".partition(f"\nPackage: {package}\n")[2].partition("\n\n")[0]
    fields = dict(line.split(": ", 1) for line in entry.splitlines() if ": " in line and not line.startswith(" "))
    return fields.get("Version", "") if fields.get("Status", "").endswith(" installed") else ""
