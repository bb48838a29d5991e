"""All rules together: loading them, refusing sets that contradict themselves, and predicting a verdict.

Which rule wins: the one with more conditions; among equals a predicted level over a declared one. Two rules
that are still equal may both speak only if they agree; the order of files or lines never decides anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from hardware.cell import Cell
from hardware.errors import BrokenInput
from hardware.target import Target

from .conditions import all_covered, all_hold, all_overlap
from .facts import Facts
from .rule import Rule, read_rules
from .verdict import Basis, Level, Verdict

RULES_FOLDER = Path(__file__).with_name("rules")


@dataclass(frozen=True, kw_only=True)
class RuleSet:
    """Rules that were checked against each other."""

    rules: tuple[Rule, ...]

    def winners(self, target: Target, facts: Facts) -> tuple[Rule, ...]:
        """The rules with the highest precedence among those that hold: none, one, or several that agree."""
        holding = [
            (rule.precedence(own), rule)
            for rule in self.rules
            if (own := rule.speaks_of(target)) is not None and all_hold(rule.when, facts)
        ]
        if not holding:
            return ()
        best = max(precedence for precedence, _ in holding)
        return tuple(rule for precedence, rule in holding if precedence == best)

    def rule(self, rule_id: str) -> Rule:
        """The rule of that id. Raises `KeyError`."""
        for rule in self.rules:
            if rule.id == rule_id:
                return rule
        raise KeyError(rule_id)


def load_rules(extra_paths: Iterable[Path] = (), *, extra_targets: Iterable[str] = ()) -> RuleSet:
    """The shipped rules and those of `extra_paths` (TOML files, or folders of them), checked together.

    `extra_targets` are the names of targets that plug-ins bring. Raises `BrokenInput` naming the file, the
    rule and the field, or the two rules that don't go together.
    """
    known = tuple(extra_targets)
    files = [file for path in (RULES_FOLDER, *extra_paths) for file in _files(path)]
    rules = tuple(rule for file in files for rule in read_rules(file, known))
    check_together(rules)
    return RuleSet(rules=rules)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.toml"))
    if not path.is_file():
        raise BrokenInput(f"there are no rules at {path.name}", why="it is neither a file nor a folder")
    return [path]


def check_together(rules: Sequence[Rule]) -> None:
    """Raises `BrokenInput` for two rules of one id, a contradiction, or a rule that can never count."""
    seen: dict[str, Rule] = {}
    for rule in rules:
        if rule.id in seen:
            raise BrokenInput(
                f"two rules are called {rule.id}, in {seen[rule.id].file} and {rule.file}", fix="Rename one."
            )
        seen[rule.id] = rule
    claims = [(rule, target) for rule in rules for target in rule.targets]
    for (first, target), (second, other) in combinations(claims, 2):
        if first is second or target.name != other.name:
            continue
        _check_pair(first, target, second, other)
        _check_shadow(first, target, second, other)
        _check_shadow(second, other, first, target)


def _check_pair(first: Rule, target: Target, second: Rule, other: Target) -> None:
    if target.variant != other.variant and target.variant and other.variant:
        return
    if first.precedence(target) != second.precedence(other):
        return
    if first.level is not second.level and all_overlap(first.when, second.when):
        raise BrokenInput(
            f"rule {first.id} ({first.file}) and rule {second.id} ({second.file}) contradict each other",
            why=f"both can hold for one model on {max(target, other)}, and say {first.level} and {second.level}",
            fix="Give one of them a further condition, so that it is the more specific one.",
        )


def _check_shadow(rule: Rule, target: Target, other: Rule, others: Target) -> None:
    """Whether `other` always holds where `rule` does, and wins or says the same."""
    if others.variant not in ("", target.variant) or not all_covered(other.when, rule.when):
        return
    wins = other.precedence(others) > rule.precedence(target)
    same = other.precedence(others) == rule.precedence(target) and all_covered(rule.when, other.when)
    if wins or same:
        raise BrokenInput(
            f"rule {rule.id} ({rule.file}) can never count on {target}",
            why=f"wherever it holds, rule {other.id} ({other.file}) "
            + ("holds too and wins" if wins else "says the same"),
            fix="Remove it, or give it a condition that the other rule doesn't have.",
        )


def predict(cell: Cell, facts: Facts, rules: RuleSet) -> Verdict:
    """What the rules say of a cell, before anything runs there; `unknown` where no rule speaks."""
    winners = rules.winners(cell.target, facts)
    if not winners:
        return Verdict(
            cell=cell.id,
            level=Level.UNKNOWN,
            basis=Basis.PREDICTED,
            reasons=(f"no rule speaks of {facts.model_type or cell.model} on {cell.target}",),
        )
    return Verdict(
        cell=cell.id,
        level=winners[0].level,
        basis=winners[0].basis,
        reasons=_once(rule.reason for rule in winners),
        conditions=_once(condition for rule in winners for condition in rule.conditions),
        rule_ids=tuple(rule.id for rule in winners),
    )


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
