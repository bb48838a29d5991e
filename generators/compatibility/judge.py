"""Judge the latest results: one verdict for each cell. Every command uses `judge`.

Results that say nothing about a cell (another target, weaker weights, an edited suite) are set aside first, and those
of other versions or revisions are kept apart as expired. The rest is graded for each accelerator, and the worst known
level is the cell's. Imports neither torch nor transformers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from hwcompat.generators.models.recipe import Recipe
from hwcompat.generators.models.recipe_store import load_recipe
from hwcompat.hardware.cell import Cell, parsed
from hwcompat.hardware.evidence.latest import Latest, worst_of_runs
from hwcompat.hardware.evidence.record import EDITED, CheckLine, Outcome, WeightsKind
from hwcompat.hardware.evidence.store import lines_by_cell
from hwcompat.hardware.evidence.versions import versions_of
from hwcompat.hardware.inventory.hardware_info import HardwareInfo

from .expiry import Expiry, Moved, flaky_cells, outdated
from .fault import fault_of, reference_cells, route_of
from .grade import Grade, check_reason, grade, is_on_target, level_rules, ran_elsewhere
from .imported import contradicted, imported_verdicts, reference_tests, with_reference_tests
from .published_rows import shipped_verdicts
from .required_checks import later_checks, recipe_of, required_checks
from .verdict import Basis, Fault, Level, Reason, Verdict, is_final, once, strongest, worst

_EVIDENCE = frozenset(o for o in Outcome if o.is_failure or o in (Outcome.PASSED, Outcome.AMBIGUOUS))
_NONE: Mapping[str, float] = MappingProxyType({})
_COARSE = frozenset({"float16", "bfloat16", "tf32"})
"""Precisions whose tolerance hides small faults of a model, which only float32 shows."""


def judge(
    latest: Latest,
    inventory: HardwareInfo,
    *,
    own_limits: Mapping[str, float] = _NONE,
    weights_asked: Mapping[str, str] = MappingProxyType({}),
    cells: Collection[str] | None = None,
) -> tuple[Verdict, ...]:
    """Return the verdict of each cell that the results name, sorted by id.

    `own_limits` are a project's tolerances by cell id; they replace the product's. `weights_asked` are the requested
    weights, if they aren't those of the newest plan. `cells` limits the answer.
    """
    context = _Context.of(latest, inventory, own_limits)
    wanted = latest.cells | set(weights_asked) | {line.cell_id for line in latest.imported}
    verdicts = []
    for id_ in sorted(wanted if cells is None else wanted & set(cells)):
        if (cell := parsed(id_)) is None:  # reported as broken evidence, and no cell to judge
            continue
        verdicts.append(_latest_verdict(cell, context, weights_asked.get(cell.id, "")))
    imported = imported_verdicts(latest.imported)
    return with_reference_tests(
        [strongest_of(verdict, imported.get(verdict.cell)) for verdict in verdicts],
        reference_tests(latest.others, inventory),
    )


def strongest_of(own: Verdict, other: Verdict | None) -> Verdict:
    """Return the verdict with the stronger basis, with why the own results don't decide.

    Raises `ValueError` for verdicts of two cells.
    """
    if other is None:
        return own
    if other.cell != own.cell:
        raise ValueError(f"{other.cell} and {own.cell} are different cells")
    if is_final(own):
        return own
    if own.level is not Level.UNKNOWN:
        return contradicted(strongest([own, other]), other)
    return replace(other, reasons=once([*other.reasons, *own.reasons]))


def published_or(predicted: Verdict) -> Verdict:
    """Return what others measured of a predicted cell by the shipped results, else the prediction."""
    return strongest_of(predicted, shipped_verdicts(Cell.parse(predicted.cell).model).get(predicted.cell))


@dataclass(frozen=True, kw_only=True)
class _Context:
    """Data shared by all cells: results by cell, recipes, versions of this machine, flaky cells."""

    latest: Latest
    lines: Mapping[str, Sequence[CheckLine]]
    load: Callable[[str, str], Recipe | None]
    versions: Mapping[str, str]
    flaky: Mapping[str, tuple[str, ...]]
    references: Mapping[tuple[str, str], Sequence[Cell]]
    own_limits: Mapping[str, float]
    known: Moved = field(default_factory=dict)

    @classmethod
    def of(cls, latest: Latest, inventory: HardwareInfo, own_limits: Mapping[str, float]) -> _Context:
        return cls(
            latest=latest,
            lines=lines_by_cell(latest.checks),
            load=functools.lru_cache(maxsize=4096)(load_recipe),
            versions=versions_of(inventory),
            flaky=flaky_cells(latest, own_limits),
            own_limits=own_limits,
            references=reference_cells(latest.checks),
        )

    def results_of(self, cell: Cell) -> list[CheckLine]:
        """Return the cell's results, without passes that their run didn't plan."""
        latest = self.latest
        return [
            line
            for line in self.lines.get(cell.id, ())
            if line.outcome.is_failure
            or line.run_id not in latest.versions
            or (line.run_id, cell.id, line.check_name) in latest.planned
        ]

    def expiry_of(self, cell: Cell) -> Expiry:
        """Return the rules that decide whether a result of the cell still counts."""
        plan = self.latest.plans.get(cell.id)
        recipe = recipe_of(cell, self.load)
        return Expiry(
            config_hash=recipe.config_hash if recipe else "",
            cell=cell,
            now=self.versions,
            then=self.latest.versions,
            suite_hash=plan.suite_hash if plan else "",
            outdated=outdated(cell, plan, self.load) if plan else None,
            own_limit=self.own_limits.get(cell.id),
            other_modeling=self.latest.other_modeling,
            known=self.known,
        )

    def references_for(self, cell: Cell, *, expired: bool) -> list[CheckLine]:
        """Return the CPU's results of the same model and task that count today; with `expired` also the expired
        ones."""
        found: list[CheckLine] = []
        for one in self.references.get((cell.model, cell.task), ()):
            plan = self.latest.plans.get(one.id)
            weights = plan.subject if plan else str(WeightsKind.TINY)
            own = _sort(one, worst_of_runs(self.results_of(one)), self.expiry_of(one), weights)
            found += own.counting if expired else own.current
        return found


def _latest_verdict(cell: Cell, context: _Context, weights_asked: str) -> Verdict:
    """Return the verdict of one cell from the latest results.

    The newest plan decides the cell's checks, suite and weights; it may add to the required checks and remove none. A
    pass that its run didn't plan is set aside. Without the run line there is no plan and no versions, and the basis
    is `expired`.
    """
    latest = context.latest
    plan = latest.plans.get(cell.id)
    own = context.results_of(cell)
    required = required_checks(cell, context.load)
    stated = [latest.versions[run] for run in {line.run_id for line in own} if run in latest.versions]
    later = later_checks(required, plan.checks if plan else (), stated)
    unplanned = [line.check_name for line in own if line.run_id not in latest.versions]
    verdict = judge_cell(
        cell,
        plan.checks if plan else tuple(dict.fromkeys(unplanned)),
        own,
        expiry=context.expiry_of(cell),
        weights_asked=weights_asked or (plan.subject if plan else str(WeightsKind.TINY)),
        required=[name for name in required if name not in later],
        references=functools.partial(context.references_for, cell),
    )
    if later and not is_final(verdict) and verdict.level is not Level.UNKNOWN:
        verdict = replace(verdict, conditions=(*verdict.conditions, Reason.of("later_checks", checks=later)))
    if cell.precision in _COARSE and verdict.level is not Level.UNKNOWN:
        exact = _latest_verdict(replace(cell, precision="float32"), context, "")
        rests_on = Reason.of("rests_on_float32", level=str(exact.level), basis=str(exact.basis))
        verdict = replace(verdict, conditions=(*verdict.conditions, rests_on))
    cleared = (entry for (cell_id, _), entry in latest.cleared.items() if cell_id == cell.id)
    if newest := max(cleared, default=None):
        reason = Reason.of("cleared", day=newest[0][:10], why=newest[1])
        verdict = replace(verdict, reasons=(*verdict.reasons, reason))
    lost, runs = latest.damaged.get(cell.id), context.flaky.get(cell.id)
    if lost and verdict.level is not Level.UNSUPPORTED:
        reason = Reason.of("evidence_damaged", runs=lost)
    elif runs is None or verdict.level in (Level.UNSUPPORTED, Level.UNKNOWN):
        return verdict
    else:
        reason = Reason.of("flaky", runs=runs)
    return replace(verdict, level=Level.UNKNOWN, reasons=(reason,), conditions=())


def judge_cell(
    cell: Cell,
    planned: Sequence[str],
    checks: Sequence[CheckLine],
    *,
    expiry: Expiry,
    weights_asked: str = "tiny",
    required: Sequence[str] = (),
    references: Callable[..., Sequence[CheckLine]] = lambda *, expired: (),
) -> Verdict:
    """Return the measured verdict of `cell`; `unknown` if its results don't show more.

    `expiry` decides which results no longer count, and by which tolerance they are graded. `required` are the checks
    that the cell must have, planned or not. `references` returns the results of the same model on the CPU, with
    `expired` also the expired ones: they decide whose fault a failure is. Results of other cells are ignored.
    """
    if not planned:
        return _unknown(cell, [Reason.of("nothing_planned")], (), weights_asked)
    lacking = tuple(name for name in required if name not in planned)
    planned = (*planned, *lacking)
    own = worst_of_runs([line for line in checks if line.cell_id == cell.id])
    found = _sort(cell, own, expiry, weights_asked)
    verdict = _over_accelerators(cell, planned, found.current, Basis.MEASURED, expiry.own_limit, weights_asked)
    if verdict.level is Level.UNKNOWN and found.expired:
        lines = _current_and_expired(found)
        older = _over_accelerators(cell, planned, lines, Basis.EXPIRED, expiry.own_limit, weights_asked)
        verdict = replace(older, reasons=once([*found.why_expired, *older.reasons]))
    if verdict.level is Level.UNKNOWN:
        thin = [Reason.of("plan_lacks", checks=lacking)] if lacking else []
        missing = any(reason.code == "weights_missing" for reason in found.set_aside)
        own_reasons = () if missing and not found.counting else verdict.reasons
        verdict = replace(verdict, reasons=once([*thin, *found.set_aside, *own_reasons]))
    fault = _fault(cell, verdict, found, references)
    known = Level.UNKNOWN if fault is Fault.HARNESS else verdict.level  # a fault of the set-up lowers no cell
    return replace(verdict, level=known, fault=fault)


def _fault(
    cell: Cell, verdict: Verdict, found: _Sorted, references: Callable[..., Sequence[CheckLine]]
) -> Fault | None:
    """Return who is responsible for the failures of today, or for the expired ones if the verdict rests on them."""
    if verdict.level is Level.UNKNOWN and any(reason.code == "weights_missing" for reason in verdict.reasons):
        return Fault.HARNESS
    expired = verdict.basis is Basis.EXPIRED
    lines = _current_and_expired(found) if expired else found.current
    failed = any(line.outcome.is_failure for line in lines)
    return fault_of(cell, verdict.level, lines, references(expired=expired) if failed else ())


def by_accelerator(
    cell: Cell, planned: Sequence[str], lines: Sequence[CheckLine], own_limit: float | None = None
) -> dict[str, Grade]:
    """Return a grade for each accelerator that the results name; results that name none belong to all of their
    run."""
    groups = sorted(_split(lines).items())
    return {name: grade(cell, planned, group, own_limit=own_limit) for name, group in groups if group}


@dataclass(frozen=True, kw_only=True)
class _Sorted:
    """A cell's results: those that count, the expired ones with the reasons, and the reasons for those set aside."""

    current: tuple[CheckLine, ...]
    expired: tuple[CheckLine, ...]
    why_expired: tuple[Reason, ...]
    set_aside: tuple[Reason, ...]

    @property
    def counting(self) -> tuple[CheckLine, ...]:
        """The results that the verdict rests on."""
        return (*self.current, *self.expired)


