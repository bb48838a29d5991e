"""Expiry of results, and flaky cells.

A result expires with versions, revisions, its recipe, its suite or its tolerance. A cell is flaky if one of its
checks passed and failed although nothing that is recorded differs. It stays quarantined until something recorded
changes, until the check passes in `clean_runs` (levels.toml) runs in a row, or until a user ends it with a reason. A
failure stays a failure.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from hwcompat.generators.models.recipe import Recipe
from hwcompat.hardware.cell import Cell, parsed
from hwcompat.hardware.evidence.latest import Latest
from hwcompat.hardware.evidence.modeling_files import modeling_moved
from hwcompat.hardware.evidence.record import EDITED, OUTDATED, CheckLine, Outcome, PlannedCell, RunLine, WeightsKind
from hwcompat.hardware.evidence.revisions import recipe_moved
from hwcompat.hardware.evidence.versions import expiry_reasons, modified_for, relevant_versions

from .grade import level_rules, ran_elsewhere, tolerance_moved
from .verdict import Reason, Verdict

EXPIRED = frozenset(
    {
        "modeling_moved",
        "other_suite",
        "recipe_moved",
        "suite_outdated",
        "tolerance_moved",
        "versions_moved",
        "versions_unknown",
    }
)
"""Codes of the reasons for which a result no longer counts."""
Moved = dict[tuple[object, ...], tuple[tuple[str, ...], tuple[str, ...]]]
"""By run, kind of cell and check: what has changed since, and the parts of undeclared checking code."""
_OWN_FAILURES = (Outcome.FAILED, Outcome.CRASHED)
"""Outcomes that a cell causes itself. Timeouts and lack of memory also happen on a busy machine."""


def why_expired(verdict: Verdict) -> tuple[Reason, ...]:
    """Return the reasons of an expired verdict that name what has changed."""
    return tuple(reason for reason in verdict.reasons if reason.code in EXPIRED)


def outdated(cell: Cell, plan: PlannedCell, load: Callable[[str, str], Recipe | None]) -> Reason | None:
    """Return why a suite is outdated: its recipe or the modeling files of its type have changed; None if they
    haven't.

    A user's own model and one with real dimensions have no stored recipe to compare with.
    """
    recipe = load(cell.model, cell.task) if plan.subject == WeightsKind.TINY else None
    unknown = plan.subject == WeightsKind.TINY and recipe is None
    if recipe_moved(plan, None if unknown else recipe.digest if recipe else ""):
        return Reason.of("recipe_moved")
    return Reason.of("modeling_moved", model=cell.model) if modeling_moved(plan, cell) else None


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """The versions, recipe, suite and tolerance that decide whether results of a cell have expired.

    `now` are this machine's versions, `then` those of each run by its id: results of a run that differs, or whose
    versions aren't known, have expired. So have results of another suite than `suite_hash`, all results if `outdated`
    is set, results of a run and cell in `other_modeling` (`Latest`), results that another tolerance would decide
    differently (`own_limit` is the project's), and results of a tiny model with another `config_hash`. `known` caches
    what runs depend on, for many cells.
    """

    cell: Cell
    now: Mapping[str, str]
    then: Mapping[str, Mapping[str, str]]
    suite_hash: str = ""
    outdated: Reason | None = None
    own_limit: float | None = None
    other_modeling: Collection[tuple[str, str]] = frozenset()
    config_hash: str = ""
    known: Moved = field(default_factory=dict)

    @classmethod
    def of_run(cls, cell: Cell, run: RunLine, *, suite_hash: str = "", own_limit: float | None = None) -> Expiry:
        """Return the rules for a run judged by itself, with the versions that it had."""
        then = {run.run_id: run.versions}
        return cls(cell=cell, now=run.versions, then=then, suite_hash=suite_hash, own_limit=own_limit)

    def reason(self, line: CheckLine) -> Reason | None:
        """Return why a result no longer counts; None if it does."""
        if self.outdated is not None:
            return self.outdated
        if OUTDATED in line.conditions:
            return Reason.of("suite_outdated", revisions=line.conditions[OUTDATED])
        if line.run_id not in self.then:
            return Reason.of("versions_unknown")
        if moved := self._dependencies(line)[0]:
            return Reason.of("versions_moved", moved=moved)
        if (line.run_id, line.cell_id) in self.other_modeling:
            return Reason.of("modeling_moved", model=self.cell.model)
        if self.config_hash and line.subject == WeightsKind.TINY and line.config_hash not in (None, self.config_hash):
            return Reason.of("recipe_moved")
        if self.suite_hash and line.suite_hash != self.suite_hash:
            return Reason.of("other_suite")
        return tolerance_moved(self.cell, line, self.own_limit)

    def modified(self, line: CheckLine) -> tuple[str, ...]:
        """Return the parts of undeclared checking code that the result depends on."""
        return self._dependencies(line)[1]

    @functools.cached_property
    def _of_cell(self) -> tuple[str, str, str]:
        return str(self.cell.target), self.cell.precision, self.cell.task

    def _dependencies(self, line: CheckLine) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what has changed since for the result's check, and its undeclared checking code."""
        cell, check = self.cell, line.check_name
        key = (line.run_id, *self._of_cell, check)
        if key not in self.known:
            then = self.then.get(line.run_id, {})
            moved = expiry_reasons(cell, then, self.now, (check,))
            self.known[key] = moved, modified_for(cell, then, (check,))
        return self.known[key]


def is_untrusted(cell: Cell, run: RunLine, lines: Iterable[CheckLine]) -> bool:
    """Whether the results of one run of a cell prove nothing: of an edited suite, or by undeclared checking code."""
    expiry = Expiry.of_run(cell, run)
    return any(EDITED in line.conditions or expiry.modified(line) for line in lines)


def flaky_cells(latest: Latest, own_limits: Mapping[str, float] = MappingProxyType({})) -> dict[str, tuple[str, ...]]:
    """Return the runs of each flaky cell in which one check both passed and failed, by cell id, oldest first.

    Two results have the same condition if machine, accelerator, suite, conditions, modeling files and the versions
    that the target depends on are equal; the newest condition of a check counts. Runs without versions, runs of a
    modified checker, results that today's tolerance decides differently and results from before a user ended the
    quarantine are left out. `own_limits` are a project's tolerances by cell id.
    """
    lines, versions, machines = latest.alternating, latest.versions, latest.machines
    accelerators = {(line.run_id, line.cell_id): line.accelerator for line in lines if line.accelerator}
    seen: dict[tuple[str, str, str, object, tuple[object, ...]], dict[str, bool]] = {}
    for line in lines:
        broke = line.outcome in _OWN_FAILURES and line.error_type not in level_rules().not_the_target
        if not (broke or line.outcome is Outcome.PASSED) or line.run_id not in versions or EDITED in line.conditions:
            continue
        if (cell := parsed(line.cell_id)) is None:
            continue
        if line.started_at <= latest.cleared.get((cell.id, machines.get(line.run_id)), ("",))[0]:
            continue
        if ran_elsewhere(cell, line) or line.is_to_come or (line.run_id, line.cell_id) in latest.other_modeling:
            continue
        if tolerance_moved(cell, line, own_limits.get(cell.id)):
            continue
        if modified_for(cell, versions[line.run_id], (line.check_name,)):
            continue
        now = tuple(sorted(relevant_versions(cell, versions[line.run_id]).items()))
        # A line written for a process that died names no accelerator; the run's other lines of the cell do.
        where = (machines.get(line.run_id), accelerators.get((line.run_id, line.cell_id)), *_where(line))
        key = (line.cell_id, line.check_name, line.suite_hash, now, where)
        runs = seen.setdefault(key, {})
        runs[line.run_id] = runs.get(line.run_id, False) or broke
    newest: dict[tuple[object, ...], dict[str, bool]] = {}
    for (cell_id, check, _, _, where), runs in seen.items():
        place = (cell_id, check, *where[:3])
        if max(runs) >= max(newest.get(place, ("",))):
            newest[place] = runs
    found: dict[str, set[str]] = {}
    for place, runs in newest.items():
        if len(set(runs.values())) > 1 and not _has_recovered(runs):
            found.setdefault(str(place[0]), set()).update(runs)
    return {cell: tuple(sorted(runs)) for cell, runs in sorted(found.items())}


def _has_recovered(runs: Mapping[str, bool]) -> bool:
    """Whether the newest runs of a check, by id (which sorts by time), all passed, and there are enough of them."""
    newest = sorted(runs)[-level_rules().clean_runs :]
    return len(newest) == level_rules().clean_runs and not any(runs[run] for run in newest)


def _where(line: CheckLine) -> tuple[object, ...]:
    return line.requested_target, line.config_hash, line.model_revision, tuple(sorted(line.conditions.items()))
