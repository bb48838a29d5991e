"""Plain text for terminals and CI logs: sizes, tables and JSON, without control sequences and log commands."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

WIDTH = 80

_LOG_COMMAND = re.compile(r"(?<!\S)::|##(?=\w*\[)")
"""Log commands of CI servers: lines that begin with `::name::` (GitHub strips the line first), and `##[name]`,
`##vso[name]` or `##teamcity[name` anywhere. Source: src/Runner.Common/ActionCommand.cs of
https://github.com/actions/runner."""

_LINE_START = re.compile(r"^([^\S\n]*)::", re.MULTILINE)


def size_text(size: int | None, missing: str = "unknown") -> str:
    """Return a size in bytes in the largest binary unit in which it is at least 1."""
    if size is None:
        return missing
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 2**power:
            return f"{size / 2**power:.1f} {unit}".replace(".0 ", " ")
    return f"{size} B"


def printable(text: str, *, keep: str = "") -> str:
    """Return the text with unprintable characters and log commands escaped, except characters in `keep`."""
    if not text.isprintable():
        text = "".join(one if one.isprintable() or one in keep else ascii(one)[1:-1] for one in text)
    if "::" in text or "##" in text:
        text = _LOG_COMMAND.sub(lambda found: r"\x3a:" if found[0] == "::" else r"#\x23", text)
    return text


def one_line(text: str, *, longest: int = 300) -> str:
    """Return untrusted text as one printable line of at most `longest` characters."""
    flat = printable(" ".join(text.split()))
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"


def ends_of(text: str, longest: int) -> str:
    """Return the beginning and the end of a text that has more than `longest` characters, each half of them."""
    return text if len(text) <= longest else f"{text[: longest // 2]} … {text[-longest // 2 :]}"


def wrapped(
    text: str,
    *,
    width: int = WIDTH,
    start: str = "",
    indent: str = "",
    break_long_words: bool = True,
    break_on_hyphens: bool = False,
) -> list[str]:
    """Return untrusted text after `start`, wrapped at `width` with further lines indented. No line begins with a
    log command, not even after a word was broken."""
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
    """Return printable lines that were wrapped again, without a log command at the beginning of a line."""
    return _LINE_START.sub(r"\1\\x3a:", text) if "::" in text else text


def folded(start: str, text: str, *, indent: int | None = None, width: int = WIDTH) -> list[str]:
    """Return `text` after `start`, wrapped at `width`; further lines begin at `indent`, or below the text."""
    space = " " * min(len(start) if indent is None else indent, width // 2)
    return wrapped(text, width=width, start=start, indent=space)


def labelled(said: Sequence[tuple[str, str]], *, width: int = WIDTH) -> list[str]:
    """Return one line per label and text, with aligned texts wrapped at `width`; URLs are never broken, so that
    they can be copied."""
    column = max((len(label) for label, _ in said), default=0) + 2
    lines: list[str] = []
    for label, text in said:
        start = f"  {printable(label):<{column}}"
        lines += wrapped(text, width=width, start=start, indent=" " * len(start), break_long_words=False)
    return lines


def columns(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Return the lines of a table: the last column is wrapped, columns in `right` are right-aligned."""
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
    """Return readable JSON without a final newline. Unprintable characters and log commands are written as JSON
    escapes, so that values are unchanged; with `ascii_alone` all characters outside ASCII are. Raises
    `ValueError` for NaN and infinity."""
    text = json.dumps(data, indent=indent, ensure_ascii=ascii_alone, allow_nan=False, default=default)
    if not text.replace("\n", "").isprintable():  # faster than building the set of characters of a long text
        strange = {ord(one): json.dumps(one)[1:-1] for one in set(text) if not one.isprintable() and one != "\n"}
        text = text.translate(strange)
    return text.replace("##", "#\\u0023") if "##" in text else text


_MARKDOWN = re.compile(r"([\\`*\[|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_BLOCK_START = re.compile(r"^([-+=#]|\d+(?=[.)]))")
_LINKS = {"://": "&#58;//", "www.": "www&#46;", "@": "&#64;"}


def markdown(text: str, *, longest: int = 300, opens_block: bool = False) -> str:
    """Return the text as one line that Markdown renders literally.

    `opens_block` is for text at the start of a paragraph, where a character or number could begin a list or a
    heading.
    """
    escaped = escaped_markdown(one_line(text, longest=longest))
    return _BLOCK_START.sub(_quoted, escaped) if opens_block else escaped


def escaped_markdown(text: str) -> str:
    """Return text that is one printable line already, escaped for Markdown."""
    escaped = _MARKDOWN.sub(_quoted, text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    for sign, entity in _LINKS.items():
        escaped = escaped.replace(sign, entity)
    return escaped


def _quoted(match: re.Match[str]) -> str:
    found = match[0]
    return f"&#{ord(found[0])};{found[1:]}" if found[0].isdigit() else f"\\{found}"
