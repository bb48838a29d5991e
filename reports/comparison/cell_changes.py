"""Compare the cells of two sides, find since when a cell is broken, and read what other runs showed of these cells.

Counts of outcomes select the runs that matter; only their lines are read, because a folder may have a million.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hwcompat.generators.compatibility.grade import level_rules
from hwcompat.generators.compatibility.run_summary import RunState, RunSummary, is_to_come, moment_of, summarize_run
from hwcompat.hardware.evidence.record import CheckLine, Outcome, RunLine, WeightsKind
from hwcompat.hardware.evidence.runs import OutcomeTally, RunEvidence
from hwcompat.hardware.plain_text import one_line

from ..reason_text import texts
from .causes import Cause, Hardware, alternation, cause_of, slowdown, version_differences
from .comparison_result import CellChange, ChangeKind, RunComparison, Side

History = Mapping[str, Sequence[RunSummary]]
"""The summaries of each run of a cell, by cell id."""


def compare_sides(before: Side, now: Side, history: History) -> RunComparison:
    """Compare `now` with `before`. `history` has the summaries of other runs: without it no cell is flaky or
    slower."""
    hardware = Hardware()
    changes, same, suites, unsure = [], Counter[RunState](), dict[str, list[str]](), list[str]()
    for cell in sorted({*before.showings, *now.showings}):
        old, new = before.showings.get(cell), now.showings.get(cell)
        if old is None or new is None:
            changes.append(
                CellChange(cell=cell, kind=ChangeKind.NEW if old is None else ChangeKind.GONE, before=old, now=new)
            )
            continue
        cause = cause_of(old, new, hardware)
        for one in cause.candidates:
            if one.kind in ("suite", "checks", "configuration", "weights", "tolerance"):
                suites.setdefault(one.name, []).append(cell)
        change = _change(cell, old, new, cause, history.get(cell, ()), hardware)
        if change is None:
            same[new.state] += 1
        elif change.slower is not None and not change.slower.is_sure:
            same[new.state] += 1
            unsure.append(f"{cell}: {change.slower}, so that it isn't called slower")
        else:
            changes.append(change)
    first, last = before.runs[0], now.runs[0]
    return RunComparison(
        last_green=False,
        before=before,
        now=now,
        inventory=hardware.between(first, last),
        versions=tuple(version_differences(first, last)),
        suites={kind: tuple(cells) for kind, cells in suites.items()},
        changes=_worst_first(changes),
        same={state: same[state] for state in RunState},
        remarks=(*_remarks(before, now), *unsure),
    )


def compare_last_green(now: Side, history: History) -> RunComparison:
    """Find, for each cell that isn't green `now`, the last run in which it was, and what differs between that and the
    first run after it with the present state."""
    hardware = Hardware()
    changes, same, greens = [], Counter[RunState](), dict[str, RunSummary]()
    for cell, new in sorted(now.showings.items()):
        own = history.get(cell, ())
        earlier = sorted((one for one in own if _order(one.run) < _order(new.run)), key=lambda one: _order(one.run))
        green = next((one for one in reversed(earlier) if one.state is RunState.GREEN), None)
        alternating = alternation(new, own, hardware)
        if new.state is RunState.GREEN and not alternating:
            same[RunState.GREEN] += 1
            continue
        if green is None:
            changes.append(CellChange(cell=cell, kind=ChangeKind.NEVER, before=None, now=new))
            continue
        greens[cell] = green
        since = [one for one in earlier[earlier.index(green) + 1 :] if one.state is new.state]
        first = next((one for one in since if one.is_whole), new)
        remark = f"unchanged since run {first.run.run_id}" if first.run.run_id != new.run.run_id else ""
        changes.append(
            CellChange(
                cell=cell,
                kind=ChangeKind.FLAKY if alternating else ChangeKind.WORSE,
                before=green,
                now=new,
                cause=None if alternating else cause_of(green, first, hardware),
                alternating=alternating,
                remarks=(remark,) if remark else (),
            )
        )
    runs = {one.run.run_id: one.run for one in sorted(greens.values(), key=lambda one: one.moment, reverse=True)}
    return RunComparison(
        last_green=True,
        before=Side(name="last green", runs=tuple(runs.values()), showings=greens),
        now=now,
        inventory=(),
        versions=(),
        suites={},
        changes=_worst_first(changes),
        same={state: same[state] for state in RunState},
        remarks=tuple(_of_names(now)),
    )


def _worst_first(changes: Iterable[CellChange]) -> tuple[CellChange, ...]:
    return tuple(sorted(changes, key=lambda change: change.order))


def _change(
    cell: str, old: RunSummary, new: RunSummary, cause: Cause, history: Sequence[RunSummary], hardware: Hardware
) -> CellChange | None:
    """Return how the cell changed; None if it didn't."""
    if alternating := alternation(new, history, hardware):
        return CellChange(cell=cell, kind=ChangeKind.FLAKY, before=old, now=new, alternating=alternating)
    kind, remarks = _kind(old, new)
    if kind is None and (slower := slowdown(old, new, history, hardware)):
        return CellChange(cell=cell, kind=ChangeKind.SLOWER, before=old, now=new, cause=cause, slower=slower)
    if kind is None:
        return None
    return CellChange(cell=cell, kind=kind, before=old, now=new, cause=cause, remarks=tuple(remarks))


