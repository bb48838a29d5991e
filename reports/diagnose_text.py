"""Findings from a pasted traceback or log, without running or importing what it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hwcompat.generators.compatibility.operators.operator_names import operators_named
from hwcompat.hardware.plain_text import ends_of, one_line

from .advice import other_targets, remedies, remedies_for
from .diagnose import diagnose
from .error_patterns import (
    UNKNOWN,
    Around,
    Diagnosis,
    error_types,
    exception_of,
    identify,
    known_issues,
    target_of,
    targets_in,
)
from .failures_in_text import Found, TextFailure, failures_in
from .finding import ANY_TARGET, Confidence, Finding, Remedy, Severity, signature, worst_first
from .report_facts import remedies_from_facts
from .report_reading import NO_FAILURE, Reading, first_remedies, questions, read_report
from .text import listed

COMPONENT = "diagnosis"

_LONGEST_LOG = 4_000
_LONGEST_SEARCHED = 200_000
_LONGEST_QUOTE = 400
_MOST_OPERATORS = 6
_GUESSED = 0.12
"""An error type that is less likely isn't named as the answer."""
_UNKNOWN_WORDS = "too few of its words are known: paste the message that is printed, or say in English what happens"
_NO_FAILURE = 0.4
"""How likely it must be that a text with words such as `error` or `can't` has no failure."""
_VERSION = (  # a version that another package requires isn't the installed one
    r"(?<!requires )\b(?:py)?({names})(?:[ _-]version)?"
    r"\s{{0,4}}(?:==|[:=]|\s)\s{{0,20}}v?(\d{{1,4}}\.\d[\w.+]{{0,40}})"
)