def _sort(cell: Cell, lines: Sequence[CheckLine], expiry: Expiry, weights_asked: str) -> _Sorted:
    current: list[CheckLine] = []
    expired: list[CheckLine] = []
    why_expired: list[Reason] = []
    set_aside: list[Reason] = []
    elsewhere = {line.run_id: line for line in lines if ran_elsewhere(cell, line)}
    there = {line.run_id for line in lines if is_on_target(cell, line)}
    edited = {line.run_id for line in lines if EDITED in line.conditions}
    for line in lines:
        if line.error_type == "weights_missing":
            set_aside.append(check_reason(line))
        elif line.run_id in edited:
            set_aside.append(Reason.of("suite_edited"))
        elif line.run_id in elsewhere:
            why_not, actual = elsewhere[line.run_id].substitution_reason, elsewhere[line.run_id].actual_target
            set_aside.append(Reason.of("ran_elsewhere", actual=actual, target=str(cell.target), message=why_not))
        elif line.run_id not in there:
            set_aside += [check_reason(line), Reason.of("target_not_named", target=str(cell.target))]
        elif parts := expiry.modified(line):
            set_aside.append(Reason.of("modified_checker", parts=parts))
        elif line.is_to_come:
            set_aside.append(Reason.of("in_the_future", check=line.check_name, moment=line.started_at))
        elif not level_rules().proves_enough(line.subject, weights_asked):
            set_aside.append(Reason.of("too_little_weights", ran=line.subject, asked=weights_asked))
        elif (why := expiry.reason(line)) is not None:
            expired.append(line)
            why_expired.append(why)
        else:
            current.append(line)
    return _Sorted(
        current=tuple(current),
        expired=tuple(expired),
        why_expired=once(why_expired),
        set_aside=once(set_aside),
    )


