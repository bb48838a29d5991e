"""The machines that a vendor's file is asked about: this one, one without any device, and recorded ones."""

from __future__ import annotations

from pathlib import Path

from ...errors import UsageError
from ...machine import SourceReading
from ...recording import INDEX, ReplayedMachine


class EmptyMachine(ReplayedMachine):
    """A machine with an empty PCI bus and nothing else. It counts the programs that somebody wanted to run."""

    def __init__(self) -> None:
        super().__init__(Path(__file__).with_name("empty"))
        self.started: list[tuple[str, ...]] = []

    def run(self, *words: str, accept: int = 0) -> SourceReading[str]:
        self.started.append(words)
        return super().run(*words, accept=accept)


def recorded_machines(places: list[str]) -> dict[str, ReplayedMachine]:
    """The recordings in the given folders or right below them, by the names of a folder and the one around it.

    Raises `UsageError` for a folder without any.
    """
    found: dict[str, ReplayedMachine] = {}
    for place in map(Path, places):
        folders = [place] if (place / INDEX).is_file() else sorted(one.parent for one in place.glob(f"*/{INDEX}"))
        if not folders:
            raise UsageError(f"{place} holds no recorded machine", fix="Make one: hwcompat doctor --record DIR")
        found.update({"/".join(folder.resolve().parts[-2:]): ReplayedMachine(folder) for folder in folders})
    return found
