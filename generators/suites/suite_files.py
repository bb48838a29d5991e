"""Suites on disk: written atomically, never over a person's edits, and compared with what would be generated now."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from hwcompat.generators.compatibility.rule_facts import facts_here
from hwcompat.generators.compatibility.rules import load_rules, predict
from hwcompat.generators.compatibility.selection import Selection
from hwcompat.generators.compatibility.verdict import Verdict
from hwcompat.generators.model_profile import Profile
from hwcompat.generators.recipes.on_demand import recipe_for
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.errors import BrokenInput, HwCompatError, ModelError, NothingMatched, OutputError
from hwcompat.hardware.files import write_whole
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.safe_read import read_text
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.checkpoints import CHECKPOINTS_VARIABLE
from hwcompat.hardware.testing.pytest_environment import DEVICES_VARIABLE
from hwcompat.hardware.testing.suite_file import SuiteFile, is_edited, read_suite
from hwcompat.hardware.testing.tolerances import OwnTolerance

from .render import TEMPLATES, render

_CONFTEST = "conftest.py"
_LONGEST = 4 * 1024 * 1024
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class PlannedSuite:
    """A suite to write: its cell, the device, the prediction made before anything runs, and its text."""

    profile: Profile
    cell: Cell
    device: Target
    verdict: Verdict
    text: str
    required: bool
    selection: Selection | None = None
    tolerance: OwnTolerance | None = None

    @property
    def file_name(self) -> str:
        """The name of the suite's file."""
        return f"test_{self.cell.slug}.py"


class SuiteState(StrEnum):
    """How a file compares with what would be generated now."""

    NEW = "new"
    CURRENT = "current"
    CHANGED = "changed"
    EDITED = "edited"
    ORPHAN = "orphan"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One suite's file, its state, and for an orphan the reason why it can't be generated."""

    path: Path
    state: SuiteState
    reason: str = ""


def state_of(path: Path, text: str) -> SuiteState:
    """Return how the file at `path` compares with `text`."""
    try:
        present = read_text(path, longest=_LONGEST)
    except FileNotFoundError:
        return SuiteState.NEW
    except (OSError, ValueError):
        return SuiteState.EDITED
    if present == text:
        return SuiteState.CURRENT
    return SuiteState.EDITED if is_edited(present) else SuiteState.CHANGED


def write_suite(folder: Path, name: str, text: str, *, force: bool = False) -> SuiteState:
    """Write a suite into `folder`, and return the state of the file before.

    A file that was edited by hand is kept unless `force`; a current one isn't touched. Writing is atomic. Raises
    `OutputError`.
    """
    path = folder / name
    before = state_of(path, text)
    if before is SuiteState.CURRENT or (before is SuiteState.EDITED and not force):
        return before
    _write(path, text)
    return before


def prepare_folder(folder: Path) -> None:
    """Create the folder of suites, with the `conftest.py` that lets plain pytest record evidence.

    An existing `conftest.py` is kept. Raises `OutputError`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    if not (folder / _CONFTEST).exists():
        _write(folder / _CONFTEST, suite_conftest())


def suite_conftest() -> str:
    """Return the text of the `conftest.py` beside generated suites."""
    return (TEMPLATES / "suite_conftest.py.j2").read_text(encoding="utf-8")


def compare_folder(
    folder: Path, regenerate: Callable[[SuiteFile], str]
) -> tuple[tuple[Compared, ...], dict[Path, str]]:
    """Return the state of each suite in `folder`, and the texts that `regenerate` gave for them.

    `regenerate` raises `HwCompatError` if a suite can't be made any more: the file is an orphan. Files without a cell
    are a person's own and are ignored. Raises `BrokenInput` if there is no such folder.
    """
    if not folder.is_dir():
        raise BrokenInput(f"{folder} isn't a folder of suites", fix="Name the folder that --output-dir wrote to.")
    compared: list[Compared] = []
    texts: dict[Path, str] = {}
    for path in sorted(folder.glob("test_*.py")):
        try:
            suite = read_suite(path)
        except HwCompatError as error:
            compared.append(Compared(path=path, state=SuiteState.EDITED, reason=str(error)))
            continue
        if suite is None:
            continue
        try:
            texts[path] = regenerate(suite)
        except HwCompatError as error:
            compared.append(Compared(path=path, state=SuiteState.ORPHAN, reason=str(error)))
            continue
        compared.append(Compared(path=path, state=state_of(path, texts[path])))
    return tuple(compared), texts


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise _unwritable(path.parent, error) from error


