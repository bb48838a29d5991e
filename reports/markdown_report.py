"""A report as Markdown for people: the worst first, each finding with what to do."""

from __future__ import annotations

from collections.abc import Sequence

from .finding import Finding, Severity
from .markdown_cells import cell_section, cells_table, run_section
from .project import project_markdown
from .report import Report
from .second_opinion import second_opinion_markdown
from .stack import STACK_COMPONENT
from .text import advice_markdown, fenced, markdown, markdown_table

_TRACEBACK_LINES = 25
_SHOWN_CELLS = 10


def markdown_report(report: Report) -> str:
    """The text of a Markdown report, ending in a newline. Untrusted text is escaped throughout.

    Remarks on targets that aren't here are rows of the table of targets only; JSON has a finding for each.
    """
    shown = [finding for finding in report.findings if not _is_row(finding, report)]
    parts = [
        "# Hardware compatibility report",
        f"{markdown(report.timestamp)} UTC. {_counts(report)}",
        *([project_markdown(report.project)] if report.project else []),
        _stack(report),
        _measured(report),
        *([cell_section(cell) for cell in report.cells] if report.runs else [cells_table(report.cells)]),
        second_opinion_markdown(report.second_opinions),
        _findings_table(shown),
        *(_finding(finding) for finding in shown),
        _components(report),
        *(run_section(run) for run in report.runs),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _counts(report: Report) -> str:
    counts = report.error_counts
    if not report.findings:
        return "No findings."
    text = "Findings: " + ", ".join(f"{counts[severity]} {severity}" for severity in Severity)
    rows = sum(_is_row(finding, report) for finding in report.findings)
    return text + (f" ({rows} of them are rows of the first table only)." if rows else ".")


def _is_row(finding: Finding, report: Report) -> bool:
    """Whether a finding says no more than a row of the table of targets does."""
    absent = {one.target for one in report.stack if one.state == "absent"}
    remark = finding.severity is Severity.INFO and finding.component == STACK_COMPONENT
    return remark and finding.hardware_type in absent


def _measured(report: Report) -> str:
    if not report.checks and not report.evidence_asked:
        return ""
    if not report.checks:
        return "Nothing was measured: there is no evidence of any check."
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in report.outcomes.items())
    cells = len({line.cell_id for line in report.checks})
    models = ", ".join(markdown(model) for model in report.models_tested) or "none"
    return f"Checks: {len(report.checks)} in {cells} cells ({outcomes}). Models tested: {models}."


def _or_dash(text: str | None) -> str:
    return markdown(text) if text else "-"


def _findings_table(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    rows = [
        [
            f"[{finding.severity}](#{_anchor(finding)})",
            markdown(finding.hardware_type),
            markdown(finding.error_type),
            _or_dash(finding.model_name),
            markdown(finding.message, longest=160),
        ]
        for finding in findings
    ]
    return "## Findings\n\n" + markdown_table(("severity", "hardware", "type", "model", "what"), rows)


def _finding(finding: Finding) -> str:
    facts = [
        f"- where: {markdown(finding.component)}, {markdown(finding.hardware_type)}"
        + (f", {markdown(finding.model_name)}" if finding.model_name else ""),
        f"- first seen: {markdown(finding.timestamp)}; diagnosis: {finding.confidence} confidence",
    ]
    if finding.cells:
        shown = ", ".join(markdown(cell) for cell in finding.cells[:_SHOWN_CELLS])
        more = len(finding.cells) - _SHOWN_CELLS
        facts.append(f"- cells: {shown}{f' and {more} more' if more > 0 else ''}")
    advice = [f"{number}. {advice_markdown(text)}" for number, text in enumerate(finding.recommendations, 1)]
    head = (
        f'<a id="{_anchor(finding)}"></a>\n### {finding.severity}: {markdown(finding.error_type.replace("_", " "))}'
    )
    if finding.checks:
        facts.append(f"- checks: {markdown(', '.join(finding.checks))}")
    parts = [head, markdown(finding.message, longest=600, opens_block=True), "\n".join(facts)]
    if advice:
        parts.append("What to do:\n\n" + "\n".join(advice))
    if finding.traceback:
        parts.append(fenced("\n".join(finding.traceback.splitlines()[-_TRACEBACK_LINES:])))
    return "\n\n".join(parts)


def _anchor(finding: Finding) -> str:
    """A finding's id without its type, which a caller may have made up."""
    return f"finding-{finding.id.rpartition('-')[2]}"


def _stack(report: Report) -> str:
    if not report.stack:
        return ""
    rows = [
        [
            markdown(one.target),
            one.state,
            _or_dash(one.device_name),
            "-" if one.duration_s is None else f"{one.duration_s:.1f} s",
            _or_dash(one.reason),
        ]
        for one in report.stack
    ]
    head = "## Hardware stack\n\n`computed`: three numbers were computed there and are right.\n\n"
    return head + markdown_table(("target", "state", "device", "took", "reason"), rows)


def _components(report: Report) -> str:
    if not report.components:
        return ""
    rows = [[markdown(one.name), one.state, _or_dash(one.version), _or_dash(one.reason)] for one in report.components]
    return "## Components\n\n" + markdown_table(("component", "state", "version", "reason"), rows)
