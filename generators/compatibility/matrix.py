"""The matrix of all answers in two views: by family, declared level beside counts, and by model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hardware.cell import Cell
from hardware.errors import UsageError, did_you_mean, echo
from hardware.target import Target

from .facts import Facts
from .rule import Rule
from .rules import RuleSet, predict
from .verdict import Basis, Level, Verdict, worst
from .vocabulary import vocabulary

SCHEMA = Path(__file__).with_name("schemas") / "matrix.json"
SCHEMA_VERSION = 1
NO_FAMILY = "unknown"

_STRENGTH = {Basis.DECLARED: 0, Basis.PREDICTED: 1, Basis.EXPIRED: 2, Basis.MEASURED: 3}


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Models of a family on one target: how many were measured there, and how many of those are high or medium.

    `models` is how many the family has in all, `None` where nobody counted.
    """

    measured: int = 0
    supported: int = 0
    models: int | None = None


@dataclass(frozen=True, kw_only=True)
class FamilyCell:
    """What is declared of a family on a target; measurements show in `counts` and never move a declared level.

    Where nothing is declared, `level` is the worst that was measured; `basis` is `None` where nothing is known.
    """

    level: Level
    basis: Basis | None
    counts: Counts
    evidence: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rule_ids: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "level": str(self.level),
            "basis": None if self.basis is None else str(self.basis),
            "counts": {
                "measured": self.counts.measured,
                "supported": self.counts.supported,
                "models": self.counts.models,
            },
            "evidence": list(self.evidence),
            "notes": list(self.notes),
            "rule_ids": list(self.rule_ids),
        }


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """One model doing one task in one precision, with a verdict for each hardware type."""

    model: str
    family: str
    task: str
    precision: str
    verdicts: Mapping[str, Verdict]

    @property
    def id(self) -> str:
        """`bert/fill-mask/float32`."""
        return f"{self.model}/{self.task}/{self.precision}"


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Both views; `timestamp` is what the caller gave."""

    timestamp: str
    hardware_types: tuple[str, ...]
    model_families: tuple[str, ...]
    families: Mapping[str, Mapping[str, FamilyCell]]
    rows: tuple[ModelRow, ...] = ()

    def family_notes(self, family: str) -> tuple[str, ...]:
        """The notes of a family's rules, each once."""
        return tuple(dict.fromkeys(note for cell in self.families[family].values() for note in cell.notes))

    def only(self, targets: Sequence[str]) -> Matrix:
        """The same matrix with these columns alone, in their order. Raises `UsageError` for a target it hasn't."""
        for target in targets:
            if target not in self.hardware_types:
                raise UsageError(
                    f"{echo(target)} is no column of the matrix",
                    fix=did_you_mean(target, self.hardware_types) or f"There are {', '.join(self.hardware_types)}.",
                )
        return replace(
            self,
            hardware_types=tuple(targets),
            families={family: {t: cells[t] for t in targets} for family, cells in self.families.items()},
            rows=tuple(
                replace(row, verdicts={t: row.verdicts[t] for t in targets if t in row.verdicts}) for row in self.rows
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `schemas/matrix.json` describes."""
        return {
            "schema_version": SCHEMA_VERSION,
            "timestamp": self.timestamp,
            "hardware_types": list(self.hardware_types),
            "model_families": list(self.model_families),
            "compatibility": {
                family: {hardware: cell.to_dict() for hardware, cell in cells.items()}
                for family, cells in self.families.items()
            },
            "models": {
                row.id: {
                    "family": row.family,
                    "compatibility": {name: verdict.to_dict() for name, verdict in row.verdicts.items()},
                }
                for row in self.rows
            },
            "notes": {family: list(notes) for family in self.model_families if (notes := self.family_notes(family))},
        }


def build_matrix(
    rules: RuleSet,
    verdicts: Sequence[Verdict] = (),
    family_of: Mapping[str, str] | None = None,
    *,
    timestamp: str,
    hardware_types: Sequence[str] = (),
    families: Sequence[str] = (),
    family_sizes: Mapping[str, int] | None = None,
    precision: str = "float32",
) -> Matrix:
    """The matrix of declared levels with `verdicts` laid over them.

    `family_of` gives each model's family; a model without one stands in the view by model only. Of several
    verdicts for one cell the one with the strongest basis counts, and of those the worst. `hardware_types` are the
    columns (default: every target with a device behind it); targets that only verdicts name are added.
    `family_sizes` is how many models each family has, where it is known. Families are rated and counted in
    `precision` alone, so that another precision of a model is no second opinion of its family.
    """
    family_of = family_of or {}
    family_sizes = family_sizes or {}
    chosen = {id_: _strongest(own) for id_, own in _by_cell(verdicts).items()}
    cells = {id_: Cell.parse(id_) for id_ in chosen}
    asked = tuple(hardware_types or vocabulary().hardware_types)
    columns = tuple(dict.fromkeys((*asked, *sorted(str(cell.target) for cell in cells.values()))))
    model_families = tuple(families or vocabulary().families)
    grouped: dict[tuple[str, str], list[Verdict]] = {}
    for id_, cell in cells.items():
        if cell.precision != precision:
            continue
        place = (family_of.get(cell.model, NO_FAMILY), str(cell.target))
        grouped.setdefault(place, []).append(chosen[id_])
    compatibility = {
        family: {
            column: _family_cell(
                rules.winners(Target.parse(column), Facts(family=family, precision=precision)),
                grouped.get((family, column), []),
                family_sizes.get(family),
            )
            for column in columns
        }
        for family in model_families
    }
    return Matrix(
        timestamp=timestamp,
        hardware_types=columns,
        model_families=model_families,
        families=compatibility,
        rows=_rows(rules, chosen, cells, family_of, columns),
    )


def _by_cell(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    grouped: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        grouped.setdefault(verdict.cell, []).append(verdict)
    return grouped


def _strongest(verdicts: Sequence[Verdict]) -> Verdict:
    """The one to show: a known level before `unknown`, then the strongest basis, then the worst level."""
    return max(verdicts, key=lambda v: (v.level.rank is not None, _STRENGTH[v.basis], -(v.level.rank or 0)))


def _family_cell(winners: Sequence[Rule], verdicts: Sequence[Verdict], size: int | None) -> FamilyCell:
    measured: dict[str, Level] = {}
    evidence: list[str] = []
    for verdict in verdicts:
        if verdict.basis is Basis.MEASURED and verdict.level is not Level.UNKNOWN:
            model = Cell.parse(verdict.cell).model
            measured[model] = worst([measured.get(model, Level.UNKNOWN), verdict.level])
            evidence += verdict.evidence_ids
    supported = sum(level in (Level.HIGH, Level.MEDIUM) for level in measured.values())
    level, basis = worst(list(measured.values())), Basis.MEASURED if measured else None
    if winners:
        level, basis = winners[0].level, winners[0].basis
    return FamilyCell(
        level=level,
        basis=basis,
        counts=Counts(measured=len(measured), supported=supported, models=size),
        evidence=tuple(sorted(set(evidence))),
        notes=tuple(dict.fromkeys(rule.note for rule in winners if rule.note)),
        rule_ids=tuple(rule.id for rule in winners),
    )


def _rows(
    rules: RuleSet,
    chosen: Mapping[str, Verdict],
    cells: Mapping[str, Cell],
    family_of: Mapping[str, str],
    columns: Sequence[str],
) -> tuple[ModelRow, ...]:
    rows = []
    for model, task, precision in sorted({(c.model, c.task, c.precision) for c in cells.values()}):
        family = family_of.get(model)
        facts = Facts(family=family, task=task, precision=precision)
        verdicts = {}
        for column in columns:
            cell = Cell(model=model, task=task, target=Target.parse(column), precision=precision)
            own = chosen.get(cell.id)
            # What nobody asked of this model is what is declared of its family.
            known = own is not None and own.level is not Level.UNKNOWN
            verdicts[column] = own if own is not None and known else _prior(cell, facts, rules, own)
        rows.append(
            ModelRow(model=model, family=family or NO_FAMILY, task=task, precision=precision, verdicts=verdicts)
        )
    return tuple(rows)


def _prior(cell: Cell, facts: Facts, rules: RuleSet, own: Verdict | None) -> Verdict:
    prior = predict(cell, facts, rules)
    return own if own is not None and prior.level is Level.UNKNOWN else prior
