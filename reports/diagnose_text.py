"""From a pasted traceback or log to findings, without running or importing anything that it speaks of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hardware.plain_text import one_line

from .advice import other_targets, remedies_for
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
from .finding import ANY_TARGET, Finding, Severity, signature, worst_first

COMPONENT = "diagnosis"

_LONGEST_LOG = 4_000
_LONGEST_SEARCHED = 200_000
_LONGEST_QUOTE = 400
_VERSION = (  # what something else requires is not what is there
    r"(?<!requires )\b(?:py)?({names})(?:[ _-]version)?"
    r"\s{{0,4}}(?:==|[:=]|\s)\s{{0,20}}v?(\d{{1,4}}\.\d[\w.+]{{0,40}})"
)


@dataclass(frozen=True, kw_only=True)
class TextDiagnosis:
    """What a text shows: findings worst first, and how much of it was read.

    `versions` are those that it tells, `not_understood` the lines that failed for a reason that nobody here knows.
    """

    source: str
    lines: int
    findings: tuple[Finding, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    not_understood: tuple[str, ...] = ()


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
    """The findings of a text. `source` is what it is called, `timestamp` the moment of asking (ISO 8601, UTC).

    What is raised in a traceback or told by pytest counts always; a stray line only where its words are known, unless
    nothing else speaks of a failure. Pure.
    """
    found = failures_in(text)
    versions = versions_in(text)
    elsewhere = targets_in(text[:_LONGEST_SEARCHED])
    told = elsewhere[0] if len(elsewhere) == 1 else ANY_TARGET
    sightings = _understood([_see(failure, told, versions) for failure in found.failures], found)
    groups: dict[tuple[str, ...], list[_TextSighting]] = {}
    for one in sightings:
        groups.setdefault(one.key, []).append(one)
    sealed = {one.cell_id: one.verdict for run in found.runs for one in run.plan if one.verdict is not None}
    own = diagnose(found.checks, {run.run_id: run.versions for run in found.runs}, sealed)
    return TextDiagnosis(
        source=source,
        lines=found.lines,
        findings=(*worst_first(own), *_told(groups.values(), source, timestamp)),
        versions=versions,
        not_understood=tuple(
            dict.fromkeys(
                f"{source}:{one.failure.line}: {one_line(one.failure.quoted, longest=_LONGEST_QUOTE)}"
                for one in sightings
                if one.diagnosis.error_type == UNKNOWN
            )
        ),
    )


def versions_in(text: str) -> Mapping[str, str]:
    """The versions that a text tells of what known faults are about: the first that it names of each."""
    names = sorted({name for issue in known_issues() for name in issue.versions})
    found: dict[str, str] = {}
    for name, version in re.findall(_VERSION.format(names="|".join(names)), text[:_LONGEST_SEARCHED], re.IGNORECASE):
        found.setdefault(name.lower(), version.rstrip("."))
    return found


def _see(failure: TextFailure, told: str, versions: Mapping[str, str]) -> _TextSighting:
    log = failure.log[-_LONGEST_LOG:]
    target = target_of(failure.said) or target_of(log) or told
    around = Around(
        exception=exception_of(failure.said), target="" if target == ANY_TARGET else target, versions=versions
    )
    # A stray line says what it says; what stands in a traceback before it is no part of it.
    return _TextSighting(failure=failure, diagnosis=identify(failure.said, log=log, around=around), target=target)


def _understood(sightings: Sequence[_TextSighting], found: Found) -> list[_TextSighting]:
    """Those that count. Where nothing does, the last line that speaks of a failure is what wasn't understood."""
    counted = [one for one in sightings if one.failure.sure or one.diagnosis.error_type != UNKNOWN]
    if counted or found.checks:
        return counted
    return list(sightings[-1:])


def _finding(group: Sequence[_TextSighting], source: str, timestamp: str) -> Finding:
    first = next((one for one in group if one.failure.sure), group[0])
    diagnosis = first.diagnosis
    # Somebody pasted it because it failed: that a device isn't there is more than a remark.
    severity = max(diagnosis.severity, error_types()[diagnosis.error_type].severity, key=lambda one: one.rank)
    named = f" ({diagnosis.cause})" if diagnosis.cause else ""
    again = f"; {len(group)} times in all" if len(group) > 1 else ""
    quote = one_line(first.failure.quoted, longest=_LONGEST_QUOTE)
    finding = Finding(
        hardware_type=first.target,
        error_type=diagnosis.error_type,
        severity=severity,
        confidence=diagnosis.confidence,
        message=f"{error_types()[diagnosis.error_type].says}{named}, says line {first.failure.line}{again}: {quote}",
        component=COMPONENT,
        timestamp=timestamp,
        cause=diagnosis.cause,
        remedies=remedies_for(diagnosis, first.target),
        traceback=first.failure.log[-_LONGEST_LOG:] if first.failure.sure else "",
        evidence_ids=tuple(f"{source}:{one.failure.line}" for one in group),
    )
    return replace(finding, remedies=(*finding.remedies, *other_targets(finding)))


def _told(groups: Iterable[Sequence[_TextSighting]], source: str, timestamp: str) -> list[Finding]:
    """Findings worst first; of those alike the known ones, and what was said first: it brought about the rest.

    That a process died after something else had failed is no worse than that.
    """
    found = [_finding(group, source, timestamp) for group in groups]
    understood = [one.error_type not in (UNKNOWN, "crash") and one.severity is Severity.ERROR for one in found]
    ranked = []
    for place, one in enumerate(found):
        followed = one.error_type == "crash" and any(understood[:place])
        rank = Severity.ERROR.rank if followed else one.severity.rank
        ranked.append((-rank, one.error_type == UNKNOWN, place, one))
    return [one for *_, one in sorted(ranked, key=lambda entry: entry[:3])]
