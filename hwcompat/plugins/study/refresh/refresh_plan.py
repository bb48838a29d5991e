"""The plan of a refresh: each chosen expired cell, whether it runs here, and how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from hwcompat.generators.chosen_models import choose_models
from hwcompat.generators.compatibility.rules import load_rules
from hwcompat.generators.compatibility.verdict import Reason
from hwcompat.generators.models.model_libraries import is_known
from hwcompat.generators.options import Options
from hwcompat.generators.plan import PlannedSuite
from hwcompat.generators.project.project_plan import ProjectRun
from hwcompat.hardware.backends.factory import resolve_target
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.cell_selection import Shard, choose_cells
from hwcompat.hardware.errors import HwCompatError, NothingMatched
from hwcompat.hardware.evidence.record import CheckLine, Outcome, RunLine
from hwcompat.hardware.evidence.store import Evidence
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.redaction import redact
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.schedule import default_jobs, groups_of, next_group
from hwcompat.hardware.testing.suite_file import SuiteFile

from .expired_cells import Duration, ExpiredCell, expired_cells, measured_cells
from .locate_suite import models_in_cells, plan_again, why_not_here

_ANY_DEVICE = ("auto", "all", "known")


_LONGEST_S = 30 * 24 * 3600.0
"""Longer than any check: a larger number in a file isn't a duration."""


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """The overhead of a run, in seconds: before the first check, and for each file."""

    startup_s: float
    per_file_s: float


@dataclass(frozen=True, kw_only=True)
class Total:
    """Seconds for all cells with `jobs` at a time, without the `unknown` ones. None if all are unknown."""

    seconds: float | None
    jobs: int
    unknown: int


def run_costs(evidence: Evidence) -> dict[str, RunCost]:
    """Return the overhead of each run that ended, the newest first."""
    ends = {end.run_id: end.ended_at for end in evidence.ends}
    by_run: dict[str, list[CheckLine]] = {}
    for line in evidence.checks:
        if line.outcome is not Outcome.NOT_RUN:
            by_run.setdefault(line.run_id, []).append(line)
    costs = {}
    for run in sorted(evidence.runs, key=lambda run: (run.started_at, run.run_id), reverse=True):
        lines = by_run.get(run.run_id)
        cost = _cost(run, lines, ends.get(run.run_id, "")) if lines else None
        if cost is not None:
            costs[run.run_id] = cost
    return costs


def _cost(run: RunLine, lines: Sequence[CheckLine], ended_at: str) -> RunCost | None:
    first = min(line.started_at for line in lines)
    startup, rest = _seconds_between(run.started_at, first), _seconds_between(first, ended_at)
    if startup is None or rest is None:
        return None
    files = len({line.cell_id for line in lines})
    beside = rest * max(1, min(run.jobs, files)) - sum(map(_seconds, lines))
    return RunCost(startup_s=startup, per_file_s=max(0.0, beside / files))


def _seconds_between(start: str, end: str) -> float | None:
    """Return seconds from one time to another; None if they aren't times in that order."""
    try:
        seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    except (ValueError, TypeError):  # TypeError: one with a zone and one without
        return None
    return seconds if 0 <= seconds <= _LONGEST_S else None


def _seconds(line: CheckLine) -> float:
    return line.duration_s if 0 <= line.duration_s <= _LONGEST_S else 0.0


def duration_of(one: ExpiredCell, costs: Mapping[str, RunCost], machine: str) -> Duration:
    """Return the duration of a cell in its newest run on this machine, else on another.

    The overhead is that of its own run, or of the newest finished run if its own was interrupted.
    """
    for run in sorted(one.runs, key=lambda run: run.machine != machine):  # stable: the newest stay first
        lines = [line for line in one.lines if line.run_id == run.run_id and line.outcome is not Outcome.NOT_RUN]
        if lines:
            cost = costs.get(run.run_id) or next(iter(costs.values()), None)
            return Duration(
                checks_s=sum(map(_seconds, lines)),
                overhead_s=cost.per_file_s if cost else None,
                told_by=run.run_id,
            )
    return Duration()


