"""What a report's page shows of a finding: its cells and its evidence, as many as anybody reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..finding import Comparison, Finding, Severity

_CELLS, _EVIDENCE = 200, 60


@dataclass(frozen=True, kw_only=True)
class FindingView:
    """A finding. `evidence` has its lines by run and cell: `<run id>, <cell>: builds, backward`; `state` is what it
    is against a baseline, empty without one."""

    finding: Finding
    state: str
    cells: Sequence[str]
    more_cells: int
    evidence: Sequence[str]
    more_evidence: int


def finding_view(finding: Finding, against: Comparison | None = None) -> FindingView:
    """The view of a finding, beside a baseline where there is one."""
    evidence = _by_run_and_cell(finding.evidence_ids)
    return FindingView(
        finding=finding,
        state=str(against.state(finding)) if against else "",
        cells=finding.cells[:_CELLS],
        more_cells=max(len(finding.cells) - _CELLS, 0),
        evidence=evidence[:_EVIDENCE],
        more_evidence=max(len(evidence) - _EVIDENCE, 0),
    )


def _by_run_and_cell(ids: Sequence[str]) -> list[str]:
    """Ids are `<run id>/<cell>/<check>`."""
    checks: dict[tuple[str, str], list[str]] = {}
    for id_ in ids:
        run, _, rest = id_.partition("/")
        cell, _, check = rest.rpartition("/")
        checks.setdefault((run, cell), []).append(check)
    return [f"{run}, {cell}: {', '.join(names)}" if cell else run for (run, cell), names in checks.items()]


def choices(findings: Sequence[Finding]) -> Mapping[str, Sequence[str]]:
    """What findings can be filtered by: those values that there are."""
    severities = {finding.severity for finding in findings}
    return {
        "severity": [str(one) for one in Severity if one in severities],
        "hardware": sorted({finding.hardware_type for finding in findings}),
        "type": sorted({finding.error_type for finding in findings}),
    }


def index(findings: Sequence[Finding]) -> Mapping[str, Sequence[str]]:
    """The texts that findings are filtered by, one for each."""
    return {
        "id": [one.id for one in findings],
        "text": [
            " ".join((one.error_type, one.hardware_type, one.model_name or "", one.message, *one.cells[:1]))[:300]
            for one in findings
        ],
        "severity": [str(one.severity) for one in findings],
        "hardware": [one.hardware_type for one in findings],
        "type": [one.error_type for one in findings],
    }
