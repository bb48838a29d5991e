"""From a folder of evidence to verdicts and the matrix as they stand now: the one way for every front door.

Imports neither torch nor transformers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from generators.models.recipe import Recipe
from generators.models.store import stored_recipes
from hardware.cell import Cell
from hardware.detection import HardwareInfo
from hardware.errors import HwCompatError
from hardware.evidence.record import CheckLine, PlannedCell
from hardware.evidence.store import Evidence
from hardware.evidence.versions import relevant_versions, versions_of
from hardware.target import Target

from .conclude import conclude, final
from .current_checks import current_checks, planned_checks
from .facts import facts_here
from .matrix import Matrix, build_matrix
from .required import required_checks
from .rules import RuleSet, load_rules, predict
from .verdict import Verdict
from .vocabulary import vocabulary

_NONE: Mapping[str, float] = MappingProxyType({})


def current_matrix(
    evidence: Evidence | None, inventory: HardwareInfo, *, timestamp: str, precision: str = "float32"
) -> Matrix:
    """Levels of families and of models: declared, predicted for the recipes that are stored, measured where known."""
    rules = load_rules()
    recipes = {recipe.model_type: recipe for recipe in stored_recipes()}
    predicted = {
        verdict.cell: verdict
        for recipe in recipes.values()
        for name in vocabulary().hardware_types
        for verdict in [_predicted(recipe, Target(name=name), precision, rules, inventory)]
    }
    verdicts = list(predicted.values())
    for verdict in measured_verdicts(evidence, inventory) if evidence else ():
        before = predicted.get(verdict.cell)
        verdicts.append(final(before, verdict) if before else verdict)
    models = sorted({Cell.parse(verdict.cell).model for verdict in verdicts})
    return build_matrix(rules, verdicts, _families(models, recipes), timestamp=timestamp, precision=precision)


def _predicted(recipe: Recipe, target: Target, precision: str, rules: RuleSet, inventory: HardwareInfo) -> Verdict:
    cell = Cell(model=recipe.model_type, task=recipe.task, target=target, precision=precision)
    return predict(cell, facts_here(recipe, cell, inventory), rules)


def _families(models: Sequence[str], recipes: Mapping[str, Recipe]) -> dict[str, str]:
    from generators.models.classifier import classify_or_guess

    found = {}
    for model in models:
        if model in recipes:
            found[model] = recipes[model].family
        elif (known := classify_or_guess(model)[0]) is not None:
            found[model] = known.family
    return found


def measured_verdicts(
    evidence: Evidence, inventory: HardwareInfo, own_limits: Mapping[str, float] = _NONE
) -> tuple[Verdict, ...]:
    """The verdicts of all cells that the evidence names, in the order of their ids.

    `own_limits` are a repository's own tolerances by cell id; without them the product's count.
    """
    named = {line.cell_id for line in evidence.checks} | {c.cell_id for run in evidence.runs for c in run.plan}
    checks = current_checks(evidence)
    cells = []
    for id_ in sorted(named):
        try:
            cells.append(Cell.parse(id_))
        except HwCompatError:  # reported as broken evidence by the reporter, and no cell to conclude about
            continue
    return tuple(verdict_of(cell, evidence, checks, inventory, own_limit=own_limits.get(cell.id)) for cell in cells)


def verdict_of(
    cell: Cell,
    evidence: Evidence,
    checks: Sequence[CheckLine],
    inventory: HardwareInfo,
    *,
    subject_required: str = "",
    own_limit: float | None = None,
) -> Verdict:
    """What the evidence says of one cell on the versions of this machine; `unknown` where it says nothing.

    `checks` are the lines of the evidence that speak now. The newest plan of the cell says which checks it has,
    under which suite, and on which subject, unless `subject_required` does; it may add to the checks that the cell
    has to have and take none away. What passed without having been planned in its run is set aside; where the run
    line is missing, so are plan and versions, and the basis is `expired`.
    """
    plan = _newest_plan(cell, evidence)
    runs = {run.run_id for run in evidence.runs}
    named = planned_checks(evidence)
    own = [
        line
        for line in checks
        if line.cell_id == cell.id
        and (line.outcome.is_failure or line.run_id not in runs or (line.run_id, cell.id, line.check_name) in named)
    ]
    unplanned = [line.check_name for line in own if line.run_id not in runs]
    return conclude(
        cell,
        plan.checks if plan else tuple(dict.fromkeys(unplanned)),
        own,
        current_versions=relevant_versions(cell, versions_of(inventory)),
        run_versions={run.run_id: run.versions for run in evidence.runs},
        subject_required=subject_required or (plan.subject if plan else "tiny"),
        suite_hash=plan.suite_hash if plan else "",
        required_checks=required_checks(cell),
        own_limit=own_limit,
    )


def _newest_plan(cell: Cell, evidence: Evidence) -> PlannedCell | None:
    for run in sorted(evidence.runs, key=lambda run: run.started_at, reverse=True):
        for planned in run.plan:
            if planned.cell_id == cell.id:
                return planned
    return None
