"""`Project`: the content of `hwcompat.toml` as values, each with its line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from hwcompat.generators.compatibility.verdict import Level
from hwcompat.hardware.cell import Cell, parsed
from hwcompat.hardware.evidence.error_types import NUMBERS_CHANGED, current_name
from hwcompat.hardware.evidence.record import CheckLine
from hwcompat.hardware.testing.tolerances import OwnTolerance

from .toml_table import LineSpan


@dataclass(frozen=True, kw_only=True)
class ProjectModel:
    """A model to test: a model type, a folder inside the repository, or a Hub id with its `revision`.

    Empty `tasks` mean the primary one; `targets` and `precisions` are the file's defaults if the entry has none.
    `inputs` are arrays for a graph file: a `.npz` file inside the repository, or a folder of them.
    """

    name: str
    targets: tuple[str, ...]
    precisions: tuple[str, ...]
    line: int
    tasks: tuple[str, ...] = ()
    revision: str = ""
    inputs: str = ""


@dataclass(frozen=True, kw_only=True)
class CellTimeout:
    """The time limit of each check, in seconds, in the cells that match a pattern."""

    cells: str
    seconds: float
    line: int


@dataclass(frozen=True, kw_only=True)
class ProjectTolerance:
    """The limit on errors in the cells that match a pattern, in one precision or (empty) in all."""

    cells: str
    limit: float
    reason: str
    line: int
    precision: str = ""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The level that a cell must have, no worse and no better. In a CSV of the name `file` it is the exact `word`."""

    cell: str
    level: Level
    line: int
    word: str = ""
    file: str = ""


@dataclass(frozen=True, kw_only=True)
class AcceptedFailure:
    """A known failure that is accepted up to and including the day `until`.

    It covers one cell and one check, one error type, or both; `text` is the entry in the file, at `span`.
    Numbers that an upgrade changed are accepted by the hashes of the new `numbers`: numbers that change again fail.
    """

    cell: str
    reason: str
    link: str
    until: date
    span: LineSpan
    text: str
    check: str = ""
    error_type: str = ""
    numbers: tuple[str, ...] = ()

    def covers(self, line: CheckLine) -> bool:
        """Return whether a failure of a check on the cell's own target is the accepted one."""
        return (
            line.outcome.is_failure
            and not line.substitution_reason
            and line.cell_id == self.cell
            and self.check in ("", line.check_name)
            and current_name(self.error_type) in ("", current_name(line.error_type))
            and (line.error_type != NUMBERS_CHANGED or any(one in line.error_message for one in self.numbers))
        )

    @property
    def what(self) -> str:
        """The failure in words: `matches_reference (numerical_mismatch) of bert/fill-mask/cpu/float32`."""
        kind = f" ({self.error_type})" if self.check and self.error_type else ""
        return f"{self.check or self.error_type}{kind} of {self.cell}"


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project file. If several patterns match a cell, the last one counts. `rules` are files and folders."""

    path: Path
    models: tuple[ProjectModel, ...]
    targets: tuple[str, ...]
    precisions: tuple[str, ...]
    expected: Mapping[str, Expectation]
    timeout_s: float | None = None
    timeouts: tuple[CellTimeout, ...] = ()
    tolerances: tuple[ProjectTolerance, ...] = ()
    accepted: tuple[AcceptedFailure, ...] = ()
    rules: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """The file's name, as used in suites, evidence and messages."""
        return self.path.name

    @property
    def root(self) -> Path:
        """The folder of the file; folders of models are looked up only there."""
        return self.path.resolve().parent

    def timeout_for(self, cell: Cell) -> float | None:
        """Return the time limit of a check of `cell` in seconds, or None if the file has none."""
        fitting = [entry.seconds for entry in self.timeouts if cell.matches(entry.cells)]
        return fitting[-1] if fitting else self.timeout_s

    def limits_of(self, cells: Iterable[str]) -> dict[str, float]:
        """Return the limits of the repository's own tolerances by cell id, for those of `cells` that have one."""
        found = {id_: self.tolerance_for(cell) for id_ in cells if (cell := parsed(id_)) is not None}
        return {id_: own.limit for id_, own in found.items() if own is not None}

    def tolerance_for(self, cell: Cell) -> OwnTolerance | None:
        """Return the repository's own tolerance for `cell`, or None if the product's tolerance counts."""
        fitting = [t for t in self.tolerances if cell.matches(t.cells) and t.precision in ("", cell.precision)]
        if not fitting:
            return None
        return OwnTolerance(limit=fitting[-1].limit, reason=fitting[-1].reason, source=self.name)
