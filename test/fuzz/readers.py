"""Reads what the product writes as a browser, a Markdown viewer, a spreadsheet, a terminal and a CI server would, and
fails where anything in it is more than text."""

from __future__ import annotations

import base64
import csv
import functools
import gzip
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hostile import MARK
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "reports" / "html"

_TAG = re.compile(r"<([a-zA-Z][\w-]*)((?:[^<>\"']|\"[^\"]*\"|'[^']*')*)>")
_ATTRIBUTE = re.compile(r"([a-zA-Z][\w:-]*)(?==|\s|/|$)")
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")
_PLAIN_HTML = re.compile(r'<a id="finding-[0-9a-z-]{1,80}">|</a>|<br>')
_SOURCES = re.compile(r"https://[\w./#?=&%+~:@-]+|#.*|[\w./-]+\.(?:md|toml|json|py)(?:#[\w-]+)?", re.DOTALL)

GITHUB = frozenset(
    {"error", "warning", "notice", "debug", "group", "endgroup", "echo", "add-mask", "add-matcher", "remove-matcher"}
    | {"stop-commands", "set-output", "save-state", "set-env", "add-path", "internal-set-repo-path", "section"}
)
"""Commands that a runner of GitHub knows. Source: src/Runner.Worker/ActionCommandManager.cs of actions/runner."""


def unpacked(chunks: dict[str, Any]) -> list[str]:
    """The fragments of a list that a page holds packed."""
    return [text for chunk in chunks["chunks"] for text in json.loads(gzip.decompress(base64.b64decode(chunk)))]


def check_terminal(text: str, *, tabs: bool = False) -> None:
    """Nothing in a text does anything to a terminal or to a CI server's log."""
    kept = "\n\t" if tabs else "\n"
    wrong = sorted({one for one in text if not one.isprintable() and one not in kept})
    assert not wrong, f"a terminal would obey {wrong!r}"
    assert not list(commands(text)), f"a server's log would obey {list(commands(text))!r}"


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The workflow commands that GitHub's runner, Azure's agent or TeamCity finds in the lines of a log."""
    for line in re.split(r"[\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", text):
        trimmed = line.lstrip()
        if trimmed.startswith("::") and "::" in trimmed[2:]:
            name = trimmed[2:].partition("::")[0].partition(" ")[0]
            if name.lower() in GITHUB:
                yield name, trimmed
        for prefix in ("##[", "##vso[", "##teamcity["):
            if prefix in line:
                yield prefix, line


def check_github(text: str, *, most: int) -> None:
    """Annotations are ours: errors, warnings and notices, with our parameters, `most` of each at most."""
    found = list(commands(text))
    for name, line in found:
        assert name in ("error", "warning", "notice"), f"an annotation of another kind: {line!r}"
        parameters = line[2 + len(name) :].partition("::")[0].strip()
        names = [one.partition("=")[0] for one in parameters.split(",")]
        assert names in (["title"], ["file", "line", "title"]), f"an annotation with others' parameters: {line!r}"
    for name in ("error", "warning", "notice"):
        assert sum(one == name for one, _ in found) <= most
    wrong = sorted({one for one in text if not one.isprintable() and one != "\n"})
    assert not wrong


@functools.cache
def known_markup() -> tuple[frozenset[str], frozenset[str]]:
    """The elements and attributes that the templates of pages write themselves."""
    tags, attributes = set(), set()
    for path in PAGES.glob("*.j2"):
        source = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for tag, rest in _TAG.findall(source):
            tags.add(tag.lower())
            names = _ATTRIBUTE.findall(re.sub(r"\"[^\"]*\"|'[^']*'", "=", rest))
            attributes |= {name.lower() for name in names}
    return frozenset(tags), frozenset(attributes)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: list[str] = []
        self.styles = 0
        self._in_script = False
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        tags, known = known_markup()
        if tag not in tags:
            self.wrong.append(f"element {tag}")
        for name, value in attrs:
            if name not in known or name.startswith("on"):
                self.wrong.append(f"attribute {name} of {tag}")
            if name in ("href", "src", "action", "formaction") and not _SOURCES.fullmatch(value or ""):
                self.wrong.append(f"{name}={value!r}")
            if name == "style":
                self.wrong.append(f"style={value!r}")
        if tag == "script":
            self._in_script = True
            self.scripts.append("")
        self.styles += tag == "style"

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data

    def handle_comment(self, data: str) -> None:
        self.wrong.append(f"comment {data[:40]!r}")

    def handle_decl(self, decl: str) -> None:
        if decl.lower() != "doctype html":
            self.wrong.append(f"declaration {decl[:40]!r}")

    def handle_pi(self, data: str) -> None:
        self.wrong.append(f"instruction {data[:40]!r}")

    def unknown_decl(self, data: str) -> None:
        self.wrong.append(f"declaration {data[:40]!r}")


def check_html(text: str) -> None:
    """A page has the elements and attributes of our templates, one style, one script beside its data, no address of
    anybody else's, and the same in what it unpacks."""
    page = _check_markup(text)
    assert page.styles == 1
    assert "default-src 'none'" in text
    code = [script for script in page.scripts if not _is_data(script)]
    assert len(code) <= 1, "a script that isn't the page's own"
    for script in page.scripts:
        if _is_data(script):
            assert "<" not in script
            assert ">" not in script
            for chunk in _packed_texts(strict_json(script)):
                for fragment in unpacked(chunk):
                    _check_markup(fragment)
        else:
            assert MARK not in script
    wrong = sorted({one for one in text if not one.isprintable() and one not in "\n\t"})
    assert not wrong, f"signs that fool a reader: {wrong!r}"


