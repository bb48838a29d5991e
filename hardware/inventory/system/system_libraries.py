"""Libraries that frameworks compute with, and container engines, found by their files without loading any."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...machine import Machine
from ...software import known_libraries, places

_VERSION = re.compile(r"\bversion v?(\d[\w.+-]*)")


@dataclass(frozen=True, kw_only=True)
class SystemLibrary:
    """An installed library. `version` is that of its wheel or in its file's name, else None; `source` is the name
    of the wheel, or the folder of the file."""

    name: str
    version: str | None
    source: str


@dataclass(frozen=True, kw_only=True)
class ContainerEngine:
    """A program that runs containers. `path` is None if it isn't in one of the usual folders."""

    name: str
    version: str | None
    path: str | None


def library_names() -> tuple[str, ...]:
    """Return the names of all libraries that are searched for."""
    return tuple(str(one["name"]) for one in known_libraries())


def read_libraries(machine: Machine) -> tuple[SystemLibrary, ...]:
    """Return the installed libraries: a wheel precedes a file of the system, as for its importer."""
    packages = machine.packages()
    listed: dict[str, dict[str, list[str]]] = {}
    """Files of libraries by folder and by their name up to the first dot."""
    for folder in places()["folders"]:
        for file in machine.names(folder) or ():
            listed.setdefault(folder, {}).setdefault(file.partition(".")[0], []).append(file)
    found = (_found(one, machine, packages, listed) for one in known_libraries())
    return tuple(one for one in found if one is not None)


def _found(
    known: Mapping[str, Any],
    machine: Machine,
    packages: Mapping[str, str | None],
    listed: Mapping[str, Mapping[str, Sequence[str]]],
) -> SystemLibrary | None:
    name = str(known["name"])
    for wheel in known.get("wheels", ()):
        if packages.get(wheel):
            return SystemLibrary(name=name, version=packages[wheel], source=wheel)
    for folder, by_stem in listed.items():
        for file in known.get("files", ()):
            stem = file.partition(".")[0]
            own = [one for one in by_stem.get(stem, ()) if one == file or one.startswith(f"{file}.")]
            if own:
                behind = max((one.removeprefix(file).strip(".") for one in own), key=len)
                # A single number is the version of the interface, not of the library.
                return SystemLibrary(name=name, version=behind if "." in behind else None, source=folder)
    for folder in known.get("folders", ()):
        if machine.is_folder(folder):
            return SystemLibrary(name=name, version=None, source=folder)
    return None


def read_container_engines(machine: Machine) -> tuple[ContainerEngine, ...]:
    """Return Docker and Podman if they are installed, whether or not their service runs."""
    found = []
    for name, program in places()["engines"].items():
        paths = (f"{folder}/{program}" for folder in places()["programs"])
        path = next((one for one in paths if machine.may_open(one) is not None), None)
        printed = machine.run(program, "--version") if path or machine.host().system != "Linux" else None
        if path is None and (printed is None or printed.value is None):
            continue
        version = _VERSION.search(printed.value or "") if printed is not None else None
        found.append(ContainerEngine(name=name, version=version[1] if version else None, path=path))
    return tuple(found)
