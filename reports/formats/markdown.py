"""A report as Markdown: the worst first, each finding with what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hwcompat.hardware.evidence.record import RunLine
from hwcompat.hardware.plain_text import one_line

from ..cell_report import CellReport
from ..fact_labels import Facts, cell_facts, error_text, run_facts
from ..failure_place import culprit_frames
from ..finding import Finding, FindingComparison, FindingState, Severity
from ..project import project_markdown
from ..reason_text import explained
from ..reference_tests import reference_test_markdown
from ..report import Report
from ..speed_text import speed_markdown
from ..stack import STACK_COMPONENT
from ..text import advice_markdown, code, escaped_table, fenced, listed, markdown, markdown_table
from . import Format

_TRACEBACK_LINES = 25
_SHOWN_CELLS = 10
_SHOWN_GONE = 20
_STATES = {
    FindingState.NEW: "not in the baseline",
    FindingState.WORSE: "more severe than in the baseline, or in more cells or checks",
    FindingState.KNOWN: "in the baseline; it doesn't affect the exit code",
}


def markdown_report(report: Report) -> str:
    """Return a Markdown report that ends in a newline. Untrusted text is escaped.

    Remarks on targets that aren't here are only rows in the table of targets; JSON has a finding for each.
    """
    shown = [finding for finding in report.findings if not _is_row(finding, report)]
    left = len(report.findings) - len(shown)
    rows = f" ({left} of them are only in the first table)" if left else ""
    parts = [
        "# Hardware compatibility report",
        f"{markdown(report.timestamp)}. {counts_line(report)}{rows}.",
        *([_baseline_section(report.baseline)] if report.baseline else []),
        *([project_markdown(report.project)] if report.project else []),
        _stack(report),
        measured_line(report),
        *([cell_section(cell) for cell in report.cells] if report.runs else [cells_table(report.cells)]),
        speed_markdown(report.cells),
        reference_test_markdown(report.second_opinions),
        _findings_table(shown, report),
        *(finding_section(finding, report.baseline) for finding in shown),
        _components(report),
        *(run_section(run) for run in report.runs),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def counts_line(report: Report) -> str:
    """Return `Findings: 0 critical, 1 error, 2 warning, 0 info`."""
    counts = report.error_counts
    if not report.findings:
        return "No findings"
    return "Findings: " + ", ".join(f"{counts[severity]} {severity}" for severity in Severity)


def _is_row(finding: Finding, report: Report) -> bool:
    """Whether a finding says no more than a row in the table of targets."""
    absent = {one.target for one in report.stack if one.state == "absent"}
    remark = finding.severity is Severity.INFO and finding.component == STACK_COMPONENT
    return remark and finding.hardware_type in absent


def measured_line(report: Report) -> str:
    """Return the number of checks by outcome, and their models."""
    if not report.checks and not report.evidence_asked:
        return ""
    if not report.checks:
        return "Nothing was measured: there is no evidence of any check."
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in report.outcomes.items())
    cells = len({line.cell_id for line in report.checks})
    models = ", ".join(markdown(model) for model in report.models_tested) or "none"
    return f"Checks: {len(report.checks)} in {cells} cells ({outcomes}). Models tested: {models}."


def _baseline_section(baseline: FindingComparison) -> str:
    lines = [f"- {state}: {text}" for state, text in _STATES.items()]
    head = f"## Against {markdown(baseline.name)}\n\n{baseline.summary}, since {markdown(baseline.timestamp)}."
    gone = [
        f"- {words}: {finding.severity}, {markdown(finding.hardware_type)}: {markdown(finding.message)}"
        for words, findings in (("fixed", baseline.fixed), ("not checked again", baseline.unseen))
        for finding in findings[:_SHOWN_GONE]
    ]
    left = sum(max(0, len(findings) - _SHOWN_GONE) for findings in (baseline.fixed, baseline.unseen))
    more = [f"- and {left} more"] if left else []
    return "\n\n".join(filter(None, [head, "\n".join(lines), "\n".join([*gone, *more])]))


def _findings_table(findings: Sequence[Finding], report: Report) -> str:
    if not findings:
        return ""
    against = report.baseline
    rows = [
        [
            f"[{finding.severity}](#{_anchor(finding)})",
            markdown(finding.hardware_type),
            markdown(finding.error_type),
            markdown(finding.model_name or "-"),
            markdown(finding.message, longest=160),
            *([str(against.state(finding))] if against else []),
        ]
        for finding in findings
    ]
    headings = ("severity", "hardware", "type", "model", "what", *(("against the baseline",) if against else ()))
    return "## Findings\n\n" + markdown_table(headings, rows)


def finding_section(finding: Finding, against: FindingComparison | None = None, *, traceback: bool = True) -> str:
    """Return one finding: where it failed and what, commands, its cells and checks, what to do, and the end of its
    traceback."""
    facts = [
        *([f"- failed at: {markdown(finding.place)}"] if finding.place else []),
        *([f"- against the baseline: {against.state(finding)}"] if against else []),
        f"- where: {markdown(finding.component)}, {markdown(finding.hardware_type)}"
        + (f", {markdown(finding.model_name)}" if finding.model_name else ""),
        f"- first seen: {markdown(finding.timestamp)}; diagnosis: {finding.confidence} confidence",
    ]
    if finding.cells:
        facts.append(f"- cells: {listed(list(map(markdown, finding.cells)), _SHOWN_CELLS)}")
    advice = [f"{number}. {advice_markdown(text)}" for number, text in enumerate(finding.recommendations, 1)]
    head = (
        f'<a id="{_anchor(finding)}"></a>\n### {finding.severity}: {markdown(finding.error_type.replace("_", " "))}'
    )
    if finding.checks:
        facts.append(f"- checks: {markdown(', '.join(finding.checks))}")
    parts = [head, markdown(finding.message, longest=600, opens_block=True), "\n".join(facts)]
    if finding.commands:
        parts.append(fenced("\n".join(finding.commands)))
    if advice:
        parts.append("What to do:\n\n" + "\n".join(advice))
    if traceback and finding.traceback:
        lines = finding.traceback.splitlines()
        frames = culprit_frames(finding.traceback) if len(lines) > _TRACEBACK_LINES else ""
        # The end of a long one may be only torch's: it doesn't have the code at fault.
        parts += [f"Frames outside of torch:\n\n{fenced(frames)}"] if frames else []
        parts.append(fenced("\n".join(lines[-_TRACEBACK_LINES:])))
    return "\n\n".join(parts)


def _anchor(finding: Finding) -> str:
    """Return a finding's id without its type, which a caller may have chosen."""
    return f"finding-{finding.id.rpartition('-')[2]}"


