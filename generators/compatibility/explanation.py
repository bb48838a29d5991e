"""Explain a prediction: the rules and facts behind it, and what would change it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hwcompat.hardware.target import Target

from .conditions import Condition
from .rule import Rule
from .rule_facts import Facts, Value
from .rules import Reasoning, RuleSet, combined, reason
from .verdict import Level
from .vocabulary import not_computed

_CLOSEST = 3
_FEW = 4


@dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """A condition of a rule with the value of its fact."""

    fact: str
    wants: str
    value: Value
    holds: bool
    wanted: frozenset[str] = frozenset()

    @property
    def shown(self) -> tuple[str, ...]:
        """The value; of a list only what the condition names."""
        return tuple(item for item in self.value if item in self.wanted) if isinstance(self.value, tuple) else ()

    @property
    def text(self) -> str:
        """The condition as text: `padding_error is at least 2e-05 (here 0.951)`."""
        return f"{self.fact} {self.wants} (here {self._here})"

    @property
    def _here(self) -> str:
        if not isinstance(self.value, tuple) or not self.value:
            return said(self.value)
        if self.shown:
            return f"{', '.join(self.shown)} among {len(self.value)}"
        if self.wanted:
            return f"{len(self.value)} others"
        return ", ".join(self.value) if len(self.value) <= _FEW else said(self.value)


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
                {"fact": a.fact, "wants": a.wants, "value": a.value, "holds": a.holds} for a in self.asked
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
    return tuple(_one(name, condition, facts) for name, condition in rule.when.items())


def _one(name: str, condition: Condition, facts: Facts) -> ExplainRequest:
    value = facts.value(name)
    wanted: frozenset[str] = getattr(condition, "values", frozenset())
    return ExplainRequest(fact=name, wants=condition.words, value=value, holds=condition.holds(value), wanted=wanted)


def _changes(target: Target, facts: Facts, rules: RuleSet, found: Reasoning) -> Iterator[str]:
    """Yield the level without the limits that decide it, and the level that the nearest other rules would give."""
    if facts.precision and not_computed(target, facts.precision):
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


def said(value: Value) -> str:
    """Return a fact's value as text; for a long list its length."""
    if value is None or value == ():
        return "unknown"
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else value
