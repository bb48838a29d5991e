"""Writes what a run leaves for people and for CI: one report in each format, of that run alone.

A run that resumes another one is shown with the cells that it took over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from generators.job import JobResult
from generators.project.finding import ProjectOutcome
from hardware.errors import OutputError
from hardware.evidence.latest import Latest, missing_result

from .baseline import Baseline, compare
from .finding import worst_first
from .formats import OF_A_RUN, report_text, suffix_of
from .places import suite_places
from .project import project_findings
from .report import Report
from .reporter import HardwareCompatibilityReporter


@dataclass(frozen=True, kw_only=True)
class WrittenReport:
    """The report of a run, and the path of its Markdown; the other formats lie beside it."""

    report: Report
    path: Path


def of_runs(result: JobResult) -> Latest:
    """Return the latest results of a run's cells with the run's own lines: its report shows what ran in it."""
    cells = {cell.verdict.cell for cell in result.cells}
    there = {(line.run_id, line.cell_id, line.check_name) for line in result.own.checks}
    missing = [
        missing_result(run.run_id, run.started_at, planned, check)
        for run in result.own.runs
        for planned in run.plan
        for check in planned.checks
        if (run.run_id, planned.cell_id, check) not in there
    ]
    return replace(
        result.latest,
        cells=frozenset(cells),
        checks=(*result.own.checks, *(line for line in missing if line is not None)),
        broken=(*result.latest.broken, *result.own.broken),
    )


def write_run_reports(
    result: JobResult,
    folder: Path,
    project: ProjectOutcome | None = None,
    *,
    suites: Path | None = None,
    baseline: Baseline | None = None,
) -> WrittenReport:
    """Write `<run id>.md`, `.json`, `.html`, `.xml` (JUnit) and `.sarif` into `folder`.

    `project` is what a project file makes of the run, `suites` the folder in which findings are shown, `baseline` the
    earlier report that they are compared with. Raises `OutputError` if the folder can't be written.
    """
    own = [cell.written.planned for cell in result.cells]
    verdicts = {cell.verdict.cell: cell.verdict for cell in result.cells}
    reporter = HardwareCompatibilityReporter(
        of_runs(result),
        output_folder=folder,
        own_limits={one.cell.id: one.tolerance.limit for one in own if one.tolerance},
        inventory=result.inventory,
    )
    reporter.collect_compatibility_test_errors(verdicts=verdicts)
    report = replace(reporter.report(), runs=result.own.runs)
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
            name: reporter.save_to_file(text, f"{result.run_id}.{suffix_of(name)}") for name, text in texts.items()
        }
    except OutputError as error:
        fix = "The evidence is kept: name another folder with --report-dir, and go on with --resume."
        raise OutputError(error.what, why=error.why, fix=fix) from error
    return WrittenReport(report=report, path=paths["markdown"])
