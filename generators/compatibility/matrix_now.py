"""Today's matrix: assumed levels, predictions from stored recipes, and verdicts from evidence.

Imports neither torch nor transformers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from generators.models.architectures import UNKNOWN
from generators.models.classifier import Classification
from generators.models.recipe import Recipe
from generators.models.store import load_recipe, stored_recipes
from hardware.cell import Cell
from hardware.detection import HardwareInfo
from hardware.target import Target

from .facts import facts_here
from .judge import strongest_of
from .judged import Judged
from .matrix import Matrix, build_matrix
from .rules import RuleSet, load_rules, predict
from .second_opinion import with_opinions
from .verdict import Verdict
from .vocabulary import vocabulary


def current_matrix(
    judged: Judged | None, inventory: HardwareInfo, *, timestamp: str, precision: str = "float32"
) -> Matrix:
    """Return the matrix of all stored recipes and of what was measured."""
    rules = load_rules()
    recipes = {recipe.model_type: recipe for recipe in stored_recipes()}
    predicted = {
        verdict.cell: verdict
        for recipe in recipes.values()
        for name in vocabulary().hardware_types
        for verdict in [_predicted(recipe, Target(name=name), precision, rules, inventory)]
    }
    measured = judged.measured if judged else ()
    by_cell = predicted | {one.cell: strongest_of(one, predicted.get(one.cell)) for one in measured}
    verdicts = list(with_opinions(list(by_cell.values()), judged.opinions if judged else ()))
    models = sorted({Cell.parse(verdict.cell).model for verdict in verdicts})
    known = _classified(models, recipes)
    return build_matrix(
        rules,
        verdicts,
        {model: one.family for model, one in known.items()},
        timestamp=timestamp,
        precision=precision,
        architecture_of={model: one.architecture for model, one in known.items() if one.architecture != UNKNOWN},
        devices=judged.devices if judged else None,
        predicted=lambda cell: predicted.get(cell.id) or _of_another(cell, rules, inventory),
    )


def _predicted(recipe: Recipe, target: Target, precision: str, rules: RuleSet, inventory: HardwareInfo) -> Verdict:
    cell = Cell(model=recipe.model_type, task=recipe.task, target=target, precision=precision)
    return predict(cell, facts_here(recipe, cell, inventory), rules)


def _of_another(cell: Cell, rules: RuleSet, inventory: HardwareInfo) -> Verdict | None:
    """Of another task or precision than the view's: what rules say with all facts, where there is a recipe."""
    recipe = load_recipe(cell.model, cell.task)
    return predict(cell, facts_here(recipe, cell, inventory), rules) if recipe else None


def _classified(models: Sequence[str], recipes: Mapping[str, Recipe]) -> dict[str, Recipe | Classification]:
    from generators.models.classifier import classify_or_guess

    found: dict[str, Recipe | Classification] = {}
    for model in models:
        if model in recipes:
            found[model] = recipes[model]
        elif (known := classify_or_guess(model)[0]) is not None:
            found[model] = known
    return found
