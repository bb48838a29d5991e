"""Load rules, refuse sets that contradict themselves, and predict verdicts.

A rule claims a level or limits it. The claim with more conditions wins; among equals a predicted level wins over an
assumed one. Two claims that are still equal count only if they agree; the order of files or lines decides nothing.
Every limit that holds counts: the level is the lowest of them and of the winning claim.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from hwcompat.hardware.cell import GRAPH_TASK, Cell
from hwcompat.hardware.errors import BrokenInput, echo
from hwcompat.hardware.evidence.error_types import facts_of_error_types
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.target import Target

from .conditions import all_covered, all_hold, all_overlap
from .rule import Rule, read_rules
from .rule_facts import Facts
from .verdict import Basis, Fault, Level, Reason, Verdict, once
from .vocabulary import not_computed

RULES_FOLDER = Path(__file__).with_name("rules")

_WEIGHT = {Level.UNSUPPORTED: 0, Level.LOW: 1, Level.UNKNOWN: 2, Level.MEDIUM: 3, Level.HIGH: 4}
"""Order of limits, the strongest first: a known failure outweighs an unknown."""


@dataclass(frozen=True, kw_only=True)
class RuleSet:
    """Rules that were checked against each other."""

    rules: tuple[Rule, ...]

    @functools.cached_property
    def _of(self) -> dict[Target, tuple[Rule, ...]]:
        """Rules by target, cached: a matrix uses a few targets thousands of times."""
        return {}

    def about_targets(self) -> RuleSet:
        """Return the rules without those about faults of models' own code, which say nothing about a target."""
        return RuleSet(rules=tuple(rule for rule in self.rules if _fault([rule]) is not Fault.MODEL))

    def of(self, target: Target) -> tuple[Rule, ...]:
        """Return the rules for a target, whether they hold or not."""
        if target not in self._of:
            self._of[target] = tuple(rule for rule in self.rules if rule.matching_target(target) is not None)
        return self._of[target]

    def holding(self, target: Target, facts: Facts) -> tuple[Rule, ...]:
        """Return the rules for a target whose conditions hold; none in a precision that the target doesn't run."""
        if facts.precision and not_computed(target, facts.precision, facts.task or ""):
            return ()
        return tuple(rule for rule in self.of(target) if all_hold(rule.when, facts))

    def winners(self, target: Target, facts: Facts) -> tuple[Rule, ...]:
        """Return the claims with the highest precedence among those that hold: none, one, or several that agree."""
        return _winning_claims(self.holding(target, facts), target)

    def rule(self, rule_id: str) -> Rule:
        """Return the rule with that id. Raises `KeyError`."""
        for rule in self.rules:
            if rule.id == rule_id:
                return rule
        raise KeyError(rule_id)


def _winning_claims(holding: Sequence[Rule], target: Target) -> tuple[Rule, ...]:
    ranked = [
        (rule.precedence(own), rule) for rule in holding if not rule.limit and (own := rule.matching_target(target))
    ]
    best = max((precedence for precedence, _ in ranked), default=None)
    return tuple(rule for precedence, rule in ranked if precedence == best)


def load_rules(paths: Iterable[Path] = ()) -> RuleSet:
    """Load the shipped rules, those of `own_rules` and those of `paths` (TOML files, or folders of them), and check
    them together.

    The id of a rule that isn't shipped gets its file and the beginning of the file's SHA-256:
    `mychip.slow+my_rules.toml:0123456789ab`. Raises `BrokenInput` naming the file, the rule and the field, or the two
    rules that contradict each other.
    """
    shipped = [rule for file in _files(RULES_FOLDER) for rule in read_rules(file)]
    files = dict.fromkeys(file.resolve() for path in (*_own, *paths) for file in _files(path))
    own = [(rule, file) for file in files for rule in read_rules(file)]
    check_together([*shipped, *(rule for rule, _ in own)])
    digests = {file: hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in files}
    named = (replace(rule, id=f"{rule.id}+{file.name}:{digests[file]}") for rule, file in own)
    return RuleSet(rules=(*shipped, *named))


_own: list[Path] = []


@contextmanager
def own_rules(paths: Sequence[Path]) -> Iterator[None]:
    """Load the rules at `paths` beside the shipped ones in this block. Raises as `load_rules` does."""
    _own.extend(paths)
    try:
        load_rules()
        yield
    finally:
        del _own[len(_own) - len(paths) :]


def own_files(rule_ids: Iterable[str]) -> tuple[str, ...]:
    """Return the files that aren't shipped among those of some rules, each with the beginning of its SHA-256."""
    files = {id_.partition("+")[2].rpartition(":") for id_ in rule_ids if "+" in id_}
    return tuple(f"{one_line(name)} (sha256 {digest})" for name, _, digest in sorted(files))


def _files(path: Path) -> list[Path]:
    found = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    if not (found and found[0].is_file()):
        why = "the folder has no .toml file" if path.is_dir() else "it is not a file or a folder"
        raise BrokenInput(f"there are no rules at {echo(path.name)}", why=why)
    return found


