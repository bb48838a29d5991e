"""`hwcompat run`: run the suites, print the results, and keep a report of that run in each format.

A run that resumes another one is shown with the cells that it took over.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from hwcompat.generators.options import Options
from hwcompat.generators.project.project_finding import ProjectOutcome
from hwcompat.generators.run import JobInterrupted, JobResult, WrittenSuite, run_job
from hwcompat.hardware.command_line import INTERRUPTED, note, terminal_width
from hwcompat.hardware.command_names import as_runnable
from hwcompat.hardware.errors import OutputError
from hwcompat.hardware.evidence.latest import Latest, missing_result
from hwcompat.hardware.evidence.record import Outcome
from hwcompat.hardware.files import writing
from hwcompat.hardware.plain_text import one_line, printable
from hwcompat.hardware.plugins import plugins
from hwcompat.hardware.testing.runner import Limits, default_memory_limit

from .baseline import Baseline, compare, read_baseline
from .finding import Severity, worst_first
from .formats import OF_A_RUN, report_text, suffix_of
from .progress_bar import progress_on
from .project import project_findings, project_text
from .reason_text import reason_text
from .report import Report
from .reporter import HardwareCompatibilityReporter
from .run_table import last_line, run_text
from .source_places import suite_places

if TYPE_CHECKING:
    from hwcompat.generators.project.project_plan import ProjectRun
    from hwcompat.hardware.detection import HardwareInfo

_LIBRARY_LOG = "libraries.log"
"""The file below the folder for reports that gets what libraries write on standard error."""


def run_suites(
    asked: Options,
    written: Sequence[WrittenSuite],
    inventory: HardwareInfo,
    project: ProjectRun | None,
    command: str,
) -> int:
    """Run the suites, print the verdicts, write the reports; return the exit code.

    `command` is recorded in the evidence.
    """
    from hwcompat.hardware.backends.simulated import SimulatedFault

    fault = SimulatedFault.asked()
    _prepare(asked.report_dir)
    baseline = read_baseline(asked.baseline) if asked.baseline else None
    cut: JobInterrupted | None = None
    try:
        result = _run(asked, written, inventory, project, command)
    except JobInterrupted as error:
        result, cut = error.result, error
    outcome = _judged(asked, project, result, lock=asked.update_expected and not cut)
    report, path = write_run_reports(result, asked.report_dir, outcome, suites=asked.output_dir, baseline=baseline)
    if asked.format_ == "json":
        click.echo(report_text(report, "json"))
    else:
        width, is_terminal = terminal_width(), sys.stdout.isatty()
        click.echo(run_text(result, report.findings, width=width, is_terminal=is_terminal))
        if outcome:
            click.echo(f"\n{project_text(outcome, width=width)}")
        click.echo(last_line(result, path, is_terminal=is_terminal))
    if cut:
        lines = [line for cell in result.cells for line in cell.lines]
        done = sum(line.outcome is not Outcome.NOT_RUN for line in lines)
        counted = f"{done} of {len(lines)} checks are done; the others are not_run"
        click.echo(printable(f"error: {cut.how}: {counted}. {cut.next_step}"), err=True)
        return INTERRUPTED
    _print_missing(result, asked)
    every_line = (line for cell in result.cells for line in cell.lines)
    if fault is not None and (why := fault.why_no_effect(every_line)):
        click.echo(printable(f"error: {why}"), err=True)
        return 1
    code = result.exit_code(allow_fallback=asked.allow_fallback)
    if outcome:
        return outcome.over(code)
    return _by_findings(asked, result, report, code) if asked.fail_on or asked.baseline else code


def _by_findings(asked: Options, result: JobResult, report: Report, code: int) -> int:
    """Return the exit code with a threshold or a baseline: findings decide what a failure (1) means.

    A requested device that isn't here always fails, and so does a check that wasn't reached without a finding that
    explains it, because its result isn't known.
    """
    limit = Severity(asked.fail_on[0]) if asked.fail_on else Severity.ERROR
    if report.baseline:
        note(f"compared with {report.baseline.name}: {report.baseline.summary}")
    if report.fails(limit):
        return 1
    missing = not asked.allow_fallback and any(c.substituted and c.written.planned.required for c in result.cells)
    missing |= any(cell.written.planned.profile.missing for cell in result.cells)
    named = {id_ for one in report.findings if one.severity.rank >= Severity.ERROR.rank for id_ in one.evidence_ids}
    unreached = any(
        line.outcome is Outcome.NOT_RUN and line.error_type != "deselected" and line.evidence_id not in named
        for cell in result.cells
        for line in cell.lines
    )
    return code if code != 1 or missing or unreached else 0


def _judged(asked: Options, project: ProjectRun | None, result: JobResult, *, lock: bool) -> ProjectOutcome | None:
    """Return the project file's outcome for the result, after `--update-expected` under its new lock."""
    if project is None:
        return None
    today = date.today()
    if lock:
        project, changes = project.with_lock_of(result, today=today)
        note(*([f"{project.project.name}: {change}" for change in changes] or ["the lock is unchanged"]))
    return project.judge(result, today=today, allow_fallback=asked.allow_fallback, words=reason_text)


