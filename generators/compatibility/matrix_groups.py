"""Groups of cells in the matrix: families, architectures, accelerators, machines. A group has counts and no level.

Only a family without a measured, imported or predicted level has one: the assumed level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from hwcompat.hardware.cell import Cell
from hwcompat.hardware.evidence.latest import Latest
from hwcompat.hardware.evidence.record import CheckLine
from hwcompat.hardware.evidence.store import lines_by_cell

from .verdict import Basis, Level, Verdict, is_fault_of_model, worst

GROUPS = ("architecture", "accelerator", "machine")
UNNAMED = "not named"
_MOST_NOTES = 20
_BY_RULES = (Basis.PREDICTED, Basis.ASSUMED)

Measured = Mapping[str, Sequence[Verdict]]
"""Verdicts by the name of the device or machine that measured them."""


@dataclass(frozen=True, kw_only=True)
class CellCounts:
    """How many models of a group were measured on a target, and how many of those are high or medium.

    `models` is the size of the group, None if it isn't known. `said` counts models that weren't measured and for
    which rules give a level, predicted or assumed; `said_supported` counts those with high or medium.
    `models_at_fault` have no other result than that their own code fails, on the CPU too.
    """

    measured: int = 0
    supported: int = 0
    said: int = 0
    said_supported: int = 0
    models: int | None = None
    models_at_fault: int = 0


@dataclass(frozen=True, kw_only=True)
class GroupCell:
    """The counts of a group on a target, and the strongest `basis` of its models (None if nothing is known).

    `levels` is the number of models for each level with that basis. Predicted and assumed levels are counted
    together, with the basis `assumed` if any of them is. `level` is the assumed level of a group without other
    results, else None. `notes` name cells that have another level on another accelerator or machine.
    """

    level: Level | None
    basis: Basis | None
    counts: CellCounts
    levels: Mapping[Level, int] = field(default_factory=lambda: MappingProxyType({}))
    evidence: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rule_ids: tuple[str, ...] = ()


def _levels(verdicts: Iterable[Verdict]) -> dict[str, Level]:
    """Return the level of each model: the worst of its known cells."""
    found: dict[str, Level] = {}
    for verdict in verdicts:
        if verdict.level is not Level.UNKNOWN:
            model = Cell.parse(verdict.cell).model
            found[model] = worst([found.get(model, Level.UNKNOWN), verdict.level])
    return found


def counts_of(verdicts: Sequence[Verdict], models: int | None) -> CellCounts:
    """Return how many models were measured, for how many others rules give a level, and how many of each work."""
    at_fault = {
        Cell.parse(verdict.cell).model
        for verdict in verdicts
        if is_fault_of_model(verdict.cell, verdict.level, verdict.fault)
    }
    verdicts = _on_target(verdicts)
    measured = _levels(verdict for verdict in verdicts if verdict.basis is Basis.MEASURED)
    by_rules = _levels(verdict for verdict in verdicts if verdict.basis in _BY_RULES)
    said = {name: level for name, level in by_rules.items() if name not in measured}
    return CellCounts(
        measured=len(measured),
        supported=_supported(measured),
        said=len(said),
        said_supported=_supported(said),
        models=models,
        models_at_fault=len(at_fault - measured.keys() - said.keys()),
    )


def _on_target(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts with a level that says something about the target."""
    return [
        one
        for one in verdicts
        if one.level is not Level.UNKNOWN and not is_fault_of_model(one.cell, one.level, one.fault)
    ]


def _supported(levels: Mapping[str, Level]) -> int:
    return sum(level in (Level.HIGH, Level.MEDIUM) for level in levels.values())


def group_cell(
    verdicts: Sequence[Verdict],
    *,
    models: int | None = None,
    notes: Sequence[str] = (),
    assumed: Level | None = None,
    rule_ids: Sequence[str] = (),
) -> GroupCell:
    """Return the cell of a group with these verdicts; `assumed` is its level if nothing else is known."""
    known = _on_target(verdicts)
    basis = max((verdict.basis for verdict in known), key=lambda one: one.rank, default=None)
    bases = _BY_RULES if basis in _BY_RULES else (basis,)
    counted = [verdict for verdict in known if verdict.basis in bases]
    levels = Counter(_levels(counted).values())
    if basis in (None, Basis.ASSUMED):
        assumed = assumed if assumed is not None else next(iter(levels), None) if len(levels) == 1 else None
        basis = Basis.ASSUMED if assumed is not None else basis
    else:
        assumed = None
        if any(
            verdict.basis is Basis.ASSUMED for verdict in counted
        ):  # several bases counted together get the weakest
            basis = Basis.ASSUMED
    return GroupCell(
        level=assumed,
        basis=basis,
        counts=counts_of(verdicts, models),
        levels={level: levels[level] for level in Level if levels[level]},
        evidence=tuple(sorted({id_ for verdict in counted for id_ in verdict.evidence_ids})),
        notes=tuple(notes),
        rule_ids=tuple(dict.fromkeys([*rule_ids, *(id_ for verdict in counted for id_ in verdict.rule_ids)])),
    )


def device_group(measured: Measured, columns: Sequence[str], precision: str) -> dict[str, dict[str, GroupCell]]:
    """Return the view by accelerator or machine, for all `columns`; cells of other precisions are left out."""
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
            elsewhere = ", ".join(f"{level} on {other}" for other, level in sorted(others.items()))
            found.append(f"{verdict.cell}: {verdict.level} here, {elsewhere}")
    more = len(found) - _MOST_NOTES
    return [*found[:_MOST_NOTES], *([f"and {more} more cells"] if more > 0 else [])]


def by_device(
    latest: Latest, whole: Sequence[Verdict], judge_on: Callable[[Latest], Sequence[Verdict]]
) -> dict[str, Measured]:
    """Return the verdicts of each accelerator and each machine by itself.

    `whole` are the verdicts over all results, which hold if only one measured a cell; `judge_on` judges a part of the
    results.
    """
    verdicts = {verdict.cell: verdict for verdict in whole}
    accelerators = _accelerators(latest.checks)
    return {
        "accelerator": _measured(latest, verdicts, accelerators, judge_on),
        "machine": _measured(latest, verdicts, lambda line: latest.machines.get(line.run_id) or UNNAMED, judge_on),
    }


def _accelerators(checks: Sequence[CheckLine]) -> Callable[[CheckLine], str]:
    named = {(line.run_id, line.cell_id): line.accelerator for line in checks if line.accelerator}
    return lambda line: line.accelerator or named.get((line.run_id, line.cell_id)) or UNNAMED


def _measured(
    latest: Latest,
    verdicts: Mapping[str, Verdict],
    name_of: Callable[[CheckLine], str],
    judge_on: Callable[[Latest], Sequence[Verdict]],
) -> dict[str, list[Verdict]]:
    found: dict[str, list[Verdict]] = {}
    shared: dict[str, list[CheckLine]] = {}
    for cell, lines in lines_by_cell(latest.checks).items():
        names = {name_of(line) for line in lines}
        if len(names) > 1:
            for line in lines:
                shared.setdefault(name_of(line), []).append(line)
        elif (verdict := verdicts.get(cell)) is not None:
            found.setdefault(names.pop(), []).append(verdict)
    for name, lines in shared.items():
        cells = frozenset(line.cell_id for line in lines)
        found.setdefault(name, []).extend(judge_on(replace(latest, checks=tuple(lines), cells=cells, imported=())))
    if all(verdict.level is Level.UNKNOWN for verdict in found.get(UNNAMED, ())):
        found.pop(UNNAMED, None)  # planned and never run: no accelerator measured it
    return dict(sorted(found.items()))
