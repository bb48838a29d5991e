"""`Expression`: a regular expression without regard to case that is tried only where its fixed words are in the text.

Hundreds of expressions are asked of each text; looking for plain words first is a hundred times faster.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

_SHORTEST = 3
_PLAIN = frozenset(" _:;,'\"/<>=!@#%&~`-")
_NOTHING_BEFORE = frozenset("?*{")  # a sign before one of these may be missing


@dataclass(frozen=True, kw_only=True)
class Text:
    """What is searched, with its lower case made once."""

    text: str
    lower: str

    @classmethod
    def of(cls, text: str) -> Text:
        return cls(text=text, lower=text.lower())


@dataclass(frozen=True, kw_only=True)
class Expression:
    """`words` are lower case: each match holds one of them. Without any, every text is searched.

    It is compiled when it is first needed: most of hundreds never are.
    """

    source: str
    words: tuple[str, ...]

    @classmethod
    def of(cls, source: str) -> Expression:
        """The expression with the words that its source shows."""
        words = tuple(_word(one) for one in _alternatives(source))
        return cls(source=source, words=words if all(len(word) >= _SHORTEST for word in words) else ())

    def search(self, text: Text) -> re.Match[str] | None:
        """The first match, or None. Raises `re.error` for a source that is no regular expression."""
        if self.words and not any(word in text.lower for word in self.words):
            return None
        return _compiled(self.source).search(text.text)


@functools.cache
def _compiled(source: str) -> re.Pattern[str]:
    return re.compile(source, re.IGNORECASE)


def _signs(source: str) -> Iterator[tuple[str, int]]:
    """Each sign of a regular expression with how deep in groups it stands; escapes and classes are one sign."""
    depth = place = 0
    while place < len(source):
        sign = source[place]
        if sign == "\\":
            sign = source[place : place + 2]
        elif sign == "[":
            end = source.index("]", place + 2)
            while source[end - 1] == "\\":
                end = source.index("]", end + 1)
            sign = source[place : end + 1]
        depth += sign == "("
        yield sign, depth
        depth -= sign == ")"
        place += len(sign)


def _alternatives(source: str) -> list[list[tuple[str, int]]]:
    found: list[list[tuple[str, int]]] = [[]]
    for sign, depth in _signs(source):
        if sign == "|" and depth == 0:
            found.append([])
        else:
            found[-1].append((sign, depth))
    return found


def _word(signs: list[tuple[str, int]]) -> str:
    """The longest run of signs, outside all groups, that each match has to hold; in lower case."""
    runs = [""]
    counted = False  # within the braces of a count
    for sign, depth in signs:
        plain = sign[1] if len(sign) == 2 and not sign[1].isalnum() else sign
        is_plain = len(plain) == 1 and (plain != sign or plain.isalnum() or plain in _PLAIN)
        if depth == 0 and is_plain and not counted:
            runs[-1] += plain
            continue
        if sign in _NOTHING_BEFORE and depth == 0:
            runs[-1] = runs[-1][:-1]
        counted = (counted or sign == "{") and sign != "}"
        runs.append("")
    return max(runs, key=len).lower()
