"""`Report`: all that a report says, before it has a format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from generators.compatibility.imported import ReferenceTests
from generators.project.project_finding import ProjectOutcome
from hardware.evidence.record import CheckLine, Outcome, RunLine
from hardware.evidence.runs import History

from .cell_report import CellReport
from .components import Component
from .finding import Finding, FindingComparison, FindingState, Severity, count
from .source_places import SuitePlace
from .stack import StackResult


@dataclass(frozen=True, kw_only=True)
class Report:
    """Findings worst first, with what was looked at: `checks` are the lines that speak now.

    `cells` are the cells of those lines with their verdicts. `runs` are the runs that the report is of, if it is of
    single runs: then it shows each cell with all its checks. `evidence_asked` is whether anybody asked what was
    measured. `matrix` and `model_checks` are JSON objects of what else was asked for in the same call; `versions` are
    those of this machine, which decide what of the matrix is measured and what has expired. `project` is what a
    project file makes of the run; its findings are among the others. `second_opinions` are what others' tests showed;
    they are among neither `checks` nor `outcomes`. `suites` are the files of cells, where they are here, and
    `baseline` is how the findings lie to an earlier report, where one was named. `history` is what came before,
    `machines` the newest run of each machine.
    """

    timestamp: str
    findings: tuple[Finding, ...]
    components: tuple[Component, ...] = ()
    checks: tuple[CheckLine, ...] = ()
    cells: tuple[CellReport, ...] = ()
    runs: tuple[RunLine, ...] = ()
    evidence_asked: bool = True
    stack: tuple[StackResult, ...] = ()
    matrix: dict[str, Any] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    model_checks: tuple[dict[str, Any], ...] = ()
    project: ProjectOutcome | None = None
    second_opinions: tuple[ReferenceTests, ...] = ()
    suites: Mapping[str, SuitePlace] = field(default_factory=dict)
    baseline: FindingComparison | None = None
    history: History = field(default_factory=History)
    machines: tuple[RunLine, ...] = ()

    @property
    def error_counts(self) -> dict[str, int]:
        """How many findings of each severity."""
        return count(self.findings)

    @property
    def hardware_errors(self) -> dict[str, list[str]]:
        """Ids of findings by hardware type."""
        grouped: dict[str, list[str]] = {}
        for finding in self.findings:
            grouped.setdefault(finding.hardware_type, []).append(finding.id)
        return dict(sorted(grouped.items()))

    @property
    def outcomes(self) -> dict[str, int]:
        """How many checks came to each outcome; those that none came to are left out."""
        counts = Counter(line.outcome for line in self.checks)
        return {str(outcome): counts[outcome] for outcome in Outcome if counts[outcome]}

    @property
    def models_tested(self) -> tuple[str, ...]:
        """Models of which at least one check ran."""
        idle = (Outcome.NOT_RUN, Outcome.SKIPPED)
        return tuple(sorted({line.model for line in self.checks if line.outcome not in idle}))

    def fails(self, fail_on: Severity) -> bool:
        """Whether a finding is of that severity or worse; one that the baseline had already doesn't count."""
        return any(
            finding.severity.rank >= fail_on.rank
            and (self.baseline is None or self.baseline.state(finding) is not FindingState.KNOWN)
            for finding in self.findings
        )
