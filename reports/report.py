"""`Report`: the content of a report, independent of its format, and the parts of this installation that it names."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwcompat.generators.compatibility.imported import ReferenceTests
from hwcompat.generators.project.project_finding import ProjectOutcome
from hwcompat.hardware.command_names import as_runnable
from hwcompat.hardware.errors import HwCompatError
from hwcompat.hardware.evidence.record import CheckLine, Outcome, RunLine
from hwcompat.hardware.evidence.runs import History
from hwcompat.hardware.plugins import plugins
from hwcompat.hardware.software import is_installed, package_versions

from .cell_report import CellReport
from .finding import Finding, FindingComparison, FindingState, Severity, count
from .source_places import SuitePlace
from .stack import StackResult

_PACKAGES = Path(__file__).with_name("components.toml")


@dataclass(frozen=True, kw_only=True)
class Component:
    """A part. `state` is `available`, `missing`, `failed` or `unknown`; `severity` grades its absence."""

    name: str
    state: str
    version: str | None = None
    reason: str = ""
    severity: Severity = Severity.ERROR


def packages() -> tuple[Component, ...]:
    """Return the packages of `components.toml`, found without importing them."""
    listed = tomllib.loads(as_runnable(_PACKAGES.read_text(encoding="utf-8")))["package"]
    versions = package_versions(one["distribution"] for one in listed)
    found = []
    for one in listed:
        name, there = one["distribution"], is_installed(one["module"])
        found.append(
            Component(
                name=name,
                state="available" if there else "missing",
                version=versions[name] if there else None,
                reason="" if there else f"{name} isn't installed: {one['without']}",
                severity=Severity(one["severity"]),
            )
        )
    return tuple(found)


def own_parts(inventory: Callable[[], object]) -> tuple[Component, ...]:
    """Return the product's own parts, each tried; a failing one doesn't stop the others."""
    parts: tuple[tuple[str, Callable[[], object]], ...] = (
        ("hardware_detection", inventory),
        ("model_classifier", _classifier),
        ("compatibility_rules", _rules),
        *((name, one.load(check)) for one in plugins().loaded for name, check in one.checks.items()),
    )
    broken = [Component(name=name, state="failed", reason=why) for name, why in plugins().broken.items()]
    return (*(_tried(name, use) for name, use in parts), *broken)


def _tried(name: str, use: Callable[[], object]) -> Component:
    try:
        use()
    except HwCompatError as error:
        return Component(name=name, state="failed", reason=str(error))
    except Exception as error:  # any failure of a part is reported here
        return Component(name=name, state="failed", reason=f"{type(error).__name__}: {error}")
    return Component(name=name, state="available")


def _classifier() -> object:
    from hwcompat.generators.models import classifier
    from hwcompat.generators.models.catalog import load_catalog

    return classifier, load_catalog()


def _rules() -> object:
    from hwcompat.generators.compatibility.rules import load_rules

    return load_rules()


@dataclass(frozen=True, kw_only=True)
class Report:
    """Findings worst first, with the latest results (`checks`) that they are from.

    `cells` are the cells of those results with their verdicts. `runs` are the runs that the report is about, if it is
    about single runs: then each cell is shown with all its checks. `evidence_asked` is whether measured results were
    requested. `matrix` and `model_checks` are JSON objects of other requested parts; `versions` are those of this
    machine, which decide what of the matrix has expired. `project` is the result of a project file; its findings are
    among the others. `second_opinions` are results of reference tests, which are neither in `checks` nor in
    `outcomes`. `suites` are the files of cells, if they are here, and `baseline` is the comparison with an earlier
    report. `history` has earlier runs, `machines` the newest run of each machine.
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
        """The number of findings of each severity."""
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
        """The number of checks by outcome, without zeros."""
        counts = Counter(line.outcome for line in self.checks)
        return {str(outcome): counts[outcome] for outcome in Outcome if counts[outcome]}

    @property
    def models_tested(self) -> tuple[str, ...]:
        """Models with at least one check that ran."""
        idle = (Outcome.NOT_RUN, Outcome.SKIPPED)
        return tuple(sorted({line.model for line in self.checks if line.outcome not in idle}))

    def fails(self, fail_on: Severity) -> bool:
        """Whether a finding has that severity or a worse one; findings known to the baseline don't count."""
        return any(
            finding.severity.rank >= fail_on.rank
            and (self.baseline is None or self.baseline.state(finding) is not FindingState.KNOWN)
            for finding in self.findings
        )
