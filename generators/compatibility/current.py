"""From evidence to verdicts as they stand now: the one way for every front door.

Imports neither torch nor transformers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from generators.models.recipe import Recipe
from generators.models.store import load_recipe
from hardware.cell import Cell
from hardware.detection import HardwareInfo
from hardware.errors import HwCompatError
from hardware.evidence.modeling import modeling_moved
from hardware.evidence.record import CheckLine, PlannedCell
from hardware.evidence.revisions import recipe_moved
from hardware.evidence.store import Evidence, lines_by_cell
from hardware.evidence.versions import versions_of

from .conclude import conclude
from .flaky import quarantined
from .required import required_checks
from .second_opinion import second_opinions, told_beside
from .standing import Standing, standing_of
from .verdict import Level, Verdict

_NONE: Mapping[str, float] = MappingProxyType({})


def measured_verdicts(
    evidence: Evidence | Standing, inventory: HardwareInfo, own_limits: Mapping[str, float] = _NONE
) -> tuple[Verdict, ...]:
    """The verdicts of all cells that the evidence names, in the order of their ids, with what others' tests showed as
    a last reason.

    `own_limits` are a repository's own tolerances by cell id; without them the product's count.
    """
    standing = evidence if isinstance(evidence, Standing) else standing_of(evidence)
    cells = []
    for id_ in sorted(standing.cells):
        try:
            cells.append(Cell.parse(id_))
        except HwCompatError:  # reported as broken evidence by the reporter, and no cell to conclude about
            continue
    index = _Index.of(standing, inventory)
    verdicts = [_verdict(cell, index, own_limit=own_limits.get(cell.id)) for cell in cells]
    return told_beside(verdicts, second_opinions(standing.others, inventory))


def verdict_of(
    cell: Cell,
    evidence: Evidence | Standing,
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
    if isinstance(evidence, Standing):
        standing = replace(evidence, checks=tuple(checks))
    else:
        standing = standing_of(evidence, checks)
    index = _Index.of(standing, inventory)
    return _verdict(cell, index, subject_required=subject_required, own_limit=own_limit)


@dataclass(frozen=True, kw_only=True)
class _Index:
    """What still counts, with its lines by cell; recipes and versions are looked up once for many cells."""

    standing: Standing
    lines: Mapping[str, Sequence[CheckLine]]
    load: Callable[[str, str], Recipe | None]
    versions: Mapping[str, str]

    @classmethod
    def of(cls, standing: Standing, inventory: HardwareInfo) -> _Index:
        here = versions_of(inventory)
        load = functools.lru_cache(maxsize=4096)(load_recipe)
        return cls(standing=standing, lines=lines_by_cell(standing.checks), load=load, versions=here)


def _verdict(
    cell: Cell,
    index: _Index,
    *,
    subject_required: str = "",
    own_limit: float | None = None,
) -> Verdict:
    plan = index.standing.plans.get(cell.id)
    runs = index.standing.versions
    own = [
        line
        for line in index.lines.get(cell.id, ())
        if line.outcome.is_failure
        or line.run_id not in runs
        or (line.run_id, cell.id, line.check_name) in index.standing.planned
    ]
    unplanned = [line.check_name for line in own if line.run_id not in runs]
    verdict = conclude(
        cell,
        plan.checks if plan else tuple(dict.fromkeys(unplanned)),
        own,
        current_versions=index.versions,
        run_versions=runs,
        subject_required=subject_required or (plan.subject if plan else "tiny"),
        suite_hash=plan.suite_hash if plan else "",
        outdated=_outdated(cell, plan, index.load) if plan else "",
        required_checks=required_checks(cell, index.load),
        own_limit=own_limit,
    )
    flaky = index.standing.flaky.get(cell.id)
    if flaky is None or verdict.level in (Level.NONE, Level.UNKNOWN):
        return verdict
    return replace(verdict, level=Level.UNKNOWN, reasons=(quarantined(flaky),), conditions=())


def _outdated(cell: Cell, plan: PlannedCell, load: Callable[[str, str], Recipe | None]) -> str:
    """Why a suite isn't what would be made now, or what it tested isn't what is installed: its recipe or the modeling
    files of its type have changed. Empty where they haven't.

    Of a model that the user brought, and of one at its real widths, the recipe isn't kept.
    """
    recipe = load(cell.model, cell.task) if plan.subject == "tiny" else None
    unknown = plan.subject == "tiny" and recipe is None
    return recipe_moved(plan, None if unknown else recipe.digest if recipe else "") or modeling_moved(plan, cell)
