"""`hwcompat report`: the requested parts in one report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from hwcompat.generators.compatibility.verdict import Level, is_final
from hwcompat.hardware.cell import GRAPH_TASK, MODULE_TASK
from hwcompat.hardware.command_line import note
from hwcompat.hardware.errors import ModelError
from hwcompat.hardware.evidence.latest import Latest, read_latest
from hwcompat.hardware.evidence.store import Evidence, read_folder
from hwcompat.hardware.evidence.versions import versions_of
from hwcompat.hardware.expected_targets import targets
from hwcompat.hardware.files import DEFAULT_EVIDENCE, DEFAULT_REPORTS
from hwcompat.hardware.gc_control import not_collecting
from hwcompat.hardware.software import is_installed

from .baseline import compare, read_baseline
from .delivery import deliver_to_github, pseudonyms_for
from .finding import Severity, worst_first
from .formats import report_text, suffix_of
from .html.matrix_html import matrix_html
from .matrix_text import matrix_text
from .memory_check import memory_check
from .model_check import check_model, without_transformers
from .pseudonyms import Pseudonyms
from .report_request import Request
from .reporter import HardwareCompatibilityReporter
from .source_places import suite_places

if TYPE_CHECKING:
    from hwcompat.generators.compatibility.matrix import Matrix

    from .memory_check import MemoryCheck
    from .model_check import ModelCheck
    from .report import Report


def collect(request: Request) -> int:
    """Collect the requested parts, print or write them, and return the exit code."""
    with not_collecting():
        return _collected(request)


def _collected(request: Request) -> int:
    evidence = _evidence(request)
    reporter = HardwareCompatibilityReporter(evidence, output_folder=request.output_dir or DEFAULT_REPORTS)
    answers = [_answer(request, reporter, name) for name in request.models]
    if request.collect_all:
        _collect_all(reporter)
    if request.test_hardware:
        note("computing on every target that is here …")
        reporter.test_full_hardware_stack(asked=[request.device] if request.device else ())
    report = _report(request, reporter, answers)
    matrix = reporter.matrix() if request.matrix else None
    names = _pseudonyms(request) if request.anonymise_models else None
    if names is not None:
        report, matrix, answers = names.value(report), names.value(matrix), names.value(answers)
    if request.baseline is not None:
        before = read_baseline(request.baseline, names.value if names else lambda value: value)
        report = replace(report, baseline=compare(report, before))
    _deliver(request, reporter, report, matrix, answers)
    untrusted = any(is_final(answer.measured) for answer in answers)
    return 1 if untrusted or report.fails(Severity(request.fail_on)) else 0


def _pseudonyms(request: Request) -> Pseudonyms:
    """Return pseudonyms for every name in the evidence: lines that a report leaves out may still be quoted in it."""
    folder = request.evidence or DEFAULT_EVIDENCE
    nothing = Evidence(runs=(), checks=(), ends=(), broken=())
    return pseudonyms_for(read_folder(folder) if folder.is_dir() else nothing, request.models)


def _memory(request: Request, reporter: HardwareCompatibilityReporter, name: str) -> MemoryCheck | None:
    if request.without_memory:
        return None

    shown_name = "the model" if request.anonymise_models else name
    note(f"running {shown_name} without data, to see how much memory it takes …")
    question = {
        "mode": "training" if request.training else None,
        "precision": request.precision,
        "batch": request.batch,
        "context": request.context,
        "sizes": request.memory,
    }
    return memory_check(name, request.device, question, targets(reporter.inventory()))


def _evidence(request: Request) -> Latest | None:
    """Return the evidence to report on; None if the default folder doesn't exist, which means that nothing ran."""
    if not is_installed("duckdb"):  # a report also serves machines on which packages are missing
        note("no evidence is read: duckdb is not installed (pip install duckdb)")
        return None
    if request.evidence is not None:
        return read_latest(request.evidence, details=True)
    if not request.wants_evidence:
        return None
    if DEFAULT_EVIDENCE.is_dir():
        return read_latest(DEFAULT_EVIDENCE, details=True)
    note(f"there is no evidence in {DEFAULT_EVIDENCE}: nothing was measured")
    return None


