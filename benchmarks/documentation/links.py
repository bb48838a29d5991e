"""Check links of pages to files, pictures and headings. Links to the web aren't checked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LINK = re.compile(r"!?\[[^\]]*\]\((?P<to>[^()\s]+(?:\([^()\s]*\))?)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6}\s+(?P<text>.+?)\s*#*$", re.MULTILINE)
_ANCHOR = re.compile(r"<a id=\"(?P<id>[^\"]+)\"")


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A broken link."""

    page: str
    to: str
    why: str


def broken_links(pages: list[Path], root: Path) -> Iterator[Broken]:
    """Yield the links of pages whose file in `root`, or heading, doesn't exist."""
    for page in pages:
        text = _CODE.sub("", page.read_text(encoding="utf-8"))
        for match in _LINK.finditer(text):
            to = match["to"]
            if re.match(r"[a-z][a-z0-9+.-]*:", to):
                continue
            path, _, anchor = to.partition("#")
            there = (page.parent / path).resolve() if path else page.resolve()
            name = page.relative_to(root).as_posix()
            if not there.exists():
                yield Broken(page=name, to=to, why="there is no such file")
            elif not there.is_relative_to(root.resolve()):
                yield Broken(page=name, to=to, why="it leads out of the repository")
            elif anchor and there.suffix == ".md" and anchor not in anchors(there.read_text(encoding="utf-8")):
                yield Broken(page=name, to=to, why=f"there is no heading #{anchor}")


def anchors(text: str) -> set[str]:
    """Return the names of a page's headings and anchors in links."""
    headings = _HEADING.finditer(_CODE.sub(_only_code, text))
    return {slug(match["text"]) for match in headings} | {match["id"] for match in _ANCHOR.finditer(text)}


def _only_code(match: re.Match[str]) -> str:
    return "" if match[0].startswith("```") else match[0]


def slug(heading: str) -> str:
    """Return the anchor of a heading: lower case, hyphens for spaces, no punctuation."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain))
