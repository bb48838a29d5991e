"""Read rules from TOML files, with errors that name file, rule, field and the expected value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from hwcompat.hardware.cell import PRECISIONS
from hwcompat.hardware.errors import BrokenInput, HwCompatError, did_you_mean, echo
from hwcompat.hardware.evidence.error_types import known_error_types
from hwcompat.hardware.safe_read import parsed_toml, read_text, reason_of
from hwcompat.hardware.target import Target

from .conditions import AnyOf, Between, Condition, Contains, Known, OneOf, Versions, When
from .rule_facts import LIST_FIELDS, NUMBER_FIELDS, TEXT_FIELDS, VERSION_PREFIX
from .verdict import Basis, Level
from .vocabulary import vocabulary

SCHEMA = Path(__file__).with_name("schemas") / "rule.json"

_LONGEST = 1_000_000

REQUIRED = ("id", "when", "target", "basis", "reason", "source")
OPTIONAL = ("level", "at_most", "error_type", "note", "conditions", "since", "until")
_OLDER = {"none": str(Level.UNSUPPORTED), "declared": str(Basis.ASSUMED)}
"""Words of older rule files."""
_WORDS = ("level", "at_most", "basis")
LEVELS = tuple(str(level) for level in Level if level is not Level.UNKNOWN)
LIMITS = tuple(str(level) for level in Level if level is not Level.HIGH)
BASES = (str(Basis.ASSUMED), str(Basis.PREDICTED))

_ID = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_-]+)+")
_SOURCE = re.compile(r"https?://\S+|(?!/)(?!.*\.\.)[A-Za-z0-9_./-]+\.(?:md|toml|json|py)(?:#[a-z0-9-]+)?")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """If `when` holds for a model, `targets` have this `level`, for this `reason`, by this `source`.

    A rule claims a level, or it is a `limit`: the level is at most that, whatever is claimed; the limit `unknown`
    means that rules can't tell. `when` maps the name of a fact to a condition; `since` and `until` are part of it as
    conditions on `versions.transformers`. A target without a variant covers all its variants.
    """

    id: str
    when: When
    targets: tuple[Target, ...]
    level: Level
    basis: Basis
    reason: str
    source: str
    file: str
    error_type: str = ""
    note: str = ""
    conditions: tuple[str, ...] = ()
    limit: bool = False

    def matching_target(self, target: Target) -> Target | None:
        """Return the target of this rule that covers `target`, preferring the one with its variant."""
        own = [t for t in self.targets if t.name == target.name and t.variant in ("", target.variant)]
        return max(own, key=lambda t: t.variant, default=None)

    def precedence(self, target: Target) -> tuple[int, bool]:
        """Sort key; larger wins: the number of conditions (a target's variant is one), then predicted over assumed.

        A range of precisions bounds an assumed rule and makes it no more specific, so that a prior stays the weakest
        of all rules; a single precision is a condition like others.
        """
        predicted = self.basis is Basis.PREDICTED
        precision = self.when.get("precision")
        bounds = not predicted and isinstance(precision, OneOf) and len(precision.values) > 1
        return len(self.when) - bounds + bool(target.variant), predicted


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Read the rules of one file. Raises `BrokenInput`."""
    try:
        data = parsed_toml(read_text(path, longest=_LONGEST))
    except (OSError, ValueError) as error:
        raise BrokenInput(f"the rules in {echo(path.name)} can't be read", why=reason_of(error)) from error
    for key in data:
        if key != "rule":
            raise _Complaint(path.name, "the file", key).says(
                "rule files have only [[rule]] tables", did_you_mean(key, ["rule"])
            )
    rules = data.get("rule", [])
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise _Complaint(path.name, "the file", "rule").says("it must be a list of [[rule]] tables")
    return tuple(_parse(rule, path.name, number) for number, rule in enumerate(rules, 1))


@dataclass(frozen=True)
class _Complaint:
    """The place in a rule file that an error is about."""

    file: str
    rule: str
    field: str = ""

    def at(self, field: str) -> _Complaint:
        return _Complaint(self.file, self.rule, field)

    def says(self, expected: str, fix: str = "") -> BrokenInput:
        return BrokenInput(f"{self.file}, {self.rule}, field {echo(self.field)}", why=expected, fix=fix)

    def word(self, value: Any, known: Iterable[str], noun: str) -> BrokenInput:
        known = tuple(known)
        fix = did_you_mean(str(value), known) or f"Known: {', '.join(known)}."
        return self.says(f"{echo(str(value))} isn't a {noun}", fix)


def _parse(data: Mapping[str, Any], file: str, number: int) -> Rule:
    name = data.get("id")
    here = _Complaint(file, f"rule {name}" if isinstance(name, str) else f"rule number {number}")
    for field in data:
        if field not in REQUIRED + OPTIONAL:
            raise here.at(field).word(field, REQUIRED + OPTIONAL, "field of a rule")
    for field in REQUIRED:
        if field not in data:
            raise here.at(field).says("it is required", "Add it.")
    for field in ("id", "level", "at_most", "basis", "reason", "source", "error_type", "note", "since", "until"):
        if field in data and not (isinstance(data[field], str) and data[field].strip()):
            raise here.at(field).says("it must be text that isn't empty")
    if not _ID.fullmatch(data["id"]):
        raise here.at("id").says("an id has lowercase parts separated by dots, such as prior.vision.high")
    if "error_type" in data and data["error_type"] not in known_error_types():
        raise here.at("error_type").word(data["error_type"], known_error_types(), "known error type")
    data = {**data, **{name: _OLDER.get(data[name], data[name]) for name in _WORDS if name in data}}
    limit = _limits(data, here)
    if data["basis"] not in BASES:
        raise here.at("basis").word(data["basis"], BASES, "basis of a rule")
    if not _SOURCE.fullmatch(data["source"]):
        raise here.at("source").says("it must be a link (https://...) or a document of the repository")
    return Rule(
        id=data["id"],
        when=_when(data, here),
        targets=_targets(data["target"], here.at("target")),
        level=Level(data["at_most"] if limit else data["level"]),
        basis=Basis(data["basis"]),
        reason=data["reason"],
        source=data["source"],
        file=file,
        error_type=data.get("error_type", ""),
        note=data.get("note", ""),
        conditions=_texts(data.get("conditions", []), here.at("conditions")),
        limit=limit,
    )


def _limits(data: Mapping[str, Any], here: _Complaint) -> bool:
    """Whether the rule has `at_most` instead of a `level`; it must have one of them."""
    if ("level" in data) == ("at_most" in data):
        raise here.at("level").says("a rule has either level or at_most")
    if "at_most" in data and data["at_most"] not in LIMITS:
        raise here.at("at_most").word(data["at_most"], LIMITS, "limit of a rule")
    if "level" in data and data["level"] not in LEVELS:
        raise here.at("level").word(data["level"], LEVELS, "level of a rule")
    return "at_most" in data


def _targets(value: Any, here: _Complaint) -> tuple[Target, ...]:
    known = vocabulary().targets
    names = _texts([value] if isinstance(value, str) else value, here)
    if not names:
        raise here.says("it must have at least one target")
    if len(set(names)) < len(names):
        raise here.says("it names a target twice")
    targets = []
    for name in names:
        try:
            target = Target.parse(name)
        except HwCompatError as error:
            raise here.says(str(error)) from error
        if target.name not in known:
            raise here.word(target.name, known, "known target")
        if target.index is not None:
            raise here.says(f"{name} has an index, but a rule is about all devices of a target")
        targets.append(target)
    return tuple(targets)


def _texts(value: Any, here: _Complaint) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise here.says("it must be a list of texts")
    return tuple(value)


def _when(data: Mapping[str, Any], here: _Complaint) -> When:
    table = data["when"]
    if not isinstance(table, dict) or not table:
        raise here.at("when").says("it must be a table with at least one condition")
    when: dict[str, Condition] = {}
    for name, value in table.items():
        place = here.at(f"when.{name}")
        if name == "versions":
            if not isinstance(value, dict) or not value:
                raise place.says("it must be a table of packages, such as versions.torch = '>=2.9'")
            for package, text in value.items():
                when[VERSION_PREFIX + package] = _versions([text], here.at(f"when.versions.{package}"))
        elif name in TEXT_FIELDS:
            when[name] = _text_condition(name, value, place)
        elif name in LIST_FIELDS:
            when[name] = _list_condition(name, value, place)
        elif name in NUMBER_FIELDS:
            when[name] = _number_condition(value, place)
        else:
            raise place.word(name, (*TEXT_FIELDS, *LIST_FIELDS, *NUMBER_FIELDS, "versions"), "known fact")
    _add_validity(data, table, when, here)
    for name, condition in when.items():
        if condition.impossible:
            raise here.at(f"when.{name}").says(f"the rule can never apply: {condition.impossible}")
    return when


def _add_validity(data: Mapping[str, Any], table: Any, when: dict[str, Condition], here: _Complaint) -> None:
    given = [data[field] for field in ("since", "until") if field in data]
    if not given:
        return
    written = table.get("versions", {}).get("transformers")
    texts = [*given, written] if written else given
    when[VERSION_PREFIX + "transformers"] = _versions(texts, here.at("since" if "since" in data else "until"))


def _versions(texts: list[Any], here: _Complaint) -> Versions:
    if not all(isinstance(text, str) and text.strip() and "===" not in text for text in texts):
        raise here.says("it must be a version specifier, such as '>=2.9,<3'")
    try:
        return Versions(SpecifierSet(",".join(texts)))
    except InvalidSpecifier as error:
        raise here.says(f"it must be a version specifier, such as '>=2.9,<3': {error}") from error


def _operators(value: Any, allowed: tuple[str, ...], here: _Complaint) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise here.says(f"it must be a table with one of {', '.join(allowed)}")
    for name in value:
        if name not in allowed:
            raise here.word(name, allowed, "condition for this fact")
    if "known" in value and (value["known"] is not True or len(value) > 1):
        raise here.says("known must be true and the only condition")
    return value


def _text_condition(name: str, value: Any, here: _Complaint) -> Condition:
    table = {"one_of": [value]} if isinstance(value, str) else _operators(value, ("one_of", "known"), here)
    if "known" in table:
        return Known()
    return OneOf(frozenset(_words(name, _texts(table["one_of"], here), here)))


def _list_condition(name: str, value: Any, here: _Complaint) -> Condition:
    table = _operators(value, ("contains", "any_of", "known"), here)
    if "known" in table:
        return Known()
    if len(table) > 1:
        raise here.says("it must have either contains or any_of")
    kind, items = next(iter(table.items()))
    words = frozenset(_words(name, _texts([items] if isinstance(items, str) else items, here), here))
    return Contains(words) if kind == "contains" else AnyOf(words)


def _number_condition(value: Any, here: _Complaint) -> Condition:
    table = _operators(value, ("at_least", "at_most", "known"), here)
    if "known" in table:
        return Known()
    for name, number in table.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise here.says(f"{name} must be a number")
    return Between(table.get("at_least", -math.inf), table.get("at_most", math.inf))


def _words(name: str, values: tuple[str, ...], here: _Complaint) -> tuple[str, ...]:
    """Check the values against the closed list of this fact, if there is one, and return them."""
    words = vocabulary()
    closed = {
        "family": words.families,
        "architecture": words.architectures,
        "traits": words.traits,
        "precision": PRECISIONS,
    }.get(name)
    for value in values:
        if closed is not None and value not in closed:
            raise here.word(value, closed, f"known {name}")
    return values