def _unwritable(folder: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{folder} can't be written",
        why=error.strerror or str(error),
        fix="Name another folder with --output-dir.",
    )


@dataclass(frozen=True, kw_only=True)
class FolderState:
    """The state of each file, notes on it, and the exit code: 0 if all are current."""

    files: tuple[Compared, ...]
    notes: tuple[str, ...]
    exit_code: int

    @property
    def lines(self) -> tuple[str, ...]:
        """One line per file."""
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
    """Compare suites, and with `update` write the changed ones; `planned` are required texts by file name.

    Raises `NothingMatched` for a folder without suites, `BrokenInput` without a folder, `OutputError`.
    """
    found, texts = compare_folder(folder, lambda suite: planned.get(suite.path.name) or regenerate(suite))
    there = {one.path.name for one in found}
    missing = {folder / name: text for name, text in planned.items() if name not in there}
    compared = [*found, *(Compared(path=path, state=SuiteState.NEW, reason="it is missing") for path in missing)]
    if not compared:
        raise NothingMatched(f"{folder} has no suites", fix="Name the folder that --output-dir wrote to.")
    if update:
        for path, text in (texts | missing).items():
            write_suite(folder, path.name, text, force=force)
    states = {one.state for one in compared}
    notes = []
    if SuiteState.EDITED in states and not force:
        notes.append(f"edited files are kept; to overwrite them: hwcompat update {shlex.quote(str(folder))} --force")
    if not update and states & {SuiteState.CHANGED, SuiteState.NEW}:
        notes.append(f"to regenerate changed suites: hwcompat update {shlex.quote(str(folder))}")
    failed = (
        states & {SuiteState.EDITED, SuiteState.ORPHAN} and not force if update else states != {SuiteState.CURRENT}
    )
    return FolderState(
        files=tuple(compared),
        notes=tuple(notes),
        exit_code=int(bool(failed)),
    )


def regenerate(
    suite: SuiteFile,
    inventory: HardwareInfo,
    *,
    template_folder: Path | None = None,
    tolerance: OwnTolerance | None = None,
) -> str:
    """Return the present text for the cell of a suite. `tolerance` is the project file's for that cell, if any.

    Raises `ModelError` if its model is unknown now, or is a checkpoint, whose folder isn't in the suite.
    """
    if suite.subject == "checkpoint":
        raise ModelError(
            f"{suite.cell.model} is a checkpoint",
            why="its suite has no path to its weights",
            fix="Generate it again with --model FOLDER.",
        )
    if suite.subject != "tiny":
        raise ModelError(
            f"the suite of {suite.cell.model} can't be regenerated from its model type",
            why="it was generated from your own code or with real dimensions",
            fix="Generate it again with the command at the top of the suite.",
        )
    recipe = recipe_for(suite.cell.model, suite.cell.task)
    verdict = predict(suite.cell, facts_here(recipe, suite.cell, inventory), load_rules())
    return render(recipe, suite.cell, verdict.rule_ids, template_folder=template_folder, tolerance=tolerance)


@dataclass(frozen=True, kw_only=True)
class WrittenSuite:
    """A planned suite on disk. With the state `edited` the file holds a person's text, not the planned one."""

    planned: PlannedSuite
    path: Path
    state: SuiteState


def suite_environment(planned: Sequence[PlannedSuite]) -> dict[str, str]:
    """Return the variables that suites read: indices of named devices, and the folders of checkpoints."""
    devices = [str(one.device) for one in planned if one.device.index is not None]
    folders = {str(folder) for one in planned for folder in one.profile.folders}
    before = os.environ.get(CHECKPOINTS_VARIABLE)
    return {
        DEVICES_VARIABLE: ",".join(dict.fromkeys(devices)),
        CHECKPOINTS_VARIABLE: os.pathsep.join([*sorted(folders), *([before] if before else [])]),
    }
