"""Operators of a rule's conditions, and relations between two conditions.

`holds` checks one fact. `overlaps` and `covers` compare conditions, so that contradictory and shadowed rules are
found when rules are loaded.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from .rule_facts import Facts, Value


class Condition(ABC):
    """An operator with its operand."""

    @property
    def impossible(self) -> str:
        """Return why no fact can satisfy it; empty if one can."""
        return ""

    @property
    @abstractmethod
    def words(self) -> str:
        """Return what it requires, as text after a fact's name: `is vision or audio`."""

    @abstractmethod
    def holds(self, value: Value) -> bool:
        """Whether the fact satisfies it; False for a fact that isn't known."""

    @abstractmethod
    def covers(self, other: Condition) -> bool:
        """Whether each fact that satisfies `other` satisfies this."""

    def overlaps(self, other: Condition) -> bool:
        """Whether a fact can satisfy both."""
        return True


When = Mapping[str, Condition]


@dataclass(frozen=True)
class Known(Condition):
    """`known = true`: the fact has a value."""

    @property
    def words(self) -> str:
        return "is known"

    def holds(self, value: Value) -> bool:
        return value is not None and value != () and value != ""

    def covers(self, other: Condition) -> bool:
        return True


@dataclass(frozen=True)
class _OfWords(Condition):
    values: frozenset[str]

    operator: ClassVar[str]
    how: ClassVar[tuple[str, str]]
    """The text before the words, and between them."""

    @property
    def impossible(self) -> str:
        return "" if self.values else f"{self.operator} is empty"

    @property
    def words(self) -> str:
        return f"{self.how[0]} {self.how[1].join(sorted(self.values))}"


@dataclass(frozen=True)
class OneOf(_OfWords):
    """`family = "vision"` or `family = {one_of = [...]}`: a text is one of these."""

    operator, how = "one_of", ("is", " or ")

    def holds(self, value: Value) -> bool:
        return value in self.values

    def overlaps(self, other: Condition) -> bool:
        return bool(self.values & other.values) if isinstance(other, OneOf) else True

    def covers(self, other: Condition) -> bool:
        return isinstance(other, OneOf) and other.values <= self.values


@dataclass(frozen=True)
class Contains(_OfWords):
    """`traits = {contains = ...}`: a list has all of these."""

    operator, how = "contains", ("has", " and ")

    def holds(self, value: Value) -> bool:
        return isinstance(value, tuple) and self.values <= set(value)

    def covers(self, other: Condition) -> bool:
        return isinstance(other, Contains) and self.values <= other.values


@dataclass(frozen=True)
class AnyOf(_OfWords):
    """`operators = {any_of = [...]}`: a list has at least one of these."""

    operator, how = "any_of", ("has", " or ")

    def holds(self, value: Value) -> bool:
        return isinstance(value, tuple) and not self.values.isdisjoint(value)

    def covers(self, other: Condition) -> bool:
        if isinstance(other, Contains):
            return not self.values.isdisjoint(other.values)
        return isinstance(other, AnyOf) and other.values <= self.values


@dataclass(frozen=True)
class Between(Condition):
    """`parameters = {at_least = ..., at_most = ...}`: a number is in this closed range."""

    at_least: float
    at_most: float

    def holds(self, value: Value) -> bool:
        return isinstance(value, int | float) and self.at_least <= value <= self.at_most

    def overlaps(self, other: Condition) -> bool:
        if not isinstance(other, Between):
            return True
        return max(self.at_least, other.at_least) <= min(self.at_most, other.at_most)

    def covers(self, other: Condition) -> bool:
        return isinstance(other, Between) and (self.at_least <= other.at_least and other.at_most <= self.at_most)

    @property
    def impossible(self) -> str:
        return "" if self.at_least <= self.at_most else f"at_least {self.at_least} is above at_most {self.at_most}"

    @property
    def words(self) -> str:
        bounds = [("at least", self.at_least), ("at most", self.at_most)]
        return f"is {' and '.join(f'{name} {bound:g}' for name, bound in bounds if math.isfinite(bound))}"


@dataclass(frozen=True)
class Versions(Condition):
    """`versions.torch = ">=2.9,<3"`: a package's version matches a PEP 440 specifier.

    A release candidate matches if its release does: 2.9.0rc1 has the code of 2.9, though PEP 440 sorts it before.
    """

    specifier: SpecifierSet

    def holds(self, value: Value) -> bool:
        if not isinstance(value, str):
            return False
        try:
            version = Version(value)
        except InvalidVersion:
            return False
        return self._matches(version) or self._matches(Version(version.base_version))

    def overlaps(self, other: Condition) -> bool:
        if not isinstance(other, Versions):
            return True
        return any(self._matches(v) and other._matches(v) for v in _samples(self.specifier, other.specifier))

    def covers(self, other: Condition) -> bool:
        if not isinstance(other, Versions):
            return False
        return all(self._matches(v) for v in _samples(self.specifier, other.specifier) if other._matches(v))

    @property
    def impossible(self) -> str:
        if any(self._matches(v) for v in _samples(self.specifier)):
            return ""
        return f"no version matches {str(self.specifier)!r}"

    @property
    def words(self) -> str:
        return f"fits {self.specifier}"

    def _matches(self, version: Version) -> bool:
        return self.specifier.contains(version, prereleases=True)


def _samples(*specifiers: SpecifierSet) -> list[Version]:
    """Return versions at, just above and between all bounds: specifiers that agree on these are equal."""
    bounds = {Version("0"), Version("99999")}
    for specifier in specifiers:
        bounds |= {Version(one.version.removesuffix(".*")) for one in specifier}
    ordered = sorted(bounds)
    above = [Version(f"{bound.base_version}.0.0.0.1") for bound in ordered]
    between = [Version(f"{low.major}.{low.minor + 1}") for low, high in pairwise(ordered) if low < high]
    return sorted({*ordered, *above, *between})


def all_hold(when: When, facts: Facts) -> bool:
    """Whether the facts satisfy all conditions."""
    return all(condition.holds(facts.value(name)) for name, condition in when.items())


def all_overlap(first: When, second: When) -> bool:
    """Whether a model can satisfy both."""
    return all(first[name].overlaps(second[name]) for name in first.keys() & second.keys())


def all_covered(wide: When, narrow: When) -> bool:
    """Whether each model that satisfies `narrow` satisfies `wide`."""
    return all(name in narrow and condition.covers(narrow[name]) for name, condition in wide.items())
