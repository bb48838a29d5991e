"""Views of the matrix by what models have in common, or what measured them: architecture, accelerator, machine.

Nothing is declared of these. A cell's level is the worst of what it stands for, and never an average; the counts
beside it say how much that is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hardware.cell import Cell
from hardware.evidence.record import CheckLine
from hardware.evidence.store import lines_by_cell

from .standing import Standing
from .verdict import Basis, Level, Verdict, worst

GROUPS = ("architecture", "accelerator", "machine")
UNNAMED = "not named"
_MOST_NOTES = 20

Measured = Mapping[str, Sequence[Verdict]]
"""Verdicts by the name of what measured them."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Models of a group on one target: how many were measured there, and how many of those are high or medium.

    `models` is how many the group has in all, `None` where nobody counted. `said` are models that weren't measured
    and of which rules say a level, declared or predicted; `said_supported` those of them that are to be so.
    """

    measured: int = 0
    supported: int = 0
    said: int = 0
    said_supported: int = 0
    models: int | None = None


@dataclass(frozen=True, kw_only=True)
class GroupCell:
    """The worst level of a group on a target, what that rests on (`None` where nothing is known), and the counts.

    `notes` name cells for which another accelerator or machine has another level.
    """

    level: Level
    basis: Basis | None
    counts: Counts
    evidence: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rule_ids: tuple[str, ...] = ()


def measured_levels(verdicts: Iterable[Verdict]) -> dict[str, Level]:
    """The measured level of each model, the worst of its cells; what was measured to be unknown is left out."""
    return _levels(verdicts, (Basis.MEASURED,))


def _levels(verdicts: Iterable[Verdict], bases: Collection[Basis]) -> dict[str, Level]:
    found: dict[str, Level] = {}
    for verdict in verdicts:
        if verdict.basis in bases and verdict.level is not Level.UNKNOWN:
            model = Cell.parse(verdict.cell).model
            found[model] = worst([found.get(model, Level.UNKNOWN), verdict.level])
    return found


def counts_of(verdicts: Sequence[Verdict], models: int | None) -> Counts:
    """How many models were measured, of how many others rules speak, and how many of each are high or medium."""
    measured = measured_levels(verdicts)
    by_rules = _levels(verdicts, (Basis.PREDICTED, Basis.DECLARED))
    said = {name: level for name, level in by_rules.items() if name not in measured}
    return Counts(
        measured=len(measured),
        supported=_supported(measured),
        said=len(said),
        said_supported=_supported(said),
        models=models,
    )


def _supported(levels: Mapping[str, Level]) -> int:
    return sum(level in (Level.HIGH, Level.MEDIUM) for level in levels.values())


def group_cell(verdicts: Sequence[Verdict], *, models: int | None = None, notes: Sequence[str] = ()) -> GroupCell:
    """The cell of a group with these verdicts: the worst of the strongest basis that any of them has."""
    known = [verdict for verdict in verdicts if verdict.level is not Level.UNKNOWN]
    strongest = next((one for one in _BASES if any(verdict.basis is one for verdict in known)), None)
    counted = [verdict for verdict in known if verdict.basis is strongest]
    return GroupCell(
        level=worst([verdict.level for verdict in counted]),
        basis=strongest,
        counts=counts_of(verdicts, models),
        evidence=tuple(sorted({id_ for verdict in counted for id_ in verdict.evidence_ids})),
        notes=tuple(notes),
        rule_ids=tuple(dict.fromkeys(id_ for verdict in counted for id_ in verdict.rule_ids)),
    )


_BASES = (Basis.MEASURED, Basis.EXPIRED, Basis.PREDICTED, Basis.DECLARED)


def device_group(measured: Measured, columns: Sequence[str], precision: str) -> dict[str, dict[str, GroupCell]]:
    """The view by accelerator or machine, for all `columns`: cells of other precisions are left out."""
    levels: dict[str, dict[str, Level]] = {}
    placed: dict[tuple[str, str], list[Verdict]] = {}
    for name, verdicts in measured.items():
        for verdict in verdicts:
            cell = Cell.parse(verdict.cell)
            if cell.precision == precision:
                placed.setdefault((name, str(cell.target)), []).append(verdict)
                levels.setdefault(verdict.cell, {})[name] = verdict.level
    split = {cell: by_name for cell, by_name in levels.items() if len(set(by_name.values())) > 1}
    return {
        name: {
            column: group_cell(own, notes=_conflicts(name, own, split))
            for column in columns
            for own in [placed.get((name, column), [])]
        }
        for name in sorted(measured)
        if any((name, column) in placed for column in columns)
    }


def _conflicts(name: str, verdicts: Sequence[Verdict], split: Mapping[str, Mapping[str, Level]]) -> list[str]:
    found = []
    for verdict in verdicts:
        others = {other: level for other, level in split.get(verdict.cell, {}).items() if other != name}
        if others and any(level is not verdict.level for level in others.values()):
            told = ", ".join(f"{level} on {other}" for other, level in sorted(others.items()))
            found.append(f"{verdict.cell}: {verdict.level} here, {told}")
    more = len(found) - _MOST_NOTES
    return [*found[:_MOST_NOTES], *([f"and {more} more cells"] if more > 0 else [])]


def by_device(
    standing: Standing, whole: Sequence[Verdict], conclude_on: Callable[[Standing], Sequence[Verdict]]
) -> dict[str, Measured]:
    """What each accelerator and each machine measured by itself.

    `whole` are the verdicts over all lines, which hold where one alone measured a cell; `conclude_on` concludes from
    some of the lines.
    """
    verdicts = {verdict.cell: verdict for verdict in whole}
    accelerators = _accelerators(standing.checks)
    return {
        "accelerator": _measured(standing, verdicts, accelerators, conclude_on),
        "machine": _measured(
            standing, verdicts, lambda line: standing.machines.get(line.run_id) or UNNAMED, conclude_on
        ),
    }


def _accelerators(checks: Sequence[CheckLine]) -> Callable[[CheckLine], str]:
    named = {(line.run_id, line.cell_id): line.accelerator for line in checks if line.accelerator}
    return lambda line: line.accelerator or named.get((line.run_id, line.cell_id)) or UNNAMED


def _measured(
    standing: Standing,
    verdicts: Mapping[str, Verdict],
    name_of: Callable[[CheckLine], str],
    conclude_on: Callable[[Standing], Sequence[Verdict]],
) -> dict[str, list[Verdict]]:
    found: dict[str, list[Verdict]] = {}
    shared: dict[str, list[CheckLine]] = {}
    for cell, lines in lines_by_cell(standing.checks).items():
        names = {name_of(line) for line in lines}
        if len(names) > 1:
            for line in lines:
                shared.setdefault(name_of(line), []).append(line)
        elif (verdict := verdicts.get(cell)) is not None:
            found.setdefault(names.pop(), []).append(verdict)
    for name, lines in shared.items():
        cells = frozenset(line.cell_id for line in lines)
        found.setdefault(name, []).extend(conclude_on(replace(standing, checks=tuple(lines), cells=cells)))
    if all(verdict.level is Level.UNKNOWN for verdict in found.get(UNNAMED, ())):
        found.pop(UNNAMED, None)  # what was planned and never came to: no accelerator is behind it
    return dict(sorted(found.items()))
