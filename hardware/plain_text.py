"""Plain text for a terminal and a CI server's log: sizes, folded lines, tables and JSON, with nothing in them that
one of those would obey."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

WIDTH = 80

_LOG_COMMAND = re.compile(r"(?<!\S)::|##(?=\w*\[)")
"""What servers take for a command in the log of a job: a line that begins with `::name::` (GitHub trims it first),
and `##[name]`, `##vso[name]` or `##teamcity[name` anywhere in it. Source: src/Runner.Common/ActionCommand.cs of
https://github.com/actions/runner."""

_LINE_START = re.compile(r"^([^\S\n]*)::", re.MULTILINE)


def size_text(size: int | None, missing: str = "unknown") -> str:
    """Bytes in the largest binary unit that leaves at least 1."""
    if size is None:
        return missing
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 2**power:
            return f"{size / 2**power:.1f} {unit}".replace(".0 ", " ")
    return f"{size} B"


def printable(text: str, *, keep: str = "") -> str:
    """The text with whatever isn't printable escaped, and what a server's log would obey; signs of `keep` stay."""
    if not text.isprintable():
        text = "".join(one if one.isprintable() or one in keep else ascii(one)[1:-1] for one in text)
    if "::" in text or "##" in text:
        text = _LOG_COMMAND.sub(lambda found: r"\x3a:" if found[0] == "::" else r"#\x23", text)
    return text


def one_line(text: str, *, longest: int = 300) -> str:
    """Text of anybody's as one printable line, cut where it is longer than that."""
    flat = printable(" ".join(text.split()))
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"


def wrapped(
    text: str,
    *,
    width: int = WIDTH,
    start: str = "",
    indent: str = "",
    break_long_words: bool = True,
    break_on_hyphens: bool = False,
) -> list[str]:
    """Text of anybody's behind `start`, folded at `width`; further lines begin with `indent`. Where a word is broken,
    no line begins with what a server's log would obey."""
    lines = textwrap.wrap(
        printable(text),
        width,
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=break_long_words,
        break_on_hyphens=break_on_hyphens,
    )
    return [obeyed_by_none(line) for line in lines] or [start.rstrip()]


def obeyed_by_none(text: str) -> str:
    """Lines that were printable and then broken anew: none of them begins with what a server's log would obey."""
    return _LINE_START.sub(r"\1\\x3a:", text) if "::" in text else text


def folded(start: str, text: str, *, indent: int | None = None, width: int = WIDTH) -> list[str]:
    """`text` behind `start`, folded at `width`; further lines begin at `indent`, or below the text."""
    space = " " * min(len(start) if indent is None else indent, width // 2)
    return wrapped(text, width=width, start=start, indent=space)


def labelled(said: Sequence[tuple[str, str]], *, width: int = WIDTH) -> list[str]:
    """A label and a text a line, the texts below each other and folded at `width`; an address is never broken, so
    that it can be copied."""
    column = max((len(label) for label, _ in said), default=0) + 2
    lines: list[str] = []
    for label, text in said:
        start = f"  {printable(label):<{column}}"
        lines += wrapped(text, width=width, start=start, indent=" " * len(start), break_long_words=False)
    return lines


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


def json_text(
    data: Any, *, indent: int | None = 2, ascii_alone: bool = False, default: Callable[[Any], Any] | None = None
) -> str:
    """JSON for people and programs, without a newline at its end: what can be read stands as it is. Whatever isn't
    printable, or a server's log would obey, is escaped as JSON escapes it, so that the values are the same; with
    `ascii_alone` all that isn't ASCII is. Raises `ValueError` for numbers that JSON hasn't."""
    text = json.dumps(data, indent=indent, ensure_ascii=ascii_alone, allow_nan=False, default=default)
    if not text.replace("\n", "").isprintable():  # quick, where the set of a long text's signs isn't
        strange = {ord(one): _json_escape(one) for one in set(text) if not one.isprintable() and one != "\n"}
        text = text.translate(strange)
    return text.replace("##", "#\\u0023") if "##" in text else text


def _json_escape(sign: str) -> str:
    return json.dumps(sign)[1:-1]


pass

_MARKDOWN = re.compile(r"([\\`*\[|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_BLOCK_START = re.compile(r"^([-+=#]|\d+(?=[.)]))")
_LINKS = {"://": "&#58;//", "www.": "www&#46;", "@": "&#64;"}


def markdown(text: str, *, longest: int = 300, opens_block: bool = False) -> str:
    """The text as one line that Markdown shows as it is.

    `opens_block` is for text at the start of a paragraph, where a sign or a number could begin a list or a heading.
    """
    escaped = escaped_markdown(one_line(text, longest=longest))
    return _BLOCK_START.sub(_quoted, escaped) if opens_block else escaped


def escaped_markdown(text: str) -> str:
    """The same of text that is one printable line already."""
    escaped = _MARKDOWN.sub(_quoted, text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    for sign, entity in _LINKS.items():
        escaped = escaped.replace(sign, entity)
    return escaped


def _quoted(match: re.Match[str]) -> str:
    found = match[0]
    return f"&#{ord(found[0])};{found[1:]}" if found[0].isdigit() else f"\\{found}"
