"""Expired cells of a folder of evidence, and their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hwcompat.generators.compatibility.expiry import why_expired
from hwcompat.generators.compatibility.judge import judge
from hwcompat.generators.compatibility.verdict import Basis, Level, Reason
from hwcompat.hardware.cell import GRAPH_TASK, Cell, parsed
from hwcompat.hardware.errors import HwCompatError
from hwcompat.hardware.evidence.latest import read_latest
from hwcompat.hardware.evidence.record import CheckLine, Outcome, PlannedCell, RunLine
from hwcompat.hardware.evidence.store import Evidence, lines_by_cell
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.redaction import redact
from hwcompat.hardware.target import Target


@dataclass(frozen=True, kw_only=True)
class Duration:
    """The seconds that a cell takes, and the run in which they were measured; None if unknown."""

    checks_s: float | None = None
    overhead_s: float | None = None
    told_by: str = ""

    @property
    def seconds(self) -> float | None:
        """Checks and overhead together."""
        return None if self.checks_s is None or self.overhead_s is None else self.checks_s + self.overhead_s


@dataclass(frozen=True, kw_only=True)
class ExpiredCell:
    """A cell with expired evidence: its last level and why the evidence doesn't count.

    `runs` planned the cell, the newest first; `lines` are all their lines of it. `why_not` says why it can't be
    measured again here, empty if it can. The first reason is that a run here under the same conditions exists, and
    another one would show the same. `duration` is the time to measure it.
    """

    cell: Cell
    level: Level
    reasons: tuple[Reason, ...]
    runs: tuple[RunLine, ...]
    lines: tuple[CheckLine, ...]
    why_not: tuple[Reason, ...] = ()
    duration: Duration = field(default_factory=Duration)

    @property
    def plan(self) -> PlannedCell | None:
        """The newest plan of the cell; None if every run line is missing."""
        return _plan_in(self.runs[0], self.cell) if self.runs else None

    @property
    def weights(self) -> str:
        """The weights that ran: tiny, config or checkpoint."""
        usual = "checkpoint" if self.cell.task == GRAPH_TASK else "tiny"
        return self.plan.subject if self.plan else next((line.subject for line in self.lines), usual)

    @property
    def device(self) -> Target:
        """The device that was requested last, with its index; the cell's target if unknown."""
        for line in sorted(self.lines, key=lambda line: line.started_at, reverse=True):
            try:
                asked = Target.parse(line.requested_target)
            except HwCompatError:
                continue
            if asked.kind == self.cell.target:
                return asked
        return self.cell.target


def measured_cells(evidence: Evidence) -> tuple[str, ...]:
    """Return the ids of all cells that were planned or ran, in order, except for those that only ran on a substitute.
    Invalid ids are left to the report on evidence."""
    named = {line.cell_id for line in evidence.checks} | {one.cell_id for run in evidence.runs for one in run.plan}
    there = {line.cell_id for line in evidence.checks if not line.substitution_reason}
    elsewhere = {line.cell_id for line in evidence.checks} - there
    return tuple(id_ for id_ in sorted(named - elsewhere) if parsed(id_))


def expired_cells(
    evidence: Evidence, inventory: HardwareInfo, machine: str, own_limits: Mapping[str, float]
) -> tuple[ExpiredCell, ...]:
    """Return the cells whose verdict is expired on this machine, in the order of their ids.

    `machine` is this machine's name in evidence, `own_limits` are a repository's tolerances by cell id.
    """
    by_cell = lines_by_cell(evidence.checks)
    newest_first = sorted(evidence.runs, key=lambda run: (run.started_at, run.run_id), reverse=True)
    found = []
    for verdict in judge(read_latest(evidence), inventory, own_limits=own_limits):
        if verdict.basis is not Basis.EXPIRED:
            continue
        cell = Cell.parse(verdict.cell)
        runs = tuple(run for run in newest_first if _plan_in(run, cell))
        lines = tuple(by_cell.get(cell.id, ()))
        found.append(
            ExpiredCell(
                cell=cell,
                level=verdict.level,
                reasons=why_expired(verdict),
                runs=runs,
                lines=lines,
                why_not=_measured_here(cell, runs, lines, inventory, redact(machine), own_limits.get(cell.id)),
            )
        )
    return tuple(found)


def as_run_before(cell: Cell, evidence: Evidence | None, asked: str = "") -> ExpiredCell:
    """Return the cell with the runs that planned it, the newest first, and its lines; with `asked` those of that
    cell, whose model it is."""
    known = asked or cell.id
    lines = [line for line in evidence.checks if line.cell_id == known] if evidence else []
    runs = [run for run in evidence.runs if any(one.cell_id == known for one in run.plan)] if evidence else []
    newest = sorted(runs, key=lambda run: run.started_at, reverse=True)
    return ExpiredCell(cell=cell, level=Level.UNKNOWN, reasons=(), runs=tuple(newest), lines=tuple(lines))


def _measured_here(
    cell: Cell,
    runs: Sequence[RunLine],
    lines: Sequence[CheckLine],
    inventory: HardwareInfo,
    machine: str,
    own_limit: float | None,
) -> tuple[Reason, ...]:
    """Return the reason of the newest run on this machine, if its results still hold and are complete."""
    run = next((run for run in runs if run.machine == machine), None)
    plan = _plan_in(run, cell) if run is not None else None
    if run is None or plan is None:
        return ()
    own = tuple(line for line in lines if line.run_id == run.run_id)
    reached = {line.check_name for line in own if line.outcome is not Outcome.NOT_RUN}
    if not set(plan.checks) <= reached:
        return ()
    alone = read_latest(Evidence(runs=(replace(run, plan=(plan,)),), checks=own))
    (verdict,) = judge(
        alone, inventory, own_limits={} if own_limit is None else {cell.id: own_limit}, cells=[cell.id]
    )
    if verdict.basis is Basis.EXPIRED:
        return ()
    return (Reason.of("settled_by", run=run.run_id), *verdict.reasons[:1])


def _plan_in(run: RunLine, cell: Cell) -> PlannedCell | None:
    return next((one for one in run.plan if one.cell_id == cell.id), None)
