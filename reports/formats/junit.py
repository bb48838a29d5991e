"""A report as JUnit XML: a suite for each cell, a case for each check, and a suite for findings without a cell.

Attributes and elements are those that CI servers read, in the order of their common schema. What they have no place
for stands in properties; long text stands in the body of a result and in `system-out`, never in an attribute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from xml.etree import ElementTree

from generators.compatibility.verdict import Basis, Level
from hardware.evidence.record import EDITED, CheckLine, Outcome
from hardware.plain_text import one_line

from ..cells import CellReport
from ..diagnosis import error_types, own_frames
from ..finding import Finding, Severity, count
from ..report import Report
from ..text import moment_in_utc, xml
from ..wording import explained
from .base import Format

_OTHER_SUITE = "findings"
_COUNTED = ("tests", "failures", "errors", "skipped")

Properties = Iterable[tuple[str, object]]


def junit_report(report: Report) -> str:
    """The text of a JUnit file.

    Only `passed` is a pass, and only of a suite as it was generated; `passed_on_fallback`, `ambiguous`, `skipped` and
    what somebody deselected are skipped with their reason, and so is a failure that a project file accepts;
    crashes, timeouts, lack of memory and checks that weren't run are errors. The findings' counts are properties of
    the last suite.
    """
    by_evidence: dict[str, Finding] = {}
    for finding in report.findings:  # the worst comes first
        for id_ in finding.evidence_ids:
            by_evidence.setdefault(id_, finding)
    root = ElementTree.Element("testsuites", {"name": "hardware compatibility"})
    concluded = {cell.id: cell for cell in report.cells}
    lines: dict[str, list[CheckLine]] = {}
    for line in report.checks:
        lines.setdefault(line.cell_id, []).append(line)
    accepted = report.project.accepted if report.project else {}
    machines = {run.run_id: run.machine for run in report.runs}
    files = {planned.cell_id: planned.suite for run in report.runs for planned in run.plan}
    for cell_id, own in lines.items():
        suite = _suite(root, cell_id, min(line.started_at for line in own))
        file = files.get(cell_id)
        machine = next((machines[line.run_id] for line in own if machines.get(line.run_id)), "")
        suite.attrib.update({name: xml(text) for name, text in (("file", file), ("hostname", machine)) if text})
        _properties(suite, _cell_properties(cell_id, own, concluded.get(cell_id)))
        for line in own:
            case = _case(suite, cell_id, _name(line, own), line.duration_s, file)
            why = _not_counted(line, concluded.get(cell_id))
            _check(case, line, by_evidence.get(line.evidence_id), accepted.get(line.evidence_id), why)
        _verdict_case(suite, cell_id, concluded.get(cell_id))
        _sum_up(suite)
    _others(root, report)
    totals = {key: sum(int(suite.get(key, "0")) for suite in root) for key in _COUNTED}
    root.attrib.update({key: str(number) for key, number in totals.items()})
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in root):.6f}")
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _suite(root: ElementTree.Element, name: str, timestamp: str) -> ElementTree.Element:
    return ElementTree.SubElement(root, "testsuite", {"name": xml(name), "timestamp": _moment(timestamp)})


def _moment(text: str) -> str:
    """UTC without a zone and without fractions: the only form that the schema of JUnit files knows."""
    moment = moment_in_utc(text)
    return f"{moment:%Y-%m-%dT%H:%M:%S}" if moment else xml(text)


def _sum_up(suite: ElementTree.Element) -> None:
    cases = suite.findall("testcase")
    kinds = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    suite.set("tests", str(len(cases)))
    for key, tag in kinds.items():
        suite.set(key, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.6f}")


def _properties(parent: ElementTree.Element, values: Properties) -> None:
    """What isn't known has no property: an empty one would pass for a value."""
    known = [(name, str(value)) for name, value in values if value not in (None, "")]
    if known:
        element = ElementTree.SubElement(parent, "properties")
        for name, text in known:
            ElementTree.SubElement(element, "property", {"name": name, "value": one_line(text)})


def _cell_properties(cell_id: str, lines: Sequence[CheckLine], cell: CellReport | None) -> Properties:
    yield "cell", cell_id
    if cell:
        yield "verdict", f"{cell.verdict.level} ({cell.basis})"
        yield "fault", str(cell.verdict.fault or "")
        yield "because", "; ".join(explained(cell.verdict)[0])
        yield "predicted", cell.prediction
    yield "weights", ", ".join(dict.fromkeys(line.subject for line in lines))
    for name in ("requested_target", "actual_target", "accelerator", "precision", "run_id"):
        yield name, ", ".join(dict.fromkeys(str(value) for line in lines if (value := getattr(line, name))))


def _name(line: CheckLine, lines: Sequence[CheckLine]) -> str:
    """A check's name, with the accelerator where several tell of the same check."""
    several = sum(other.check_name == line.check_name for other in lines) > 1
    return f"{line.check_name}[{line.accelerator or line.run_id}]" if several else line.check_name


def _case(
    suite: ElementTree.Element, classname: str, name: str, time: float, file: str | None
) -> ElementTree.Element:
    attributes = {"classname": xml(classname), "name": xml(name), "time": f"{max(time, 0.0):.6f}"}
    return ElementTree.SubElement(suite, "testcase", attributes | ({"file": xml(file)} if file else {}))


