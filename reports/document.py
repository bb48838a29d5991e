"""Headings, paragraphs, lists and tables, shown as Markdown or in a terminal.

Pages use the same blocks (`blocks` in `html/parts.html.j2`). Texts are untrusted: each format escapes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hwcompat.hardware.command_line import terminal_width
from hwcompat.hardware.plain_text import WIDTH, labelled, one_line, printable, wrapped

from .text import advice_markdown, code, escaped_table, markdown

_LONGEST = 100_000
_NARROWEST_NAME = 14
_SIGNS = {1: "=", 2: "-"}


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading; `level` is 1 for the document's title."""

    level: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of texts. With `short`, headings for narrow columns, all columns but the first are numbers."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    short: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer for a cell, and the facts behind it as labels and texts. A text of the label `COMMAND` is code."""

    cell: str
    text: str
    facts: Sequence[tuple[str, str]]


COMMAND = "Apply"
Block = Heading | Table | Answer | str | list[str] | tuple[str, ...]
"""A text is a paragraph, a list of texts is a list, a tuple of texts are steps with commands in backticks."""


def document(blocks: Iterable[Block], form: str, width: int | None = None) -> str:
    """Return the blocks as `markdown`, or as text as wide as the terminal, ending in a newline."""
    return markdown_document(blocks) if form == "markdown" else text_document(blocks, width or terminal_width())


def markdown_document(blocks: Iterable[Block]) -> str:
    """Return the blocks as Markdown that ends in a newline, with texts escaped."""
    return "\n\n".join(map(_markdown, blocks)) + "\n"


def _markdown(block: Block) -> str:
    if isinstance(block, str):
        return markdown(block, longest=_LONGEST, opens_block=True)
    if isinstance(block, Heading):
        return f"{'#' * block.level} {markdown(block.text)}"
    if isinstance(block, list):
        return "\n".join(f"- {markdown(item, longest=_LONGEST, opens_block=True)}" for item in block)
    if isinstance(block, tuple):
        return "\n".join(f"{number}. {advice_markdown(text)}" for number, text in enumerate(block, 1))
    if isinstance(block, Answer):
        facts = (
            f"- {name}: {code(said) if name == COMMAND else markdown(said, longest=_LONGEST)}"
            for name, said in block.facts
        )
        return "\n".join([f"## {code(block.cell)}", "", markdown(block.text, longest=_LONGEST), "", *facts])
    table = escaped_table(block.headings, block.rows, longest=_LONGEST)
    numbers = f"|---|{'---:|' * (len(block.headings) - 1)}"
    return table.replace(f"|{'---|' * len(block.headings)}", numbers, 1) if block.short else table


def text_document(blocks: Iterable[Block], width: int = WIDTH) -> str:
    """Return the blocks as lines of `width` columns, ending in a newline; tables of numbers take at least 80."""
    shown = ""
    for block in blocks:
        shown += "\n".join(_lines(block, width)) + ("\n" if isinstance(block, Heading) else "\n\n")
    return printable(shown.rstrip(), keep="\n") + "\n"


def _lines(block: Block, width: int) -> Iterator[str]:
    if isinstance(block, Heading):
        text = one_line(block.text)
        yield text
        if block.level in _SIGNS:
            yield _SIGNS[block.level] * len(text)
    elif isinstance(block, Answer):
        yield f"{block.cell}: {block.text}"
        yield from labelled(block.facts, width=width)
    elif isinstance(block, str):
        yield from wrapped(_flat(block), width=width)
    elif isinstance(block, Table) and block.short:
        yield from _numbers([block.short, *block.rows], max(width, WIDTH))
    else:
        if isinstance(block, tuple):
            block = [f"{number}. {text}" for number, text in enumerate(block, 1)]
        items = block if isinstance(block, list) else (_row_text(block.headings, row) for row in block.rows)
        for item in items:
            yield from wrapped(_flat(item), width=width, start="  ", indent="    ")


def _row_text(headings: Sequence[str], row: Sequence[str]) -> str:
    """Return a row as a sentence; with several texts besides the first, each follows its heading."""
    names = [""] if len(headings) == 2 else [f"{heading}: " for heading in headings[1:]]
    said = "; ".join(f"{name}{cell}" for name, cell in zip(names, row[1:], strict=True) if cell)
    return f"{row[0]}: {said}" if said else row[0]


def _numbers(lines: Sequence[Sequence[str]], room: int) -> Iterator[str]:
    """Return a table with names on the left, cut to fit `room` columns, and numbers on the right."""
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    fits = _NARROWEST_NAME + sum(widths[1:]) + 2 * (len(widths) - 1) <= room
    gap = "  " if fits else " "
    taken = sum(widths[1:]) + len(gap) * (len(widths) - 1)
    widths[0] = min(widths[0], max(room - taken, _NARROWEST_NAME))
    for place, line in enumerate(lines):
        cells = [one_line(line[0], longest=widths[0]).ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        yield gap.join(cells).rstrip()
        if place == 0:
            yield gap.join("-" * width for width in widths)


def _flat(text: str) -> str:
    return " ".join(text.split())
