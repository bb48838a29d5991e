"""Which model types of one transformers version work on which targets: facts, refusals and verdicts put together.

Only tiny models of the types count, and only evidence that holds with today's versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from generators.compatibility.verdict import Basis, Level
from generators.models.store import Refusal
from hardware.cell import Cell
from hardware.evidence.latest import severity
from hardware.evidence.record import CheckLine, Outcome
from hardware.target import Target

from ..cells import CellReport
from ..diagnosis import diagnose
from ..wording import folded
from .facts import Coverage, Result, Standing, TargetCoverage, TypeFacts

_UNKNOWN = "unknown"
NOBODY_TRIED = "never tried: no recipe and no refusal"


def coverage(
    types: Sequence[TypeFacts],
    refusals: Mapping[str, Refusal],
    required: Mapping[str, Sequence[str]],
    cells: Mapping[str, CellReport],
    *,
    targets: Sequence[str],
    precision: str,
    machines: Mapping[str, str],
) -> Coverage:
    """The coverage that verdicts and lines of tiny models (`cells`, by id) show.

    `required` names the checks that a type with a recipe has to have, by the id of its primary cell on each of the
    targets: a type with one is buildable. So is one that evidence has settled, wherever that was. `machines` are
    labels by run.
    """
    built = {Cell.parse(id_).model for id_ in required}
    built |= {Cell.parse(id_).model for id_, cell in cells.items() if _is_settled(cell)}
    known = tuple(
        one if one.model_type in built else _without_recipe(one, refusals.get(one.model_type))
        for one in sorted(types, key=lambda one: one.model_type)
    )
    return Coverage(
        precision=precision,
        types=known,
        targets=tuple(
            _on_target(target, known, refusals, required, cells, precision, machines) for target in targets
        ),
    )


def _without_recipe(facts: TypeFacts, refusal: Refusal | None) -> TypeFacts:
    if refusal is None:
        return replace(facts, tried=False)
    if refusal.is_buildable:
        return facts
    return replace(facts, obstacle=str(refusal.obstacle), reason=refusal.reason)


def _on_target(
    target: str,
    types: Sequence[TypeFacts],
    refusals: Mapping[str, Refusal],
    required: Mapping[str, Sequence[str]],
    cells: Mapping[str, CellReport],
    precision: str,
    machines: Mapping[str, str],
) -> TargetCoverage:
    def cell_id(model_type: str, task: str) -> str:
        return Cell(model=model_type, task=task, target=Target.parse(target), precision=precision).id

    results: list[Result] = []
    others: list[Result] = []
    counted: dict[str, tuple[CheckLine, ...]] = {}
    for facts in types:
        primary = cell_id(facts.model_type, facts.task) if facts.task else ""
        own = cells.get(primary)
        counted |= {primary: _counted(own)} if own else {}
        results.append(_result(facts, own, refusals.get(facts.model_type), has_recipe=primary in required))
        for task in facts.tasks:
            cell = cells.get(cell_id(facts.model_type, task))
            if task != facts.task and cell is not None and _ran(cell):
                others.append(replace(_of_cell(facts, cell), task=task))
    lines = [line for own in counted.values() for line in own if _is_sign_of_life(line)]
    return TargetCoverage(
        target=target,
        results=tuple(results),
        other_tasks=tuple(others),
        checks=_checks({id_: names for id_, names in required.items() if _is_on(id_, target)}, counted),
        devices=tuple(sorted({line.accelerator for line in lines if line.accelerator})),
        machines=tuple(sorted({label for line in lines if (label := machines.get(line.run_id))})),
    )


def _is_on(cell_id: str, target: str) -> bool:
    return str(Cell.parse(cell_id).target) == target


def _result(facts: TypeFacts, cell: CellReport | None, refusal: Refusal | None, *, has_recipe: bool) -> Result:
    def without_evidence(standing: Standing, reason: str) -> Result:
        return Result(model_type=facts.model_type, task=facts.task, standing=standing, reason=reason)

    if facts.obstacle:
        return without_evidence(Standing.EXCLUDED, facts.reason)
    if cell is not None and (_is_settled(cell) or (has_recipe and _ran(cell))):
        return _of_cell(facts, cell)
    if refusal is not None and refusal.is_buildable and not has_recipe:
        return without_evidence(Standing.NOT_DERIVED, refusal.reason)
    if cell is not None:
        return without_evidence(Standing.NOT_RUN, "; ".join(folded(cell.verdict.reasons)))
    return without_evidence(Standing.NOT_RUN, "there is no evidence" if facts.tried else NOBODY_TRIED)


def _of_cell(facts: TypeFacts, cell: CellReport) -> Result:
    verdict = cell.verdict
    standing = {
        Level.HIGH: Standing.PASSED,
        Level.MEDIUM: Standing.CONDITIONAL,
        Level.LOW: Standing.FAILED,
        Level.UNSUPPORTED: Standing.FAILED,
        Level.UNKNOWN: Standing.UNDECIDED,
    }[verdict.level]
    return Result(
        model_type=facts.model_type,
        task=facts.task,
        standing=standing,
        level="" if verdict.level is Level.UNKNOWN else str(verdict.level),
        error_types=() if standing.works else _error_types(cell),
        reason="" if standing is Standing.PASSED else "; ".join(folded(verdict.reasons)),
    )


def _error_types(cell: CellReport) -> tuple[str, ...]:
    """Those that the diagnosis knows: that it knows none is no error type, and the reason stands beside it."""
    found = dict.fromkeys(finding.error_type for finding in diagnose(_counted(cell)))
    return tuple(name for name in found if name != _UNKNOWN)


def _is_settled(cell: CellReport) -> bool:
    """Whether evidence of today says how well it works."""
    return cell.verdict.basis is Basis.MEASURED and cell.verdict.level is not Level.UNKNOWN


def _ran(cell: CellReport) -> bool:
    return any(_is_sign_of_life(line) for line in _counted(cell))


def _is_sign_of_life(line: CheckLine) -> bool:
    return line.outcome not in (Outcome.SKIPPED, Outcome.NOT_RUN)


def _counted(cell: CellReport) -> tuple[CheckLine, ...]:
    """The lines that today's verdict rests on: none where it rests on other versions."""
    if cell.verdict.basis is not Basis.MEASURED:
        return ()
    named = set(cell.verdict.evidence_ids)
    return tuple(line for line in cell.lines if line.evidence_id in named)


def _checks(
    required: Mapping[str, Sequence[str]], counted: Mapping[str, Sequence[CheckLine]]
) -> dict[str, dict[str, int]]:
    """Outcomes by check; of several lines of a check in one cell the worst counts, without one it is `not_run`."""
    from hardware.testing.checks import all_checks

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
