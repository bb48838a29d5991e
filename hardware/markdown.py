"""Text of anybody's for Markdown, which shows it as it is: no markup, HTML, link, mention or new table cell."""

from __future__ import annotations

import re

from .plain_text import one_line

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
