"""`hwcompat compare`: what changed between two runs, machines or folders, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import click

from hwcompat.generators.compatibility.run_summary import RunSummary, is_to_come, moment_of, summarize_run
from hwcompat.hardware.command_line import note, terminal_width
from hwcompat.hardware.errors import NothingMatched, UsageError, did_you_mean, echo
from hwcompat.hardware.evidence.address import is_address, parse_address
from hwcompat.hardware.evidence.evidence_location import fetch_remote
from hwcompat.hardware.evidence.record import RunLine
from hwcompat.hardware.evidence.runs import RunEvidence
from hwcompat.hardware.evidence.store import check_folder
from hwcompat.hardware.files import DEFAULT_EVIDENCE
from hwcompat.hardware.plain_text import one_line

from .comparison.cell_changes import alike, compare_last_green, compare_sides, since_green
from .comparison.comparison_result import RunComparison, Side, when
from .comparison.comparison_text import comparison_text
from .delivery import SUFFIXES, print_or_write
from .progress_bar import working_on
from .report_request import Request


def compare(request: Request, names: Sequence[str]) -> int:
    """Print or write the comparison; return the exit code: 1 if a cell changed as `--fail-on` says.

    Raises `NothingMatched` if a word names no run or the sides have no cell in common; `UsageError` after listing the
    last runs if no word was given; `UsageError`, `BrokenInput`, `OutputError`.
    """
    words = _words(names)
    with ExitStack() as stack:
        shelf = _OpenEvidence(stack=stack, default=request.evidence or DEFAULT_EVIDENCE, opened={})
        try:
            if not words:
                raise UsageError("name two runs to compare", fix="For example: hwcompat compare previous latest")
            with working_on("comparing runs"):
                found = _compared(words[0], words[1], shelf, request.machine or "")
        except (NothingMatched, UsageError) as error:
            if not words or isinstance(error, NothingMatched):
                shelf.list_runs()
            raise
        for broken in (evidence.broken for evidence in shelf.opened.values() if evidence.broken):
            first = broken[0]
            note(
                f"skipped {len(broken)} broken line(s) of evidence; {first.file}, line {first.number}: {first.reason}"
            )
    text = comparison_text(found, request.format, width=terminal_width())
    print_or_write(text, request.output_dir, f"comparison.{SUFFIXES[request.format]}")
    return int(found.met(request.fail_on) > 0)


@dataclass(frozen=True, kw_only=True)
class _OpenEvidence:
    """The open folders of evidence, and the one in which ids of runs are looked up."""

    stack: ExitStack
    default: Path
    opened: dict[Path, RunEvidence]

    def open(self, folder: Path) -> RunEvidence:
        """Return the evidence of a folder. Raises `BrokenInput`."""
        place = folder.resolve()
        if place not in self.opened:
            check_folder(folder)
            self.opened[place] = self.stack.enter_context(RunEvidence(folder))
        return self.opened[place]

    def list_runs(self) -> None:
        """Print the last runs on standard error, so that the user can choose one."""
        for evidence in self.opened.values() or [self.open(self.default)]:
            if evidence.runs:
                click.echo(runs_text(list(evidence.runs.values()), terminal_width()), err=True, nl=False)


def _words(names: Sequence[str]) -> tuple[str, ...]:
    """Return the two words of the comparison; a single one is compared with the latest run."""
    words = [*names]
    if LAST_GREEN in words[1:]:
        words.reverse()  # the order of the words doesn't matter here
    if len(words) == 1:
        words.append("" if words[0] == LAST_GREEN else LATEST)
    return tuple(words)


def _compared(first: str, second: str, shelf: _OpenEvidence, machine: str) -> RunComparison:
    if first == LAST_GREEN:
        return _since_green(second, shelf, machine)
    if first == second == PREVIOUS:
        raise UsageError("previous can't be compared with itself", fix="Use: hwcompat compare previous latest")
    found: dict[str, tuple[NamedSide, RunEvidence]] = {}
    for word, other in sorted(((first, second), (second, first)), key=lambda pair: pair[0] == PREVIOUS):
        if word == PREVIOUS:
            named, evidence = found[other]
            found[word] = run_before(named, evidence), evidence
        else:
            found[word] = _find(word, shelf, machine)
    (then, origin), (now, evidence) = found[first], found[second]
    if then.runs[0].run_id == now.runs[0].run_id and then.one and now.one:
        raise UsageError(
            f"{echo(first)} and {echo(second)} are the same run",
            why=then.runs[0].run_id,
            fix="Name another run; `hwcompat compare` lists them.",
        )
    sides = side_of(then, origin), side_of(now, evidence)
    if not set(sides[0].showings) & set(sides[1].showings):
        raise NothingMatched(
            f"{echo(first)} and {echo(second)} have no cell in common",
            why="no cell was planned in both",
        )
    return compare_sides(*sides, alike(sides, {id(one): one for one in (origin, evidence)}.values()))


def _since_green(word: str, shelf: _OpenEvidence, machine: str) -> RunComparison:
    """Compare with the last green run: a run, all runs of a machine, or by default the machine of the latest run."""
    if word in (LAST_GREEN, PREVIOUS):
        raise UsageError(f"last-green can't be compared with {word}", fix="Use: hwcompat compare last-green")
    now, evidence = _find(word or LATEST, shelf, machine)
    name = now.runs[0].machine
    if not now.one or not word:
        own = tuple(run for run in newest_first(evidence.runs.values()) if run.machine == name)
        now = replace(now, word=name or "all runs", runs=own, one=False)
    side = side_of(now, evidence)
    if not side.showings:
        raise NothingMatched("nothing was planned in these runs")
    others = sorted({run.machine for run in evidence.runs.values()} - {name})
    if others:
        shown = ", ".join(one_line(one, longest=40) or "unnamed" for one in others[:5])
        note(f"runs of {len(others)} other machine(s) were skipped: {shown}; select a machine with --machine NAME")
    return compare_last_green(side, since_green(side, evidence, name))


def _find(word: str, shelf: _OpenEvidence, machine: str) -> tuple[NamedSide, RunEvidence]:
    """Return the runs that a word names, and their folder."""
    folder = fetch_remote(parse_address(word)) if is_address(word) else Path(word)
    is_path = "/" in word or "\\" in word or word in (".", "..")
    is_path = is_path or (folder.is_dir() and not shelf.default.is_dir())
    if not is_path and (found := named_runs(word, shelf.open(shelf.default), machine)) is not None:
        return found, shelf.open(shelf.default)
    if is_path or (word not in KEYWORDS and folder.is_dir()):
        evidence = shelf.open(folder)
        runs = of_machine(evidence, machine)
        if not runs:
            raise NothingMatched(f"{echo(word)} has no run")
        return NamedSide(word=word, runs=tuple(runs), one=False), evidence
    evidence = shelf.open(shelf.default)
    if not evidence.runs:
        raise NothingMatched(f"{shelf.default} has no run", fix="Run suites first: hwcompat run --model bert")
    known = {*KEYWORDS, *evidence.runs, *(run.machine for run in evidence.runs.values())}
    raise NothingMatched(
        f"{echo(word)} is not a run, a machine or a folder of evidence", fix=did_you_mean(word, known)
    )


LATEST, PREVIOUS, LAST_GREEN = "latest", "previous", "last-green"
KEYWORDS = (LATEST, PREVIOUS, LAST_GREEN)
SHORTEST_BEGINNING = 3
"""Minimum length of the beginning of a run's id: most ids begin with 20."""