def _current_and_expired(found: _Sorted) -> tuple[CheckLine, ...]:
    """Return the current results, and the expired ones of checks without a current result."""
    again = {line.check_name for line in found.expired}
    valid = [line for line in found.current if line.outcome in _EVIDENCE or line.check_name not in again]
    there = {(line.check_name, line.accelerator) for line in valid}
    return (*valid, *(line for line in found.expired if (line.check_name, line.accelerator) not in there))


def _split(lines: Sequence[CheckLine]) -> dict[str, list[CheckLine]]:
    named: dict[str, list[str]] = {}
    for line in lines:
        names = named.setdefault(line.run_id, [])
        if line.accelerator and line.accelerator not in names:
            names.append(line.accelerator)
    groups: dict[str, list[CheckLine]] = {}
    for line in lines:
        for name in [line.accelerator] if line.accelerator else named[line.run_id] or [""]:
            groups.setdefault(name, []).append(line)
    return groups


def _over_accelerators(
    cell: Cell,
    planned: Sequence[str],
    lines: Sequence[CheckLine],
    basis: Basis,
    own_limit: float | None,
    weights_asked: str,
) -> Verdict:
    if not any(line.outcome in _EVIDENCE for line in lines):
        reasons = [check_reason(line) for line in lines] or [Reason.of("nothing_measured")]
        return _unknown(cell, reasons, lines, weights_asked, basis)
    graded = by_accelerator(cell, planned, lines, own_limit)
    several = len(graded) > 1
    # A better level on another accelerator is stated too, so that the worst isn't taken for the only one.
    reasons = [
        reason.on(name) if several and name else reason for name, one in graded.items() for reason in one.reasons
    ]
    return Verdict(
        cell=cell.id,
        level=worst(one.level for one in graded.values()),
        basis=basis,
        route=route_of(cell, lines),
        weights_asked=weights_asked,
        weights_run=_weights_run(lines),
        reasons=once(reasons),
        conditions=once(reason for one in graded.values() for reason in one.conditions),
        evidence_ids=_ids(lines),
    )


def _weights_run(lines: Sequence[CheckLine]) -> str:
    """Return the weakest weights that results were measured with."""
    known = [name for name in level_rules().weights if any(line.subject == name for line in lines)]
    return known[0] if known else ""


def _unknown(
    cell: Cell,
    reasons: Iterable[Reason],
    lines: Sequence[CheckLine],
    weights_asked: str,
    basis: Basis = Basis.MEASURED,
) -> Verdict:
    return Verdict(
        cell=cell.id,
        level=Level.UNKNOWN,
        basis=basis,
        weights_asked=weights_asked,
        reasons=once(reasons),
        evidence_ids=_ids(lines),
    )


def _ids(lines: Sequence[CheckLine]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line.evidence_id for line in lines))
