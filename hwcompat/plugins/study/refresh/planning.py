"""What a refresh will do: each expired cell that was asked for, whether it runs here, and the time that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Reason
from generators.options import Options
from generators.plan import PlannedSuite
from generators.project.planning import ProjectRun
from hardware.detection import HardwareInfo
from hardware.errors import HwCompatError, NothingMatched
from hardware.evidence.redaction import redact
from hardware.evidence.store import Evidence
from hardware.target import Target

from .duration import Duration, Total, duration_of, run_costs, total_of
from .expired import ExpiredCell, expired_cells, measured_cells
from .located import plan_again, why_not_here
from .selection import chosen_cells, named_devices


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """An expired cell: `why_not` says why it can't be measured again here, empty if it can."""

    expired: ExpiredCell
    duration: Duration
    why_not: tuple[Reason, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RefreshPlan:
    """Expired cells in the order of their ids, how many cells were looked at, and the time for those that can run.

    `names` are the models and `devices` those that the command line names.
    """

    cells: tuple[Refreshed, ...]
    looked_at: int
    total: Total
    names: tuple[str, ...] = ()
    devices: tuple[Target, ...] = ()

    @property
    def runnable(self) -> tuple[Refreshed, ...]:
        """Those that can be measured again here."""
        return tuple(one for one in self.cells if not one.why_not)

    @property
    def left(self) -> dict[str, tuple[Reason, ...]]:
        """Cells that stay expired, with the reason, by id."""
        return {one.expired.cell.id: one.why_not for one in self.cells if one.why_not}


def plan_refresh(
    asked: Options,
    evidence: Evidence,
    inventory: HardwareInfo,
    machine: str,
    project: ProjectRun | None,
    *,
    read_list: Callable[[], Iterable[str]],
) -> RefreshPlan:
    """Nothing is built, derived or run. With a project the cells are those that it plans, and its tolerances hold.

    `machine` is this machine's name in evidence. Raises `NothingMatched` where the evidence has no cell that was
    asked for, and what `chosen_cells` raises.
    """
    measured = measured_cells(evidence)
    if not measured:
        raise NothingMatched(
            "nothing was measured yet",
            why=f"no run of {asked.evidence} got as far as a device that was asked for",
            fix="Measure something with --run first.",
        )
    limits: Mapping[str, float] = {}
    names: tuple[str, ...] = ()
    if project is None:
        chosen, names = chosen_cells(asked, measured, read_list=read_list)
    else:
        limits = {one.cell.id: one.tolerance.limit for one in project.kept if one.tolerance}
        planned = {one.cell.id for one in project.kept}
        chosen = tuple(id_ for id_ in measured if id_ in planned)
        if not chosen:
            raise NothingMatched(
                f"none of the {len(planned)} cell(s) of {project.project.name} was measured yet",
                why=f"there is no evidence of them in {asked.evidence}",
                fix="Measure them for the first time with --run.",
            )
    costs = run_costs(evidence)
    cells = []
    for one in expired_cells(evidence, inventory, machine, limits):
        if one.cell.id in chosen:
            why_not = one.settled if project else why_not_here(one, inventory, names)
            duration = duration_of(one, costs, redact(machine))
            cells.append(Refreshed(expired=one, duration=duration, why_not=why_not))
    pairs = [(one.expired, one.duration) for one in cells if not one.why_not]
    return RefreshPlan(
        cells=tuple(cells),
        looked_at=len(chosen),
        total=total_of(pairs, costs.values(), asked.jobs),
        names=names,
        devices=named_devices(asked),
    )


def suites_of(
    plan: RefreshPlan, asked: Options, inventory: HardwareInfo, project: ProjectRun | None
) -> tuple[tuple[PlannedSuite, ...], dict[str, str]]:
    """The suites of the cells that can run here, and why others turned out not to, by id. It derives recipes."""
    if project is not None:
        wanted = {one.expired.cell.id for one in plan.runnable}
        return tuple(suite for suite in project.kept if suite.cell.id in wanted), {}
    rules = load_rules()
    suites: list[PlannedSuite] = []
    refused: dict[str, str] = {}
    for one in plan.runnable:
        try:
            suites.append(
                plan_again(
                    one.expired, plan.names, plan.devices, rules, inventory, template_folder=asked.template_dir
                )
            )
        except HwCompatError as error:
            refused[one.expired.cell.id] = str(error)
    return tuple(suites), refused


def still_expired(
    cells: Sequence[str],
    evidence: Evidence,
    inventory: HardwareInfo,
    machine: str,
    project: ProjectRun | None,
) -> dict[str, tuple[Reason, ...]]:
    """Which of some cells are expired after a run, each with the reason."""
    limits = {one.cell.id: one.tolerance.limit for one in project.kept if one.tolerance} if project else {}
    found = expired_cells(evidence, inventory, machine, limits)
    return {one.cell.id: one.settled or one.reasons for one in found if one.cell.id in cells}
