"""Explain a prediction: the rules and facts behind it, and what would change it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hwcompat.hardware.cell import GRAPH_TASK
from hwcompat.hardware.target import Target

from .conditions import Condition, Known
from .rule import Rule
from .rule_facts import LIST_FIELDS, VERSION_PREFIX, Facts, Value
from .rules import Reasoning, RuleSet, combined, reason
from .verdict import Level
from .vocabulary import not_computed, vocabulary

_CLOSEST = 3
_FEW = 4
_PLURAL = {"is": "are", "has": "include"}


@dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """A condition of a rule with the value of its fact."""

    fact: str
    condition: Condition
    value: Value

    @property
    def holds(self) -> bool:
        """Whether the fact satisfies the condition."""
        return self.condition.holds(self.value)

    @property
    def text(self) -> str:
        """The condition as a sentence: `decoding with a cache fails or is wrong (here it is right)`."""
        sentence = f"{self._words['name']} {self._predicate}"
        if self.value is None or self.value == ():
            return f"{sentence} (unknown here)"
        if self.holds and self._wanted == {self.value}:
            return sentence
        return f"{sentence} ({'' if self.holds else 'here '}{self._here})"

    @property
    def _wanted(self) -> frozenset[str]:
        wanted: frozenset[str] = getattr(self.condition, "values", frozenset())
        return wanted

    @property
    def _words(self) -> Mapping[str, str]:
        package = self.fact.removeprefix(VERSION_PREFIX)
        return vocabulary().facts.get(self.fact) or {"name": f"the version of {package}"}

    @property
    def _predicate(self) -> str:
        wanted = sorted(self._wanted)
        if wanted and self._words.keys() >= set(wanted):
            return " or ".join(self._words[value] for value in wanted)
        if isinstance(self.condition, Known) and "known" in self._words:
            return self._words["known"]
        verb, _, rest = self.condition.words.partition(" ")
        plural = _PLURAL.get(verb, verb) if self.fact in LIST_FIELDS else verb
        return f"{self._words.get(verb, plural)} {rest}"

    @property
    def _here(self) -> str:
        value = self.value
        if isinstance(value, tuple):
            if shown := [item for item in value if item in self._wanted]:
                return f"{', '.join(shown)} among {len(value)}"
            others = " others" if self._wanted else ""
            return ", ".join(value) if len(value) <= _FEW and not others else f"{len(value)}{others}"
        if isinstance(value, str):
            return f"it {self._words[value]}" if value in self._words else value
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"


@dataclass(frozen=True, kw_only=True)
class Link:
    """A rule of the chain: how it affects the level, and why it holds."""

    role: str
    rule: Rule
    asked: tuple[ExplainRequest, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "role": self.role,
            "rule": self.rule.id,
            "level": str(self.rule.level),
            "limit": self.rule.limit,
            "reason": self.rule.reason,
            "source": self.rule.source,
            "file": self.rule.file,
            "conditions": [
                {"fact": a.fact, "wants": a.condition.words, "value": a.value, "holds": a.holds} for a in self.asked
            ],
        }


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A prediction from its facts to its level. `changes` describes what would change the level."""

    level: Level
    links: tuple[Link, ...]
    changes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "level": str(self.level),
            "rules": [link.to_dict() for link in self.links],
            "changes": list(self.changes),
        }


def explain(target: Target, facts: Facts, rules: RuleSet) -> Chain:
    """Return the chain behind what the rules predict for a model on a target."""
    found = reason(target, facts, rules)
    roles = [
        *(("claims", rule) for rule in found.winners),
        *(("limits", rule) for rule in found.binding),
        *(("also limits", rule) for rule in found.limits if rule not in found.binding),
        *(("outranked", rule) for rule in found.outranked),
    ]
    links = tuple(Link(role=role, rule=rule, asked=_requests(rule, facts)) for role, rule in roles)
    return Chain(level=found.level, links=links, changes=tuple(_changes(target, facts, rules, found)))


def _requests(rule: Rule, facts: Facts) -> tuple[ExplainRequest, ...]:
    return tuple(
        ExplainRequest(fact=name, condition=condition, value=facts.value(name))
        for name, condition in rule.when.items()
    )


def _changes(target: Target, facts: Facts, rules: RuleSet, found: Reasoning) -> Iterator[str]:
    """Yield the level without the limits that decide it, and the level that the nearest other rules would give."""
    if facts.task == GRAPH_TASK or (facts.precision and not_computed(target, facts.precision)):
        return
    if found.binding:
        rest = [other for other in found.limits if other not in found.binding]
        without = [
            f"{' and '.join(asked.text for asked in _requests(rule, facts))} [{rule.id}]" for rule in found.binding
        ]
        level, _ = combined(found.winners, rest)
        which = "all of these" if len(without) > 1 else "this"
        yield f"{level} if {which} didn't apply: {'; '.join(without)}"
    near = []
    for rule in rules.of(target):
        unmet = [asked for asked in _requests(rule, facts) if not asked.holds]
        # A claim helps if there is none, a limit hurts if there is a claim.
        if not unmet or rule.limit != bool(found.winners):
            continue
        claims, limits = (found.winners, (*found.limits, rule)) if rule.limit else ((rule,), found.limits)
        level, _ = combined(claims, limits)
        if level is not found.level:
            near.append((len(unmet), rule.id, level, unmet))
    for count, name, level, unmet in sorted(near, key=lambda one: one[:2])[:_CLOSEST]:
        if count <= 1 or not found.winners:
            yield f"{level} if {' and '.join(asked.text for asked in unmet)} [{name}]"
