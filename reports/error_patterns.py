"""Identify the error type of a failure from its message and context. Patterns are data; nothing is run."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hwcompat.generators.compatibility.operators.operator_names import last_way, operators_named
from hwcompat.generators.compatibility.operators.operator_table import coverage
from hwcompat.hardware.errors import UsageError
from hwcompat.hardware.evidence.error_types import current_name, facts_of_error_types
from hwcompat.hardware.target import Target
from hwcompat.hardware.values import data_file

from .finding import Confidence, Severity
from .text import listed

UNKNOWN = "unknown"

_PATTERNS = Path(__file__).with_name("patterns.toml")
_ISSUES = Path(__file__).with_name("upstream_issues.toml")
_LONGEST_SEARCHED = 20_000
_EXCEPTION = re.compile(r"\s{0,8}(?:[A-Za-z_]\w{0,80}\.){0,8}(?P<name>[A-Z]\w{2,80})(?::|$)")
_MOST_OPERATORS = 6


@dataclass(frozen=True, kw_only=True)
class ErrorType:
    """An entry of `hardware/evidence/error_types.toml`."""

    name: str
    severity: Severity
    scope: str
    says: str
    group: str = ""
    consequence: bool = False
    quiet: bool = False
    operators: bool = False
    fault: str = ""
    exceptions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """The conditions that identify an error type: all must hold, and of each list one is enough."""

    error_type: str
    of: frozenset[str]
    confidence: Confidence
    match: tuple[Expression, ...] = ()
    exceptions: frozenset[str] = frozenset()
    stages: frozenset[str] = frozenset()
    checks: frozenset[str] = frozenset()
    targets: frozenset[str] = frozenset()
    rules: frozenset[str] = frozenset()
    in_log: bool = False
    severity: Severity | None = None
    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class KnownIssue:
    """A public issue of another project; without `match` it may explain a failure and proves nothing."""

    url: str
    what: str
    of: frozenset[str]
    versions: Mapping[str, str]
    fixed: str
    seen: str
    match: tuple[Expression, ...] = ()
    targets: frozenset[str] = frozenset()
    precisions: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Around:
    """The context of a failure besides its message; all of it may be missing.

    `exception` is the class that was raised, `operators` those that a line names, `rules` the ids of the rules behind
    the stored prediction, `versions` by name.
    """

    check: str = ""
    stage: str = ""
    exception: str = ""
    target: str = ""
    precision: str = ""
    operators: tuple[str, ...] = ()
    rules: frozenset[str] = frozenset()
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """An error type with its grade; `cause` names a module or operators, `issues` may explain it."""

    error_type: str
    severity: Severity
    confidence: Confidence
    cause: str = ""
    issues: tuple[KnownIssue, ...] = ()


_NOTHING = Around()


@functools.cache
def failure_signs() -> tuple[str, ...]:
    """Return lower-case words of lines that may name a failure."""
    return tuple(data_file(_PATTERNS)["failure_signs"])


@functools.cache
def error_types() -> dict[str, ErrorType]:
    """Return all known error types by name, in the order of the data file."""
    return {
        name: ErrorType(name=name, **{**entry, "severity": Severity(entry["severity"])})
        for name, entry in facts_of_error_types().items()
    }


@functools.cache
def patterns() -> tuple[Pattern, ...]:
    """Return all patterns in the order in which they are tried."""
    return tuple(
        Pattern(
            **{
                "of": frozenset((UNKNOWN,)),
                **_values(entry),
                "confidence": Confidence(entry["confidence"]),
                "severity": Severity(entry["severity"]) if "severity" in entry else None,
            }
        )
        for entry in data_file(_PATTERNS)["pattern"]
    )


@functools.cache
def known_issues() -> tuple[KnownIssue, ...]:
    """Return the known issues in the order of the data file."""
    listed = tomllib.loads(_ISSUES.read_text(encoding="utf-8"))["issue"]
    return tuple(KnownIssue(**_values(entry)) for entry in listed)


def _values(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an entry by name: lists become sets of words, and those of `match` expressions."""
    found: dict[str, Any] = {
        name: frozenset(value) if isinstance(value, list) else value for name, value in entry.items()
    }
    return found | {"match": tuple(Expression.of(text) for text in entry.get("match", ()))}


def identify(message: str, *, recorded: str = "", log: str = "", around: Around = _NOTHING) -> Diagnosis:
    """Return the error type of a failure, starting from the recorded one (empty if none was recorded). Pure.

    Of long texts the beginning of the message and the end of the log are read.
    """
    start = current_name(recorded)
    start = start if start in error_types() else UNKNOWN
    said = message[:_LONGEST_SEARCHED]
    with_log = f"{said}\n{log[-_LONGEST_SEARCHED:]}" if log else said
    exception = around.exception or exception_of(said)
    diagnosis = _grade(start, Confidence.LOW if start == UNKNOWN else Confidence.HIGH)
    for pattern in patterns():
        found = _fits(pattern, start, said, with_log, exception, around)
        if found is not None:
            # A typed exception is more certain than any message.
            sure = Confidence.HIGH if start == pattern.error_type else pattern.confidence
            cause = pattern.cause or next(filter(None, found), "").strip(" ,.")
            # Runtimes write aten::mm, tables and evidence aten.mm.
            diagnosis = _grade(pattern.error_type, sure, pattern.severity, cause.replace("aten::", "aten."))
            break
    return _explained(_with_operators(diagnosis, said, around), last_way(said), around)