def _not_counted(line: CheckLine, cell: CellReport | None) -> str:
    """Why a pass isn't one of today: the cell's verdict doesn't rest on it. Empty if it is."""
    if cell is None or line.outcome is not Outcome.PASSED:
        return ""
    verdict = cell.verdict
    if verdict.basis is Basis.MEASURED and line.evidence_id in verdict.evidence_ids:
        return ""
    return f"passed, but not counted: {'; '.join(explained(verdict)[0]) or cell.basis}"


def _verdict_case(suite: ElementTree.Element, cell_id: str, cell: CellReport | None) -> None:
    """Add an error for a cell that is unknown although no check of it failed: a server shows a skip as green."""
    if cell is None or cell.verdict.level is not Level.UNKNOWN:
        return
    if any(case.find(tag) is not None for case in suite.findall("testcase") for tag in ("failure", "error")):
        return
    if any(line.outcome is Outcome.PASSED_ON_FALLBACK for line in cell.lines):  # --allow-fallback lets it pass
        return
    message = one_line(f"unknown: {'; '.join(explained(cell.verdict)[0])}", longest=600)
    ElementTree.SubElement(
        _case(suite, cell_id, "verdict", 0.0, None), "error", {"type": "unknown", "message": xml(message)}
    )


def _check(
    case: ElementTree.Element, line: CheckLine, finding: Finding | None, accepted: str | None, not_counted: str
) -> None:
    _properties(case, _check_properties(line))
    if line.outcome is not Outcome.PASSED:
        _result(case, line, finding, accepted)
    elif line.conditions.get(EDITED):
        _skipped(case, "suite_edited", f"{EDITED}: {error_types()['suite_edited'].says}")
    elif not_counted:
        _skipped(case, "not_counted", xml(one_line(not_counted, longest=600)))
    if line.offloaded_ops:
        _output(case, "Operators on the host:", line.offloaded_ops)


def _check_properties(line: CheckLine) -> Properties:
    yield "outcome", line.outcome
    yield "requested_target", line.requested_target
    yield "actual_target", line.actual_target
    yield "stage", line.stage
    yield "error", line.max_rel_error
    yield "absolute_error", line.max_abs_error
    yield "tolerance", line.tolerance
    yield "peak_memory_bytes", line.peak_memory_bytes
    yield "latency_ms", line.latency_ms
    yield "evidence_id", line.evidence_id


def _result(case: ElementTree.Element, line: CheckLine, finding: Finding | None, accepted: str | None) -> None:
    said = line.error_message or line.substitution_reason or line.error_type or "no reason was recorded"
    message = f"{line.outcome}: {one_line(said)}"
    unreached = line.outcome is Outcome.NOT_RUN and line.error_type != "deselected"
    if not line.outcome.is_failure and not unreached:
        _skipped(case, str(line.outcome), message, said)
        return
    if accepted is not None:
        told = _skipped(case, "accepted_failure", one_line(f"accepted failure: {accepted}; {message}", longest=600))
        told.text = _body(finding, said, own_frames(line))
        return
    tag = "error" if line.outcome.is_breakdown or unreached else "failure"
    kind = finding.error_type if finding else line.error_type or str(line.outcome)
    told = ElementTree.SubElement(case, tag, {"type": xml(kind), "message": message})
    told.text = _body(finding, said, own_frames(line))


def _skipped(case: ElementTree.Element, kind: str, message: str, said: str = "") -> ElementTree.Element:
    """A skip with its reason; where that is longer than a line, all of it is the body."""
    told = ElementTree.SubElement(case, "skipped", {"type": xml(kind), "message": message})
    if said and one_line(said) != said:
        told.text = xml(said)
    return told


def _output(case: ElementTree.Element, head: str, counts: Mapping[str, int]) -> None:
    lines = [head, *(f"{name} x {number}" for name, number in sorted(counts.items()))]
    ElementTree.SubElement(case, "system-out").text = xml("\n".join(lines))


def _body(finding: Finding | None, said: str, traceback: str) -> str:
    """Diagnosis and advice, then all that was said where a line couldn't hold it, then the traceback."""
    advice = [f"- {text}" for text in finding.recommendations] if finding else []
    cells = [f"Cells: {', '.join(finding.cells)}"] if finding and finding.cells else []
    head = [finding.message, *cells, "What to do:", *advice] if finding else []
    whole = ["", said] if said and one_line(said) != said else []
    return xml("\n".join([*head, *whole, *(["", traceback] if traceback else [])]).strip("\n"))


def _others(root: ElementTree.Element, report: Report) -> None:
    """Findings that no check stands behind. Errors fail; warnings and remarks are skipped with what they say."""
    suite = _suite(root, _OTHER_SUITE, report.timestamp)
    _properties(suite, count(report.findings).items())
    for finding in report.findings:
        if finding.evidence_ids:
            continue
        case = _case(suite, finding.component, finding.id, 0.0, None)
        message = one_line(f"{finding.severity}: {finding.hardware_type}: {finding.message}", longest=600)
        if finding.severity.rank >= Severity.ERROR.rank:
            told = ElementTree.SubElement(case, "failure", {"type": xml(finding.error_type), "message": message})
            told.text = _body(finding, "", finding.traceback)
        else:
            _skipped(case, str(finding.severity), message)
    _sum_up(suite)


FORMAT = Format(suffix="xml", render=junit_report)
