"""A backlog for a terminal and in Markdown, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from hardware.plain_text import folded, json_text, one_line
from reports.text import markdown, markdown_table

from .backlog import Backlog, Item

SCHEMA_VERSION = 1

_SHOWN_TYPES = 6
_SHOWN_OTHERS = 12
_SHOWN_GROUPS = 8


def backlog_json(found: Backlog) -> str:
    """The list as the schema `schemas/backlog.json` describes it."""
    return json_text({"schema_version": SCHEMA_VERSION, **asdict(found)}) + "\n"


def backlog_text(found: Backlog, *, width: int = 80, most: int | None = None) -> str:
    """The list for a terminal: one operator a paragraph, `most` of them at most."""
    return "\n".join(_text_lines(found, width, most)) + "\n"


def _text_lines(found: Backlog, width: int, most: int | None) -> Iterator[str]:
    yield f"Operators to do for {found.target} ({found.precision})"
    yield ""
    for line in _standing(found):
        yield from folded("", one_line(line, longest=2000), width=width)
    for number, item in enumerate(found.items[:most], start=1):
        yield ""
        yield f"{number}. {one_line(item.operator)}: unlocks {len(item.unlocks)}, part in {len(item.part_in)}"
        for label, text in _facts(item):
            yield from folded(f"   {label}: ", one_line(text, longest=2000), indent=5, width=width)
    if most is not None and len(found.items) > most:
        yield ""
        yield f"and {len(found.items) - most} more (--format markdown or json shows all)"
    for group in found.groups[:_SHOWN_GROUPS]:
        yield ""
        together = f"together {', '.join(group.operators)}: unlock {_types(group.unlocks)}"
        yield from folded("", one_line(together, longest=2000), indent=3, width=width)
    if found.other:
        yield ""
        text = one_line("Failures that name no operator: " + _others(found), longest=2000)
        yield from folded("", text, indent=3, width=width)


def _standing(found: Backlog) -> Iterator[str]:
    never = (
        f", {found.predicted} never ran ({found.clear} of them lack nothing that is known)" if found.predicted else ""
    )
    yield f"{found.types} model types: {found.passing} pass, {found.failing} ran and don't{never}."
    yield f"Tables: {found.source or 'there are none for this target'}."
    yield f"Evidence: {found.evidence or 'none'}."
    if found.unknown:
        first = [f"{name} (types: {count})" for name, count in list(found.unknown.items())[:_SHOWN_OTHERS]]
        yield f"No table knows {', '.join(first)}{_more(len(found.unknown), _SHOWN_OTHERS)}."


def _facts(item: Item) -> Iterator[tuple[str, str]]:
    yield "state", _states(item)
    if item.unlocks:
        yield "unlocks", _types(item.unlocks)
    if item.part_in:
        yield "part in", _types(item.part_in)
    if item.reason:
        yield "because", item.reason
    if item.shapes:
        yield "seen", "; ".join(item.shapes)
    if item.real:
        yield "real size", "; ".join(item.real)


def _states(item: Item) -> str:
    return ", ".join(f"{state} ({count})" for state, count in item.states.items())


def _types(names: tuple[str, ...]) -> str:
    return ", ".join(names[:_SHOWN_TYPES]) + _more(len(names), _SHOWN_TYPES)


def _more(number: int, shown: int) -> str:
    return f" and {number - shown} more" if number > shown else ""


def _others(found: Backlog) -> str:
    return "; ".join(f"{kind}: {_types(names)}" for kind, names in found.other.items())


def backlog_markdown(found: Backlog, *, level: int = 1) -> str:
    """The list as one table."""
    rows = [
        [
            str(number),
            markdown(item.operator),
            _states(item),
            _listed(item.unlocks),
            _listed(item.part_in),
            markdown(item.reason, longest=160) or "-",
            markdown("; ".join(item.shapes), longest=300) or "-",
            *([markdown("; ".join(item.real), longest=300) or "-"] if _has_real(found) else []),
        ]
        for number, item in enumerate(found.items, start=1)
    ]
    headings = ["", "operator", "state (types)", "unlocks", "part in", "because", "dtypes and shapes seen"]
    headings += ["at real size"] if _has_real(found) else []
    parts = [f"{'#' * level} Operators to do for {markdown(found.target)} ({found.precision})"]
    parts += [markdown(line, longest=3000) for line in _standing(found)]
    parts.append(markdown_table(headings, rows) if rows else "Nothing is known to stand in the way.")
    if found.groups:
        parts.append(f"{'#' * (level + 1)} Several operators that unlock types together")
        together = [
            [markdown(", ".join(one.operators), longest=400), _listed(one.unlocks)]
            for one in found.groups[:_SHOWN_OTHERS]
        ]
        parts.append(markdown_table(["operators", "unlock"], together))
    if found.other:
        parts.append("Failures that name no operator: " + markdown(_others(found), longest=3000) + ".")
    return "\n\n".join(parts) + "\n"


def _has_real(found: Backlog) -> bool:
    return any(item.real for item in found.items)


def _listed(names: tuple[str, ...]) -> str:
    return f"{len(names)}: {markdown(_types(names))}" if names else "0"
