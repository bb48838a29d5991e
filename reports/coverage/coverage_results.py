"""Which model types of the installed transformers work on which targets, from facts, refusals and verdicts.

Only tiny models of the types count, and only evidence that holds with today's versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hwcompat.generators.compatibility.required_checks import required_checks
from hwcompat.generators.compatibility.verdict import Basis, Level
from hwcompat.generators.models.architectures import UNKNOWN
from hwcompat.generators.models.catalog import Catalog, load_catalog
from hwcompat.generators.models.classification import classify_type
from hwcompat.generators.models.recipe import Recipe
from hwcompat.generators.models.recipe_store import Refusal, refusals, stored_recipes
from hwcompat.hardware.backends.factory import resolve_target
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.evidence.latest import read_latest, severity
from hwcompat.hardware.evidence.record import CheckLine, Outcome
from hwcompat.hardware.evidence.store import Evidence
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.target import Target

from ..cell_report import CellReport, cell_reports
from ..diagnose import diagnose
from ..reason_text import folded
from .coverage_facts import SUBJECT, Coverage, CoverageStatus, Excluded, Result, TargetCoverage, TypeFacts

NOBODY_TRIED = "never tried: it has neither a recipe nor a refusal"

_STANDINGS = {
    Level.HIGH: CoverageStatus.PASSED,
    Level.MEDIUM: CoverageStatus.CONDITIONAL,
    Level.LOW: CoverageStatus.FAILED,
    Level.UNSUPPORTED: CoverageStatus.FAILED,
    Level.UNKNOWN: CoverageStatus.UNDECIDED,
}


def coverage_here(
    evidence: Evidence, inventory: HardwareInfo, targets: Sequence[str], precision: str = "float32"
) -> Coverage:
    """Return the coverage of the installed transformers on the named targets, by the evidence.

    A type with a recipe is buildable, and so is one that evidence has decided anywhere. Raises `ModelError` without
    transformers, `UsageError` for an unknown target.
    """
    named = tuple(dict.fromkeys(str(resolve_target(text).kind) for text in targets))
    catalog = load_catalog()
    recipes = {recipe.model_type: recipe for recipe in stored_recipes() if recipe.model_type in catalog.configs}
    refused = refusals()
    own = _of_tiny(evidence)
    cells = {cell.id: cell for cell in cell_reports(read_latest(own, details=True), inventory)}
    machines = {run.run_id: run.machine for run in own.runs}
    built = {*recipes, *(Cell.parse(id_).model for id_, cell in cells.items() if _has_level(cell))}
    types = tuple(
        _type_facts(catalog, name, recipes.get(name), refused.get(name), built=name in built)
        for name in sorted(catalog.model_types)
    )

    def on_target(target: str) -> TargetCoverage:
        def cell_of(model: str, task: str) -> Cell:
            return Cell(model=model, task=task, target=Target.parse(target), precision=precision)

        planned = [cell_of(recipe.model_type, recipe.task) for recipe in recipes.values()]
        required = {cell.id: required_checks(cell) for cell in planned}
        results: list[Result] = []
        others: list[Result] = []
        counted: dict[str, tuple[CheckLine, ...]] = {}
        for facts in types:
            primary = cell_of(facts.model_type, facts.task).id if facts.task else ""
            found = cells.get(primary)
            counted |= {primary: _counted(found)} if found else {}
            results.append(_result(facts, found, refused.get(facts.model_type), has_recipe=primary in required))
            for task in facts.tasks:
                cell = cells.get(cell_of(facts.model_type, task).id)
                if task != facts.task and cell is not None and _ran(cell):
                    others.append(replace(_of_cell(facts, cell), task=task))
        lines = [line for own in counted.values() for line in own if _shows_that_it_ran(line)]
        return TargetCoverage(
            target=target,
            results=tuple(results),
            other_tasks=tuple(others),
            checks=_checks(required, counted),
            devices=tuple(sorted({line.accelerator for line in lines if line.accelerator})),
            machines=tuple(sorted({label for line in lines if (label := machines.get(line.run_id))})),
        )

    return Coverage(precision=precision, types=types, targets=tuple(map(on_target, named)))


def _of_tiny(evidence: Evidence) -> Evidence:
    """Return the evidence of tiny models only: real dimensions and checkpoints may share its cells."""
    return replace(
        evidence,
        runs=tuple(
            replace(run, plan=tuple(planned for planned in run.plan if planned.subject == SUBJECT))
            for run in evidence.runs
        ),
        checks=tuple(line for line in evidence.checks if line.subject == SUBJECT),
    )


def _type_facts(
    catalog: Catalog, name: str, recipe: Recipe | None, refusal: Refusal | None, *, built: bool
) -> TypeFacts:
    """Return what is known about a model type, from its recipe or its classification."""
    known = recipe or classify_type(name)
    is_excluded = not built and refusal is not None and not refusal.is_buildable
    return TypeFacts(
        model_type=name,
        family=known.family,
        architecture=None if known.architecture == UNKNOWN else known.architecture,
        traits=tuple(known.traits),
        task=None if known.task == UNKNOWN else known.task,
        tasks=tuple(one.task for one in catalog.tasks_of(name)),
        excluded=Excluded(obstacle=str(refusal.obstacle), reason=refusal.reason) if refusal and is_excluded else None,
        tried=built or refusal is not None,
        branches=(recipe.branches["entered"], recipe.branches["of"]) if recipe and recipe.branches else (),
    )


def _result(facts: TypeFacts, cell: CellReport | None, refusal: Refusal | None, *, has_recipe: bool) -> Result:
    def without_evidence(standing: CoverageStatus, reason: str) -> Result:
        return Result(model_type=facts.model_type, task=facts.task, standing=standing, reason=reason)

    if facts.excluded:
        return without_evidence(CoverageStatus.EXCLUDED, facts.excluded.reason)
    if cell is not None and (_has_level(cell) or (has_recipe and _ran(cell))):
        return _of_cell(facts, cell)
    if refusal is not None and refusal.is_buildable and not has_recipe:
        return without_evidence(CoverageStatus.NOT_DERIVED, refusal.reason)
    if cell is not None:
        return without_evidence(CoverageStatus.NOT_RUN, "; ".join(folded(cell.verdict.reasons)))
    return without_evidence(CoverageStatus.NOT_RUN, "there is no evidence" if facts.tried else NOBODY_TRIED)


def _of_cell(facts: TypeFacts, cell: CellReport) -> Result:
    level, standing = cell.verdict.level, _STANDINGS[cell.verdict.level]
    # An unknown error has no type; the reason is shown with it.
    diagnosed = () if standing.works else dict.fromkeys(one.error_type for one in diagnose(_counted(cell)))
    return Result(
        model_type=facts.model_type,
        task=facts.task,
        standing=standing,
        level=None if level is Level.UNKNOWN else str(level),
        error_types=tuple(name for name in diagnosed if name != "unknown"),
        reason="" if standing is CoverageStatus.PASSED else "; ".join(folded(cell.verdict.reasons)),
    )


def _has_level(cell: CellReport) -> bool:
    """Whether valid evidence decides how well it works."""
    return cell.verdict.basis is Basis.MEASURED and cell.verdict.level is not Level.UNKNOWN


def _ran(cell: CellReport) -> bool:
    return any(_shows_that_it_ran(line) for line in _counted(cell))


def _shows_that_it_ran(line: CheckLine) -> bool:
    return line.outcome not in (Outcome.SKIPPED, Outcome.NOT_RUN)


def _counted(cell: CellReport) -> tuple[CheckLine, ...]:
    """Return the lines that today's verdict rests on: none if it rests on other versions."""
    if cell.verdict.basis is not Basis.MEASURED:
        return ()
    named = set(cell.verdict.evidence_ids)
    return tuple(line for line in cell.lines if line.evidence_id in named)


def _checks(
    required: Mapping[str, Sequence[str]], counted: Mapping[str, Sequence[CheckLine]]
) -> dict[str, dict[str, int]]:
    """Count outcomes by check; of several lines in a cell the worst counts, without one `not_run`."""
    from hwcompat.hardware.testing.checks import all_checks

    found: dict[str, Counter[Outcome]] = {}
    for id_, names in required.items():
        lines = counted.get(id_, ())
        for name in dict.fromkeys((*names, *(line.check_name for line in lines))):
            own = [line for line in lines if line.check_name == name]
            outcome = max(own, key=severity).outcome if own else Outcome.NOT_RUN
            found.setdefault(name, Counter())[outcome] += 1
    order = [check.name for check in all_checks()]
    return {
        name: {str(outcome): found[name][outcome] for outcome in Outcome if found[name][outcome]}
        for name in sorted(found, key=lambda name: (order.index(name) if name in order else len(order), name))
    }