def _run(
    asked: Options,
    written: Sequence[WrittenSuite],
    inventory: HardwareInfo,
    project: ProjectRun | None,
    command: str,
) -> JobResult:
    limits = Limits(
        timeout_s=asked.timeout,
        memory_bytes=default_memory_limit(),
        by_cell=project.timeouts if project and not asked.timeout else {},
    )
    elsewhere: JobResult
    if asked.distributed:
        elsewhere = plugins().job("distributed")(asked, written, inventory, limits, command)
        return elsewhere
    if asked.host:
        elsewhere = plugins().job("host")(asked, asked.host, written, inventory, project, command)
        return elsewhere
    with _library_log(asked.report_dir / _LIBRARY_LOG) as stream:
        return run_job(
            written,
            inventory,
            evidence=asked.evidence,
            command=command,
            machine=asked.machine,
            limits=limits,
            jobs=1 if asked.measure else asked.jobs,
            resume=asked.resume,
            pytest_arguments=asked.pytest_arguments,
            on_note=lambda text: click.echo(f"note: {one_line(as_runnable(text))}", file=stream),
            progress=progress_on(stream),
        )


@contextmanager
def _library_log(path: Path) -> Iterator[TextIO]:
    """Append what libraries write on standard error to a file, and yield the real standard error.

    Without a file descriptor, as in tests, or if the file can't be opened or is a link, nothing is redirected.
    """
    try:
        number = sys.stderr.fileno()
        own = os.dup(number)
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    except (OSError, ValueError):
        yield sys.stderr
        return
    with os.fdopen(own, "w", encoding=sys.stderr.encoding, errors=sys.stderr.errors) as stream:
        sys.stderr.flush()
        os.dup2(log, number)
        os.close(log)
        try:
            yield stream
        finally:
            sys.stderr.flush()
            os.dup2(stream.fileno(), number)
            if path.is_file() and not path.stat().st_size:
                path.unlink()


def _prepare(report_dir: Path) -> None:
    """Create the folder for reports before anything runs, so that a folder that can't be written costs no run."""
    fix = "Name another folder with --report-dir."
    with writing(f"reports cannot be written to {report_dir}", fix):
        report_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=report_dir):
            pass


def _print_missing(result: JobResult, asked: Options) -> None:
    """Print one line for each requested device that isn't available, however many cells it has."""
    missing = Counter(
        (str(cell.written.planned.device), cell.substituted)
        for cell in result.cells
        if cell.substituted and cell.written.planned.required
    )
    kind, ending = (
        ("note", "allowed by --allow-fallback")
        if asked.allow_fallback
        else ("error", "exit code 1; --allow-fallback makes it 0")
    )
    doctor = "" if asked.host else f" To see what is missing: {as_runnable('hwcompat doctor')}"
    where = f"on {asked.host}" if asked.host else "on this machine"
    for (device, reason), number in missing.items():
        cells = f"{number} cell{'' if number == 1 else 's'}"
        text = (
            f"{device} isn't available {where}: {reason}. The results of {cells} don't count for {device} ({ending})."
        )
        click.echo(f"{kind}: {text}{doctor}", err=True)


def of_runs(result: JobResult) -> Latest:
    """Return the latest results of a run's cells with the run's own lines."""
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
) -> tuple[Report, Path]:
    """Write `<run id>.md`, `.json`, `.html`, `.xml` (JUnit) and `.sarif`; return the report and its Markdown's path.

    `project` is the outcome of a project file, `suites` the folder that findings point to, `baseline` the earlier
    report that they are compared with. Raises `OutputError` if the folder can't be written.
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
        fix = "The evidence is stored. Name another folder with --report-dir, and continue with --resume."
        raise OutputError(error.what, why=error.why, fix=fix) from error
    return report, paths["markdown"]