def _collect_all(reporter: HardwareCompatibilityReporter) -> None:
    reporter.check_components()
    reporter.collect_hardware_detection_errors()
    reporter.collect_resource_pool_errors()
    reporter.collect_compatibility_test_errors()
    # Names of checkpoints and of a user's own modules and graphs are no model types.
    own = (MODULE_TASK, GRAPH_TASK)
    for model in sorted(
        {one.model for one in reporter.checks if one.subject != "checkpoint" and one.task not in own}
    ):
        reporter.collect_model_integration_errors(model)


def _answer(request: Request, reporter: HardwareCompatibilityReporter, name: str) -> ModelCheck:
    memory = _memory(request, reporter, name)
    try:
        answer = check_model(name, request.device, reporter.latest, reporter.inventory(), memory)
    except ModelError as error:
        if is_installed("transformers"):
            raise
        reporter.collect_model_integration_errors(name)
        return replace(without_transformers(name, request.device, error), memory=memory)
    if answer.measured.level is not Level.UNKNOWN or answer.findings:
        return answer
    target = answer.measured.cell.split("/")[2]
    if answer.refused:
        text, kind, severity = f"{answer.measured.cell}: {answer.cause}", answer.refused, "error"
    elif request.device not in (None, "auto") and answer.absent:
        text, kind, severity = f"{target} was asked for and is not here: {answer.absent}", answer.absence, "error"
    else:
        text, kind, severity = f"{answer.measured.cell}: {answer.cause}", "not_measured", "warning"
    reporter.add_error(
        target,
        kind,
        text,
        severity=severity,
        component="model_check",
        model_name=answer.model,
        command=answer.command,
    )
    return answer


def _report(request: Request, reporter: HardwareCompatibilityReporter, answers: Sequence[ModelCheck]) -> Report:
    report = reporter.report()
    if not request.collect_all:  # otherwise these findings are already there, with those of other models
        own = {finding.id: finding for answer in answers for finding in answer.findings}
        report = replace(report, findings=worst_first([*report.findings, *own.values()]))
        cells = {answer.measured.cell for answer in answers}
        checks = tuple(line for line in report.checks if line.cell_id in cells)
        report = replace(report, checks=checks, evidence_asked=bool(answers))
    cells = {cell for finding in report.findings for cell in finding.cells}
    return replace(
        report,
        model_checks=tuple(answer.to_dict() for answer in answers),
        suites=suite_places(reporter.latest.plans.values(), cells, request.suites),
    )


def _deliver(
    request: Request,
    reporter: HardwareCompatibilityReporter,
    report: Report,
    matrix: Matrix | None,
    answers: Sequence[ModelCheck],
) -> None:
    if request.format == "github":
        deliver_to_github(report, reporter, to_files=request.output_dir is not None)
        return
    for name, text in _products(request, reporter, report, matrix, answers):
        if request.output_dir is None:
            click.echo(text, nl=False)
        else:
            note(f"written: {reporter.save_to_file(text, name)}")


def _products(
    request: Request,
    reporter: HardwareCompatibilityReporter,
    report: Report,
    matrix: Matrix | None,
    answers: Sequence[ModelCheck],
) -> list[tuple[str, str]]:
    """Return file names and texts: in Markdown one text for each part, else one document."""
    name = f"hardware_compatibility_report.{suffix_of(request.format)}"
    if request.format != "markdown":
        if matrix is None:
            return [(name, report_text(report, request.format))]

        versions = versions_of(reporter.inventory())
        if not (request.wants_report or answers):
            whole = request.format == "html"  # a document with the matrix only
            text = (
                matrix_html(matrix.to_dict(), versions=versions, evidence=reporter.latest)
                if whole
                else matrix_text(matrix, request.format)
            )
            return [(f"compatibility_matrix.{suffix_of(request.format)}", text)]
        return [(name, report_text(replace(report, matrix=matrix.to_dict(), versions=versions), request.format))]
    products = []
    if answers:
        products.append(("model_checks.txt", "".join(answer.text for answer in answers)))
    if request.wants_report:
        products.append((name, ("\n" if products and not request.output_dir else "") + report_text(report)))
    if matrix is not None:
        before = "\n" if products and not request.output_dir else ""
        text = f"{before}# Compatibility matrix\n\n{matrix_text(matrix, 'markdown')}"
        products.append(("compatibility_matrix.md", text))
    return products