def total_of(cells: Sequence[ExpiredCell], costs: Iterable[RunCost], asked_jobs: int | None) -> Total:
    """Return seconds for all cells as they would be scheduled, with the time before the first check."""
    suites = [_unwritten_suite(one) for one in cells]
    jobs = asked_jobs or (default_jobs(suites) if suites else 1)
    known = {one.cell.id: seconds for one in cells if (seconds := one.duration.seconds) is not None}
    unknown = len(cells) - len(known)
    if not known:
        return Total(seconds=None if cells else 0.0, jobs=jobs, unknown=unknown)
    startup = next((cost.startup_s for cost in costs), 0.0)
    return Total(seconds=startup + _scheduled(suites, known, jobs), jobs=jobs, unknown=unknown)


def _scheduled(suites: Sequence[SuiteFile], known: Mapping[str, float], jobs: int) -> float:
    """Return when the last suite ends, in seconds, if the suites take their `known` time and the runner schedules
    them."""
    waiting = groups_of(suites, ())
    running: list[tuple[float, frozenset[str]]] = []
    now = 0.0
    while waiting or running:
        taken = {place for _, places in running for place in places}
        number = next_group(waiting, taken) if len(running) < jobs else None
        if number is not None:
            group = waiting.pop(number)
            seconds = sum(known.get(suite.cell.id, 0.0) for suite in group.suites)
            running.append((now + seconds, group.places))
            continue
        now, done = min(running, key=lambda one: one[0])
        running.remove((now, done))
    return now


def _unwritten_suite(one: ExpiredCell) -> SuiteFile:
    """Return the facts that the schedule needs of a suite that isn't written yet."""
    plain = SuiteFile(path=Path(f"{one.cell.slug}.py"), cell=one.cell, subject=one.weights, checks=(), suite_hash="")
    return replace(plain, model_revision=one.cell.model) if one.weights == "checkpoint" else plain


@dataclass(frozen=True, kw_only=True)
class RefreshPlan:
    """Expired cells in the order of their ids, the number of examined cells, and the time for those that can run.

    `names` are the models and `devices` those that the command line names.
    """

    cells: tuple[ExpiredCell, ...]
    looked_at: int
    total: Total
    names: tuple[str, ...] = ()
    devices: tuple[Target, ...] = ()

    @property
    def runnable(self) -> tuple[ExpiredCell, ...]:
        """The cells that can be measured again here."""
        return tuple(one for one in self.cells if not one.why_not)

    @property
    def left(self) -> dict[str, tuple[Reason, ...]]:
        """Cells that stay expired, with the reason, by id."""
        return {one.cell.id: one.why_not for one in self.cells if one.why_not}


def plan_refresh(
    options: Options,
    evidence: Evidence,
    inventory: HardwareInfo,
    machine: str,
    project: ProjectRun | None,
    *,
    read_list: Callable[[], Iterable[str]],
) -> RefreshPlan:
    """Plan a refresh without running anything. A project's plan and tolerances decide if there is one.

    `machine` is this machine's name in evidence. Raises `NothingMatched` if the evidence has no chosen cell, and what
    `choose_models` and `resolve_target` raise.
    """
    measured = measured_cells(evidence)
    if not measured:
        raise NothingMatched(
            "no cell was measured yet",
            why=f"no run of {options.evidence} reached a requested device",
            fix="Run suites first: hwcompat run.",
        )
    limits: Mapping[str, float] = {}
    names: tuple[str, ...] = ()
    if project is None:
        chosen, names = _chosen_cells(options, measured, read_list=read_list)
    else:
        limits = {one.cell.id: one.tolerance.limit for one in project.kept if one.tolerance}
        planned = {one.cell.id for one in project.kept}
        chosen = tuple(id_ for id_ in measured if id_ in planned)
        if not chosen:
            raise NothingMatched(
                f"none of the {len(planned)} cell(s) of {project.project.name} was measured yet",
                why=f"{options.evidence} has no evidence of them",
                fix="Run them first: hwcompat run.",
            )
    costs = run_costs(evidence)
    cells = tuple(
        replace(
            one,
            why_not=one.why_not if project else why_not_here(one, inventory, names),
            duration=duration_of(one, costs, redact(machine)),
        )
        for one in expired_cells(evidence, inventory, machine, limits)
        if one.cell.id in chosen
    )
    return RefreshPlan(
        cells=cells,
        looked_at=len(chosen),
        total=total_of([one for one in cells if not one.why_not], costs.values(), options.jobs),
        names=names,
        devices=_named_devices(options),
    )