def _kind(old: RunSummary, new: RunSummary) -> tuple[ChangeKind | None, list[str]]:
    if old.state is not new.state:
        return (ChangeKind.BETTER if new.state is RunState.GREEN else ChangeKind.WORSE), []
    if new.state is RunState.UNKNOWN:
        return None, []
    if new.state is RunState.GREEN:
        remarks = list(_weaker_proof(old, new))
        return (ChangeKind.CHANGED if remarks else None), remarks
    broke = [name for name in new.failing if _passed(old, name)]
    fixed = [name for name in old.failing if _passed(new, name)]
    remarks = [f"{', '.join(broke)} passed before"] if broke else []
    remarks += [f"{', '.join(fixed)} passed now"] if fixed else []
    if broke or fixed:
        return (ChangeKind.WORSE if broke else ChangeKind.BETTER), remarks
    otherwise = [
        f"{name} {_outcome_of(old, name)}, now {_outcome_of(new, name)}"
        for name in new.failing
        if name in old.checks and _outcome_of(old, name) != _outcome_of(new, name)
    ]
    return (ChangeKind.CHANGED if otherwise else None), otherwise


def _passed(one: RunSummary, check: str) -> bool:
    return check in one.checks and one.checks[check].outcome is Outcome.PASSED


def _outcome_of(one: RunSummary, check: str) -> str:
    line = one.checks[check]
    words = str(line.outcome).replace("_", " ")
    return f"{words} ({one_line(line.error_type, longest=60)})" if line.error_type else words


def _weaker_proof(old: RunSummary, new: RunSummary) -> Iterable[str]:
    """Return why a cell that is still green proves less than before."""
    if missing := [name for name in old.planned.checks if name not in new.planned.checks]:
        yield f"no longer planned: {', '.join(missing)}"
    weights = level_rules().weights
    if old.planned.subject in weights and not level_rules().proves_enough(new.planned.subject, old.planned.subject):
        yield f"measured with {new.planned.subject} weights, before with {old.planned.subject} weights"
    limits = [
        {name: line.tolerance for name, line in one.checks.items() if line.tolerance is not None}
        for one in (old, new)
    ]
    wider = [name for name, limit in limits[1].items() if limit > limits[0].get(name, limit)]
    if wider:
        yield f"wider tolerance: {wider[0]} {limits[1][wider[0]]:g}, before {limits[0][wider[0]]:g}"
    if old.level is not new.level:
        more = texts(one for one in new.conditions if one not in old.conditions)
        yield f"the level changed from {old.level} to {new.level}{': ' if more else ''}{'; '.join(more)}"


def _remarks(before: Side, now: Side) -> Iterable[str]:
    if moment_of(before.runs[0]) > moment_of(now.runs[0]):
        yield "the first run is newer than the second: changes for the worse may be fixed already"
    for side in (before, now):
        if len(side.runs) > 1:
            yield (
                f"{side.name} combines {len(side.runs)} runs: inventory and versions are those of the newest run, "
                f"{side.runs[0].run_id}; each change lists the differences of its own two runs"
            )
        cut = sum(not one.is_whole for one in side.showings.values())
        if cut:
            yield f"{side.name} was interrupted or is still running: {cut} of its cells are incomplete"
    yield from _of_names(now, before)


def _of_names(*sides: Side) -> Iterable[str]:
    """Return a remark if runs name one machine and have different processors."""
    seen: dict[str, set[str]] = {}
    for side in sides:
        for run in side.runs:
            processor = run.inventory.get("cpu")
            model = processor.get("model") if isinstance(processor, Mapping) else None
            if run.machine and isinstance(model, str):
                seen.setdefault(run.machine, set()).add(model)
    for machine, models in seen.items():
        if len(models) > 1:
            yield f"two machines may share the name {machine}: it has the processors {', '.join(sorted(models))}"


RUNS_LOOKED_AT = 12
"""Number of the newest runs of a cell without differences that are checked for alternation."""

_Shown = dict[str, dict[str, RunSummary]]
"""By cell and run."""


def alike(sides: Sequence[Side], evidence: Iterable[RunEvidence]) -> dict[str, list[RunSummary]]:
    """Return what runs like those of the sides showed of cells that passed in some and failed in others, and of cells
    whose weights have real dimensions."""
    found: _Shown = {}
    for one in evidence:
        cells = {cell for side in sides for cell in side.showings}
        tallies = one.tallies(cells)
        wanted: dict[str, set[str]] = {}
        for side in sides:
            for cell, shown in side.showings.items():
                runs = _newest_alike(shown.run, one.runs, tallies.get(cell, {}))
                counts = [tallies[cell][run_id] for run_id in runs]
                alternates = any(tally.passed for tally in counts) and any(tally.failed for tally in counts)
                if alternates or shown.planned.subject != WeightsKind.TINY:
                    for run_id in runs:
                        wanted.setdefault(run_id, set()).add(cell)
        _read(one, wanted, found)
    for side in sides:
        for cell, shown in side.showings.items():
            if cell in found:
                found[cell].setdefault(shown.run.run_id, shown)
    return {cell: list(by_run.values()) for cell, by_run in found.items()}


def _newest_alike(run: RunLine, runs: Mapping[str, RunLine], tallies: Mapping[str, OutcomeTally]) -> list[str]:
    """Of runs with a cell, return the newest that have machine, versions and jobs of one of them."""
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
    """Return, for each cell of one machine that isn't green now: the last green run, the first ones after it up to
    the one with the present state, and the results of `alike`. Cells that never were green are left out."""
    found: _Shown = {}
    left = {cell: shown for cell, shown in now.showings.items() if shown.state is not RunState.GREEN}
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
            if shown.state is RunState.GREEN:
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
    """Add the summaries of some cells in these runs to `found`; return the last run's."""
    read: dict[str, RunSummary] = {}
    for run_id, cells in wanted.items():
        read = {}
        if cells:
            lines: list[CheckLine] = evidence.checks(runs=[run_id], cells=cells)
            read = summarize_run(evidence.runs[run_id], lines, cells)
        for cell, shown in read.items():
            found.setdefault(cell, {})[run_id] = shown
    return read
