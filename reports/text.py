"""Untrusted text made safe for the place where it goes: a terminal, a line, Markdown, XML."""

from __future__ import annotations

import re

_MARKDOWN = re.compile(r"([\\`*\[\]#|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[-+=]|^\d+(?=[.)]))")
_LINKS = {"://": "&#58;//", "www.": "www&#46;", "@": "&#64;"}
_LONGEST = 300


def printable(text: str) -> str:
    """The text with everything escaped that a terminal could take for a command; newlines and tabs stay."""
    return "".join(char if char.isprintable() or char in "\n\t" else _escaped(char) for char in text)


def one_line(text: str, *, longest: int = _LONGEST) -> str:
    """The text as one printable line, cut where it is longer than that."""
    flat = printable(" ".join(text.split()))
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"


def markdown(text: str, *, longest: int = _LONGEST) -> str:
    """The text as one line that Markdown shows as it is: no markup, HTML, link, mention or new table cell."""
    flat = one_line(text, longest=longest).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = _MARKDOWN.sub(_quoted, flat)
    for sign, entity in _LINKS.items():
        escaped = escaped.replace(sign, entity)
    return escaped


def _quoted(match: re.Match[str]) -> str:
    found = match[0]
    return f"&#{ord(found[0])};{found[1:]}" if found[0].isdigit() else f"\\{found}"


def fenced(text: str) -> str:
    """The text as a Markdown code block whose fence is longer than any in it."""
    runs = [len(run) for run in re.findall(r"`+", text)]
    fence = "`" * max(3, max(runs, default=0) + 1)
    return f"{fence}text\n{printable(text).rstrip()}\n{fence}"


def xml(text: str) -> str:
    """The text without characters that XML can't hold; quoting is left to the writer."""
    return printable(text)


def _escaped(char: str) -> str:
    return ascii(char)[1:-1]