_LISTED = 10
_LONGEST_NAME = 40


@dataclass(frozen=True, kw_only=True)
class NamedSide:
    """The runs that a word names, newest first: one run (`one`), or all runs of a machine or a folder."""

    word: str
    runs: tuple[RunLine, ...]
    one: bool


def newest_first(runs: Iterable[RunLine]) -> list[RunLine]:
    """Return runs sorted by start; those dated ahead come last, because their time isn't known."""
    return sorted(runs, key=lambda run: (not is_to_come(run), moment_of(run), run.run_id), reverse=True)


def of_machine(evidence: RunEvidence, machine: str) -> list[RunLine]:
    """Return a folder's runs, newest first, of one machine if named. Raises `NothingMatched` if it has none."""
    runs = newest_first(evidence.runs.values())
    own = [run for run in runs if run.machine == machine] if machine else runs
    if machine and not own:
        names = sorted({run.machine for run in runs if run.machine})
        known = f"Known: {', '.join(names[:_LISTED])}." if names else ""
        fix = f"{did_you_mean(machine, names)} {known}".strip()
        raise NothingMatched(f"no run is from the machine {echo(machine)}", fix=fix)
    return own


def named_runs(word: str, evidence: RunEvidence, machine: str = "") -> NamedSide | None:
    """Return the runs that a word names, among those of a machine if one is given; None if it names none.

    `latest` is the newest run. Raises `UsageError` if several runs begin like this, `NothingMatched` for a run that
    can't be compared.
    """
    runs = of_machine(evidence, machine)
    if word == LATEST:
        there = [run for run in runs if not is_to_come(run)]
        return NamedSide(word=word, runs=_with_resumed(there[0], evidence.runs), one=True) if there else None
    if word in evidence.runs:
        return NamedSide(word=word, runs=_with_resumed(evidence.runs[word], evidence.runs), one=True)
    beginning = [run for run in runs if _begins(run.run_id, word)]
    own = [run for run in runs if run.machine == word]
    if (own and beginning) or len(beginning) > 1:
        several = [f"the machine {word}"] if own else []
        several += [run.run_id for run in beginning[: _LISTED // 2]]
        raise UsageError(
            f"{echo(word)} is ambiguous: it matches {len(beginning) + bool(own)} runs or machines",
            why=f"so {'begin' if not own else 'are called'} {', '.join(several)}",
            fix="Write more characters of the run's id.",
        )
    if own:
        return NamedSide(word=word, runs=tuple(own), one=False)
    if beginning:
        return NamedSide(word=word, runs=_with_resumed(beginning[0], evidence.runs), one=True)
    _refuse_others(word, evidence)
    return None


def _begins(run_id: str, word: str) -> bool:
    return len(word) >= SHORTEST_BEGINNING and run_id.lower().startswith(word.lower())


def _refuse_others(word: str, evidence: RunEvidence) -> None:
    for ids, why in (
        (evidence.foreign, "it ran transformers' own tests, which don't give a level"),
        (evidence.lost, "its evidence has results of checks, but no plan"),
    ):
        for run_id in sorted(ids):
            if _begins(run_id, word):
                raise NothingMatched(f"run {one_line(run_id, longest=80)} can't be compared", why=why)


def _with_resumed(run: RunLine, runs: Mapping[str, RunLine]) -> tuple[RunLine, ...]:
    """Return a run and those that it resumed, newest first: their results are part of it."""
    wanted, found = {run.run_id}, []
    for one in newest_first(runs.values()):
        if one.run_id in wanted:
            found.append(one)
            wanted |= set(one.resumes)
    return (run, *(one for one in found if one is not run))


def run_before(now: NamedSide, evidence: RunEvidence) -> NamedSide:
    """Return the previous run of the same machine that planned any of its cells. Raises `NothingMatched`."""
    own = {run.run_id for run in now.runs}
    cells = {planned.cell_id for run in now.runs for planned in run.plan}
    first = min(moment_of(run) for run in now.runs)
    for run in newest_first(evidence.runs.values()):
        if run.run_id in own or is_to_come(run) or moment_of(run) > first or run.machine != now.runs[0].machine:
            continue
        if cells & {planned.cell_id for planned in run.plan}:
            return NamedSide(word=PREVIOUS, runs=_with_resumed(run, evidence.runs), one=True)
    raise NothingMatched(
        f"no run on {one_line(now.runs[0].machine, longest=80) or 'this machine'} comes before "
        f"{now.runs[0].run_id} with a cell of it",
        fix="Name another run; hwcompat compare lists them.",
    )


def side_of(named: NamedSide, evidence: RunEvidence) -> Side:
    """Return the side of some runs. Each cell is that of the newest run that completed it or failed it.

    A run includes those that it resumed, each for the cells that it planned last.
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
    """Return the last ten runs as text, newest first; it ends in a newline."""
    if not runs:
        return "There are no runs yet.\n"
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
