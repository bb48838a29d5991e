"""Plain text for a terminal: sizes, folded lines and tables, with nothing in them that a terminal would obey."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 80


def size_text(size: int | None, missing: str = "unknown") -> str:
    """Bytes in the largest binary unit that leaves at least 1."""
    if size is None:
        return missing
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 2**power:
            return f"{size / 2**power:.1f} {unit}".replace(".0 ", " ")
    return f"{size} B"


def printable(text: str) -> str:
    """The text with whatever isn't printable escaped."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def one_line(text: str, *, longest: int = 300) -> str:
    """Text of anybody's as one printable line, cut where it is longer than that."""
    flat = printable(" ".join(text.split()))
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"


def folded(start: str, text: str, *, indent: int | None = None, width: int = WIDTH) -> list[str]:
    """`text` behind `start`, folded at `width`; further lines begin at `indent`, or below the text."""
    space = " " * min(len(start) if indent is None else indent, width // 2)
    safe = printable(text)
    return textwrap.wrap(safe, width, initial_indent=start, subsequent_indent=space, break_on_hyphens=False) or [
        start.rstrip()
    ]


def columns(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Lines of a table: the last column is folded, those whose number is in `right` stand to the right."""
    *firsts, last = range(len(headings))
    widths = [max(len(printable(row[place])) for row in (headings, *rows)) for place in firsts]
    lines = []
    for row in (headings, *rows):
        cells = [
            f"{printable(row[place]):{'>' if place in right else '<'}{width}}"
            for place, width in zip(firsts, widths, strict=True)
        ]
        start = "".join(f"{cell}  " for cell in cells)
        lines += folded(start, row[last])
    return lines
