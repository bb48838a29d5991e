"""`HardwareCompatibilityReporter`: collects findings from every part of the product and writes reports of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwcompat.generators.compatibility.expiry import flaky_cells
from hwcompat.generators.compatibility.imported import ReferenceTests, reference_tests
from hwcompat.generators.compatibility.verdict import Reason, Verdict
from hwcompat.hardware.cell import Cell, label_of
from hwcompat.hardware.errors import HwCompatError, UsageError, echo
from hwcompat.hardware.evidence.error_types import current_name
from hwcompat.hardware.evidence.latest import Latest, read_latest
from hwcompat.hardware.evidence.store import Evidence
from hwcompat.hardware.evidence.writer import now
from hwcompat.hardware.files import DEFAULT_REPORTS
from hwcompat.hardware.plugins import plugins
from hwcompat.hardware.redaction import redact

from .advice import measuring_command, recommend, remedies, with_alternatives
from .cell_report import CellReport, cell_reports, modified_checkers
from .diagnose import diagnose, error_types, identify
from .finding import ANY_TARGET, Finding, Severity, worst_first
from .formats import report_text
from .reason_text import reason_text
from .reference_tests import reference_test_findings
from .report import Component, Report, own_parts, packages
from .saved_reports import keep
from .stack import DEFAULT_TIMEOUT_S, STACK_COMPONENT, StackResult, run_stack

if TYPE_CHECKING:
    from hwcompat.generators.compatibility.matrix import Matrix
    from hwcompat.hardware.detection import HardwareInfo
    from hwcompat.hardware.evidence.record import CheckLine

_ERROR_TYPE_OF_DRIVER = {"missing": "driver_missing", "denied": "permission_denied"}
"""What an unusable device lacks, by the state of its driver."""

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}")


class HardwareCompatibilityReporter:
    """Findings of one session. Every `collect_…` adds to them and returns what it found; duplicates are kept once.

    `evidence` is what was measured (None: nothing), in memory or as its latest results with details; `own_limits` are
    a project's own tolerances by cell id, `inventory` is this machine if it was detected already. A missing part
    becomes a finding, and the others are still collected.
    """

    def __init__(
        self,
        evidence: Evidence | Latest | None = None,
        *,
        output_folder: Path = DEFAULT_REPORTS,
        own_limits: Mapping[str, float] | None = None,
        inventory: HardwareInfo | None = None,
    ) -> None:
        self.latest = read_latest(evidence, details=True) if isinstance(evidence, Evidence) else evidence or Latest()
        self.output_folder = output_folder
        self.own_limits = own_limits or {}
        self.checks: tuple[CheckLine, ...] = self.latest.checks
        self.components: tuple[Component, ...] = ()
        self.cells: tuple[CellReport, ...] = ()
        self.opinions: tuple[ReferenceTests, ...] = ()
        self.stack: tuple[StackResult, ...] = ()
        self._asked_for_evidence = False
        self._findings: dict[tuple[str, tuple[str, ...]], Finding] = {}
        self._inventory = inventory

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings so far, worst first."""
        return worst_first(self._findings.values())

    def inventory(self) -> HardwareInfo:
        """Return this machine's inventory: the one that was passed, or detected once."""
        if self._inventory is None:
            from hwcompat.hardware.detection import detect

            self._inventory = detect()
        return self._inventory

    # Collecting

    def add_error(
        self,
        hardware_type: str,
        error_type: str,
        message: str,
        *,
        severity: Severity | str | None = None,
        component: str = "user",
        model_name: str | None = None,
        traceback: str = "",
        cause: str = "",
        command: str = "",
    ) -> Finding:
        """Add one finding. Without `severity` it has the error type's own (that of `unknown` for a new type).

        `cause` is what the message names, `command` measures the cell; both make the advice more exact. Raises
        `UsageError` for an unknown severity.
        """
        error_type = current_name(error_type)
        kind = error_types().get(error_type, error_types()["unknown"])
        if severity is not None and severity not in list(Severity):
            raise UsageError(f"{echo(str(severity))} is not a severity", fix=f"Known: {', '.join(Severity)}.")
        finding = Finding(
            hardware_type=hardware_type,
            error_type=error_type,
            severity=Severity(severity) if severity is not None else kind.severity,
            message=redact(message),
            component=component,
            timestamp=now(),
            model_name=model_name,
            remedies=remedies(error_type, hardware_type, cause=cause, command=command),
            traceback=redact(traceback),
        )
        return self._keep(finding)

    def _keep(self, finding: Finding) -> Finding:
        return self._findings.setdefault((finding.id, finding.cells), finding)

    def check_components(self) -> dict[str, Component]:
        """Return the parts by name, with a finding for each missing or failing one. Imports no framework."""
        self.components = (*packages(), *own_parts(self.inventory))
        absent = {one.name for one in self.components if one.state == "missing"}
        for one in self.components:
            if one.state == "missing":
                self._component(one, "missing_dependency")
            # Without transformers no catalog can be read, which is reported already.
            elif one.state == "failed" and not (one.name == "model_classifier" and "transformers" in absent):
                self._component(one, "component_failed")
        return {one.name: one for one in self.components}

    def _component(self, one: Component, error_type: str) -> Finding:
        return self.add_error(
            ANY_TARGET, error_type, one.reason, severity=one.severity, component=one.name, cause=one.name
        )

    def collect_hardware_detection_errors(self) -> list[Finding]:
        """Return findings of detection: vendors that failed, and devices that can't be used."""
        from hwcompat.hardware.backends.factory import aliases
        from hwcompat.hardware.inventory.vendors.vendor import VendorState

        component = "hardware_detection"
        try:
            inventory = self.inventory()
        except Exception as error:  # a machine that can't be read must still get a report
            return [self._failed(component, error)]
        found = []
        for vendor in inventory.vendors:
            if vendor.failed:
                text = f"{vendor.vendor}: {vendor.reason}"
                found.append(self.add_error(ANY_TARGET, "component_failed", text, component=component))
            elif vendor.state is VendorState.UNUSABLE:
                target, kind = (
                    aliases().get(vendor.vendor.lower(), ANY_TARGET),
                    _ERROR_TYPE_OF_DRIVER.get(vendor.driver, "device_unusable"),
                )
                text = f"{vendor.vendor}: {vendor.state}: {vendor.reason}"
                found.append(self.add_error(target, kind, text, component=component))
        return found

    def collect_resource_pool_errors(self) -> list[Finding]:
        """Return problems of this process's resource pool: low-memory mode (info), memory pressure, and failed loads.

        Empty if the pool wasn't used.
        """
        return [
            self.add_error(**vars(problem), component=component)
            for plugin in plugins().loaded
            for component, problems in plugin.problems.items()
            for problem in plugin.load(problems)()
        ]

    def collect_model_integration_errors(self, model: str) -> list[Finding]:
        """Return findings for models that can't be classified, or only guessed from their names."""
        from hwcompat.generators.models.basic_classification import classify_or_guess

        component = "model_integration"
        try:
            found, reasons = classify_or_guess(model)
        except Exception as error:  # the report goes on whatever a catalog raises
            return [self._failed(component, error, model=model)]
        if not reasons:
            return []
        text = "; ".join(reasons)
        diagnosis = identify(text)
        kind = diagnosis.error_type if diagnosis.error_type == "missing_dependency" else "unknown_model"
        sure = found is None or kind == "missing_dependency"
        severity = Severity.ERROR if sure else Severity.WARNING
        return [
            self.add_error(
                ANY_TARGET,
                kind,
                text,
                severity=severity,
                component=component,
                model_name=model,
                cause=diagnosis.cause,
            )
        ]

    def collect_compatibility_test_errors(
        self, models: Sequence[str] | None = None, *, verdicts: Mapping[str, Verdict] | None = None
    ) -> list[Finding]:
        """Return findings of the evidence, for some models or (None) for all, and its own problems.

        `verdicts` are those of the cells by id, if they were judged already.
        """
        self._asked_for_evidence = True
        lines = [one for one in self.checks if models is None or {one.model, label_of(one.model)} & set(models)]
        found = []
        try:
            self.cells = cell_reports(self.latest, self.inventory(), models, self.own_limits, verdicts)
        except Exception as error:  # without this machine's versions no verdict holds, and the findings still do
            found.append(self._failed("compatibility_test", error))
        found += [self._keep(finding) for finding in self._diagnosed(lines)]
        found += self._second_opinions(models)
        found += self._evidence_errors()
        if not lines:
            what = f"of {', '.join(models)}" if models else "of any model"
            model = models[0] if models and len(models) == 1 else None
            text = f"nothing was measured {what}: there is no evidence"
            found.append(
                self.add_error(
                    ANY_TARGET,
                    "not_measured",
                    text,
                    component="compatibility_test",
                    model_name=model,
                    command=measuring_command(model, "auto") if model else "",
                )
            )
        return found

    def _diagnosed(self, lines: Sequence[CheckLine]) -> list[Finding]:
        """Return the findings of lines, with alternatives if nothing on the target helps."""
        faults = {cell.verdict.cell for cell in self.cells if cell.verdict.fault}
        findings = diagnose(lines, self.latest.versions, self.latest.predictions, faults)
        try:
            return with_alternatives(findings, [cell.verdict for cell in self.cells], self.inventory())
        except Exception as error:  # suggestions are optional
            return [*findings, self._failed("compatibility_test", error)]

    def _second_opinions(self, models: Sequence[str] | None) -> list[Finding]:
        """Return results of reference tests of those models, and findings of disagreement."""
        others = self.latest.others
        if not others.other_checks:
            return []
        opinions = reference_tests(others, self.inventory())
        self.opinions = tuple(one for one in opinions if models is None or one.model in models)
        findings = reference_test_findings([cell.verdict for cell in self.cells], self.opinions)
        return [self._keep(finding) for finding in findings]

    def _evidence_errors(self) -> list[Finding]:
        component = "evidence"
        by_file: dict[str, list[str]] = {}
        for line in self.latest.broken:
            by_file.setdefault(line.file, []).append(f"line {line.number}: {line.reason}")
        found = [
            self.add_error(ANY_TARGET, "broken_evidence", f"{name}: {len(why)} broken; {why[0]}", component=component)
            for name, why in by_file.items()
        ]
        flaky = {cell: Reason.of("flaky", runs=runs) for cell, runs in flaky_cells(self.latest).items()}
        cleared = {one.id: why for one in self.cells for why in one.verdict.reasons if why.code == "cleared"}
        for kind, reasons in (("flaky", flaky), ("flaky_cleared", cleared)):
            for cell_id, why in reasons.items():
                cell, text = Cell.parse(cell_id), f"{cell_id}: {reason_text(why)}"
                found.append(self.add_error(str(cell.target), kind, text, model_name=cell.model))
        for target, model, text in modified_checkers(self.cells):
            found.append(self.add_error(target, "modified_checker", text, model_name=model))
        for run_id in self.latest.unfinished:
            text = f"run {run_id} has no end: it is still running, or it was killed"
            found.append(self.add_error(ANY_TARGET, "interrupted", text, component=component))
        return found

    def test_full_hardware_stack(
        self, *, timeout_s: float = DEFAULT_TIMEOUT_S, asked: Sequence[str] = (), command: Sequence[str] = ()
    ) -> dict[str, StackResult]:
        """Compute on every target that may be here, each in its own child process; absent ones get graded findings.

        `timeout_s` is for one target. The absence of a target in `asked` has the grade of its cause, that of any
        other is information. `command` replaces the probe in tests.
        """
        from hwcompat.hardware.expected_targets import targets

        self.stack = run_stack(targets(self.inventory()), timeout_s=timeout_s, command=command)
        for result in self.stack:
            if result.state != "computed":
                self._stack_finding(result, is_asked=result.target in asked)
        return {result.target: result for result in self.stack}

    def _stack_finding(self, result: StackResult, *, is_asked: bool = False) -> Finding:
        absent = result.state == "absent"
        diagnosis = identify(result.reason, recorded=result.recorded or ("device_absent" if absent else ""))
        severity = diagnosis.severity
        # Every target is tried, so the absence of one that was not asked for is no error, unless its device is here.
        if absent and not is_asked and result.target != "cpu" and not self._has_device(result.target):
            severity = Severity.INFO
        return self.add_error(
            result.target,
            diagnosis.error_type,
            f"{result.target} {'is not available' if absent else 'failed'}: {result.reason}",
            severity=severity,
            component=STACK_COMPONENT,
            traceback=result.log,
            cause=diagnosis.cause,
        )

    def _has_device(self, target: str) -> bool:
        """Return whether the bus or a driver shows a device of a target's vendor."""
        from hwcompat.hardware.backends.factory import declarations_of
        from hwcompat.hardware.inventory.vendors.vendor import HardwareState

        maker = declarations_of(target).VENDOR
        vendors = self.inventory().vendors
        return any(one.vendor == maker and one.hardware is HardwareState.PRESENT for one in vendors)

    def _failed(self, component: str, error: Exception, *, model: str | None = None) -> Finding:
        import traceback

        return self.add_error(
            ANY_TARGET,
            "component_failed",
            str(error) if isinstance(error, HwCompatError) else f"{type(error).__name__}: {error}",
            component=component,
            model_name=model,
            traceback="".join(traceback.format_exception(error)),
        )

    # Reporting

    def get_recommendations(self, hardware_type: str | None = None, error_type: str | None = None) -> list[str]:
        """Return what to do about the findings so far, worst first, or about one target and error type."""
        if hardware_type is not None and error_type is not None:
            return list(recommend(error_type, hardware_type))
        wanted = (
            finding
            for finding in self.findings
            if hardware_type in (None, finding.hardware_type) and error_type in (None, finding.error_type)
        )
        return list(dict.fromkeys(text for finding in wanted for text in finding.recommendations))

    def report(self) -> Report:
        """Return the report as data."""
        return Report(
            timestamp=now(),
            findings=self.findings,
            components=self.components,
            checks=self.checks,
            cells=self.cells,
            evidence_asked=self._asked_for_evidence or not self.stack,
            stack=self.stack,
            second_opinions=self.opinions,
            history=self.latest.history,
            machines=self.latest.runs,
        )

    def generate_report(self, format: str = "markdown") -> str:
        """Return the report as text in one of `formats.FORMATS`. Raises `UsageError` for another format."""
        return report_text(self.report(), format)

    def matrix(self) -> Matrix:
        """Return the matrix with the evidence."""
        from hwcompat.generators.compatibility.matrix import current_matrix
        from hwcompat.generators.compatibility.verdict_cache import judged_of

        inventory = self.inventory()
        return current_matrix(judged_of(self.latest, inventory, self.own_limits), inventory, timestamp=now())

    def generate_compatibility_matrix(self) -> dict[str, Any]:
        """Return the matrix as the JSON object that `generators/compatibility/schemas/matrix.json` describes."""
        return self.matrix().to_dict()

    def save_to_file(self, content: str, filename: str) -> Path:
        """Write a text into the output folder, completely or not at all, and return its path.

        Raises `UsageError` for a name that isn't a plain file name, `OutputError` if it can't be written.
        """
        if not _FILE_NAME.fullmatch(filename) or ".." in filename:
            raise UsageError(
                f"{echo(filename)} is not the name of a report",
                why="only letters, digits and ._- are allowed: reports stay in the output folder",
            )
        return keep(content, self.output_folder, filename)
