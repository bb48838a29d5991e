"""Where an SDK lies, found without importing it: importing one may start its runtime, or take the device."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from ..machine import Library, Reading
from ..software import package_versions


class Packages(Library):
    """Python packages that aren't imported."""

    NAME = "packages"

    def ask(self, function: str, *arguments: Any) -> Reading[Any]:
        """`version` of a distribution; `module`, whether there is a top-level module, and something below it."""
        if function == "version":
            return _version(str(arguments[0]))
        if function == "module":
            return _module(str(arguments[0]), str(arguments[1]) if len(arguments) > 1 else "")
        return Reading(value=None, reason=f"{function} isn't asked of packages")


def _version(name: str) -> Reading[Any]:
    version = package_versions((name,))[name]
    reason = "" if version else f"the Python package {name} isn't installed"
    return Reading(value=version, reason=reason)


def _module(name: str, below: str) -> Reading[Any]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return Reading(value=None, reason=f"there is no Python module {name}")
    folders = spec.submodule_search_locations or ([spec.origin] if spec.origin else [])
    if below and not any((Path(folder) / below).exists() for folder in folders):
        return Reading(value=None, reason=f"the Python module {name} that is here has no {below}: it is another one")
    return Reading(value=True)
