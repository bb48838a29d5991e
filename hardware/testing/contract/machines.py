"""The machines that a vendor's file is asked about: this one, one without any device, and recorded ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...machine import Library, Machine, Reading
from ...recording import INDEX, ReplayedMachine
from ...software import HostInfo, TorchBuild


class EmptyMachine(Machine):
    """A machine with an empty PCI bus and nothing else. It counts the programs that somebody wanted to run."""

    def __init__(self) -> None:
        self.started: list[tuple[str, ...]] = []

    def text(self, path: str) -> str | None:
        return None

    def names(self, folder: str) -> tuple[str, ...] | None:
        return () if folder in ("/sys/bus/pci/devices", "/sys/module", "/dev") else None

    def link(self, path: str) -> str | None:
        return None

    def may_open(self, path: str) -> bool | None:
        return None

    def variable(self, name: str) -> str | None:
        return None

    def run(self, *words: str, accept: int = 0) -> Reading[str]:
        self.started.append(words)
        return Reading(value=None, reason=f"{words[0]} isn't installed")

    def library(self, kind: type[Library]) -> Library:
        return _Missing()

    def host(self) -> HostInfo:
        return HostInfo(system="Linux", release="6.1.0", machine="x86_64", python_version="3.12.0")

    def packages(self) -> dict[str, str | None]:
        return {}

    def torch(self) -> TorchBuild:
        return TorchBuild(reason="torch isn't installed")


class _Missing(Library):
    NAME = "missing"

    def ask(self, function: str, *arguments: Any) -> Reading[Any]:
        return Reading(value=None, reason="the library isn't installed")


def recorded_machines(places: list[str]) -> dict[str, ReplayedMachine]:
    """The recordings in the given folders or right below them, by the names of a folder and the one around it.

    Raises `UsageError` for a folder without any.
    """
    found: dict[str, ReplayedMachine] = {}
    for place in map(Path, places):
        folders = [place] if (place / INDEX).is_file() else sorted(one.parent for one in place.glob(f"*/{INDEX}"))
        if not folders:
            raise UsageError(
                f"{place} holds no recorded machine", fix="Make one: python -m hardware doctor --record DIR"
            )
        found.update({"/".join(folder.resolve().parts[-2:]): ReplayedMachine(folder) for folder in folders})
    return found
