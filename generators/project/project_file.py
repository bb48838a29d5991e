"""`Project`: what `hwcompat.toml` says, as values, with the line on which each thing stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from generators.compatibility.verdict import Level
from hardware.cell import Cell, parsed
from hardware.evidence.error_types import current_name
from hardware.evidence.record import CheckLine
from hardware.testing.tolerances import OwnTolerance

from .toml_table import LineSpan


@dataclass(frozen=True, kw_only=True)
class ProjectModel:
    """A model to test: a model type, a folder inside the repository, or a Hub id with its `revision`.

    Empty `tasks` mean the primary one; `targets` and `precisions` are the file's defaults where the entry has none.
    """

    name: str
    targets: tuple[str, ...]
    precisions: tuple[str, ...]
    line: int
    tasks: tuple[str, ...] = ()
    revision: str = ""


@dataclass(frozen=True, kw_only=True)
class CellTimeout:
    """Seconds that each check may take in the cells that fit the pattern."""

    cells: str
    seconds: float
    line: int


@dataclass(frozen=True, kw_only=True)
class ProjectTolerance:
    """The limit on errors in the cells that fit the pattern, in one precision or (empty) in all."""

    cells: str
    limit: float
    reason: str
    line: int
    precision: str = ""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The level that a cell has to have, no worse and no better."""

    cell: str
    level: Level
    line: int


@dataclass(frozen=True, kw_only=True)
class AcceptedFailure:
    """A failure that is known and accepted up to and with the day `until`.

    It speaks of one cell and of one check, of one error type, or of both; `text` is the entry as it stands in the
    file, at `span`.
    """

    cell: str
    reason: str
    link: str
    until: date
    span: LineSpan
    text: str
    check: str = ""
    error_type: str = ""

    def covers(self, line: CheckLine) -> bool:
        """Whether a failure that a check shows on the cell's own target is the one that is accepted."""
        return (
            line.outcome.is_failure
            and not line.substitution_reason
            and line.cell_id == self.cell
            and self.check in ("", line.check_name)
            and current_name(self.error_type) in ("", current_name(line.error_type))
        )

    @property
    def what(self) -> str:
        """`matches_reference (numerical_mismatch) of bert/fill-mask/cpu/float32`."""
        kind = f" ({self.error_type})" if self.check and self.error_type else ""
        return f"{self.check or self.error_type}{kind} of {self.cell}"


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project file that was read. Of several patterns that fit a cell the last one counts."""

    path: Path
    models: tuple[ProjectModel, ...]
    targets: tuple[str, ...]
    precisions: tuple[str, ...]
    expected: Mapping[str, Expectation]
    timeout_s: float | None = None
    timeouts: tuple[CellTimeout, ...] = ()
    tolerances: tuple[ProjectTolerance, ...] = ()
    accepted: tuple[AcceptedFailure, ...] = ()

    @property
    def name(self) -> str:
        """The file's name, as suites, evidence and messages carry it."""
        return self.path.name

    @property
    def root(self) -> Path:
        """The folder in which the file lies: folders of models are looked for there and nowhere else."""
        return self.path.resolve().parent

    def timeout_for(self, cell: Cell) -> float | None:
        """Seconds that a check of `cell` may take; None where the file doesn't say."""
        fitting = [entry.seconds for entry in self.timeouts if cell.matches(entry.cells)]
        return fitting[-1] if fitting else self.timeout_s

    def limits_of(self, cells: Iterable[str]) -> dict[str, float]:
        """The limits of the repository's own tolerances by cell id, for those of `cells` that have one."""
        found = {id_: self.tolerance_for(cell) for id_ in cells if (cell := parsed(id_)) is not None}
        return {id_: own.limit for id_, own in found.items() if own is not None}

    def tolerance_for(self, cell: Cell) -> OwnTolerance | None:
        """The repository's own tolerance for `cell`; None where the product's counts."""
        fitting = [t for t in self.tolerances if cell.matches(t.cells) and t.precision in ("", cell.precision)]
        if not fitting:
            return None
        return OwnTolerance(limit=fitting[-1].limit, reason=fitting[-1].reason, source=self.name)