def _check_markup(text: str) -> _Page:
    page = _Page()
    page.feed(text)
    page.close()
    assert not page.wrong, page.wrong[:5]
    return page


def _is_data(script: str) -> bool:
    return script.lstrip()[:1] in ("{", "[") and "function" not in script[:200]


def _packed_texts(data: Any) -> Iterator[Any]:
    if isinstance(data, dict):
        if "chunks" in data:
            yield data
        for one in data.values():
            yield from _packed_texts(one)


def check_markdown(text: str) -> None:
    """Markdown has no HTML but our anchors and line breaks, no picture, and no link but to our own anchors."""
    check_terminal(text, tabs=True)
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    for token in _tokens(reader.parse(text)):
        if token.type in ("html_inline", "html_block"):
            left = _PLAIN_HTML.sub("", token.content).strip()
            assert not re.search(r"<[a-zA-Z/!?]", left), f"HTML in Markdown: {token.content[:80]!r}"
        assert token.type != "image", "a picture in Markdown"
        if token.type == "link_open":
            target = str(token.attrs["href"])
            assert target.startswith("#finding-"), f"a link in Markdown: {target!r}"
    plain = re.sub(r"(`+)(?:(?!\1).)+?\1(?!`)", "", re.sub(r"(?ms)^(`{3,})text$.*?^\1$", "", text))
    assert f"http://{MARK}" not in plain, "an address that viewers make a link of"
    assert f"www.{MARK}" not in plain
    assert f"@{MARK}" not in plain


def _tokens(tokens: Any) -> Iterator[Any]:
    for token in tokens:
        yield token
        yield from _tokens(token.children or ())


def check_csv(text: str) -> None:
    """No cell is a formula, and every row is as long as the first."""
    check_terminal(text)
    rows = list(csv.reader(io.StringIO(text)))
    assert len({len(row) for row in rows}) <= 1
    for cell in (cell for row in rows for cell in row):
        assert not cell.lstrip(" ").startswith(_FORMULA), f"a spreadsheet computes {cell[:40]!r}"


def check_xml(text: str) -> None:
    """XML that parses, with JUnit's elements and attributes alone."""
    root = ElementTree.fromstring(text)
    for element in root.iter():
        assert element.tag in _JUNIT, element.tag
        assert set(element.attrib) <= _JUNIT[element.tag], element.attrib
    assert "<!" not in text
    check_terminal(text, tabs=True)


_JUNIT = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testsuite": {"name", "timestamp", "hostname", "file", "tests", "failures", "errors", "skipped", "time"},
    "testcase": {"classname", "name", "time", "file"},
    "properties": set(),
    "property": {"name", "value"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"type", "message"},
    "system-out": set(),
}


def strict_json(text: str) -> Any:
    """What a JSON text holds, for a reader that takes no NaN and no name twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), "a name stands there twice"
        return dict(pairs)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no number of JSON")

    return json.loads(text, object_pairs_hook=once, parse_constant=refuse)


def check_json(text: str) -> Any:
    """JSON that every reader takes alike, with nothing in it for a terminal or a log. Returns what it holds."""
    check_terminal(text)
    return strict_json(text)
