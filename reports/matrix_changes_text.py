"""The changes of a matrix as text: a terminal's table, Markdown or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hardware.errors import UsageError
from hardware.plain_text import json_text, one_line

from .matrix_changes import Change, Kind, MatrixChanges
from .text import markdown, markdown_table

FORMATS = ("table", "text", "markdown", "json")

_FOLDED = (Kind.NEW, Kind.GONE)
_NARROWEST_REASON = 20


def changes_text(found: MatrixChanges, format: str, *, fail_on: Sequence[str] = (), width: int = 100) -> str:
    """The changes as text that ends in a newline. Raises `UsageError` for another format."""
    if format not in FORMATS:
        raise UsageError(f"changes have no form as {format}", fix="Take --format table, markdown or json.")
    if format == "json":
        return json_text(found.to_dict(fail_on)) + "\n"
    parts = _markdown(found, fail_on) if format == "markdown" else _plain(found, fail_on, width)
    return "\n\n".join(parts) + "\n"


def _summary(found: MatrixChanges) -> str:
    counts = [f"{number} {kind}" for kind, number in found.counts.items() if number]
    said = ", ".join(counts) if counts else "nothing changed"
    since = found.since[:19].replace("T", " ")
    return f"Compared with the matrix of {since} UTC: {said}; {found.same} cells are the same."


def _met(found: MatrixChanges, fail_on: Sequence[str]) -> list[str]:
    told = [f"{word}: {number} cell{'' if number == 1 else 's'}" for word, number in found.met(fail_on).items()]
    return [f"Failed on {', '.join(told)}."] if told else []


def _by_kind(found: MatrixChanges) -> Iterator[tuple[Kind, list[Change]]]:
    for kind in Kind:
        own = [change for change in found.changes if change.kind is kind]
        if own:
            yield kind, own


def _rows_of_models(changes: Sequence[Change]) -> dict[str, list[str]]:
    """`bert, fill-mask, float32`, and the targets on which its cells came or went."""
    found: dict[str, list[str]] = {}
    for change in changes:
        model, task, target, precision = (*change.cell.split("/", 3), "", "", "")[:4]
        found.setdefault(f"{model}/{task}/{precision}", []).append(target)
    return found


def _reason(change: Change) -> str:
    return "; ".join(change.reasons)


def _plain(found: MatrixChanges, fail_on: Sequence[str], width: int) -> list[str]:
    parts = [one_line(_summary(found))]
    for kind, changes in _by_kind(found):
        lines = [f"{str(kind).upper()} ({len(changes)}): {kind.meaning}"]
        if kind in _FOLDED:
            lines += [
                one_line(f"  {row}: {', '.join(targets)}", longest=width)
                for row, targets in _rows_of_models(changes).items()
            ]
        else:
            for change in changes:
                head = one_line(f"{change.cell}: {change.before} -> {change.now}", longest=2 * width)
                lines.append(f"  {head}")
                if change.reasons and width > _NARROWEST_REASON:
                    lines.append(f"      {one_line(_reason(change), longest=width - 6)}")
        parts.append("\n".join(lines))
    return parts + _met(found, fail_on)


def _markdown(found: MatrixChanges, fail_on: Sequence[str]) -> list[str]:
    parts = ["# What changed in the compatibility matrix", markdown(_summary(found)), *_met(found, fail_on)]
    for kind, changes in _by_kind(found):
        parts.append(f"## {str(kind).capitalize()} ({len(changes)})")
        parts.append(f"{kind.meaning.capitalize()}.")
        if kind in _FOLDED:
            rows = _rows_of_models(changes).items()
            table = [[markdown(row), markdown(", ".join(targets))] for row, targets in rows]
            parts.append(markdown_table(["model/task/precision", "targets"], table))
        else:
            table = [
                [markdown(one.cell), markdown(str(one.before)), markdown(str(one.now)), markdown(_reason(one))]
                for one in changes
            ]
            parts.append(markdown_table(["cell", "before", "now", "why"], table))
    return parts
