"""Accepted failures: each covers the one failure that it names, until its day, and must go when nothing fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from generators.compatibility.grade import check_reason
from generators.compatibility.verdict import Words
from hardware.evidence.record import EDITED, CheckLine, Outcome

from .finding import Kind, ProjectFinding
from .project_file import AcceptedFailure, Project

_DONE = (Outcome.PASSED, Outcome.SKIPPED)


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """What became of all accepted failures; `accepted` are reasons by the ids of the lines that they cover."""

    findings: tuple[ProjectFinding, ...]
    accepted: Mapping[str, str]


def judge_accepted(
    project: Project,
    lines: Mapping[str, Sequence[CheckLine]],
    today: date,
    left_out: Mapping[str, str],
    words: Words,
) -> Acceptance:
    """Hold each accepted failure against the lines of its cell.

    `lines` are those of one run by cell id; `left_out` are cells that the command line left out, with the option.
    """
    findings: list[ProjectFinding] = []
    accepted: dict[str, str] = {}
    for entry in project.accepted:
        own = lines.get(entry.cell, ())
        covered = [line for line in own if entry.covers(line)]
        finding = _judge(project, entry, own, covered, today, left_out.get(entry.cell, ""), words)
        if finding is not None:
            findings.append(finding)
        if finding is not None and finding.kind is Kind.ACCEPTED:
            text = f"accepted until {entry.until}: {entry.reason} ({entry.link})"
            accepted |= {line.evidence_id: text for line in (*covered, *_after(covered, own))}
    return Acceptance(findings=tuple(findings), accepted=accepted)


def _judge(
    project: Project,
    entry: AcceptedFailure,
    own: Sequence[CheckLine],
    covered: Sequence[CheckLine],
    today: date,
    left_out_by: str,
    words: Words,
) -> ProjectFinding | None:
    """None where a failure of another kind took its place: that one breaks the build by itself."""
    where = f"{project.name} {entry.span}"
    if covered:
        shown = shown_by(covered, words)
        if today > entry.until:
            return _finding(
                entry,
                Kind.RAN_OUT,
                f"{shown}. It was accepted until {entry.until}, which has passed: {entry.reason}",
                f"Fix it, or review it and change `until` ({where}, {entry.link}).",
                covered,
            )
        more = len(_after(covered, own))
        rest = f", and {more} check(s) after it could not run" if more else ""
        why = f"accepted until {entry.until}: {entry.reason} ({entry.link})"
        return _finding(entry, Kind.ACCEPTED, f"{why}. {shown}{rest}", "", covered)
    scope = [line for line in own if entry.check in ("", line.check_name)]
    if _passes(scope):
        return _finding(
            entry,
            Kind.PASSES_NOW,
            f"the accepted failure, {entry.what}, passes now",
            f"Remove {entry.span} of {project.name}:",
            scope,
            quote=entry.text,
        )
    if any(line.outcome.is_failure and not line.substitution_reason for line in scope):
        return None
    if left_out_by:
        return _finding(entry, Kind.LEFT_OUT, f"{entry.what} is not judged: {left_out_by} left it out", "", ())
    became = words(check_reason(scope[0])) if scope else "nothing of it was run"
    return _finding(
        entry,
        Kind.NOT_SHOWN,
        f"nothing shows whether the accepted failure, {entry.what}, is still there: {became}",
        f"Run it where it can run, or remove {entry.span} of {project.name}.",
        scope,
    )


def shown_by(lines: Sequence[CheckLine], words: Words) -> str:
    """What the first of some checks said, and what became of the others; empty without any."""
    if not lines:
        return ""
    others = ", ".join(f"{line.check_name} {str(line.outcome).replace('_', ' ')}" for line in lines[1:])
    return words(check_reason(lines[0])) + (f"; also {others}" if others else "")


def _passes(scope: Sequence[CheckLine]) -> bool:
    """Whether all that an entry speaks of was done there and nothing failed; an edited suite shows nothing."""
    done = all(
        line.outcome in _DONE and not line.substitution_reason and EDITED not in line.conditions for line in scope
    )
    return done and any(line.outcome is Outcome.PASSED for line in scope)


def _after(covered: Sequence[CheckLine], own: Sequence[CheckLine]) -> list[CheckLine]:
    """Checks that were never reached because a process broke down in an accepted way."""
    if not any(line.outcome.is_breakdown for line in covered):
        return []
    return [line for line in own if line.outcome is Outcome.NOT_RUN and line.error_type == "not_reached"]


def _finding(
    entry: AcceptedFailure, kind: Kind, message: str, fix: str, lines: Sequence[CheckLine], quote: str = ""
) -> ProjectFinding:
    return ProjectFinding(
        kind=kind,
        cell=entry.cell,
        message=message,
        fix=fix,
        line=entry.span.first,
        quote=quote,
        checks=tuple(dict.fromkeys(line.check_name for line in lines)),
        evidence_ids=tuple(dict.fromkeys(line.evidence_id for line in lines)),
    )
