"""`ProjectFinding` and `ProjectOutcome`: what a run means to a project, as plain records that reports can show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What is said of a cell. A closed set; which kinds break the build is `breaks`."""

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
        """Whether the build is broken by it."""
        return self in _BREAKING


_BREAKING = frozenset(
    {Kind.WORSE, Kind.BETTER, Kind.NOT_MET, Kind.FAILED, Kind.RAN_OUT, Kind.PASSES_NOW, Kind.NOT_SHOWN}
)


@dataclass(frozen=True, kw_only=True)
class ProjectFinding:
    """One thing that a project has to say of a run.

    `message` says what and why, `fix` what to change; `line` is where it stands in the project file (0: nowhere);
    `quote` is text of the file that the fix speaks of. `checks` and `evidence_ids` name what showed it; `rests`
    is True if the lock doesn't count while a failure of the cell is accepted.
    """

    kind: Kind
    cell: str
    message: str
    fix: str = ""
    line: int = 0
    quote: str = ""
    checks: tuple[str, ...] = ()
    evidence_ids: tuple[str, ...] = ()
    rests: bool = False

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
    """A run judged by a project file. `accepted` says of lines of evidence, by their ids, why their failure is
    accepted; what was measured stays what it is."""

    file: str
    findings: tuple[ProjectFinding, ...]
    accepted: Mapping[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """1 where something breaks the build, else 0."""
        return int(any(finding.kind.breaks for finding in self.findings))

    def over(self, code: int) -> int:
        """The exit code of a run that ended with `code`: the project decides what a failure (1) means, and nothing
        else."""
        return self.exit_code if code == 1 else self.exit_code or code

    def of_kind(self, *kinds: Kind) -> tuple[ProjectFinding, ...]:
        """The findings of some kinds."""
        return tuple(finding for finding in self.findings if finding.kind in kinds)

    @property
    def summary(self) -> str:
        """`3 met, 1 worse, 1 accepted`: how many findings of each kind there are."""
        counts = {kind: len(self.of_kind(kind)) for kind in Kind}
        said = [f"{number} {str(kind).replace('_', ' ')}" for kind, number in counts.items() if number]
        return ", ".join(said) or "nothing to judge"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "file": self.file,
            "exit_code": self.exit_code,
            "summary": self.summary,
            "findings": [finding.to_dict() for finding in self.findings],
        }
