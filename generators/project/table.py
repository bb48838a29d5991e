"""Reads one table of the project file field by field: what is wrong is noted with its line, and reading goes on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from hardware.errors import HwCompatError, did_you_mean, echo

from .positions import Place, Span, span_of

MOST_PROBLEMS = 50
"""So many are told of one file. Nobody reads more at once, and looking for what a word may mean takes time."""

_LONGEST_TEXT = 500


class TooManyProblems(Exception):
    """So much is wrong with a file that the rest isn't looked for."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong; `line` is 0 where it concerns the file as a whole."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


class Table:
    """One table, with where it stands. Every `…` of a field gives a value that can be used, or None and a problem."""

    def __init__(
        self, values: Mapping[str, Any], place: Place, spans: Mapping[Place, Span], problems: list[Problem]
    ) -> None:
        self.values = values
        self.place = place
        self._spans = spans
        self._problems = problems

    @property
    def name(self) -> str:
        """`[[model]]`, `[expected]`, or `the file`."""
        if not self.place:
            return "the file"
        return f"[[{self.place[0]}]]" if len(self.place) > 1 else f"[{self.place[0]}]"

    def span(self, field: str = "") -> Span:
        """The lines of a field, or of the table."""
        found = span_of(self._spans, (*self.place, field) if field else self.place)
        return found or Span(first=0, last=0)

    def problem(self, field: str, text: str, fix: str = "") -> None:
        """Note what is wrong with a field (`""` for the table itself). Raises `TooManyProblems`."""
        if len(self._problems) >= MOST_PROBLEMS:
            raise TooManyProblems
        self._problems.append(Problem(line=self.span(field).first, text=f"{text}. {fix}" if fix else text))

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
                self.problem("", f"{self.name} lacks {field}, which is required")

    def text(self, field: str) -> str | None:
        """One printable line of text that isn't empty."""
        value = self.values.get(field)
        if field not in self.values:
            return None
        if not isinstance(value, str):
            self._wrong(field, "a text")
            return None
        if not value.strip() or not value.isprintable() or len(value) > _LONGEST_TEXT:
            self._wrong(field, f"one line of text, printable, of 1 to {_LONGEST_TEXT} characters")
            return None
        return value.strip()

    def texts(self, field: str) -> tuple[str, ...] | None:
        """A list of texts, each once, at least one."""
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
        """A list of words out of `known`."""
        return self._each(field, lambda text: text if self.one_of(field, text, known, noun) else None)

    def parsed(self, field: str, parse: Callable[[str], object]) -> tuple[str, ...] | None:
        """A list of texts that `parse` turns into the text to keep; its errors are problems."""
        return self._each(field, lambda text: self.tried(field, lambda: str(parse(text))))

    def _each(self, field: str, check: Callable[[str], str | None]) -> tuple[str, ...] | None:
        found = [check(text) for text in self.texts(field) or ()]
        return tuple(text for text in found if text is not None) or None

    def tried(self, field: str, parse: Callable[[], str]) -> str | None:
        """What `parse` returns; an error for users becomes a problem of the field."""
        try:
            return parse()
        except HwCompatError as error:
            self.problem(field, str(error).rstrip("."))
            return None

    def one_of(self, field: str, text: str, known: Sequence[str], noun: str) -> bool:
        """Whether `text` is one of `known`; notes it where it isn't."""
        if text not in known:
            self.problem(
                field, f"{echo(text)} is not {noun}", did_you_mean(text, known) or f"Known: {', '.join(known)}."
            )
        return text in known

    def number(self, field: str) -> float | None:
        """A finite number above 0."""
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
            self.problem(field, f"{field} = {number} is refused: a finite number above 0 is wanted")
            return None
        return number

    def day(self, field: str) -> date | None:
        """A date without a time."""
        value = self.values.get(field)
        if field not in self.values:
            return None
        if isinstance(value, datetime) or not isinstance(value, date):
            self._wrong(field, f"a date without quotes and without a time, such as {field} = 2027-03-31")
            return None
        return value

    def _wrong(self, field: str, wanted: str) -> None:
        kind = type(self.values[field]).__name__
        self.problem(field, f"{field} has to be {wanted}, not {_KINDS.get(kind, kind)}")


_KINDS = {
    "str": "this text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "this list",
    "dict": "a table",
}
