"""`--compare A B`, `--compare last-green`: what changed between two runs, machines or folders, and by what."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import click

from hardware.errors import NothingMatched, UsageError, did_you_mean, echo
from hardware.evidence.address import is_address, parse_address
from hardware.evidence.runs import RunEvidence
from hardware.evidence.store import check_folder
from hardware.evidence_place import copied_home
from hardware.front_door import note, terminal_width
from hardware.paths import DEFAULT_EVIDENCE
from hardware.plain_text import one_line

from .comparison.changes import compare_last_green, compare_sides
from .comparison.history import alike, since_green
from .comparison.result import Comparison
from .comparison.sides import (
    KEYWORDS,
    LAST_GREEN,
    LATEST,
    PREVIOUS,
    Named,
    before,
    named,
    newest_first,
    of_machine,
    runs_text,
    side_of,
)
from .comparison.text import comparison_text
from .delivery import print_or_write
from .request import Request

_SUFFIXES = {"text": "txt", "markdown": "md", "json": "json"}


def compare(request: Request) -> int:
    """Print or write the comparison, and return the exit code: 1 where a cell changed as `--fail-on` says.

    Raises `NothingMatched` where a word names no run or the sides have no cell in common, and where none was given
    `UsageError`, after the last runs were listed; `UsageError`, `BrokenInput`, `OutputError`.
    """
    words = _words(request)
    with ExitStack() as stack:
        shelf = _Shelf(stack=stack, default=request.evidence or DEFAULT_EVIDENCE, opened={})
        try:
            found = _compared(words, shelf, request.machine or "")
        except (NothingMatched, _NothingNamed):
            _list_runs(shelf)
            raise
        for evidence in shelf.opened.values():
            _tell_broken(evidence)
    text = comparison_text(found, request.format, width=terminal_width())
    print_or_write(text, request.output_dir, f"comparison.{_SUFFIXES[request.format]}")
    return int(found.met(request.fail_on) > 0)


class _NothingNamed(UsageError):
    """Nobody said what to compare."""


@dataclass(frozen=True, kw_only=True)
class _Shelf:
    """The folders of evidence that were opened, each once, and the one that ids of runs are looked up in."""

    stack: ExitStack
    default: Path
    opened: dict[Path, RunEvidence]

    def open(self, folder: Path) -> RunEvidence:
        """The evidence of a folder. Raises `BrokenInput`."""
        place = folder.resolve()
        if place not in self.opened:
            check_folder(folder)
            self.opened[place] = self.stack.enter_context(RunEvidence(folder))
        return self.opened[place]


def _words(request: Request) -> tuple[str, str]:
    """The two words of the comparison; a single one is compared with the latest run."""
    words = [*([request.compare] if request.compare else []), *request.operands]
    if len(words) > 2:
        raise UsageError(
            f"--compare takes two, not {len(words)}", fix="Give two: --compare A B, or last-green alone."
        )
    if not words:
        return "", ""
    if LAST_GREEN in words[1:]:
        words.reverse()  # its place says nothing
    return words[0], words[1] if len(words) > 1 else "" if words[0] == LAST_GREEN else LATEST


def _compared(words: tuple[str, str], shelf: _Shelf, machine: str) -> Comparison:
    first, second = words
    if not first:
        raise _NothingNamed("--compare needs to know what", fix="For example: --compare previous latest.")
    if first == LAST_GREEN:
        return _since_green(second, shelf, machine)
    if first == second == PREVIOUS:
        raise UsageError("previous can't be compared with itself", fix="Say: --compare previous latest.")
    if second == PREVIOUS:
        then, origin = _find(first, shelf, machine)
        now, evidence = before(then, origin), origin
    elif first == PREVIOUS:
        now, evidence = _find(second, shelf, machine)
        then, origin = before(now, evidence), evidence
    else:
        then, origin = _find(first, shelf, machine)
        now, evidence = _find(second, shelf, machine)
    if then.runs[0].run_id == now.runs[0].run_id and then.one and now.one:
        raise UsageError(
            f"{echo(first)} and {echo(second)} are the same run",
            why=then.runs[0].run_id,
            fix="Name another one; --compare alone lists them.",
        )
    sides = side_of(then, origin), side_of(now, evidence)
    if not set(sides[0].showings) & set(sides[1].showings):
        raise NothingMatched(
            f"{echo(first)} and {echo(second)} have no cell in common",
            why="nothing was planned in both",
        )
    return compare_sides(*sides, alike(sides, {id(one): one for one in (origin, evidence)}.values()))


def _since_green(word: str, shelf: _Shelf, machine: str) -> Comparison:
    """Since the last green run, as of a run, or of all runs of a machine: the latest run's, if none is named."""
    if word in (LAST_GREEN, PREVIOUS):
        raise UsageError(f"last-green can't be compared with {word}", fix="Say: --compare last-green.")
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
        told = ", ".join(one_line(one, longest=40) or "unnamed" for one in others[:5])
        note(f"runs of {len(others)} other machine(s) aren't looked at: {told}; --machine NAME names another")
    return compare_last_green(side, since_green(side, evidence, name))


def _find(word: str, shelf: _Shelf, machine: str) -> tuple[Named, RunEvidence]:
    """The runs that a word names, and the folder that they are of."""
    folder = copied_home(parse_address(word)) if is_address(word) else Path(word)
    is_path = "/" in word or "\\" in word or word in (".", "..")
    is_path = is_path or (folder.is_dir() and not shelf.default.is_dir())
    if not is_path and (found := named(word, shelf.open(shelf.default), machine)) is not None:
        return found, shelf.open(shelf.default)
    if is_path or (word not in KEYWORDS and folder.is_dir()):
        evidence = shelf.open(folder)
        runs = of_machine(evidence, machine)
        if not runs:
            raise NothingMatched(f"there is no run in {echo(word)}")
        return Named(word=word, runs=tuple(runs), one=False), evidence
    evidence = shelf.open(shelf.default)
    if not evidence.runs:
        raise NothingMatched(f"there is no run in {shelf.default}", fix="Run something with --run first.")
    known = {*KEYWORDS, *evidence.runs, *(run.machine for run in evidence.runs.values())}
    raise NothingMatched(f"{echo(word)} is no run, machine or folder of evidence", fix=did_you_mean(word, known))


def _list_runs(shelf: _Shelf) -> None:
    """The last runs on standard error, for who has to name one."""
    for evidence in shelf.opened.values() or [shelf.open(shelf.default)]:
        if evidence.runs:
            click.echo(runs_text(list(evidence.runs.values()), terminal_width()), err=True, nl=False)


def _tell_broken(evidence: RunEvidence) -> None:
    if broken := evidence.broken:
        first = broken[0]
        note(f"{len(broken)} broken line(s) left out; {first.file}, line {first.number}: {first.reason}")
