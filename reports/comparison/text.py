"""A comparison as text: for a terminal, as Markdown or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from generators.compatibility.run_summary import State
from hardware.comparison import value_text
from hardware.errors import UsageError
from hardware.evidence.versions import expired_by
from hardware.plain_text import folded as wrapped
from hardware.plain_text import json_text, one_line

from ..text import listed, markdown, markdown_table
from ..wording import folded, reason_text
from .result import Change, Comparison, Kind, Side, when

FORMATS = ("text", "markdown", "json")

_FOLDED = (Kind.NEW, Kind.GONE)
_EXAMPLES = 3
_MOST_RUNS = 3
_LONGEST = 600


def comparison_text(found: Comparison, format: str, *, width: int = 100) -> str:
    """The comparison as text that ends in a newline. Raises `UsageError` for another format."""
    if format == "json":
        return json_text(found.to_dict(), default=str) + "\n"
    if format not in FORMATS:
        raise UsageError(f"a comparison has no form as {format}", fix="Take --format text, markdown or json.")
    parts = _markdown(found) if format == "markdown" else _plain(found, width)
    return "\n\n".join(parts) + "\n"


def _summary(found: Comparison) -> str:
    counts = [f"{number} {kind}" for kind, number in found.counts.items() if number]
    same = sum(found.same.values())
    told = ", ".join(f"{number} {state}" for state, number in found.same.items() if number)
    stayed = f"{same} cell{' is' if same == 1 else 's are'} the same{f' ({told})' if told else ''}"
    if found.last_green:
        stayed = f"{same} cell{' is' if same == 1 else 's are'} green"
    return f"{', '.join(counts) if counts else 'Nothing changed'}; {stayed}."


def _sides(found: Comparison) -> Iterator[tuple[str, Side]]:
    yield ("last green" if found.last_green else "before"), found.before
    yield "now", found.now


def _adds(head: str, side: Side) -> bool:
    """Whether a side's name says more than the ids of its runs, which stand behind it."""
    return side.name != head and not any(run.run_id.lower().startswith(side.name.lower()) for run in side.runs)


def _side_words(side: Side) -> str:
    """The side in one line: its runs, its machines, and what they showed."""
    counts = ", ".join(f"{number} {state}" for state, number in side.counts.items() if number) or "no cell"
    ids = [f"{run.run_id} of {when(run)} UTC" for run in side.runs[:_MOST_RUNS]]
    more = [f"{len(side.runs) - _MOST_RUNS} more"] if len(side.runs) > _MOST_RUNS else []
    machines = sorted({run.machine or "unnamed" for run in side.runs})
    return f"{', '.join([*ids, *more]) or 'no run'}, on {', '.join(machines) or 'no machine'}: {counts}"


def _differences(found: Comparison) -> Iterator[tuple[str, str, str, str]]:
    """Rows of what differs between the sides: what, its two values, and whose evidence a version expires."""
    for one in found.inventory:
        yield f"{one.area} {one.name}", value_text(one.name, one.before), value_text(one.name, one.after), ""
    for version in found.versions:
        yield f"version {version.name}", version.before, version.after, ", ".join(expired_by(version.name))
    commands = [side.runs[0].command for side in (found.before, found.now)]
    if commands[0] != commands[1]:
        yield "command", commands[0], commands[1], ""


def _suites(found: Comparison) -> list[str]:
    """Which cells had another suite, other weights or another tolerance."""
    return [
        f"{name}: not the same in {_cells(len(cells))}: {listed(cells, _EXAMPLES)}"
        for name, cells in found.suites.items()
    ]


def _suspects(found: Comparison) -> list[tuple[str, str]]:
    """What may be behind what got worse, with the number of cells, and of those in which nothing else differs."""
    return [
        (str(one.differing), f"{_cells(len(one.cells))}, the only difference in {len(one.alone)}")
        for one in found.suspects
    ]


def _cells(number: int) -> str:
    return f"{number} cell{'' if number == 1 else 's'}"


def _groups(found: Comparison) -> Iterator[tuple[Kind, list[tuple[str, list[Change]]]]]:
    """The changes by kind, and within it by what is said of their cause: one cause of many cells is told once."""
    for kind in Kind:
        groups: dict[str, list[Change]] = {}
        for change in found.changes:
            if change.kind is kind:
                groups.setdefault(_cause(change), []).append(change)
        if groups:
            yield kind, list(groups.items())


def _cause(change: Change) -> str:
    if change.kind in _FOLDED or change.cause is None:
        return ""
    if change.kind is Kind.BETTER and not change.cause.candidates:
        return "nothing that is recorded differs"
    return str(change.cause)


def _states(change: Change) -> str:
    before, now = change.before, change.now
    if before is not None and now is not None:
        return f"{before.state} -> {now.state}" if before.state is not now.state else str(now.state)
    one = now or before
    return str(one.state) if one else ""