def suites_of(
    plan: RefreshPlan, options: Options, inventory: HardwareInfo, project: ProjectRun | None
) -> tuple[tuple[PlannedSuite, ...], dict[str, str]]:
    """Return the suites of the cells that can run here, and by id why others can't. Derives recipes."""
    if project is not None:
        wanted = {one.cell.id for one in plan.runnable}
        return tuple(suite for suite in project.kept if suite.cell.id in wanted), {}
    rules = load_rules()
    suites: list[PlannedSuite] = []
    refused: dict[str, str] = {}
    for one in plan.runnable:
        try:
            suites.append(
                plan_again(one, plan.names, plan.devices, rules, inventory, template_folder=options.template_dir)
            )
        except HwCompatError as error:
            refused[one.cell.id] = str(error)
    return tuple(suites), refused


def still_expired(
    cells: Sequence[str],
    evidence: Evidence,
    inventory: HardwareInfo,
    machine: str,
    project: ProjectRun | None,
) -> dict[str, tuple[Reason, ...]]:
    """Return which of some cells are expired after a run, each with the reason."""
    limits = {one.cell.id: one.tolerance.limit for one in project.kept if one.tolerance} if project else {}
    found = expired_cells(evidence, inventory, machine, limits)
    return {one.cell.id: one.why_not or one.reasons for one in found if one.cell.id in cells}


def _chosen_cells(
    options: Options, cells: Sequence[str], *, read_list: Callable[[], Iterable[str]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids of `cells` that the options choose, and the names of the models that they were chosen by.

    Raises `NothingMatched` if none fits, and what `choose_models` and `resolve_target` raise.
    """
    names: tuple[str, ...] = ()
    kept = [Cell.parse(id_) for id_ in cells]
    if options.models or options.priority or options.architectures:
        measured = tuple(dict.fromkeys(cell.model for cell in kept if is_known(cell.model)))
        names = choose_models(
            options.models or (() if options.priority else measured),
            priority=options.priority,
            architectures=options.architectures,
            read_list=read_list,
        ).names
        wanted = {model for name in names for model in models_in_cells(name)}
        kept = [cell for cell in kept if cell.model in wanted or cell.label in wanted]
    targets = {device.kind for device in _named_devices(options)}
    kept = [cell for cell in kept if not targets or cell.target in targets]
    kept = [cell for cell in kept if not options.precisions or cell.precision in options.precisions]
    kept = [cell for cell in kept if not options.tasks or "all" in options.tasks or cell.task in options.tasks]
    if not kept:
        raise NothingMatched(
            f"your options match none of {len(cells)} measured cell(s)",
            why="hwcompat evidence refresh only repeats earlier measurements",
            fix="Remove options, or measure new cells with hwcompat run.",
        )
    shard = Shard.parse(options.shard) if options.shard else None
    return choose_cells([cell.id for cell in kept], select=options.select, skip=options.skip, shard=shard), names


def _named_devices(options: Options) -> tuple[Target, ...]:
    """Return the named devices; none if the options leave them open. Raises `UsageError` for an unknown one."""
    return tuple(resolve_target(device) for device in options.devices if device.lower() not in _ANY_DEVICE)
