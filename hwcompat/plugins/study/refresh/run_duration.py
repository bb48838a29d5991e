"""Estimate how long it takes to measure cells again, from earlier runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from hwcompat.hardware.evidence.record import CheckLine, Outcome, RunLine
from hwcompat.hardware.evidence.store import Evidence
from hwcompat.hardware.testing.schedule import default_jobs, groups_of, next_group
from hwcompat.hardware.testing.suite_file import SuiteFile

from .expired_cells import Duration, ExpiredCell

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
