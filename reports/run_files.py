"""Writes what a run leaves for people and for CI: one report in each format, of that run alone.

A run that resumes another one is shown with the cells that it took over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from generators.job import JobResult
from generators.project.finding import ProjectOutcome
from hardware.errors import OutputError

from .baseline import Baseline, compare
from .finding import worst_first
from .formats import OF_A_RUN, SUFFIXES, report_text
from .places import suite_places
from .project import project_findings
from .report import Report
from .reporter import HardwareCompatibilityReporter

if TYPE_CHECKING:
    from hardware.detection import HardwareInfo


@dataclass(frozen=True, kw_only=True)
class WrittenReport:
    """The report of a run, and the path of its Markdown; the other formats lie beside it."""

    report: Report
    path: Path


def write_run_reports(
    result: JobResult,
    evidence: Path,
    folder: Path,
    project: ProjectOutcome | None = None,
    *,
    suites: Path | None = None,
    baseline: Baseline | None = None,
    inventory: HardwareInfo | None = None,
) -> WrittenReport:
    """Write `<run id>.md`, `.json`, `.html`, `.xml` (JUnit) and `.sarif` into `folder`.

    `project` is what a project file makes of the run, `suites` the folder in which findings are shown, `baseline` the
    earlier report that they are held against, `inventory` this machine's where the caller has it. Raises
    `OutputError` where the folder can't be written.
    """
    own = [cell.written.planned for cell in result.cells]
    read = result.read_evidence(evidence)
    reporter = HardwareCompatibilityReporter(
        read,
        output_folder=folder,
        own_limits={one.cell.id: one.tolerance.limit for one in own if one.tolerance},
        inventory=inventory,
    )
    reporter.collect_compatibility_test_errors()
    report = replace(reporter.report(), runs=read.runs)
    if project is not None:
        findings = worst_first([*report.findings, *project_findings(project, report.timestamp)])
        report = replace(report, project=project, findings=findings)
    if suites is not None:
        cells = {cell for finding in report.findings for cell in finding.cells}
        report = replace(report, suites=suite_places([one for run in report.runs for one in run.plan], cells, suites))
    if baseline is not None:
        report = replace(report, baseline=compare(report, baseline))
    texts = {name: report_text(report, name) for name in OF_A_RUN}
    try:
        paths = {
            name: reporter.save_to_file(text, f"{result.run_id}.{SUFFIXES[name]}") for name, text in texts.items()
        }
    except OutputError as error:
        fix = "The evidence is kept: name another folder with --report-dir, and go on with --resume."
        raise OutputError(error.what, why=error.why, fix=fix) from error
    return WrittenReport(report=report, path=paths["markdown"])
