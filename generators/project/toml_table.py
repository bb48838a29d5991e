"""Read one table of the project file field by field: problems are noted with their line, and reading goes on.

`tomllib` gives values without lines: `positions` finds the lines of each table and key. It is called only with text
that `tomllib` has read, so the TOML is valid.
"""

from __future__ import annotations

import math
import re
import tomllib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from hwcompat.hardware.errors import HwCompatError, did_you_mean, echo

MOST_PROBLEMS = 50
"""The most problems that are reported for one file, because finding suggestions takes time."""

_LONGEST_TEXT = 500
_KINDS = {
    "str": "this text",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "list": "this list",
    "dict": "a table",
}
Place = tuple[str | int, ...]
"""Keys from the top to a value; a table in an array of tables is named by its index from 0."""
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'  # strings first, so that syntax inside them is ignored
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


class TooManyProblems(Exception):
    """A file has so many problems that reading stops."""


@dataclass(frozen=True, kw_only=True)
class TableProblem:
    """One problem; `line` is 0 if it concerns the file as a whole."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


class TomlTable:
    """One table with its place in the file. A method that reads a field returns None after noting a problem."""

    def __init__(
        self, values: Mapping[str, Any], place: Place, spans: Mapping[Place, LineSpan], problems: list[TableProblem]
    ) -> None:
        self.values = values
        self.place = place
        self._spans = spans
        self._problems = problems

    def inside(self, name: str) -> TomlTable:
        """Return the table [name] in it, an empty one if there is none."""
        value = self.values.get(name, {})
        if not isinstance(value, dict):
            self.problem(name, f"{name} must be a table, [{name}]")
            value = {}
        return TomlTable(value, (*self.place, name), self._spans, self._problems)

    def each(self, name: str) -> list[TomlTable]:
        """Return the tables [[name]] in it."""
        value = self.values.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.problem(name, f"{name} must be a list of tables, each under [[{name}]]")
            value = []
        return [
            TomlTable(item, (*self.place, name, at), self._spans, self._problems) for at, item in enumerate(value)
        ]

    @property
    def name(self) -> str:
        """The name as written: `[[model]]`, `[expected]`, or `the file`."""
        if not self.place:
            return "the file"
        return f"[[{self.place[0]}]]" if len(self.place) > 1 else f"[{self.place[0]}]"

    def span(self, field: str = "") -> LineSpan:
        """Return the lines of a field, or of the table."""
        found = span_of(self._spans, (*self.place, field) if field else self.place)
        return found or LineSpan(first=0, last=0)

    def problem(self, field: str, text: str, fix: str = "") -> None:
        """Note a problem of a field (`""` for the table itself). Raises `TooManyProblems`."""
        if len(self._problems) >= MOST_PROBLEMS:
            raise TooManyProblems
        self._problems.append(TableProblem(line=self.span(field).first, text=f"{text}. {fix}" if fix else text))

    def only(self, known: Sequence[str]) -> None:
        """Note each key that isn't one of `known`."""
        for key in self.values:
            if key not in known:
                hint = did_you_mean(key, known) or f"Known: {', '.join(known)}."
                self.problem(key, f"{self.name} has no key {echo(key)}", hint)

    def required(self, fields: Iterable[str]) -> None:
        """Note each field that is missing."""
        for field in fields:
            if field not in self.values:
                self.problem("", f"{self.name} needs {field}")

    def text(self, field: str) -> str | None:
        """Return one printable line of text that isn't empty."""
        value = self.values.get(field)
        if field not in self.values:
            return None
        if not isinstance(value, str):
            self._wrong(field, "text")
            return None
        if not value.strip() or not value.isprintable() or len(value) > _LONGEST_TEXT:
            self._wrong(field, f"one line of printable text with 1 to {_LONGEST_TEXT} characters")
            return None
        return value.strip()

    def texts(self, field: str) -> tuple[str, ...] | None:
        """Return a list of at least one text, each once."""
        value = self.values.get(field)
        if field not in self.values:
            return None
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            self._wrong(field, f'a list of texts, such as {field} = ["…"]')
            return None
        twice = min((item for item, number in Counter(value).items() if number > 1), default=None)
        if twice is not None:
            self.problem(field, f"{field} names {echo(twice)} twice")
        return tuple(dict.fromkeys(value))

    def words(self, field: str, known: Sequence[str], noun: str) -> tuple[str, ...] | None:
        """Return a list of words out of `known`."""
        return self._each(field, lambda text: text if self.one_of(field, text, known, noun) else None)

    def parsed(self, field: str, parse: Callable[[str], object]) -> tuple[str, ...] | None:
        """Return a list of texts, each converted by `parse`; its errors become problems."""
        return self._each(field, lambda text: self.tried(field, lambda: str(parse(text))))

    def _each(self, field: str, check: Callable[[str], str | None]) -> tuple[str, ...] | None:
        found = [check(text) for text in self.texts(field) or ()]
        return tuple(text for text in found if text is not None) or None

    def tried(self, field: str, parse: Callable[[], str]) -> str | None:
        """Return the result of `parse`; an `HwCompatError` becomes a problem of the field."""
        try:
            return parse()
        except HwCompatError as error:
            self.problem(field, str(error).rstrip("."))
            return None

    def one_of(self, field: str, text: str, known: Sequence[str], noun: str) -> bool:
        """Return whether `text` is one of `known`; note a problem if it isn't."""
        if text not in known:
            self.problem(
                field, f"{echo(text)} isn't {noun}", did_you_mean(text, known) or f"Known: {', '.join(known)}."
            )
        return text in known

    def number(self, field: str) -> float | None:
        """Return a finite number above 0."""
        value = self.values.get(field)
        if field not in self.values:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong(field, "a number")
            return None
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number) or number <= 0:
            self.problem(field, f"{field} = {number} must be a finite number above 0")
            return None
        return number

    def day(self, field: str) -> date | None:
        """Return a date without a time."""
        value = self.values.get(field)
        if field not in self.values:
            return None
        if isinstance(value, datetime) or not isinstance(value, date):
            self._wrong(field, f"a date without quotes and time, such as {field} = 2027-03-31")
            return None
        return value

    def _wrong(self, field: str, wanted: str) -> None:
        kind = type(self.values[field]).__name__
        self.problem(field, f"{field} must be {wanted}, not {_KINDS.get(kind, kind)}")


