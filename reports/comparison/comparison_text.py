"""A comparison as text: for a terminal, as Markdown, JSON or a page."""

from __future__ import annotations

from collections.abc import Iterator

from hwcompat.generators.compatibility.run_summary import RunState
from hwcompat.hardware.errors import UsageError
from hwcompat.hardware.evidence.versions import expired_by
from hwcompat.hardware.inventory_diff import value_text
from hwcompat.hardware.plain_text import json_text, one_line

from ..document import Block, Heading, Table, document
from ..html.page import document_page
from ..reason_text import folded, reason_text
from ..text import listed
from .comparison_result import CellChange, ChangeKind, RunComparison, Side, when

FORMATS = ("text", "markdown", "json", "html")

_FOLDED = (ChangeKind.NEW, ChangeKind.GONE)
_EXAMPLES = 3
_MOST_RUNS = 3
_LONGEST = 600


def comparison_text(found: RunComparison, format: str, *, width: int = 100) -> str:
    """Return the comparison as text that ends in a newline. Raises `UsageError` for another format."""
    if format == "json":
        return json_text(found.to_dict(), default=str) + "\n"
    if format not in FORMATS:
        raise UsageError(
            f"a comparison can't be written as {format}", fix="Use --format text, markdown, json or html."
        )
    if format == "html":
        shares = {str(kind): number for kind, number in found.counts.items()}
        return document_page(_title(found), _blocks(found), {**shares, "same": sum(found.same.values())})
    return document(_blocks(found), format, width)


def _title(found: RunComparison) -> str:
    return "Changes since the last green run" if found.last_green else "Comparison of two sides"


def _blocks(found: RunComparison) -> Iterator[Block]:
    sides = {"last green" if found.last_green else "before": found.before, "now": found.now}
    yield Heading(level=1, text=_title(found))
    yield Table(headings=("side", "results"), rows=[(head, _side_words(side)) for head, side in sides.items()])
    if found.remarks:
        yield [_cut(text) for text in found.remarks]
    if not found.last_green:
        yield from _differences(found)
    if found.suspects:
        yield Heading(level=2, text="Differences of cells that got worse")
        yield Table(
            headings=("what", "where"),
            rows=[
                (_cut(str(one.differing)), f"{_cells(len(one.cells))}, the only difference in {len(one.alone)}")
                for one in found.suspects
            ],
        )
    yield Heading(level=2, text="Changed cells")
    yield _summary(found)
    for kind in ChangeKind:
        yield from _changes(kind, [change for change in found.changes if change.kind is kind], found)


def _cut(text: str) -> str:
    return one_line(text, longest=_LONGEST)


def _cells(number: int) -> str:
    return f"{number} cell{'' if number == 1 else 's'}"


def _side_words(side: Side) -> str:
    """Return a side on one line: its name, its runs, its machines, and their results."""
    if not side.runs:
        return "no run"
    counts = ", ".join(f"{number} {state}" for state, number in side.counts.items() if number) or "no cell"
    ids = [f"{run.run_id} of {when(run)} UTC" for run in side.runs[:_MOST_RUNS]]
    more = [f"{len(side.runs) - _MOST_RUNS} more"] if len(side.runs) > _MOST_RUNS else []
    machines = sorted({run.machine or "unnamed" for run in side.runs})
    name = f"{side.name}: " if side.name != "last green" else ""
    return _cut(f"{name}{', '.join([*ids, *more])}, on {', '.join(machines)}: {counts}")


def _differences(found: RunComparison) -> Iterator[Block]:
    """Yield the differences of the sides, the targets whose evidence they expire, and cells with other suites."""
    rows = [
        (f"{one.area} {one.name}", value_text(one.name, one.before), value_text(one.name, one.after), "")
        for one in found.inventory
    ]
    rows += [
        (f"version {one.name}", one.before, one.after, ", ".join(expired_by(one.name))) for one in found.versions
    ]
    before, now = (side.runs[0].command for side in (found.before, found.now))
    rows += [("command", before, now, "")] if before != now else []
    suites = [
        f"{name} differs in {_cells(len(cells))}: {listed(cells, _EXAMPLES)}" for name, cells in found.suites.items()
    ]
    yield Heading(level=2, text="Differences")
    if rows:
        cut = [tuple(map(_cut, row)) for row in rows]
        yield Table(headings=("what", "before", "now", "expires evidence of"), rows=cut)
    if suites:
        yield suites
    if not rows and not suites:
        yield "The sides have no recorded difference."


def _summary(found: RunComparison) -> str:
    counts = [f"{number} {kind}" for kind, number in found.counts.items() if number]
    same = sum(found.same.values())
    states = ", ".join(f"{number} {state}" for state, number in found.same.items() if number)
    stayed = f"{same} cell{' is' if same == 1 else 's are'} the same{f' ({states})' if states else ''}"
    if found.last_green:
        stayed = f"{same} cell{' is' if same == 1 else 's are'} green"
    return f"{', '.join(counts) if counts else 'Nothing changed'}; {stayed}."


def _changes(kind: ChangeKind, changes: list[CellChange], found: RunComparison) -> Iterator[Block]:
    """Yield the changes of a kind by cause: one cause of many cells is shown once."""
    groups: dict[str, list[CellChange]] = {}
    for change in changes:
        groups.setdefault(_cause(change), []).append(change)
    if groups:
        yield Heading(level=3, text=f"{str(kind).capitalize()} ({len(changes)})")
        yield f"{kind.meaning[0].upper()}{kind.meaning[1:]}."
    for cause, own in groups.items():
        if cause:
            yield _cut(f"{cause[0].upper()}{cause[1:]}:")
        if kind in _FOLDED:
            yield ", ".join(change.cell for change in own)
            continue
        rows = [(one.cell, _states(one), "; ".join(_change_notes(one, last_green=found.last_green))) for one in own]
        yield Table(headings=("cell", "state", "why"), rows=rows)


def _cause(change: CellChange) -> str:
    if change.kind in _FOLDED or change.cause is None:
        return ""
    if change.kind is ChangeKind.BETTER and not change.cause.candidates:
        return "no recorded difference"
    return str(change.cause)


def _states(change: CellChange) -> str:
    before, now = change.before, change.now
    if before is not None and now is not None:
        return f"{before.state} → {now.state}" if before.state is not now.state else str(now.state)
    one = now or before
    return str(one.state) if one else ""


def _change_notes(change: CellChange, *, last_green: bool) -> Iterator[str]:
    """Return runs, remarks and reasons of a change."""
    if change.alternating:
        runs = ", ".join(f"{one.state} in {one.run.run_id}" for one in change.alternating[-6:])
        yield _cut(f"alternating in {len(change.alternating)} runs without a recorded difference: {runs}")
    if last_green and change.before is not None and not change.alternating:
        yield _cut(f"last green in {change.before.run.run_id} of {when(change.before.run)} UTC")
    yield from map(_cut, change.remarks)
    if change.slower:
        yield str(change.slower)
    if (change.now is None or change.now.state is not RunState.GREEN) and (why := _why(change)):
        yield _cut(why)


def _why(change: CellChange) -> str:
    """Return the checks that fail with the first reason, which causes most others; the JSON has all."""
    failing = change.now.failing if change.now else ()
    if len(failing) < 2:
        return "; ".join(folded(change.reasons)[:2])
    return f"{len(failing)} checks fail: {', '.join(failing)}. The first: {reason_text(change.reasons[0])}"