def _stack(report: Report) -> str:
    if not report.stack:
        return ""
    rows = [
        (one.target, one.state, one.device_name, f"{one.duration_s:.1f} s" if one.duration_s else "", one.reason)
        for one in report.stack
    ]
    head = "## Hardware stack\n\n`computed`: the smoke test passed.\n\n"
    return head + escaped_table(("target", "state", "device", "took", "reason"), rows)


def _components(report: Report) -> str:
    if not report.components:
        return ""
    rows = [(one.name, one.state, one.version, one.reason) for one in report.components]
    return "## Components\n\n" + escaped_table(("component", "state", "version", "reason"), rows)


_HEADINGS = ("cell", "verdict", "weights", "requested", "ran on", "device", "checks", "because")
_NO_CHECK = "No check has a result."
_CHECK_HEADINGS = ("check", "outcome", "requested", "ran on", "error / tolerance", "time")


def cells_table(cells: Sequence[CellReport]) -> str:
    """Return a table with one row for each cell; empty if there are none."""
    if not cells:
        return ""
    rows = [
        (
            cell.id,
            f"{cell.verdict.level} ({cell.basis})",
            *(cell.subjects, cell.requested, cell.actual, cell.device, cell.outcomes),
            one_line("; ".join(explained(cell.verdict)[0]), longest=160),
        )
        for cell in cells
    ]
    return "## Cells\n\n" + escaped_table(_HEADINGS, rows)


def cell_section(cell: CellReport) -> str:
    """Return a cell with its verdict, what that rests on, and the table of its checks."""
    rows = [
        (
            line.check_name,
            line.outcome,
            line.requested_target,
            line.actual_target,
            error_text(line),
            f"{line.duration_s:.2f} s",
        )
        for line in cell.lines
    ]
    checks = escaped_table(_CHECK_HEADINGS, rows) if rows else _NO_CHECK
    facts = [f"- verdict: **{cell.verdict.level}** ({cell.basis})", *_facts(cell_facts(cell))]
    return "\n\n".join([f"## {markdown(cell.id)}", "\n".join(facts), checks])


def _facts(facts: Facts) -> Iterator[str]:
    yield from (f"- {label}: {code(text) if label == 'command' else markdown(text)}" for label, text in facts)


def run_section(run: RunLine) -> str:
    """Return how a run was made."""
    return "\n".join([f"## Run {markdown(run.run_id)}\n", *_facts(run_facts(run))])


FORMAT = Format(suffix="md", render=markdown_report)
