"""What other runs showed of the cells of a comparison: those that may be flaky or slower, and the last green ones.

Tallies of outcomes say which runs can matter; only their lines are read. A folder may hold a million.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from generators.compatibility.run_summary import RunSummary, State, is_to_come, moment_of, summarize_run
from hardware.evidence.record import CheckLine, RunLine, Subject
from hardware.evidence.runs import RunEvidence, Tally

from .result import Side

RUNS_LOOKED_AT = 12
"""Of runs of a cell between which nothing differs, the newest so many are asked whether they alternate."""

_Shown = dict[str, dict[str, RunSummary]]
"""By cell and run."""


def alike(sides: Sequence[Side], evidence: Iterable[RunEvidence]) -> dict[str, list[RunSummary]]:
    """What runs like those of the sides showed of cells that passed in some of them and failed in others, and of
    cells whose subject has its real size."""
    found: _Shown = {}
    for one in evidence:
        cells = {cell for side in sides for cell in side.showings}
        tallies = one.tallies(cells)
        wanted: dict[str, set[str]] = {}
        for side in sides:
            for cell, shown in side.showings.items():
                runs = _newest_alike(shown.run, one.runs, tallies.get(cell, {}))
                told = [tallies[cell][run_id] for run_id in runs]
                alternates = any(tally.passed for tally in told) and any(tally.failed for tally in told)
                if alternates or shown.planned.subject != Subject.TINY:
                    for run_id in runs:
                        wanted.setdefault(run_id, set()).add(cell)
        _read(one, wanted, found)
    for side in sides:
        for cell, shown in side.showings.items():
            if cell in found:
                found[cell].setdefault(shown.run.run_id, shown)
    return {cell: list(by_run.values()) for cell, by_run in found.items()}


def _newest_alike(run: RunLine, runs: Mapping[str, RunLine], tallies: Mapping[str, Tally]) -> list[str]:
    """Of runs that tell of a cell, the newest that have machine, versions and jobs of one of them."""
    own = [runs[run_id] for run_id in tallies]
    own = [
        one
        for one in own
        if (one.machine, one.versions, one.jobs) == (run.machine, run.versions, run.jobs) and not is_to_come(one)
    ]
    return [one.run_id for one in sorted(own, key=_order, reverse=True)[:RUNS_LOOKED_AT]]


def _order(run: RunLine) -> tuple[object, str]:
    return moment_of(run), run.run_id


def since_green(now: Side, evidence: RunEvidence, machine: str) -> dict[str, list[RunSummary]]:
    """Of each cell that isn't green now, on one machine: the last run before in which it was, the first ones after it
    up to that which showed what is so now, and what `alike` tells. Of a cell that never was green, nothing."""
    found: _Shown = {}
    left = {cell: shown for cell, shown in now.showings.items() if shown.state is not State.GREEN}
    tallies = evidence.tallies(left)
    own = [run for run in evidence.runs.values() if run.machine == machine and not is_to_come(run)]
    runs = sorted(own, key=_order)
    planned = {run.run_id: {one.cell_id for one in run.plan} for run in runs}
    greens: dict[str, RunSummary] = {}
    for run in reversed(runs):
        cells = {
            cell
            for cell, shown in left.items()
            if cell not in greens
            and _order(run) < _order(shown.run)
            and cell in tallies
            and (tally := tallies[cell].get(run.run_id)) is not None
            and tally.passed
        }
        for cell, shown in _read(evidence, {run.run_id: cells}, found).items():
            if shown.state is State.GREEN:
                greens[cell] = shown
    reached: set[str] = set()
    for run in runs:
        cells = {
            cell
            for cell, green in greens.items()
            if cell not in reached
            and cell in planned[run.run_id]
            and _order(green.run) < _order(run) <= _order(left[cell].run)
        }
        for cell, shown in _read(evidence, {run.run_id: cells}, found).items():
            if shown.is_whole and shown.state is left[cell].state:
                reached.add(cell)
    for cell, others in alike([now], [evidence]).items():
        for shown in others:
            found.setdefault(cell, {})[shown.run.run_id] = shown
    return {cell: list(by_run.values()) for cell, by_run in found.items()}


def _read(evidence: RunEvidence, wanted: Mapping[str, set[str]], found: _Shown) -> dict[str, RunSummary]:
    """What runs showed of some cells, put into `found`; returns the last run's."""
    read: dict[str, RunSummary] = {}
    for run_id, cells in wanted.items():
        read = {}
        if cells:
            lines: list[CheckLine] = evidence.checks(runs=[run_id], cells=cells)
            read = summarize_run(evidence.runs[run_id], lines, cells)
        for cell, shown in read.items():
            found.setdefault(cell, {})[run_id] = shown
    return read
