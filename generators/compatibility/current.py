"""The matrix as it stands now: declared levels, predictions for known models, and what evidence says of them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

from generators.models.recipe import Recipe, stored_recipes
from hardware.backends.factory import backend_class, known_targets
from hardware.cell import Cell
from hardware.errors import HwCompatError
from hardware.evidence.record import CheckLine, PlannedCell
from hardware.evidence.store import Evidence, read_folder
from hardware.software import package_versions
from hardware.target import Target

from .conclude import conclude, final
from .facts import facts_of
from .matrix import Matrix, build_matrix
from .rules import RuleSet, load_rules, predict
from .verdict import Verdict
from .vocabulary import vocabulary


def current_matrix(evidence: Path | None, *, timestamp: str, precision: str = "float32") -> Matrix:
    """Levels of families and of the models whose recipe is stored; `evidence` is a folder, or None for none.

    Imports neither torch nor transformers.
    """
    rules = load_rules()
    versions = current_versions()
    recipes = stored_recipes()
    verdicts = [
        _predicted(recipe, Target(name=name), precision, rules, versions)
        for recipe in recipes
        for name in vocabulary().hardware_types
    ]
    family_of = {recipe.model_type: recipe.family for recipe in recipes}
    if evidence is not None:
        predicted = {verdict.cell: verdict for verdict in verdicts}
        for verdict in measured_verdicts(read_folder(evidence), versions):
            before = predicted.get(verdict.cell)
            verdicts.append(final(before, verdict) if before else verdict)
    return build_matrix(rules, verdicts, family_of, timestamp=timestamp)


def current_versions() -> dict[str, str]:
    """Versions of the packages here, by name; drivers aren't read."""
    return {name: version for name, version in package_versions().items() if version}


def _predicted(
    recipe: Recipe, target: Target, precision: str, rules: RuleSet, versions: Mapping[str, str]
) -> Verdict:
    cell = Cell(model=recipe.model_type, task=recipe.task, target=target, precision=precision)
    return predict(cell, facts_of(recipe, cell, versions, platform=platform.system()), rules)


def measured_verdicts(evidence: Evidence, versions: Mapping[str, str]) -> list[Verdict]:
    """What evidence says of each cell that was ever planned, from the newest plan of the cell.

    Runs of other versions than `versions` give verdicts on the basis `expired`.
    """
    newest: dict[str, PlannedCell] = {}
    for run in sorted(evidence.runs, key=lambda run: run.started_at):
        for planned in run.plan:
            newest[planned.cell_id] = planned
    lines: dict[str, list[CheckLine]] = {}
    for line in evidence.checks:
        lines.setdefault(line.cell_id, []).append(line)
    run_versions = {run.run_id: run.versions for run in evidence.runs}
    verdicts = []
    for cell_id, planned in sorted(newest.items()):
        try:
            cell = Cell.parse(cell_id)
        except HwCompatError:  # written by another version, or by somebody else: it names no cell of ours
            continue
        verdicts.append(
            conclude(
                cell,
                planned.checks,
                lines.get(cell_id, []),
                current_versions=relevant_versions(cell, versions),
                run_versions=run_versions,
                subject_required=planned.subject,
                suite_hash=planned.suite_hash,
            )
        )
    return verdicts


def relevant_versions(cell: Cell, versions: Mapping[str, str]) -> dict[str, str]:
    """Those versions whose change invalidates evidence on the cell's target; all where the target isn't known."""
    if cell.target.name not in known_targets():
        return dict(versions)
    names = backend_class(cell.target.name).EXPIRES_ON
    return {name: versions[name] for name in names if name in versions}
