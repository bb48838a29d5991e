"""Suites on disk: written whole, never over a person's edits, and compared with what would be generated now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from generators.template_folder import TEMPLATES
from hardware.errors import BrokenInput, HwCompatError, OutputError
from hardware.testing.suite_file import SuiteFile, is_edited, read_suite
from hardware.untrusted import read_text
from hardware.whole_file import write_whole

_CONFTEST = "conftest.py"
_LONGEST = 4 * 1024 * 1024


class State(StrEnum):
    """How a file stands to what would be generated now."""

    NEW = "new"
    CURRENT = "current"
    CHANGED = "changed"
    EDITED = "edited"
    ORPHAN = "orphan"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One suite's file, its state, and for an orphan why nothing would generate it."""

    path: Path
    state: State
    reason: str = ""


def state_of(path: Path, text: str) -> State:
    """How the file at `path` stands to `text`."""
    try:
        present = read_text(path, longest=_LONGEST)
    except FileNotFoundError:
        return State.NEW
    except (OSError, ValueError):
        return State.EDITED
    if present == text:
        return State.CURRENT
    return State.EDITED if is_edited(present) else State.CHANGED


def write_suite(folder: Path, name: str, text: str, *, force: bool = False) -> State:
    """Write a suite into `folder`; returns how the file stood before.

    A file that was edited by hand is left alone unless `force`. A current one isn't touched. Raises
    `OutputError`; a file appears whole or not at all.
    """
    path = folder / name
    before = state_of(path, text)
    if before is State.CURRENT or (before is State.EDITED and not force):
        return before
    _write(path, text)
    return before


def prepare_folder(folder: Path) -> None:
    """Make the folder of suites, with the `conftest.py` that lets plain pytest record evidence.

    A `conftest.py` that is there already is left alone. Raises `OutputError`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    if not (folder / _CONFTEST).exists():
        _write(folder / _CONFTEST, suite_conftest())


def suite_conftest() -> str:
    """The text of the `conftest.py` that lies beside generated suites."""
    return (TEMPLATES / "suite_conftest.py.j2").read_text(encoding="utf-8")


def compare_folder(
    folder: Path, regenerate: Callable[[SuiteFile], str]
) -> tuple[tuple[Compared, ...], dict[Path, str]]:
    """The state of every suite in `folder`, and the texts that `regenerate` gave for them.

    `regenerate` raises `HwCompatError` where a suite can't be made any more: the file is an orphan. Files
    without a cell are a person's own and aren't looked at. Raises `BrokenInput` where there is no such folder.
    """
    if not folder.is_dir():
        raise BrokenInput(f"{folder} is no folder of suites", fix="Name the folder that --output-dir wrote to.")
    compared: list[Compared] = []
    texts: dict[Path, str] = {}
    for path in sorted(folder.glob("test_*.py")):
        try:
            suite = read_suite(path)
        except HwCompatError as error:
            compared.append(Compared(path=path, state=State.EDITED, reason=str(error)))
            continue
        if suite is None:
            continue
        try:
            texts[path] = regenerate(suite)
        except HwCompatError as error:
            compared.append(Compared(path=path, state=State.ORPHAN, reason=str(error)))
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
        f"{folder} cannot be written",
        why=error.strerror or str(error),
        fix="Name another folder with --output-dir.",
    )
