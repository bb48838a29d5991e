"""Summarize one run of one cell: green, failed or neither, with the reasons and what may differ in another run.

Each run is judged by itself, with the versions and tolerances that it had. `judge` decides whether it still holds.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hwcompat.hardware.cell import Cell, parsed
from hwcompat.hardware.evidence.latest import is_silent, missing_result, severity
from hwcompat.hardware.evidence.record import EDITED, CheckLine, Outcome, PlannedCell, RunLine, WeightsKind
from hwcompat.hardware.evidence.versions import relevant_versions

from .expiry import Expiry
from .grade import check_reason, ran_elsewhere
from .judge import judge_cell
from .verdict import Basis, Level, Reason, Verdict

_OLDEST = datetime.datetime.min.replace(tzinfo=datetime.UTC)
_GREEN = (Level.HIGH, Level.MEDIUM)


class RunState(StrEnum):
    """What a run showed of a cell, from best to worst."""

    GREEN = "green"
    UNKNOWN = "unknown"
    FAILED = "failed"

    @property
    def rank(self) -> int:
        """0 for green; an unknown state may still work, so that it ranks above a failure."""
        return list(RunState).index(self)


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The summary of one cell in one run.

    `level` and `conditions` are those of its verdict, and `reasons` say why it isn't green. `checks` has the worst
    line of each planned check, `not_run` if there is none. `is_whole` is False if checks weren't reached and nothing
    failed: the run was cut off.
    """

    run: RunLine
    cell: Cell
    planned: PlannedCell
    state: RunState
    level: Level
    conditions: tuple[Reason, ...]
    reasons: tuple[Reason, ...]
    checks: Mapping[str, CheckLine]
    is_whole: bool

    @property
    def moment(self) -> datetime.datetime:
        """The time when its run started."""
        return moment_of(self.run)

    @property
    def failing(self) -> tuple[str, ...]:
        """The checks that failed, in the plan's order; none if the failures aren't the cell's."""
        failed = self.state is RunState.FAILED
        return tuple(name for name, line in self.checks.items() if failed and line.outcome.is_failure)

    @property
    def versions(self) -> Mapping[str, str]:
        """The run's versions that the cell's target and its checks depend on."""
        found = relevant_versions(self.cell, self.run.versions)
        for check in self.planned.checks:
            found |= relevant_versions(self.cell, self.run.versions, check)
        return found


def moment_of(run: RunLine) -> datetime.datetime:
    """Return the start of a run; one that can't be read is the oldest."""
    try:
        found = datetime.datetime.fromisoformat(run.started_at)
        return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return _OLDEST


def is_to_come(run: RunLine) -> bool:
    """Whether a run is dated more than a day after now, so that its clock was wrong."""
    return moment_of(run) > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)


def summarize_run(
    run: RunLine, lines: Iterable[CheckLine], cells: Collection[str] | None = None
) -> dict[str, RunSummary]:
    """Summarize each cell that a run planned, or those of `cells`, by cell id.

    Lines of cells that it didn't plan, passes of checks that it didn't plan, and ids that name no cell are left out.
    """
    own: dict[str, list[CheckLine]] = {}
    for line in lines:
        if line.run_id == run.run_id:
            own.setdefault(line.cell_id, []).append(line)
    found = {}
    for planned in run.plan:
        cell = parsed(planned.cell_id)
        if cell is not None and (cells is None or cell.id in cells):
            found[cell.id] = _summarize(run, cell, planned, own.get(cell.id, []))
    return found


def _summarize(run: RunLine, cell: Cell, planned: PlannedCell, lines: Sequence[CheckLine]) -> RunSummary:
    lines = [line for line in lines if line.check_name in planned.checks or line.outcome.is_failure]
    there = {line.check_name for line in lines}
    never = [
        missing_result(run.run_id, run.started_at, planned, name) for name in planned.checks if name not in there
    ]
    lines += [line for line in never if line is not None]
    names = dict.fromkeys([*planned.checks, *(line.check_name for line in lines)])
    worst = {name: max((line for line in lines if line.check_name == name), key=severity) for name in names}
    state, verdict = _state(run, cell, planned, lines, worst)
    silent = any(is_silent(line) for line in worst.values())
    failed = tuple(check_reason(line) for line in worst.values() if line.outcome.is_failure)
    return RunSummary(
        run=run,
        cell=cell,
        planned=planned,
        state=state,
        level=verdict.level,
        conditions=verdict.conditions,
        reasons={RunState.GREEN: (), RunState.FAILED: failed, RunState.UNKNOWN: verdict.reasons}[state],
        checks=worst,
        is_whole=state is RunState.FAILED or not silent,
    )


def _state(
    run: RunLine, cell: Cell, planned: PlannedCell, lines: Sequence[CheckLine], worst: Mapping[str, CheckLine]
) -> tuple[RunState, Verdict]:
    """Return the state, and the verdict of the run by itself.

    Results on another target, of an edited suite, of a modified checker, or dated ahead decide nothing.
    """
    own_limit = max((line.tolerance for line in lines if line.tolerance is not None), default=None)
    expiry = Expiry.of_run(cell, run, suite_hash=planned.suite_hash, own_limit=own_limit)
    verdict = judge_cell(
        cell,
        planned.checks,
        lines,
        expiry=expiry,
        weights_asked=planned.subject if planned.subject in list(WeightsKind) else str(WeightsKind.TINY),
    )
    failed = any(line.outcome.is_failure for line in worst.values())
    astray = any(
        ran_elsewhere(cell, line) or EDITED in line.conditions or line.is_to_come or expiry.modified(line)
        for line in lines
    )
    if failed and not astray:
        return RunState.FAILED, verdict
    passed = all(line.outcome is Outcome.PASSED for line in worst.values())
    if passed and verdict.basis is Basis.MEASURED and verdict.level in _GREEN:
        return RunState.GREEN, verdict
    return RunState.UNKNOWN, verdict
