"""A report as JUnit XML: a suite for each cell, a case for each check, and a suite for findings without a cell."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from hardware.evidence.record import EDITED, CheckLine, Outcome

from .diagnosis import error_types
from .finding import Finding, Severity, count
from .report import Report
from .text import one_line, xml

_ERRORS = (Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY)
_OTHER_SUITE = "findings"


def junit_report(report: Report) -> str:
    """The text of a JUnit file.

    Only `passed` is a pass, and only of a suite as it was generated; `passed_on_fallback`, `ambiguous`, `skipped`
    and `not_run` are skipped with their reason; crashes, timeouts and lack of memory are errors. The findings'
    counts are properties of the last suite.
    """
    by_evidence: dict[str, Finding] = {}
    for finding in report.findings:  # the worst comes first
        for id_ in finding.evidence_ids:
            by_evidence.setdefault(id_, finding)
    root = ElementTree.Element("testsuites", {"name": "hardware compatibility"})
    cells: dict[str, list[CheckLine]] = {}
    for line in report.checks:
        cells.setdefault(line.cell_id, []).append(line)
    for cell_id, lines in cells.items():
        suite = _suite(root, cell_id, report.timestamp)
        for line in lines:
            _check(suite, line, _name(line, lines), by_evidence.get(line.evidence_id))
        _sum_up(suite)
    _others(root, report)
    totals = {key: sum(int(suite.get(key, "0")) for suite in root) for key in _COUNTED}
    root.attrib.update({key: str(number) for key, number in totals.items()})
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


_COUNTED = ("tests", "failures", "errors", "skipped")


def _suite(root: ElementTree.Element, name: str, timestamp: str) -> ElementTree.Element:
    return ElementTree.SubElement(root, "testsuite", {"name": xml(name), "timestamp": xml(timestamp)})


def _sum_up(suite: ElementTree.Element) -> None:
    cases = suite.findall("testcase")
    kinds = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    suite.set("tests", str(len(cases)))
    for key, tag in kinds.items():
        suite.set(key, str(sum(case.find(tag) is not None for case in cases)))


def _name(line: CheckLine, lines: Sequence[CheckLine]) -> str:
    """A check's name, with the accelerator where several tell of the same check."""
    several = sum(other.check_name == line.check_name for other in lines) > 1
    return f"{line.check_name}[{line.accelerator or line.run_id}]" if several else line.check_name


def _check(suite: ElementTree.Element, line: CheckLine, name: str, finding: Finding | None) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        {"classname": xml(line.cell_id), "name": xml(name), "time": f"{max(line.duration_s, 0.0):.6f}"},
    )
    if line.outcome is Outcome.PASSED:
        if line.conditions.get(EDITED):
            ElementTree.SubElement(case, "skipped", {"message": f"{EDITED}: {error_types()['suite_edited'].says}"})
        return
    reason = one_line(line.error_message or line.substitution_reason or line.error_type or "no reason was recorded")
    if not line.outcome.is_failure:
        ElementTree.SubElement(case, "skipped", {"message": f"{line.outcome}: {reason}"})
        return
    tag = "error" if line.outcome in _ERRORS else "failure"
    kind = finding.error_type if finding else line.error_type or str(line.outcome)
    told = ElementTree.SubElement(case, tag, {"type": xml(kind), "message": f"{line.outcome}: {reason}"})
    told.text = _body(finding, line.traceback)


def _body(finding: Finding | None, traceback: str) -> str:
    advice = [f"- {text}" for text in finding.recommendations] if finding else []
    cells = [f"Cells: {', '.join(finding.cells)}"] if finding and finding.cells else []
    head = [finding.message, *cells, "What to do:", *advice] if finding else []
    return xml("\n".join([*head, *(["", traceback] if traceback else [])]))


def _others(root: ElementTree.Element, report: Report) -> None:
    """Findings that no check stands behind. Errors fail; warnings and remarks are skipped with what they say."""
    suite = _suite(root, _OTHER_SUITE, report.timestamp)
    properties = ElementTree.SubElement(suite, "properties")
    for severity, number in count(report.findings).items():
        ElementTree.SubElement(properties, "property", {"name": severity, "value": str(number)})
    for finding in report.findings:
        if finding.evidence_ids:
            continue
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": xml(finding.component), "name": finding.id, "time": "0"}
        )
        message = one_line(f"{finding.severity}: {finding.hardware_type}: {finding.message}", longest=600)
        if finding.severity.rank >= Severity.ERROR.rank:
            told = ElementTree.SubElement(case, "failure", {"type": xml(finding.error_type), "message": message})
            told.text = _body(finding, finding.traceback)
        else:
            ElementTree.SubElement(case, "skipped", {"message": message})
    _sum_up(suite)
