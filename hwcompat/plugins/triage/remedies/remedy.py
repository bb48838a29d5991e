"""Remedies and the failures that they are for (`remedies.toml`); which apply to a failing cell, in which order."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hwcompat.hardware.applied_fix import AppliedFix
from hwcompat.hardware.backends.factory import backend_class, known_targets
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.command_names import as_runnable
from hwcompat.hardware.evidence.record import CheckLine
from hwcompat.hardware.target import Target

_FILE = Path(__file__).with_name("remedies.toml")
_OTHER_TARGETS = 2
"""The number of other targets that are tried for one cell: a third adds little information."""


@dataclass(frozen=True, kw_only=True)
class CellRemedy:
    """One change. `size` orders changes from the smallest; `environment` sets variables, and unsets those whose value
    is empty; `cost` is the loss in accuracy, speed and memory; `leaves_out` are checks of what it gives up. `write`
    is what a user writes to apply it."""

    id: str
    size: int
    says: str
    write: str
    cost: Mapping[str, str]
    source: str
    targets: tuple[str, ...] = ()
    change: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    precision: str = ""
    other_target: bool = False
    leaves_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FailedCell:
    """Failures that have the same remedies; an empty field matches anything."""

    id: str
    reason: str
    error_types: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    needs_variable: str = ""
    likely: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()

    def fits(self, cell: Cell, line: CheckLine, error_type: str, environment: Mapping[str, str]) -> bool:
        """Whether a cell's first failed check is of this kind."""
        asked = (
            (self.error_types, error_type),
            (self.stages, str(line.stage or "")),
            (self.checks, line.check_name),
            (self.targets, cell.target.name),
            (self.precisions, cell.precision),
        )
        if self.needs_variable and not environment.get(self.needs_variable):
            return False
        return all(not known or value in known for known, value in asked)


@dataclass(frozen=True, kw_only=True)
class RemedyStep:
    """A remedy for a cell: `cell` is what runs, another one if the precision or target is changed.

    `likely` is its group in the order.
    """

    remedy: CellRemedy
    cell: Cell
    likely: bool

    @property
    def id(self) -> str:
        """The id, such as `attention_eager` or `other_target:cpu`."""
        return f"{self.remedy.id}:{self.cell.target}" if self.remedy.other_target else self.remedy.id

    @property
    def changes(self) -> AppliedFix:
        """Return the change of the child's environment; nothing for another cell, which is measured unchanged."""
        variables = sorted(self.remedy.environment.items())
        text = ", ".join(f"{name}={value}" if value else f"{name} unset" for name, value in variables)
        return AppliedFix(**{**self.remedy.change, "environment": text})


@dataclass(frozen=True, kw_only=True)
class Remedies:
    """The data file."""

    remedies: Mapping[str, CellRemedy]
    failures: tuple[FailedCell, ...]
    other_targets: tuple[str, ...]


@functools.cache
def load_remedies() -> Remedies:
    """Read the data file."""
    data = tomllib.loads(as_runnable(_FILE.read_text(encoding="utf-8")))
    remedies = {entry["id"]: CellRemedy(**_with_tuples(entry)) for entry in data["remedy"]}
    failures = tuple(FailedCell(**_with_tuples(entry)) for entry in data["failure"])
    return Remedies(remedies=remedies, failures=failures, other_targets=tuple(data["other_targets"]))


def _with_tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}


def failure_of(cell: Cell, line: CheckLine, error_type: str, environment: Mapping[str, str]) -> FailedCell:
    """Return the kind of failure of a cell's first failed check: the first that matches; the last matches all."""
    return next(one for one in load_remedies().failures if one.fits(cell, line, error_type, environment))


def steps_for(
    cell: Cell, line: CheckLine, error_type: str, *, here: Sequence[str], environment: Mapping[str, str]
) -> tuple[RemedyStep, ...]:
    """Return what can be tried for a cell whose first failed check is `line`: likely ones first.

    `here` are the targets of this machine, `environment` its variables. Remedies without effect on the cell are
    skipped: one for other targets, a precision that it has or that the target lacks, a cache without decoding.
    """
    failure = failure_of(cell, line, error_type, environment)
    found: dict[str, RemedyStep] = {}
    for names, likely in ((failure.likely, True), (failure.possible, False)):
        remedies = [load_remedies().remedies[name] for name in names]
        for remedy in sorted(remedies, key=lambda one: one.size):
            for other in _cells(remedy, cell, here):
                step = RemedyStep(remedy=remedy, cell=other, likely=likely)
                found.setdefault(step.id, step)
    return tuple(found.values())


def _cells(remedy: CellRemedy, cell: Cell, here: Sequence[str]) -> list[Cell]:
    """Return the cells that a remedy would run for `cell`: itself, or others with its target or precision."""
    if remedy.targets and cell.target.name not in remedy.targets:
        return []
    if remedy.other_target:
        order = [name for name in load_remedies().other_targets if name in here and name != cell.target.name]
        others = [name for name in order if cell.precision in backend_class(name).PRECISIONS]
        return [replace(cell, target=Target.parse(name)) for name in others[:_OTHER_TARGETS]]
    if not remedy.precision:
        return [cell]
    known = backend_class(cell.target.name).PRECISIONS if cell.target.name in known_targets() else ()
    if remedy.precision == cell.precision or remedy.precision not in known:
        return []
    return [replace(cell, precision=remedy.precision)]
