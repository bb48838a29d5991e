"""Writes what a run leaves for people and for CI: one report in each format, of that run alone.

A run that resumes another one is shown with the cells that it took over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from generators.job import JobResult
from generators.project.finding import ProjectOutcome

from .finding import worst_first
from .formats import FORMATS, SUFFIXES, report_text
from .project import project_findings
from .reporter import HardwareCompatibilityReporter


def write_run_reports(result: JobResult, evidence: Path, folder: Path, project: ProjectOutcome | None = None) -> Path:
    """Write `<run id>.md`, `.json`, `.html` and `.xml` (JUnit) into `folder`; returns the path of the first.

    `project` is what a project file makes of the run.
    Raises `OutputError` where the folder can't be written.
    """
    own = [cell.written.planned for cell in result.cells]
    read = result.read_evidence(evidence)
    reporter = HardwareCompatibilityReporter(
        read,
        output_folder=folder,
        own_limits={one.cell.id: one.tolerance.limit for one in own if one.tolerance},
    )
    reporter.collect_compatibility_test_errors()
    report = replace(reporter.report(), runs=read.runs)
    if project is not None:
        findings = worst_first([*report.findings, *project_findings(project, report.timestamp)])
        report = replace(report, project=project, findings=findings)
    paths = {
        name: reporter.save_to_file(report_text(report, name), f"{result.run_id}.{SUFFIXES[name]}")
        for name in FORMATS
    }
    return paths["markdown"]
