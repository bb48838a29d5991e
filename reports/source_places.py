"""The place where a finding is shown: in the suite that found it, or under the name of the part that found it.

Servers that show findings beside source need a file and a line. A finding of a cell has its suite; one of the machine
has no file, and gets the name of the part that found it, as scanners of images use the image's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .finding import Finding

if TYPE_CHECKING:
    from hwcompat.hardware.evidence.record import PlannedCell

_CHECK = re.compile(r"^def test_(\w+)\(", re.MULTILINE)
_SUITE = re.compile(r"test_[a-z0-9_]{1,250}\.py")
_LARGEST_SUITE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class SuitePlace:
    """A suite's file, with slashes, relative to the working directory if below it; and the lines of its checks."""

    file: str
    lines: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class SourcePlace:
    """A path with slashes and a line, from 1. `is_file` is False if the path only names a part."""

    path: str
    line: int
    is_file: bool


def suite_places(plans: Iterable[PlannedCell], cells: Iterable[str], folder: Path) -> dict[str, SuitePlace]:
    """Return the suites of some cells that are in a folder, by cell id.

    Plans are untrusted: names that aren't plain file names and links are left out.
    """
    wanted = set(cells)
    names = {
        planned.cell_id: planned.suite
        for planned in plans
        if planned.cell_id in wanted and _SUITE.fullmatch(planned.suite)
    }
    found = {cell: _read(folder / name) for cell, name in names.items()}
    return {cell: place for cell, place in found.items() if place is not None}


def _read(path: Path) -> SuitePlace | None:
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST_SUITE:
            return None
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    lines = {match[1]: text.count("\n", 0, match.start()) + 1 for match in _CHECK.finditer(text)}
    whole, here = path.resolve(), Path.cwd().resolve()
    # Relative to the working directory, as servers expect it; elsewhere only folder and name.
    file = whole.relative_to(here).as_posix() if whole.is_relative_to(here) else "/".join(path.parts[-2:])
    return SuitePlace(file=file, lines=lines)


def place_of(finding: Finding, suites: Mapping[str, SuitePlace]) -> SourcePlace:
    """Return the place of a finding: the first of its cells with a suite here, at the first check that showed it."""
    for cell in finding.cells:
        if suite := suites.get(cell):
            return SourcePlace(path=suite.file, line=line_of(finding, suite), is_file=True)
    return SourcePlace(path=f"{_name(finding.component)}/{_name(finding.hardware_type)}", line=1, is_file=False)


def line_of(finding: Finding, suite: SuitePlace) -> int:
    """Return the line of the first check of the suite that showed the finding; 1 if there is none."""
    return min((suite.lines[check] for check in finding.checks if check in suite.lines), default=1)


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip(".-")[:100] or "unnamed"


def fingerprints(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return a name for each finding that is the same in another run: its id, with a number if several share it."""
    seen: dict[str, int] = {}
    names = []
    for finding in findings:
        id_ = finding.id
        seen[id_] = seen.get(id_, 0) + 1
        names.append(id_ if seen[id_] == 1 else f"{id_}-{seen[id_]}")
    return tuple(names)
