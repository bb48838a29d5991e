"""From words of a command line to the sides of a comparison: a run's id or its beginning, a machine, a folder,
`latest`, `previous`; and the list of runs for who knows no id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from generators.compatibility.run_summary import RunSummary, is_to_come, moment_of, summarize_run
from hardware.errors import NothingMatched, UsageError, did_you_mean, echo
from hardware.evidence.record import RunLine
from hardware.evidence.runs import RunEvidence
from hardware.plain_text import one_line

from .result import Side

LATEST, PREVIOUS, LAST_GREEN = "latest", "previous", "last-green"
KEYWORDS = (LATEST, PREVIOUS, LAST_GREEN)
SHORTEST_BEGINNING = 3
"""Fewer letters of a run's id name no run: most runs of a century begin with 20."""

_LISTED = 10
_LONGEST_NAME = 40


@dataclass(frozen=True, kw_only=True)
class Named:
    """What a word names: one run (`one`), or all runs of a machine or a folder; newest first."""

    word: str
    runs: tuple[RunLine, ...]
    one: bool


def newest_first(runs: Iterable[RunLine]) -> list[RunLine]:
    """Runs by when they started; those that are dated ahead come last, because nobody knows when they were."""
    return sorted(runs, key=lambda run: (not is_to_come(run), moment_of(run), run.run_id), reverse=True)


def of_machine(evidence: RunEvidence, machine: str) -> list[RunLine]:
    """A folder's runs, newest first, of one machine where it is named. Raises `NothingMatched` where none is."""
    runs = newest_first(evidence.runs.values())
    own = [run for run in runs if run.machine == machine] if machine else runs
    if machine and not own:
        names = sorted({run.machine for run in runs if run.machine})
        known = f"Known: {', '.join(names[:_LISTED])}." if names else ""
        fix = f"{did_you_mean(machine, names)} {known}".strip()
        raise NothingMatched(f"no run is of a machine {echo(machine)}", fix=fix)
    return own


def named(word: str, evidence: RunEvidence, machine: str = "") -> Named | None:
    """The runs that a word names, among those of a machine where one is given; None where it names none.

    `latest` is the newest run. Raises `UsageError` where several runs begin so, `NothingMatched` for what is no run
    that can be compared.
    """
    runs = of_machine(evidence, machine)
    if word == LATEST:
        there = [run for run in runs if not is_to_come(run)]
        return Named(word=word, runs=_with_resumed(there[0], evidence.runs), one=True) if there else None
    if word in evidence.runs:
        return Named(word=word, runs=_with_resumed(evidence.runs[word], evidence.runs), one=True)
    beginning = [run for run in runs if _begins(run.run_id, word)]
    own = [run for run in runs if run.machine == word]
    if (own and beginning) or len(beginning) > 1:
        several = [f"the machine {word}"] if own else []
        several += [run.run_id for run in beginning[: _LISTED // 2]]
        raise UsageError(
            f"{echo(word)} means {len(beginning) + bool(own)} things",
            why=f"so {'begin' if not own else 'are called'} {', '.join(several)}",
            fix="Give more of the run's id.",
        )
    if own:
        return Named(word=word, runs=tuple(own), one=False)
    if beginning:
        return Named(word=word, runs=_with_resumed(beginning[0], evidence.runs), one=True)
    _refuse_others(word, evidence)
    return None


def _begins(run_id: str, word: str) -> bool:
    return len(word) >= SHORTEST_BEGINNING and run_id.lower().startswith(word.lower())


def _refuse_others(word: str, evidence: RunEvidence) -> None:
    for ids, why in (
        (evidence.foreign, "it is of transformers' own tests, which make no level"),
        (evidence.lost, "there are lines of its checks, and none of what it planned"),
    ):
        for run_id in sorted(ids):
            if _begins(run_id, word):
                raise NothingMatched(f"run {one_line(run_id, longest=80)} can't be compared", why=why)


def _with_resumed(run: RunLine, runs: Mapping[str, RunLine]) -> tuple[RunLine, ...]:
    """A run and those that it went on with, newest first: what they finished is part of it."""
    wanted, found = {run.run_id}, []
    for one in newest_first(runs.values()):
        if one.run_id in wanted:
            found.append(one)
            wanted |= set(one.resumes)
    return (run, *(one for one in found if one is not run))


def before(now: Named, evidence: RunEvidence) -> Named:
    """The run before another on its machine, that planned any of its cells. Raises `NothingMatched`."""
    own = {run.run_id for run in now.runs}
    cells = {planned.cell_id for run in now.runs for planned in run.plan}
    first = min(moment_of(run) for run in now.runs)
    for run in newest_first(evidence.runs.values()):
        if run.run_id in own or is_to_come(run) or moment_of(run) > first or run.machine != now.runs[0].machine:
            continue
        if cells & {planned.cell_id for planned in run.plan}:
            return Named(word=PREVIOUS, runs=_with_resumed(run, evidence.runs), one=True)
    raise NothingMatched(
        f"no run on {one_line(now.runs[0].machine, longest=80) or 'this machine'} comes before "
        f"{now.runs[0].run_id} with a cell of it",
        fix="Name another run; --compare alone lists them.",
    )


def side_of(named: Named, evidence: RunEvidence) -> Side:
    """The side that some runs make. Each cell is of the newest of them that showed it to its end, or that failed it.

    A run speaks with those that it resumed, each for the cells that it planned last.
    """
    found: dict[str, RunSummary] = {}
    wanted = {planned.cell_id for run in named.runs for planned in run.plan}
    for run in named.runs:
        left = {cell for cell in wanted if cell not in found or not found[cell].is_whole}
        own = left & {planned.cell_id for planned in run.plan}
        if not own:
            continue
        for cell, one in summarize_run(run, evidence.checks(runs=[run.run_id], cells=own), own).items():
            if cell not in found or (one.is_whole and not named.one):
                found[cell] = one
    speaking = {one.run.run_id for one in found.values()}
    runs = tuple(run for run in named.runs if run.run_id in speaking)
    return Side(name=named.word, runs=runs or named.runs[:1], showings=found)


def runs_text(runs: Sequence[RunLine], width: int) -> str:
    """The last ten runs, newest first, with what tells them apart; it ends in a newline."""
    if not runs:
        return "There is no run yet.\n"
    listed = newest_first(runs)[:_LISTED]
    room = max(len(run.machine) for run in listed)
    lines = [f"The last {len(listed)} of {len(runs)} runs:" if len(runs) > len(listed) else "The runs:"]
    for run in listed:
        machine = one_line(run.machine, longest=_LONGEST_NAME) or "unnamed"
        cells = f"{len(run.plan)} cell{'' if len(run.plan) == 1 else 's'}"
        lines.append(
            f"  {one_line(run.run_id, longest=_LONGEST_NAME)}  {when(run)}  {machine:{min(room, 40)}}  {cells}"
        )
        lines.append(f"      {one_line(run.command, longest=width - 6)}")
    return "\n".join(lines) + "\n"


def when(run: RunLine) -> str:
    """When a run started, to the minute, in UTC."""
    moment = moment_of(run)
    if moment.year == 1:
        return "unknown"
    return f"{moment:%Y-%m-%d %H:%M}" + (" (ahead)" if is_to_come(run) else "")
