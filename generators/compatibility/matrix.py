"""The matrix of verdicts by family, model, architecture, accelerator and machine."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwcompat.generators.models.architectures import UNKNOWN
from hwcompat.generators.models.classification import Classification
from hwcompat.generators.models.recipe import Recipe
from hwcompat.generators.models.recipe_store import load_recipe, stored_recipes
from hwcompat.hardware.cell import Cell, label_of
from hwcompat.hardware.errors import UsageError, did_you_mean, echo
from hwcompat.hardware.evidence.versions import versions_of
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.plain_values import data_frame, json_values
from hwcompat.hardware.target import Target

from .imported import contradicted, with_reference_tests
from .judge import strongest_of
from .matrix_groups import GROUPS, GroupCell, Measured, device_group, group_cell
from .published_rows import shipped_verdicts
from .rule import Rule
from .rule_facts import Facts, facts_here, facts_of_code
from .rules import RuleSet, load_rules, predict
from .verdict import Level, Verdict, is_final, strongest
from .verdict_cache import Judged
from .vocabulary import vocabulary

if TYPE_CHECKING:
    import pandas

SCHEMA = Path(__file__).with_name("schemas") / "matrix.json"
SCHEMA_VERSION = 3
PLURALS = {"architecture": "architectures", "accelerator": "accelerators", "machine": "machines"}
"""The names of `groups` in the matrix as JSON."""
NO_FAMILY = "unknown"


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """A model with its task and precision, and a verdict for each target."""

    model: str
    family: str
    task: str
    precision: str
    verdicts: Mapping[str, Verdict]
    architecture: str = ""

    @property
    def id(self) -> str:
        """The id of the row: `bert/fill-mask/float32`."""
        return f"{self.model}/{self.task}/{self.precision}"


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """All views of the matrix; `groups` has a view for each of `GROUPS`. The caller sets `timestamp`."""

    timestamp: str
    hardware_types: tuple[str, ...]
    model_families: tuple[str, ...]
    families: Mapping[str, Mapping[str, GroupCell]]
    rows: tuple[ModelRow, ...] = ()
    groups: Mapping[str, Mapping[str, Mapping[str, GroupCell]]] = field(
        default_factory=lambda: {name: {} for name in GROUPS}
    )

    def family_notes(self, family: str) -> tuple[str, ...]:
        """Return the notes of a family's rules, without those that name only targets that aren't columns."""
        notes = dict.fromkeys(note for cell in self.families[family].values() for note in cell.notes)
        columns = {Target.parse(column).name for column in self.hardware_types}
        named = {note: set(vocabulary().targets) & set(re.findall(r"[a-z0-9]+", note.lower())) for note in notes}
        return tuple(note for note in notes if not named[note] or named[note] & columns)

    def only(self, targets: Sequence[str]) -> Matrix:
        """Return the matrix with these columns in their order. Raises `UsageError` for an unknown target."""
        for target in targets:
            if target not in self.hardware_types:
                raise UsageError(
                    f"{echo(target)} isn't a column of the matrix",
                    fix=did_you_mean(target, self.hardware_types) or f"Known: {', '.join(self.hardware_types)}.",
                )
        return replace(
            self,
            hardware_types=tuple(targets),
            families={family: {t: cells[t] for t in targets} for family, cells in self.families.items()},
            groups={
                name: {row: {t: cells[t] for t in targets} for row, cells in view.items()}
                for name, view in self.groups.items()
            },
            rows=tuple(
                replace(row, verdicts={t: row.verdicts[t] for t in targets if t in row.verdicts}) for row in self.rows
            ),
        )

    def of_models(self, models: Sequence[str]) -> Matrix:
        """Return the matrix with the rows of these models, and with their families and architectures.

        Accelerators and machines are left out, because they measured other models too. Raises `UsageError` for a
        model without a row.
        """
        known = {name for row in self.rows for name in (row.model, label_of(row.model))}
        for model in models:
            if model not in known:
                raise UsageError(
                    f"{echo(model)} isn't a row of the matrix",
                    why="it has no stored recipe and no evidence",
                    fix=did_you_mean(model, sorted(known)) or "Leave --model out to show all rows.",
                )
        rows = tuple(row for row in self.rows if {row.model, label_of(row.model)} & set(models))
        families = {row.family for row in rows}
        kept = {row.architecture for row in rows}
        by_architecture = {name: cells for name, cells in self.groups[GROUPS[0]].items() if name in kept}
        return replace(
            self,
            rows=rows,
            model_families=tuple(name for name in self.model_families if name in families),
            families={name: cells for name, cells in self.families.items() if name in families},
            groups={**{name: {} for name in GROUPS}, GROUPS[0]: by_architecture},
        )

    def to_frame(self) -> pandas.DataFrame:
        """Return a table with a row for each model and target: the cell's id and its parts, family and architecture
        of the model, level, basis, fault, route and weights of the verdict, and the codes of its `reasons`."""
        of_row = ("model", "task", "precision", "family", "architecture")
        of_verdict = ("level", "basis", "fault", "route", "weights_asked", "weights_run")
        rows = [
            {
                **vars(row),
                **vars(verdict),
                "target": target,
                "reasons": ", ".join(one.code for one in verdict.reasons),
            }
            for row in self.rows
            for target, verdict in row.verdicts.items()
        ]
        return data_frame(rows, ["cell", *of_row, "target", *of_verdict, "reasons"])

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that `schemas/matrix.json` describes."""
        return {
            "schema_version": SCHEMA_VERSION,
            "timestamp": self.timestamp,
            "hardware_types": list(self.hardware_types),
            "model_families": list(self.model_families),
            "compatibility": json_values(self.families),
            **{plural: json_values(self.groups[name]) for name, plural in PLURALS.items()},
            "models": {
                row.id: {
                    "family": row.family,
                    "architecture": row.architecture,
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
    architecture_of: Mapping[str, str] | None = None,
    devices: Mapping[str, Measured] | None = None,
    predicted: Callable[[Cell], Verdict | None] = lambda _cell: None,
) -> Matrix:
    """Return the matrix of `verdicts`, with assumed levels for families without one.

    `family_of` gives each model's family; a model without one is shown in the view by model only. Of several verdicts
    for one cell the one with the strongest basis counts, and of those the worst. `hardware_types` are the columns
    (default: every target with a device); targets that only verdicts name are added. `family_sizes` is the number of
    models in each family. Families are counted in one `precision`, so that a model that was
    measured in several doesn't count several times. `architecture_of` gives each model's
    architecture, `devices` the verdicts of single accelerators and machines. `predicted` returns what rules predict
    for a cell from all facts of its model, or None if only the family is known.
    """
    family_of = family_of or {}
    family_sizes = family_sizes or {}
    chosen = {id_: strongest(own) for id_, own in _by_cell(verdicts).items()}
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
    rows = _rows(rules, chosen, cells, family_of, architecture_of or {}, columns, predicted)
    views = {name: device_group((devices or {}).get(name, {}), columns, precision) for name in GROUPS[1:]}
    return Matrix(
        timestamp=timestamp,
        hardware_types=columns,
        model_families=model_families,
        families=compatibility,
        rows=rows,
        groups={GROUPS[0]: _by_architecture(rows, columns, precision), **views},
    )


def _by_architecture(
    rows: Sequence[ModelRow], columns: Sequence[str], precision: str
) -> dict[str, dict[str, GroupCell]]:
    grouped: dict[str, list[ModelRow]] = {}
    for row in rows:
        if row.architecture and row.precision == precision:
            grouped.setdefault(row.architecture, []).append(row)
    return {
        name: {
            column: group_cell([row.verdicts[column] for row in own], models=len({row.model for row in own}))
            for column in columns
        }
        for name, own in sorted(grouped.items())
    }


def _by_cell(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    grouped: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        grouped.setdefault(verdict.cell, []).append(verdict)
    return grouped


def _family_cell(winners: Sequence[Rule], verdicts: Sequence[Verdict], size: int | None) -> GroupCell:
    return group_cell(
        verdicts,
        models=size,
        notes=tuple(dict.fromkeys(rule.note for rule in winners if rule.note)),
        assumed=winners[0].level if winners else None,
        rule_ids=tuple(rule.id for rule in winners),
    )


def _rows(
    rules: RuleSet,
    chosen: Mapping[str, Verdict],
    cells: Mapping[str, Cell],
    family_of: Mapping[str, str],
    architecture_of: Mapping[str, str],
    columns: Sequence[str],
    predicted: Callable[[Cell], Verdict | None],
) -> tuple[ModelRow, ...]:
    rows = []
    for model, task, precision in sorted({(c.model, c.task, c.precision) for c in cells.values()}):
        family = family_of.get(model)
        facts = Facts(family=family, task=task, precision=precision)
        verdicts = {}
        for column in columns:
            cell = Cell(model=model, task=task, target=Target.parse(column), precision=precision)
            own = chosen.get(cell.id)
            if own is None or own.level is Level.UNKNOWN:
                own = _unmeasured(predicted(cell), own, functools.partial(predict, cell, facts, rules))
            verdicts[column] = own
        rows.append(
            ModelRow(
                model=model,
                family=family or NO_FAMILY,
                task=task,
                precision=precision,
                verdicts=verdicts,
                architecture=architecture_of.get(model, ""),
            )
        )
    return tuple(rows)


def _unmeasured(predicted: Verdict | None, own: Verdict | None, assumed: Callable[[], Verdict]) -> Verdict:
    """Return the verdict of a cell without a measured level: predicted from the facts of its model, else its
    family's. If neither is known, return the verdict that says why a run decided nothing."""
    if own is not None and is_final(own):
        return own
    said = predicted or assumed()
    return own if own is not None and said.level is Level.UNKNOWN else said


def current_matrix(
    judged: Judged | None,
    inventory: HardwareInfo,
    *,
    timestamp: str,
    precision: str = "float32",
    targets: Sequence[str] = (),
) -> Matrix:
    """Return the matrix of all stored recipes, of what was measured, and of what others measured.

    `targets` names columns of targets without a backend, of which others published results.
    """
    rules = load_rules()
    recipes = {recipe.model_type: recipe for recipe in stored_recipes()}
    versions = versions_of(inventory)
    of_code = {name: facts_of_code(recipe) for name, recipe in recipes.items()}
    cells = [
        (recipe, Cell(model=recipe.model_type, task=recipe.task, target=Target(name=name), precision=precision))
        for recipe in recipes.values()
        for name in vocabulary().hardware_types
    ]
    predicted = {
        cell.id: predict(
            cell,
            facts_here(recipe, cell, inventory, versions=versions, of_code=of_code[recipe.model_type]),
            rules,
        )
        for recipe, cell in cells
    }
    measured = judged.measured if judged else ()
    published = shipped_verdicts() if recipes else {}  # without transformers no type has a name
    known = {
        id_: one
        for id_, one in published.items()
        if (cell := Cell.parse(id_)).precision == precision and is_shown(cell, recipes, targets)
    }
    by_cell = predicted | known
    by_cell |= {one.cell: beside_published(one, published.get(one.cell), predicted.get(one.cell)) for one in measured}
    verdicts = list(with_reference_tests(list(by_cell.values()), judged.opinions if judged else ()))
    models = sorted({Cell.parse(verdict.cell).model for verdict in verdicts})
    types = _classified(models, recipes)
    return build_matrix(
        rules,
        verdicts,
        {model: one.family for model, one in types.items()},
        timestamp=timestamp,
        precision=precision,
        architecture_of={model: one.architecture for model, one in types.items() if one.architecture != UNKNOWN},
        devices=judged.devices if judged else None,
        predicted=lambda cell: by_cell.get(cell.id) or published.get(cell.id) or _of_another(cell, rules, inventory),
    )


def is_shown(cell: Cell, recipes: Mapping[str, Recipe], targets: Sequence[str]) -> bool:
    """Whether a published cell is in the matrix: of a type with a recipe, and of a target with a backend or one that
    is asked for."""
    is_asked = str(cell.target) in targets or cell.target.name in vocabulary().hardware_types
    return cell.model in recipes and recipes[cell.model].task == cell.task and is_asked


def beside_published(own: Verdict, published: Verdict | None, predicted: Verdict | None) -> Verdict:
    """Return what counts for a cell that own results name: a level of theirs is never replaced by what others
    measured on their devices, and names it if it contradicts."""
    if published is None:
        return strongest_of(own, predicted)
    return contradicted(own, published) if own.level is not Level.UNKNOWN else strongest_of(own, published)


def _of_another(cell: Cell, rules: RuleSet, inventory: HardwareInfo) -> Verdict | None:
    """Return the prediction for another task or precision than the view's, from all facts if there is a recipe."""
    recipe = load_recipe(cell.model, cell.task)
    return predict(cell, facts_here(recipe, cell, inventory), rules) if recipe else None


def _classified(models: Sequence[str], recipes: Mapping[str, Recipe]) -> dict[str, Recipe | Classification]:
    from hwcompat.generators.models.basic_classification import classify_or_guess

    found: dict[str, Recipe | Classification] = {}
    for model in models:
        if model in recipes:
            found[model] = recipes[model]
        elif (known := classify_or_guess(model)[0]) is not None:
            found[model] = known
    return found
