"""A folder of suites against what would be generated now: what to say, what to write, and the exit code."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from hardware.errors import NothingMatched
from hardware.testing.suite_file import SuiteFile

from .files import Compared, State, compare_folder, write_suite

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class FolderState:
    """The state of each file, what is said beside it, and the exit code: 0 where everything is current."""

    files: tuple[Compared, ...]
    notes: tuple[str, ...]
    exit_code: int

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each file."""
        return tuple(
            f"{one.state:<8} {one.path.name}" + (f"  ({one.reason})" if one.reason else "") for one in self.files
        )


def compare_suites(
    folder: Path,
    regenerate: Callable[[SuiteFile], str],
    *,
    planned: Mapping[str, str] = _NONE,
    update: bool = False,
    force: bool = False,
) -> FolderState:
    """Compare, and with `update` write what changed; `planned` are texts by file name that have to be there.

    Raises `NothingMatched` for a folder without suites, `BrokenInput` where there is none, `OutputError`.
    """
    found, texts = compare_folder(folder, lambda suite: planned.get(suite.path.name) or regenerate(suite))
    there = {one.path.name for one in found}
    missing = {folder / name: text for name, text in planned.items() if name not in there}
    compared = [*found, *(Compared(path=path, state=State.NEW, reason="it is not there") for path in missing)]
    if not compared:
        raise NothingMatched(f"{folder} holds no suites", fix="Name the folder that --output-dir wrote to.")
    if update:
        for path, text in (texts | missing).items():
            write_suite(folder, path.name, text, force=force)
    states = {one.state for one in compared}
    notes = []
    if State.EDITED in states and not force:
        notes.append("edited files are left alone; --update DIR --force overwrites them")
    if not update and states & {State.CHANGED, State.NEW}:
        notes.append(f"--update {shlex.quote(str(folder))} regenerates what changed")
    failed = states & {State.EDITED, State.ORPHAN} and not force if update else states != {State.CURRENT}
    return FolderState(
        files=tuple(compared),
        notes=tuple(notes),
        exit_code=int(bool(failed)),
    )


def _line(one: Compared) -> str:
    return f"{one.state:<8} {one.path.name}" + (f"  ({one.reason})" if one.reason else "")