@dataclass(frozen=True, kw_only=True)
class LineSpan:
    """The first and the last line of a table or field, counted from 1."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"line {self.first}" if self.first == self.last else f"lines {self.first}-{self.last}"


def positions(text: str) -> dict[Place, LineSpan]:
    """Return the lines of each table with all its keys, and of each key with its value. Inline tables are values."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    found: dict[Place, LineSpan] = {}
    counts: dict[Place, int] = {}
    table: Place = ()
    for first, last, statement in _statements(text):
        lines = LineSpan(first=bisect_right(starts, first), last=bisect_right(starts, last - 1))
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


def span_of(found: Mapping[Place, LineSpan], place: Place) -> LineSpan | None:
    """Return the lines of `place`, or of the nearest thing around it; None for the whole text."""
    for length in range(len(place), 0, -1):
        if place[:length] in found:
            return found[place[:length]]
    return None


def _extend(found: dict[Place, LineSpan], place: Place, lines: LineSpan) -> None:
    before = found.get(place)
    found[place] = LineSpan(first=before.first if before else lines.first, last=lines.last)


def _statements(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield headers and key-value pairs: first and last line, and the text without trailing comments."""
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
    """Return the place that a header opens; a name inside an array of tables belongs to the array's last table."""
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
    """Return the keys that a header or `a.b = 0` names, without quotes and escapes."""
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