def _told(change: Change, *, last_green: bool) -> list[str]:
    """What is said of a change beside its states: runs, remarks and reasons."""
    told = []
    if change.alternating:
        runs = ", ".join(f"{one.state} in {one.run.run_id}" for one in change.alternating[-6:])
        told.append(f"by turns in {len(change.alternating)} runs that differ in nothing recorded: {runs}")
    if last_green and change.before is not None and not change.alternating:
        told.append(f"last green in {change.before.run.run_id} of {when(change.before.run)} UTC")
    told += change.remarks
    if change.slower:
        told.append(str(change.slower))
    if change.now is None or change.now.state is not State.GREEN:
        told.append(_why(change))
    return [text for text in told if text]


def _why(change: Change) -> str:
    """The checks that fail with the first reason, which is the cause of most others; all stand in the JSON."""
    failing = change.now.failing if change.now else ()
    if len(failing) < 2:
        return "; ".join(folded(change.reasons)[:2])
    return f"{len(failing)} checks fail: {', '.join(failing)}. The first: {reason_text(change.reasons[0])}"


def _plain(found: Comparison, width: int) -> list[str]:
    names = [f"{head} ({side.name})" if _adds(head, side) else head for head, side in _sides(found)]
    room = max(map(len, names))
    heads = [
        f"{one_line(name):{room}}  {one_line(_side_words(side), longest=4 * width)}"
        for name, (_, side) in zip(names, _sides(found), strict=True)
    ]
    parts = ["\n".join(heads)]
    if found.remarks:
        parts.append("\n".join(f"note: {one_line(text, longest=3 * width)}" for text in found.remarks))
    if not found.last_green:
        lines = [
            one_line(f"{what}: {before} -> {now}{_expires(targets)}", longest=2 * width)
            for what, before, now, targets in _differences(found)
        ]
        lines += [one_line(text, longest=2 * width) for text in _suites(found)]
        head = "What differs between the sides:" if lines else "Nothing that is recorded of the sides differs."
        parts.append("\n".join([head, *(f"  {line}" for line in lines)]))
    if suspects := _suspects(found):
        lines = [one_line(f"{what}: {cells}", longest=2 * width) for what, cells in suspects]
        parts.append("\n".join(["What differs where it got worse:", *(f"  {line}" for line in lines)]))
    parts.append(_summary(found))
    for kind, groups in _groups(found):
        parts.append("\n".join(_plain_kind(kind, groups, width, last_green=found.last_green)))
    return parts


def _expires(targets: str) -> str:
    return f" (evidence expires: {targets})" if targets else ""


def _plain_kind(
    kind: Kind, groups: Sequence[tuple[str, list[Change]]], width: int, *, last_green: bool
) -> Iterator[str]:
    yield f"{str(kind).upper()} ({sum(len(changes) for _, changes in groups)}): {kind.meaning}"
    for cause, changes in groups:
        if cause:
            yield from wrapped("  ", one_line(cause, longest=_LONGEST), indent=4, width=width)
        for change in changes:
            yield f"    {one_line(f'{change.cell}: {_states(change)}', longest=2 * width)}"
            if kind not in _FOLDED:
                for text in _told(change, last_green=last_green):
                    yield from wrapped("        ", one_line(text, longest=_LONGEST), width=width)


def _markdown(found: Comparison) -> list[str]:
    title = "What broke since it was green" if found.last_green else "What changed between two sides"
    sides = [[head, markdown(side.name), markdown(_side_words(side))] for head, side in _sides(found)]
    parts = [f"# {title}", markdown_table(["", "named", "runs and what they showed"], sides)]
    if found.remarks:
        parts.append("\n".join(f"- {markdown(text)}" for text in found.remarks))
    if not found.last_green:
        parts.append("## What differs")
        rows = [[markdown(text) for text in row] for row in _differences(found)]
        suites = [f"- {markdown(text)}" for text in _suites(found)]
        parts += [markdown_table(["what", "before", "now", "expires evidence of"], rows)] if rows else []
        parts += ["\n".join(suites)] if suites else []
        parts += [] if rows or suites else ["Nothing that is recorded of the sides differs."]
    if suspects := _suspects(found):
        parts.append("## What differs where it got worse")
        parts.append(markdown_table(["what", "cells"], [[markdown(text) for text in row] for row in suspects]))
    parts += ["## What changed", markdown(_summary(found), opens_block=True)]
    for kind, groups in _groups(found):
        parts += _markdown_kind(kind, groups, last_green=found.last_green)
    return parts


def _markdown_kind(kind: Kind, groups: Sequence[tuple[str, list[Change]]], *, last_green: bool) -> Iterator[str]:
    yield f"### {str(kind).capitalize()} ({sum(len(changes) for _, changes in groups)})"
    yield f"{kind.meaning[0].upper()}{kind.meaning[1:]}."
    for cause, changes in groups:
        if cause:
            yield f"{markdown(cause[0].upper() + cause[1:], longest=_LONGEST, opens_block=True)}:"
        if kind in _FOLDED:
            yield ", ".join(markdown(change.cell) for change in changes)
            continue
        rows = [
            [
                markdown(change.cell),
                _states(change),
                "<br>".join(markdown(text, longest=_LONGEST) for text in _told(change, last_green=last_green)),
            ]
            for change in changes
        ]
        yield markdown_table(["cell", "before -> now", "why"], rows)
