"""Make untrusted text safe for a terminal, a line or Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from hwcompat.generators.compatibility.verdict import Level
from hwcompat.hardware import plain_text
from hwcompat.hardware.plain_text import escaped_markdown, one_line
from hwcompat.hardware.plain_text import markdown as markdown

_COMMAND = re.compile(r"`([^`]+)`")


def printable(text: str) -> str:
    """Escape everything that a terminal or a server's log could take for a command, except newlines and tabs."""
    return plain_text.printable(text, keep="\n\t")


def plain_paragraphs(text: str, *, longest: int = 4_000) -> str:
    """Return untrusted text in printable lines, cut to a length, for readers that show it unchanged."""
    lines = [" ".join(printable(line).split()) for line in text.splitlines()]
    shown = "\n".join(line for line in lines if line)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def advice_markdown(text: str) -> str:
    """Return a recommendation for Markdown outside a table: text in backticks can be copied."""
    flat = one_line(text, longest=600)
    parts = _COMMAND.split(flat)  # every second part was in backticks
    return "".join(code(part) if place % 2 else escaped_markdown(part) for place, part in enumerate(parts))


def code(text: str) -> str:
    """Return the text as a code span, whose content Markdown shows unchanged."""
    flat = " ".join(printable(text).split())
    runs = [len(run) for run in re.findall(r"`+", flat)]
    ticks = "`" * (max(runs, default=0) + 1)
    inner = f" {flat} " if runs else flat
    return f"{ticks}{inner}{ticks}"


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = [f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def escaped_table(headings: Sequence[str], rows: Sequence[Sequence[str | None]], *, longest: int = 300) -> str:
    """Return a table of untrusted texts, cut to a length, with a dash for empty ones."""
    cells = [[markdown(text or "", longest=longest) or "-" for text in row] for row in rows]
    return markdown_table([markdown(one) for one in headings], cells)


def text_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    style: str = "simple",
    *,
    widths: Sequence[int | None] | None = None,
) -> str:
    """Return a table in a style of tabulate, for a terminal or as `github` for unrendered text.

    Numbers are shown unchanged. With `widths` longer cells of a column are folded.
    """
    from tabulate import tabulate

    return str(tabulate(rows, headers=headings, tablefmt=style, disable_numparse=True, maxcolwidths=widths))


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are: `a, b and 3 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def moment_in_utc(text: str) -> datetime | None:
    """Return the time of an ISO 8601 text; None for any other text."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return read.astimezone(UTC) if read.tzinfo else read


def working(levels: Sequence[Level]) -> str:
    """Return how many cells of some levels work, and how: `2 cells: 1 works, 1 works under conditions`."""
    counted = ((_WORKS[level], levels.count(level)) for level in _WORKS)
    said = [f"{number} {one if number == 1 else many}" for (one, many), number in counted if number]
    return f"{len(levels)} cell{'' if len(levels) == 1 else 's'}: {', '.join(said) or 'nothing was run'}"


_WORKS = {
    Level.HIGH: ("works", "work"),
    Level.MEDIUM: ("works under conditions", "work under conditions"),
    Level.LOW: ("works in part", "work in part"),
    Level.UNSUPPORTED: ("doesn't work", "don't work"),
    Level.UNKNOWN: ("is unknown", "are unknown"),
}


def fenced(text: str) -> str:
    """Return the text as a Markdown code block whose fence is longer than any in it."""
    runs = [len(run) for run in re.findall(r"`+", text)]
    fence = "`" * max(3, max(runs, default=0) + 1)
    return f"{fence}text\n{printable(text).rstrip()}\n{fence}"
