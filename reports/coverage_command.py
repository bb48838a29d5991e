"""`hwcompat coverage`: the results of every model type on this machine, in a format."""

from __future__ import annotations

import click

from hwcompat.generators.models.catalog import load_catalog
from hwcompat.generators.options import Options
from hwcompat.hardware.basic_detection import inventory_here
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.command_line import terminal_width
from hwcompat.hardware.errors import NothingMatched, UsageError, echo
from hwcompat.hardware.evidence.store import Evidence
from hwcompat.hardware.evidence.versions import library_versions, relevant_versions, versions_of
from hwcompat.hardware.evidence.writer import machine_label, now
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.redaction import redact
from hwcompat.hardware.target import Target

from .coverage.coverage_facts import Coverage, CoverageCounts, CoverageStatus
from .coverage.coverage_report import (
    TRANSFORMERS,
    CoverageReport,
    coverage_json,
    keep_report,
    last_report,
    read_report,
)
from .coverage.coverage_results import coverage_here
from .coverage.coverage_view import coverage_markdown, coverage_text
from .html.coverage_html import coverage_html

DEFAULT_TARGETS = ("cpu",)

_NOTHING = Evidence(runs=(), checks=(), ends=(), broken=())


def report_coverage(asked: Options, command: str) -> int:
    """Print the requested report; return the exit code.

    It is 1 if less than `--fail-under` percent of the types that can be built passed. Raises `NothingMatched` after
    the report if there is no evidence at all; such a report isn't kept.
    """
    inventory = inventory_here()
    evidence = asked.read_evidence() or _NOTHING
    found = coverage_here(evidence, inventory, asked.targets or DEFAULT_TARGETS, asked.precision)
    report = CoverageReport(
        timestamp=now(),
        command=redact(command),
        machine=asked.machine or machine_label(),
        versions=_versions(found, inventory),
        coverage=found,
    )
    kept = last_report(asked.report_dir, found)
    if asked.previous is not None:
        previous = read_report(asked.previous)
        if previous.coverage.precision != found.precision:
            raise UsageError(
                f"{echo(str(asked.previous))} is of {previous.coverage.precision}, this report of {found.precision}",
                fix=f"Ask for --precision {previous.coverage.precision}, or name a report of {found.precision}.",
            )
        report = report.compared(previous, go_on=False)
    elif kept.is_file():
        report = report.compared(read_report(kept), go_on=True)
    click.echo(_text(report, asked.format_), nl=False)
    if not evidence.checks:
        raise NothingMatched(
            "nothing was measured",
            why=f"there is no evidence in {asked.evidence}",
            fix="For example: hwcompat run --priority all --device cpu",
        )
    keep_report(report, asked.report_dir)
    return _judged(found, asked.fail_under)


def _text(report: CoverageReport, format: str) -> str:
    if format == "html":
        return coverage_html(report)
    if format == "json":
        return coverage_json(report)
    return coverage_markdown(report) if format == "markdown" else coverage_text(report, width=terminal_width())


def _judged(found: Coverage, fail_under: float | None) -> int:
    code = 0
    for target in found.targets:
        counts = CoverageCounts.of(target.results)
        if fail_under is not None and 100 * counts[CoverageStatus.PASSED] < fail_under * counts.buildable:
            click.echo(f"error: {target.target}: {counts.share}; {fail_under:g} % was asked for", err=True)
            code = 1
    return code


def _versions(found: Coverage, inventory: HardwareInfo) -> dict[str, str]:
    """Return the versions that evidence on these targets depends on, and that of transformers."""
    here = versions_of(inventory)
    kept = {TRANSFORMERS: load_catalog().version}
    for one in found.targets:
        cell = Cell(model="any", task="any", target=Target.parse(one.target))
        kept |= library_versions(relevant_versions(cell, here))
    return kept
