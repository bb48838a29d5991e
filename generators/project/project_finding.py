"""`ProjectFinding` and `ProjectOutcome`: the result of a run under a project file, as plain records for reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from functools import partial
from typing import Any

from hwcompat.generators.compatibility.grade import check_reason
from hwcompat.generators.compatibility.verdict import Words
from hwcompat.hardware.evidence.record import EDITED, CheckLine, Outcome

from .project_file import AcceptedFailure, Project

_DONE = (Outcome.PASSED, Outcome.SKIPPED)


class ProjectFindingKind(StrEnum):
    """Kinds of findings about a cell, a closed set; `breaks` says which of them break the build."""

    MET = "met"
    WORSE = "worse"
    BETTER = "better"
    NOT_MET = "not_met"
    FAILED = "failed"
    ACCEPTED = "accepted"
    RAN_OUT = "ran_out"
    PASSES_NOW = "passes_now"
    NOT_SHOWN = "not_shown"
    LEFT_OUT = "left_out"
    NOT_LOCKED = "not_locked"

    @property
    def breaks(self) -> bool:
        """Whether this kind breaks the build."""
        return self in _BREAKING


_BREAKING = frozenset(
    {
        ProjectFindingKind.WORSE,
        ProjectFindingKind.BETTER,
        ProjectFindingKind.NOT_MET,
        ProjectFindingKind.FAILED,
        ProjectFindingKind.RAN_OUT,
        ProjectFindingKind.PASSES_NOW,
        ProjectFindingKind.NOT_SHOWN,
    }
)


@dataclass(frozen=True, kw_only=True)
class ProjectFinding:
    """One finding about a run.

    `message` says what and why, `fix` what to change; `line` is the line in the project file (0: none), and `quote`
    the text of the file that the fix concerns. `checks` and `evidence_ids` name the results behind it; `rests` is
    True if the lock doesn't count while a failure of the cell is accepted.
    """

    kind: ProjectFindingKind
    cell: str
    message: str
    fix: str = ""
    line: int = 0
    quote: str = ""
    checks: tuple[str, ...] = ()
    evidence_ids: tuple[str, ...] = ()
    rests: bool = False

    @classmethod
    def shown(
        cls,
        kind: ProjectFindingKind,
        cell: str,
        message: str,
        fix: str = "",
        lines: Sequence[CheckLine] = (),
        **more: Any,
    ) -> ProjectFinding:
        """Return the finding for these results."""
        checks = tuple(dict.fromkeys(line.check_name for line in lines))
        ids = tuple(dict.fromkeys(line.evidence_id for line in lines))
        return cls(kind=kind, cell=cell, message=message, fix=fix, checks=checks, evidence_ids=ids, **more)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "kind": str(self.kind),
            "breaks": self.kind.breaks,
            "cell": self.cell,
            "message": self.message,
            "fix": self.fix,
            "line": self.line or None,
            "quote": self.quote,
            "checks": list(self.checks),
            "evidence_ids": list(self.evidence_ids),
        }


@dataclass(frozen=True, kw_only=True)
class ProjectOutcome:
    """The findings of a run under a project file. `accepted` gives the reason for each accepted failure by the id
    of its evidence line; the results themselves stay unchanged."""

    file: str
    findings: tuple[ProjectFinding, ...]
    accepted: Mapping[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """1 if a finding breaks the build, else 0."""
        return int(any(finding.kind.breaks for finding in self.findings))

    def over(self, code: int) -> int:
        """Return the exit code of a run that ended with `code`: the project decides only what a failure (1) means."""
        return self.exit_code if code == 1 else self.exit_code or code

    def of_kind(self, *kinds: ProjectFindingKind) -> tuple[ProjectFinding, ...]:
        """Return the findings of some kinds."""
        return tuple(finding for finding in self.findings if finding.kind in kinds)

    @property
    def summary(self) -> str:
        """The number of findings of each kind: `3 met, 1 worse, 1 accepted`."""
        counts = {kind: len(self.of_kind(kind)) for kind in ProjectFindingKind}
        made = [f"{number} {str(kind).replace('_', ' ')}" for kind, number in counts.items() if number]
        return ", ".join(made) or "nothing to judge"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "file": self.file,
            "exit_code": self.exit_code,
            "summary": self.summary,
            "findings": [finding.to_dict() for finding in self.findings],
        }


def judge_accepted(
    project: Project,
    lines: Mapping[str, Sequence[CheckLine]],
    today: date,
    left_out: Mapping[str, str],
    words: Words,
) -> tuple[list[ProjectFinding], dict[str, str]]:
    """Compare each accepted failure with the lines of its cell; return the findings, and the reason for each covered
    line by its id.

    `lines` are those of one run by cell id; `left_out` maps cells that the command line left out to the option.
    """
    findings: list[ProjectFinding] = []
    accepted: dict[str, str] = {}
    for entry in project.accepted:
        own = lines.get(entry.cell, ())
        covered = [line for line in own if entry.covers(line)]
        finding = _judge(project, entry, own, covered, today, left_out.get(entry.cell, ""), words)
        if finding is not None:
            findings.append(finding)
        if finding is not None and finding.kind is ProjectFindingKind.ACCEPTED:
            text = f"accepted until {entry.until}: {entry.reason} ({entry.link})"
            accepted |= {line.evidence_id: text for line in (*covered, *_after(covered, own))}
    return findings, accepted


def _judge(
    project: Project,
    entry: AcceptedFailure,
    own: Sequence[CheckLine],
    covered: Sequence[CheckLine],
    today: date,
    left_out_by: str,
    words: Words,
) -> ProjectFinding | None:
    """Return the finding for one entry, or None if a failure of another kind breaks the build by itself."""
    made = partial(ProjectFinding.shown, cell=entry.cell, line=entry.span.first)
    if covered:
        shown = shown_by(covered, words)
        if today > entry.until:
            message = f"{shown}. The failure was accepted only until {entry.until}: {entry.reason}"
            fix = f"Fix it, or change `until` after a review ({project.name} {entry.span}, {entry.link})."
            return made(ProjectFindingKind.RAN_OUT, message=message, fix=fix, lines=covered)
        more = len(_after(covered, own))
        rest = f"; {more} later check(s) did not run" if more else ""
        why = f"accepted until {entry.until}: {entry.reason} ({entry.link})"
        return made(ProjectFindingKind.ACCEPTED, message=f"{why}. {shown}{rest}", lines=covered)
    scope = [line for line in own if entry.check in ("", line.check_name)]
    if _passes(scope):
        message = f"the accepted failure, {entry.what}, passes now"
        fix = f"Remove {entry.span} of {project.name}:"
        return made(ProjectFindingKind.PASSES_NOW, message=message, fix=fix, lines=scope, quote=entry.text)
    if any(line.outcome.is_failure and not line.substitution_reason for line in scope):
        return None
    if left_out_by:
        return made(
            ProjectFindingKind.LEFT_OUT, message=f"{entry.what} is not judged, because {left_out_by} excluded it"
        )
    became = words(check_reason(scope[0])) if scope else "it was not run"
    message = f"it is unknown whether the accepted failure, {entry.what}, still occurs: {became}"
    fix = f"Run it on a machine with this target, or remove {entry.span} of {project.name}."
    return made(ProjectFindingKind.NOT_SHOWN, message=message, fix=fix, lines=scope)


def shown_by(lines: Sequence[CheckLine], words: Words) -> str:
    """Return the message of the first of some checks and the state of the others; empty without any."""
    if not lines:
        return ""
    others = ", ".join(f"{line.check_name} {str(line.outcome).replace('_', ' ')}" for line in lines[1:])
    return words(check_reason(lines[0])) + (f"; also {others}" if others else "")


def _passes(scope: Sequence[CheckLine]) -> bool:
    """Return whether all that an entry covers ran and nothing failed; an edited suite shows nothing."""
    done = all(
        line.outcome in _DONE and not line.substitution_reason and EDITED not in line.conditions for line in scope
    )
    return done and any(line.outcome is Outcome.PASSED for line in scope)


def _after(covered: Sequence[CheckLine], own: Sequence[CheckLine]) -> list[CheckLine]:
    """Return the checks that weren't reached because a process ended in an accepted way."""
    if not any(line.outcome.is_breakdown for line in covered):
        return []
    return [line for line in own if line.outcome is Outcome.NOT_RUN and line.error_type == "not_reached"]
