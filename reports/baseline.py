"""`--baseline FILE`: compare findings with those of an earlier report as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwcompat.hardware.evidence.record import Outcome
from hwcompat.hardware.plain_values import from_values

from .finding import SCHEMA, Finding, FindingComparison, FindingState, signature
from .saved_reports import read_kept
from .stack import STACK_COMPONENT

if TYPE_CHECKING:
    from .report import Report

_MAKE_ANEW = "Create it again: hwcompat report --format json > FILE"
_DID_NOT_RUN = (Outcome.NOT_RUN, Outcome.SKIPPED)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The findings of an earlier report. `name` is the file's name without its folders."""

    name: str
    timestamp: str
    findings: tuple[Finding, ...]


def compare(report: Report, baseline: Baseline) -> FindingComparison:
    """Compare the report's findings with the baseline's.

    A finding is known if the baseline has the same problem (type, target, part, message without figures) in one of
    its cells, or under its id. It is worse if it is graver, or if it affects another cell or check.
    """
    before: dict[tuple[str, ...], list[Finding]] = {}
    for finding in baseline.findings:
        before.setdefault(_problem(finding), []).append(finding)
    states: dict[tuple[str, tuple[str, ...]], FindingState] = {}
    met: set[int] = set()
    for finding in report.findings:
        same = [
            one
            for one in before.get(_problem(finding), ())
            if finding.id == one.id or not set(finding.cells).isdisjoint(one.cells)
        ]
        met.update(id(one) for one in same)
        states[finding.id, finding.cells] = _state(finding, same)
    gone = [one for one in baseline.findings if id(one) not in met]
    ran = {(line.cell_id, line.check_name) for line in report.checks if line.outcome not in _DID_NOT_RUN}
    fixed = tuple(one for one in gone if _was_checked_again(one, report, ran))
    return FindingComparison(
        name=baseline.name,
        timestamp=baseline.timestamp,
        states=states,
        fixed=fixed,
        unseen=tuple(one for one in gone if one not in fixed),
    )


def _problem(finding: Finding) -> tuple[str, ...]:
    return (finding.error_type, finding.hardware_type, finding.component, signature(finding.message))


def _state(finding: Finding, same: Sequence[Finding]) -> FindingState:
    if not same:
        return FindingState.NEW
    cells = {cell for one in same for cell in one.cells}
    checks = {check for one in same for check in one.checks}
    graver = finding.severity.rank > max(one.severity.rank for one in same)
    more = not (cells.issuperset(finding.cells) and checks.issuperset(finding.checks))
    return FindingState.WORSE if graver or more else FindingState.KNOWN


def _was_checked_again(finding: Finding, report: Report, ran: set[tuple[str, str]]) -> bool:
    """Whether the check that showed a finding ran again, so that its absence means something."""
    if finding.cells:
        cells = {cell for cell, _ in ran}
        wanted = ((cell, check) for cell in finding.cells for check in finding.checks)
        return cells.issuperset(finding.cells) and all(one in ran for one in wanted)
    if finding.component == STACK_COMPONENT:
        return any(one.target == finding.hardware_type for one in report.stack)
    if finding.model_name:
        return finding.model_name in report.models_tested
    return finding.component in {one.name for one in report.components}


def read_baseline(path: Path, renamed: Callable[[Any], Any] = lambda value: value) -> Baseline:
    """Read the findings of an earlier report; `renamed` is applied to them first.

    Raises `BrokenInput` if the file is no such report.
    """
    data = read_kept(path, SCHEMA, "report", _MAKE_ANEW, only=("timestamp", "errors"), renew=_renewed)
    findings = tuple(map(_finding, renamed(data["errors"])))
    return Baseline(name=path.name, timestamp=data["timestamp"], findings=findings)


def _renewed(data: Any) -> Any:
    """Convert findings of schema version 2 to version 3, which adds remedies."""
    if not isinstance(data, dict) or data.get("schema_version") != 2 or not isinstance(data.get("errors"), list):
        return data
    errors = [{"remedies": [], **one} if isinstance(one, dict) else one for one in data["errors"]]
    return {**data, "schema_version": 3, "errors": errors}


def _finding(data: Mapping[str, Any]) -> Finding:
    """Return a finding of a valid baseline."""
    made = ("id", "baseline", "recommendations", "commands", "place")
    return from_values(Finding, {name: value for name, value in data.items() if name not in made})
