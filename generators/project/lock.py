"""Write the lock: the table [expected] of a project file, changed line by line so that a person can review it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hwcompat.generators.compatibility.verdict import Level
from hwcompat.hardware.errors import OutputError, UsageError
from hwcompat.hardware.files import write_whole

from .project_outcome import CellRun
from .project_reader import parse_project, read_text
from .toml_table import positions

_HEADER = re.compile(r"\s*\[\s*expected\s*\]\s*(#.*)?")
_VALUE = re.compile(r"""(=\s*)(["'])[a-z]+\2""")


@dataclass(frozen=True, kw_only=True)
class LockChange:
    """The new text of a project file, and its changes, one line per cell."""

    text: str
    changes: tuple[str, ...]


def levels_to_lock(runs: Mapping[str, CellRun], accepted: Mapping[str, str]) -> dict[str, Level]:
    """Return the levels that a run measured, by cell, without cells that have an accepted failure."""
    return {
        cell: run.verdict.level
        for cell, run in runs.items()
        if run.is_measured and not any(line.evidence_id in accepted for line in run.lines)
    }


def with_expected(text: str, path: Path, levels: Mapping[str, Level]) -> LockChange:
    """Return the text of a project file with these levels in its lock; other cells and comments stay.

    Raises `UsageError` if the table isn't written as [expected] with one cell per line.
    """
    project = parse_project(text, path)
    lines = text.splitlines(keepends=True)
    newline = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += newline
    changes: list[str] = []
    for cell, level in levels.items():
        before = project.expected.get(cell)
        if before is not None and before.level != level:
            place = before.line - 1
            changed, count = _VALUE.subn(rf"\g<1>\g<2>{level}\g<2>", lines[place], count=1)
            if count != 1:
                raise _not_by_line(path)
            lines[place] = changed
            changes.append(f"{cell}: {before.level} -> {level}")
    new = [f'"{cell}" = "{level}"{newline}' for cell, level in sorted(levels.items()) if cell not in project.expected]
    changes += [f"{line.strip()} is new" for line in new]
    if new:
        _insert(lines, new, text, path, newline)
    changed_text = "".join(lines)
    again = parse_project(changed_text, path).expected
    if any(again[cell].level is not level for cell, level in levels.items()):
        raise _not_by_line(path)
    return LockChange(text=changed_text, changes=tuple(changes))


def _insert(lines: list[str], new: list[str], text: str, path: Path, newline: str) -> None:
    span = positions(text).get(("expected",))
    if span is None:
        lines += [newline, f"[expected]{newline}", *new]
    elif _HEADER.fullmatch(lines[span.first - 1].strip()):
        lines[span.last : span.last] = new
    else:
        raise _not_by_line(path)


def _not_by_line(path: Path) -> UsageError:
    return UsageError(
        f"the lock of {path.name} can't be updated",
        why="it needs one cell per line below a header [expected]",
        fix='Write [expected] on its own line, followed by lines such as "bert/fill-mask/cpu/float32" = "high".',
    )


def update_expected(path: Path, levels: Mapping[str, Level]) -> tuple[str, ...]:
    """Write levels into the lock of a project file atomically, and return the changes.

    Raises `UsageError` or `BrokenInput` for an invalid file, `OutputError` if it can't be written.
    """
    change = with_expected(read_text(path), path, levels)
    if not change.changes:
        return ()
    target = path.resolve()
    try:
        write_whole(target, change.text, mode=target.stat().st_mode & 0o777)
    except OSError as error:
        raise OutputError(f"{path} can't be written", why=error.strerror or str(error)) from error
    return change.changes
