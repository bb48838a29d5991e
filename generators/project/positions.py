"""Where each table and key of a TOML text stands, so that a problem is shown with its line.

`tomllib` gives values without places. It has read the text before, so that only valid TOML comes here.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Place = tuple[str | int, ...]
"""Keys from the top to a value; a table of an array of tables is named by its number from 0."""

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'  # strings first, so that what looks like syntax inside them isn't taken for it
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\n=\[\]{}]"
    r"|[^\s=\"'\#\[\]{}]+"
    r"|\s",
    re.DOTALL,
)
_DEEPER, _HIGHER = "[{", "]}"


@dataclass(frozen=True, kw_only=True)
class Span:
    """The first and the last line of something, counted from 1."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"line {self.first}" if self.first == self.last else f"lines {self.first}-{self.last}"


def positions(text: str) -> dict[Place, Span]:
    """The lines of each table, with all its keys, and of each key with its value. Inline tables count as values."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    found: dict[Place, Span] = {}
    counts: dict[Place, int] = {}
    table: Place = ()
    for first, last, statement in _statements(text):
        lines = Span(first=bisect_right(starts, first), last=bisect_right(starts, last - 1))
        if statement.startswith("["):
            table = _table(statement, counts)
            found[table] = lines
        else:
            key = _keys(f"{_left_of_equals(statement)} = 0")
            for length in range(1, len(key) + 1):
                _extend(found, (*table, *key[:length]), lines)
            for length in range(1, len(table) + 1):
                _extend(found, table[:length], lines)
    return found


def span_of(found: Mapping[Place, Span], place: Place) -> Span | None:
    """The lines of what stands at `place`, or of the nearest thing around it; None for the whole text."""
    for length in range(len(place), 0, -1):
        if place[:length] in found:
            return found[place[:length]]
    return None


def _extend(found: dict[Place, Span], place: Place, lines: Span) -> None:
    before = found.get(place)
    found[place] = Span(first=before.first if before else lines.first, last=lines.last)


def _statements(text: str) -> Iterator[tuple[int, int, str]]:
    """Headers and key-value pairs: where each begins and ends, and its text without comments after it."""
    start, end, depth = -1, 0, 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == "\n" and depth == 0:
            if start >= 0:
                yield start, end, text[start:end]
            start = -1
        elif not token.isspace() and not token.startswith("#"):
            start, end = (match.start() if start < 0 else start), match.end()
            depth += (token in _DEEPER) - (token in _HIGHER)
    if start >= 0:
        yield start, end, text[start:end]


def _table(header: str, counts: dict[Place, int]) -> Place:
    """The place that a header opens; a name inside an array of tables belongs to the array's last table."""
    keys = _keys(header)
    place: Place = ()
    for number, key in enumerate(keys):
        place = (*place, key)
        if number == len(keys) - 1 and header.startswith("[["):
            counts[place] = counts.get(place, 0) + 1
        if place in counts:
            place = (*place, counts[place] - 1)
    return place


def _keys(statement: str) -> tuple[str, ...]:
    """The keys that a header or `a.b = 0` names, with their quotes and escapes taken away."""
    value: object = tomllib.loads(statement)
    keys: list[str] = []
    while isinstance(value, dict | list) and value:
        if isinstance(value, dict):
            key, value = next(iter(value.items()))
            keys.append(key)
        else:
            value = value[0]
    return tuple(keys)


def _left_of_equals(statement: str) -> str:
    for match in _TOKEN.finditer(statement):
        if match.group() == "=":
            return statement[: match.start()]
    return statement