def check_together(rules: Sequence[Rule]) -> None:
    """Raise `BrokenInput` for two rules with one id, a contradiction, or a rule that can never count."""
    seen: dict[str, Rule] = {}
    for rule in rules:
        if rule.id in seen:
            raise BrokenInput(
                f"two rules have the id {rule.id}, in {seen[rule.id].file} and {rule.file}", fix="Rename one."
            )
        seen[rule.id] = rule
    claims = [(rule, target) for rule in rules for target in rule.targets]
    for (first, target), (second, other) in combinations(claims, 2):
        if first is second or target.name != other.name or first.limit != second.limit:
            continue
        if not first.limit:
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
            why=f"both can apply to a model on {max(target, other)}, with levels {first.level} and {second.level}",
            fix="Add a condition to one of them, to make it more specific.",
        )


def _check_shadow(rule: Rule, target: Target, other: Rule, others: Target) -> None:
    """Raise `BrokenInput` if `other` holds whenever `rule` does, and wins or agrees."""
    if others.variant not in ("", target.variant) or not all_covered(other.when, rule.when):
        return
    if rule.limit:
        wins = _WEIGHT[other.level] < _WEIGHT[rule.level]
        same = other.level is rule.level
    else:
        wins = other.precedence(others) > rule.precedence(target)
        same = other.precedence(others) == rule.precedence(target) and all_covered(rule.when, other.when)
    if wins or same:
        raise BrokenInput(
            f"rule {rule.id} ({rule.file}) has no effect on {target}",
            why=f"whenever it applies, rule {other.id} ({other.file}) "
            + ("applies too and takes precedence" if wins else "gives the same level"),
            fix="Remove it, or add a condition that the other rule doesn't have.",
        )


@dataclass(frozen=True, kw_only=True)
class Reasoning:
    """How a prediction was made: the claims that won, those that were outranked, and the limits, of which those that
    `bind` decide the level."""

    level: Level
    basis: Basis
    winners: tuple[Rule, ...]
    outranked: tuple[Rule, ...]
    limits: tuple[Rule, ...]
    binding: tuple[Rule, ...]

    @property
    def counted(self) -> tuple[Rule, ...]:
        """The rules that the level rests on."""
        return (*self.winners, *self.binding)


def reason(target: Target, facts: Facts, rules: RuleSet) -> Reasoning:
    """Return what the rules say about a model on a target, and which of them."""
    holding = rules.holding(target, facts)
    winners = _winning_claims(holding, target)
    limits = tuple(rule for rule in holding if rule.limit)
    level, binding = combined(winners, limits)
    return Reasoning(
        level=level,
        basis=Basis.PREDICTED if binding or not winners else winners[0].basis,
        winners=winners,
        outranked=tuple(rule for rule in holding if not rule.limit and rule not in winners),
        limits=limits,
        binding=binding,
    )


def combined(winners: Sequence[Rule], limits: Sequence[Rule]) -> tuple[Level, tuple[Rule, ...]]:
    """Return the level of claims and limits together, and the limits that decide it."""
    lowest = min((rule.level for rule in limits), key=_WEIGHT.__getitem__, default=Level.HIGH)
    claimed = winners[0].level if winners else Level.UNKNOWN
    # Without a claim, a limit counts only if it says that the model fails.
    binds = lowest in (Level.UNSUPPORTED, Level.LOW) if not winners else _WEIGHT[lowest] < _WEIGHT[claimed]
    return (lowest, tuple(rule for rule in limits if rule.level is lowest)) if binds else (claimed, ())


def predict(cell: Cell, facts: Facts, rules: RuleSet) -> Verdict:
    """Return what the rules predict for a cell before anything runs; `unknown` if no rule covers it, or if one says
    that rules can't tell."""
    found = reason(cell.target, facts, rules)
    if not found.counted:
        why = not_computed(cell.target, cell.precision, cell.task)
        no_rule = Reason.of("no_rule", model=facts.model_type or cell.model, target=str(cell.target))
        no_rule = Reason.of("no_rule_for_files") if cell.task == GRAPH_TASK else no_rule
        reason_ = Reason.of("not_computed", text=why) if why else no_rule
        return Verdict(cell=cell.id, level=Level.UNKNOWN, basis=Basis.PREDICTED, reasons=(reason_,))
    works = found.level in (Level.HIGH, Level.MEDIUM)  # a failure has no conditions
    return Verdict(
        cell=cell.id,
        level=found.level,
        basis=found.basis,
        reasons=once(Reason.of("rule", text=rule.reason) for rule in found.binding or found.winners),
        conditions=once(
            Reason.of("rule", text=text)
            for rule in (*found.winners, *found.limits)
            if works
            for text in rule.conditions
        ),
        rule_ids=tuple(rule.id for rule in found.counted),
        fault=None if works else _fault(found.binding or found.winners),
    )


def _fault(counted: Sequence[Rule]) -> Fault | None:
    """Return who is responsible for the failures that rules predict; None if they don't agree or it isn't known."""
    facts = facts_of_error_types()
    faults = {facts.get(rule.error_type, {}).get("fault") for rule in counted}
    (fault, *others) = faults
    return Fault(fault) if fault and not others else None