@dataclass(frozen=True, kw_only=True)
class TextDiagnosis:
    """The findings of a text, worst first, and how much of it was read.

    `versions` are those in the text, `not_understood` the lines that failed for an unknown reason. `reading` is what
    the words say, unless the text is evidence of hwcompat, and the answer if `is_read`: no pattern knows a failure.
    """

    source: str
    lines: int
    findings: tuple[Finding, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    not_understood: tuple[str, ...] = ()
    reading: Reading | None = None
    is_read: bool = False


@dataclass(frozen=True, kw_only=True)
class _TextSighting:
    failure: TextFailure
    diagnosis: Diagnosis
    target: str

    @property
    def key(self) -> tuple[str, ...]:
        """What two sightings of one root cause have in common."""
        named = self.diagnosis.cause
        if self.diagnosis.error_type == UNKNOWN:
            named = signature(self.failure.quoted)
        return (self.diagnosis.error_type, self.target, named)


def diagnose_text(text: str, *, source: str, timestamp: str) -> TextDiagnosis:
    """Return the findings of a text. `source` is its name, `timestamp` the time of the request (ISO 8601, UTC). Pure.

    Exceptions in a traceback and failures of pytest always count; a stray line counts only if its words are known. If
    no pattern knows a failure, the words of the whole text decide.
    """
    found = failures_in(text)
    versions = versions_in(text)
    sightings = _sightings(text, found, versions)
    known = [one for one in sightings if one.diagnosis.error_type != UNKNOWN]
    reading = None if found.checks else read_report(text, _types_of(known))
    by_words: list[Finding] = []
    counted = sightings
    if reading is not None and not known:
        by_words, counted = _by_words(reading, sightings, text, source, timestamp), []
    groups: dict[tuple[str, ...], list[_TextSighting]] = {}
    for one in counted:
        groups.setdefault(one.key, []).append(one)
    predictions = {one.cell_id: one.verdict for run in found.runs for one in run.plan if one.verdict is not None}
    own = diagnose(found.checks, {run.run_id: run.versions for run in found.runs}, predictions)
    return TextDiagnosis(
        source=source,
        lines=found.lines,
        findings=(*worst_first(own), *_with_facts(_worst_first(groups.values(), source, timestamp), text), *by_words),
        versions=versions,
        not_understood=tuple(
            dict.fromkeys(
                f"{source}:{one.failure.line}: {_quote(one.failure.quoted)}"
                for one in (sightings if by_words or known or reading is None else ())
                if one.diagnosis.error_type == UNKNOWN
            )
        ),
        reading=reading,
        is_read=not known,
    )


def _with_facts(findings: Sequence[Finding], text: str) -> list[Finding]:
    """Return the findings, the first of them with what facts of the text call for before all other remedies."""
    if not findings:
        return []
    own = tuple(Remedy(do=one) for one in remedies_from_facts(text, findings[0].error_type))
    return [replace(findings[0], remedies=(*own, *findings[0].remedies)), *findings[1:]]


def pattern_types(text: str) -> list[str]:
    """Return the error types that patterns find in a text, in the order of their lines."""
    found = failures_in(text)
    return _types_of(_sightings(text, found, versions_in(text)))


def _types_of(sightings: Iterable[_TextSighting]) -> list[str]:
    named = (one.diagnosis.error_type for one in sightings)
    return list(dict.fromkeys(name for name in named if name != UNKNOWN))


def _quote(text: str) -> str:
    """Return the line that a finding rests on; of a long one the beginning and the end."""
    return one_line(ends_of(text.strip(), _LONGEST_QUOTE), longest=2 * _LONGEST_QUOTE)


def _sightings(text: str, found: Found, versions: Mapping[str, str]) -> list[_TextSighting]:
    elsewhere = targets_in(text[:_LONGEST_SEARCHED])
    default = elsewhere[0] if len(elsewhere) == 1 else ANY_TARGET
    return _understood([_sighting(failure, default, versions) for failure in found.failures], found)


def _by_words(
    reading: Reading, sightings: Sequence[_TextSighting], text: str, source: str, timestamp: str
) -> list[Finding]:
    """Return the finding of a text in which no pattern knows a failure; none if it is a question or a clean log."""
    raised = [one for one in sightings if one.failure.sure]
    first, share = reading.error_types.labels[0]
    is_known, foreign = reading.is_known, not text[:_LONGEST_SEARCHED].isascii()
    if not is_known and not foreign and not sightings:
        return []
    if first == NO_FAILURE and not raised and (share >= _NO_FAILURE or not sightings) and (is_known or not foreign):
        return []
    ranked = [pair for pair in reading.error_types.labels if pair[0] != NO_FAILURE]
    name, share = ranked[0]
    likely = f"{share:.0%} likely by the words of the report"
    if share < _GUESSED or name == UNKNOWN or not is_known:
        one, other = [pair for pair in ranked if pair[0] not in (UNKNOWN, NO_FAILURE)][:2]
        both = ", ".join(f"{label.replace('_', ' ')} {part:.0%}" for label, part in (one, other))
        name, likely = UNKNOWN, f"likeliest: {both}; {questions()[one[0]]}" if is_known else _UNKNOWN_WORDS
    said = raised or sightings
    quoted = said[-1].failure.quoted if said else next(line for line in text.splitlines() if line.strip())
    line = said[-1].failure.line if said else 1
    severity = reading.severities.first
    kind = error_types()[name]
    target = said[-1].target if said else next(iter(targets_in(text[:_LONGEST_SEARCHED])), ANY_TARGET)
    own = [Remedy(do=one) for one in first_remedies(text, reading.fixes, name)] if is_known else []
    return [
        Finding(
            hardware_type=target,
            error_type=name,
            severity=Severity(severity) if severity in set(Severity) and is_known else kind.severity,
            confidence=reading.confidence if name == first else Confidence.LOW,
            message=f"{kind.says} ({likely}): {_quote(quoted)}",
            component=COMPONENT,
            timestamp=timestamp,
            cause=listed(tuple(sorted(operators_named(text[:_LONGEST_SEARCHED]))), _MOST_OPERATORS),
            remedies=(*own, *remedies(name, target)),
            traceback=said[-1].failure.log[-_LONGEST_LOG:] if raised else "",
            evidence_ids=(f"{source}:{line}",),
        )
    ]


def versions_in(text: str) -> Mapping[str, str]:
    """Return the versions in a text that known issues depend on: the first for each package."""
    names = sorted({name for issue in known_issues() for name in issue.versions})
    found: dict[str, str] = {}
    for name, version in re.findall(_VERSION.format(names="|".join(names)), text[:_LONGEST_SEARCHED], re.IGNORECASE):
        found.setdefault(name.lower(), version.rstrip("."))
    return found


def _sighting(failure: TextFailure, default: str, versions: Mapping[str, str]) -> _TextSighting:
    log = failure.log[-_LONGEST_LOG:]
    target = target_of(failure.said) or target_of(log) or default
    around = Around(
        exception=exception_of(failure.said), target="" if target == ANY_TARGET else target, versions=versions
    )
    # A traceback before a stray line isn't part of it.
    return _TextSighting(failure=failure, diagnosis=identify(failure.said, log=log, around=around), target=target)


def _understood(sightings: Sequence[_TextSighting], found: Found) -> list[_TextSighting]:
    """Return those that count; if none does, the last line that names a failure as not understood."""
    counted = [one for one in sightings if one.failure.sure or one.diagnosis.error_type != UNKNOWN]
    if counted or found.checks:
        return counted
    return list(sightings[-1:])


def _finding(group: Sequence[_TextSighting], source: str, timestamp: str) -> Finding:
    first = next((one for one in group if one.failure.sure), group[0])
    diagnosis = first.diagnosis
    # The text was pasted because of a failure: an absent device is more than a remark.
    severity = max(diagnosis.severity, error_types()[diagnosis.error_type].severity, key=lambda one: one.rank)
    named = f" ({diagnosis.cause})" if diagnosis.cause else ""
    again = f", {len(group)} times in total" if len(group) > 1 else ""
    quote = _quote(first.failure.quoted)
    finding = Finding(
        hardware_type=first.target,
        error_type=diagnosis.error_type,
        severity=severity,
        confidence=diagnosis.confidence,
        message=f"{error_types()[diagnosis.error_type].says}{named} (line {first.failure.line}{again}): {quote}",
        component=COMPONENT,
        timestamp=timestamp,
        cause=diagnosis.cause,
        remedies=remedies_for(diagnosis, first.target),
        traceback=first.failure.log[-_LONGEST_LOG:] if first.failure.sure else "",
        evidence_ids=tuple(f"{source}:{one.failure.line}" for one in group),
    )
    return replace(finding, remedies=(*finding.remedies, *other_targets(finding)))


def _worst_first(groups: Iterable[Sequence[_TextSighting]], source: str, timestamp: str) -> list[Finding]:
    """Return findings worst first; of equal ones the known ones and the earliest, which caused the rest.

    A process that died after another failure isn't worse than that failure.
    """
    found = [_finding(group, source, timestamp) for group in groups]
    understood = [one.error_type not in (UNKNOWN, "crash") and one.severity is Severity.ERROR for one in found]
    ranked = []
    for place, one in enumerate(found):
        followed = one.error_type == "crash" and any(understood[:place])
        rank = Severity.ERROR.rank if followed else one.severity.rank
        ranked.append((-rank, one.error_type == UNKNOWN, place, one))
    return [one for *_, one in sorted(ranked, key=lambda entry: entry[:3])]
