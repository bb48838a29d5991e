"""Recorded machines of test/fixtures, as they are or with something changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hardware.inventory.system.storage import StorageDeviceInfo, read_storage
from hardware.machine import Machine, SourceReading
from hardware.recording import INDEX, ReplayedMachine

FIXTURES = Path(__file__).parents[1] / "fixtures"


def machine(name: str) -> ReplayedMachine:
    """The recording `vendor/machine`."""
    return ReplayedMachine(FIXTURES / name)


def changed(
    name: str,
    folder: Path,
    *,
    index: Callable[[dict[str, Any]], None] | None = None,
    files: dict[str, str | None] | None = None,
    libraries: dict[str, dict[str, Any]] | None = None,
    remove: Sequence[str] = (),
) -> ReplayedMachine:
    """A copy of a recording in `folder` without some folders, and with other variables, nodes or files; a file of
    `None` is removed."""
    shutil.copytree(FIXTURES / name, folder / "machine", dirs_exist_ok=True)
    copy = folder / "machine"
    for part in remove:
        shutil.rmtree(copy / part, ignore_errors=True)
    if index is not None:
        told = json.loads((copy / INDEX).read_text())
        index(told)
        (copy / INDEX).write_text(json.dumps(told))
    for path, text in (files or {}).items():
        place = copy / "files" / path.lstrip("/")
        if text is None:
            place.unlink()
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
    for library, answers in (libraries or {}).items():
        place = copy / "libraries" / f"{library}.json"
        place.parent.mkdir(exist_ok=True)
        place.write_text(json.dumps(answers))
    return ReplayedMachine(copy)


XEON = "xeon-two-sockets"


def computer(name: str) -> ReplayedMachine:
    """The recording of a whole machine."""
    return machine(f"machines/{name}")


def disks(name: str, *, smart: bool = False) -> dict[str, StorageDeviceInfo]:
    """Its storage by path; what a network gives, by where it is mounted."""
    found = read_storage(computer(name), smart=smart)
    assert not found.failures
    return {
        one.mount_points[0] if one.bus_type == "network" and one.mount_points else one.device_path: one
        for one in found.devices
    }


class Counted:
    """Counts the programs that are run on a machine."""

    def __init__(self, told: Machine) -> None:
        self.told = told
        self.programs: list[tuple[str, ...]] = []
        real = told.run

        def run(*words: str) -> SourceReading[str]:
            self.programs.append(words)
            return real(*words)

        told.run = run  # type: ignore[method-assign]