def exception_of(message: str) -> str:
    """Return the class at the beginning of an exception's text (`torch.OutOfMemoryError: …`), without its module."""
    found = _EXCEPTION.match(message)
    return found["name"] if found else ""


def target_of(text: str) -> str:
    """Return the most specific target that a text names; empty if it names none."""
    return next(iter(targets_in(text)), "")


def targets_in(text: str) -> tuple[str, ...]:
    """Return all targets that a text names, the most specific first."""
    return tuple(name for name, signs in _targets() if any(sign.search(text) for sign in signs))


@functools.cache
def _targets() -> tuple[tuple[str, tuple[re.Pattern[str], ...]], ...]:
    listed = data_file(_PATTERNS)["target"]
    return tuple((one["name"], tuple(re.compile(text) for text in one["match"])) for one in listed)


def _grade(name: str, confidence: Confidence, severity: Severity | None = None, cause: str = "") -> Diagnosis:
    return Diagnosis(
        error_type=name, severity=severity or error_types()[name].severity, confidence=confidence, cause=cause
    )


def _fits(
    pattern: Pattern, start: str, said: str, with_log: str, exception: str, around: Around
) -> tuple[str | None, ...] | None:
    """Return the pattern's named groups (none: no names), or None if it doesn't match."""
    if start not in pattern.of:
        return None
    asked = (
        (pattern.exceptions, exception),
        (pattern.stages, around.stage),
        (pattern.checks, around.check),
        (pattern.targets, around.target),
    )
    if any(wanted and value not in wanted for wanted, value in asked):
        return None
    if pattern.rules and not pattern.rules & around.rules:
        return None
    if not pattern.match:
        return ()
    searched = with_log if pattern.in_log else said
    found = next(filter(None, (one.search(searched) for one in pattern.match)), None)
    return None if found is None else tuple(found.groupdict().values())


def _with_operators(diagnosis: Diagnosis, said: str, around: Around) -> Diagnosis:
    """Return the diagnosis with the operators of the message or the line as its cause, if it is about operators."""
    if not error_types()[diagnosis.error_type].operators or diagnosis.cause:
        return diagnosis
    names = tuple(sorted(around.operators)) or tuple(sorted(operators_named(said)))
    return replace(diagnosis, cause=listed(_lacking(names, around.target), _MOST_OPERATORS))


def _lacking(names: tuple[str, ...], target: str) -> tuple[str, ...]:
    """Return the operators that the target is known to lack, else all: the others were only left with them."""
    if len(names) < 2 or not target:
        return names
    try:
        missing = coverage(Target.parse(target), names).missing
    except UsageError:  # evidence may name an unknown target
        return names
    return tuple(sorted(missing)) or names


def _explained(diagnosis: Diagnosis, text: str, around: Around) -> Diagnosis:
    """Add the known issues of others; one that the message itself shows is the cause."""
    found = tuple(issue for issue in known_issues() if _explains(issue, diagnosis.error_type, text, around))
    if not found:
        return diagnosis
    shown = next((issue for issue in found if issue.match), None)
    if shown is None:
        return replace(diagnosis, issues=found)
    bug = _grade("upstream_bug", Confidence.HIGH, cause=shown.what)
    return replace(bug, issues=found)


def _explains(issue: KnownIssue, error_type: str, text: str, around: Around) -> bool:
    if error_type not in issue.of:
        return False
    if issue.targets and not issue.targets & {around.target, around.target.partition(":")[0]}:
        return False
    if issue.precisions and around.precision not in issue.precisions:
        return False
    if issue.match and not any(one.search(text) for one in issue.match):
        return False
    return all(_version_fits(around.versions.get(name, ""), wanted) for name, wanted in issue.versions.items())


def _version_fits(version: str, wanted: str) -> bool:
    """Whether a version is known and matches a specifier; an invalid version matches nothing."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(wanted).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


_SHORTEST = 3


@dataclass(frozen=True, kw_only=True)
class Expression:
    """A regular expression; each match has one of its lower-case `words`. Without words, every text is searched.

    It is compiled on first use: most of hundreds never are.
    """

    source: str
    words: tuple[str, ...]

    @classmethod
    def of(cls, source: str) -> Expression:
        """Return the expression with the words of its source."""
        words = tuple(_word(part) for part in _alternatives(source))
        return cls(source=source, words=words if all(len(word) >= _SHORTEST for word in words) else ())

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match, or None. Raises `re.error` for an invalid expression."""
        lower = _lower(text)
        if self.words and not any(word in lower for word in self.words):
            return None
        return _compiled_source(self.source).search(text)


@functools.lru_cache(maxsize=4)
def _lower(text: str) -> str:
    """Return a text in lower case, cached for hundreds of searches."""
    return text.lower()


@functools.cache
def _compiled_source(source: str) -> re.Pattern[str]:
    return re.compile(source, re.IGNORECASE)


def _alternatives(source: str) -> list[Any]:
    """Return the alternatives of a regular expression as Python's parser reads them: lists of operators and
    operands."""
    parsed: Any = import_module("re._parser").parse(source)
    operator, value = parsed[0] if len(parsed) == 1 else ("", None)
    return list(value[1]) if value and str(operator) == "BRANCH" else [parsed]


def _word(parts: Any) -> str:
    """Return the longest lower-case literal, outside groups and repetitions, that each match must contain."""
    signs = "".join(chr(value) if str(operator) == "LITERAL" else "\0" for operator, value in parts)
    return max(signs.split("\0"), key=len).lower()
