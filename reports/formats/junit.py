"""A report as JUnit XML: a suite for each cell, a case for each check, and a suite for findings without a cell.

Attributes and elements are those that CI servers read, in the order of their common schema. Other facts are
properties; long text is in the body of a result and in `system-out`, never in an attribute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from hwcompat.generators.compatibility.verdict import Basis, Level
from hwcompat.hardware.evidence.record import EDITED, CheckLine, Outcome
from hwcompat.hardware.evidence.store import lines_by_cell
from hwcompat.hardware.plain_text import one_line

from ..cell_report import CellReport
from ..diagnose import error_types, own_frames
from ..finding import Finding, Severity, count
from ..reason_text import explained
from ..report import Report
from ..text import moment_in_utc, printable
from . import Format

_OTHER_SUITE = "findings"
_LONGEST = 600
_COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}

Properties = Iterable[tuple[str, object]]


def junit_report(report: Report) -> str:
    """Return a JUnit file.

    Only `passed` is a pass, and only of an unedited suite; `passed_on_fallback`, `ambiguous`, `skipped` and
    deselected checks are skipped with their reason, and so is a failure that a project file accepts; crashes,
    timeouts, lack of memory and checks that weren't run are errors. The findings' counts are properties of the last
    suite.
    """
    root = Element("testsuites", {"name": "hardware compatibility"})
    by_evidence: dict[str, Finding] = {}
    for one in report.findings:  # the worst comes first
        for id_ in one.evidence_ids:
            by_evidence.setdefault(id_, one)
    cells = {cell.id: cell for cell in report.cells}
    accepted = report.project.accepted if report.project else {}
    machines = {run.run_id: run.machine for run in report.runs}
    files = {planned.cell_id: planned.suite for run in report.runs for planned in run.plan}
    for cell_id, own in lines_by_cell(report.checks).items():
        file, cell = files.get(cell_id, ""), cells.get(cell_id)
        machine = next((machines[line.run_id] for line in own if machines.get(line.run_id)), "")
        started = _moment(min(line.started_at for line in own))
        suite = _add(root, "testsuite", name=cell_id, timestamp=started, file=file, hostname=machine)
        _properties(suite, _cell_properties(cell_id, own, cell))
        for line in own:
            case = _case(suite, cell_id, _name(line, own), line.duration_s, file)
            finding, excuse = by_evidence.get(line.evidence_id), accepted.get(line.evidence_id)
            _check(case, line, finding, excuse, why_not_counted(line, cell))
        _verdict_case(suite, cell)
        _sum_up(suite)
    _others(root, report)
    for key in ("tests", *_COUNTED):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in root):.6f}")
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _add(parent: Element, tag: str, text: str | None = None, **attributes: str) -> Element:
    """Add an element; unknown values have no attribute, and characters that XML can't have are spelled out."""
    found = ElementTree.SubElement(parent, tag, {key: printable(one) for key, one in attributes.items() if one})
    found.text = printable(text) if text else None
    return found


def _moment(text: str) -> str:
    """Return UTC without a zone and without fractions: the only form that the schema of JUnit files allows."""
    moment = moment_in_utc(text)
    return f"{moment:%Y-%m-%dT%H:%M:%S}" if moment else text


def _sum_up(suite: Element) -> None:
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for key, tag in _COUNTED.items():
        suite.set(key, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.6f}")


def _properties(parent: Element, values: Properties) -> None:
    """Add properties; unknown values have none, because an empty one would look like a value."""
    if known := [(name, str(value)) for name, value in values if value not in (None, "")]:
        element = _add(parent, "properties")
        for name, text in known:
            ElementTree.SubElement(element, "property", {"name": name, "value": one_line(text)})


def _cell_properties(cell_id: str, lines: Sequence[CheckLine], cell: CellReport | None) -> Iterator[tuple[str, str]]:
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
    """Return a check's name, with the accelerator if several have the same check."""
    several = sum(other.check_name == line.check_name for other in lines) > 1
    return f"{line.check_name}[{line.accelerator or line.run_id}]" if several else line.check_name


def _case(suite: Element, classname: str, name: str, time: float = 0.0, file: str = "") -> Element:
    return _add(suite, "testcase", classname=classname, name=name, time=f"{max(time, 0.0):.6f}", file=file)


def why_not_counted(line: CheckLine, cell: CellReport | None) -> str:
    """Return why a pass doesn't count today: the cell's verdict doesn't rest on it. Empty if it does."""
    if cell is None or line.outcome is not Outcome.PASSED:
        return ""
    verdict = cell.verdict
    if verdict.basis is Basis.MEASURED and line.evidence_id in verdict.evidence_ids:
        return ""
    return f"passed, but doesn't count: {'; '.join(explained(verdict)[0]) or cell.basis}"


def is_open(cell: CellReport) -> bool:
    """Whether a cell is unknown, and no fallback that `--allow-fallback` lets pass is why."""
    unknown = cell.verdict.level is Level.UNKNOWN
    return unknown and all(line.outcome is not Outcome.PASSED_ON_FALLBACK for line in cell.lines)


def is_unreached(line: CheckLine) -> bool:
    """Whether a planned check wasn't run, though nobody left it out."""
    return line.outcome is Outcome.NOT_RUN and line.error_type != "deselected"


def _verdict_case(suite: Element, cell: CellReport | None) -> None:
    """Add an error for a cell that is unknown although no check of it failed: servers show a skip as green."""
    if cell is None or not is_open(cell):
        return
    if any(case.find(tag) is not None for case in suite.findall("testcase") for tag in ("failure", "error")):
        return
    message = one_line(f"unknown: {'; '.join(explained(cell.verdict)[0])}", longest=_LONGEST)
    _add(_case(suite, cell.id, "verdict"), "error", type="unknown", message=message)


def _check(case: Element, line: CheckLine, finding: Finding | None, accepted: str | None, not_counted: str) -> None:
    names = ("outcome", "requested_target", "actual_target", "stage")
    _properties(
        case,
        [
            *((name, getattr(line, name)) for name in names),
            ("error", line.max_rel_error),
            ("absolute_error", line.max_abs_error),
            *(
                (name, getattr(line, name))
                for name in ("tolerance", "peak_memory_bytes", "latency_ms", "evidence_id")
            ),
        ],
    )
    if line.outcome is not Outcome.PASSED:
        _result(case, line, finding, accepted)
    elif line.conditions.get(EDITED):
        _add(case, "skipped", type="suite_edited", message=f"{EDITED}: {error_types()['suite_edited'].says}")
    elif not_counted:
        _add(case, "skipped", type="not_counted", message=one_line(not_counted, longest=_LONGEST))
    if line.offloaded_ops:
        counts = [f"{name} x {number}" for name, number in sorted(line.offloaded_ops.items())]
        _add(case, "system-out", "\n".join(["Operators on the host:", *counts]))


def _result(case: Element, line: CheckLine, finding: Finding | None, accepted: str | None) -> None:
    said = line.error_message or line.substitution_reason or line.error_type or "no reason was recorded"
    message = f"{line.outcome}: {one_line(said)}"
    unreached = is_unreached(line)
    if not line.outcome.is_failure and not unreached:
        _add(case, "skipped", said if one_line(said) != said else "", type=str(line.outcome), message=message)
        return
    body = _body(finding, said, own_frames(line))
    if accepted is not None:
        excused = one_line(f"accepted failure: {accepted}; {message}", longest=_LONGEST)
        _add(case, "skipped", body, type="accepted_failure", message=excused)
        return
    tag = "error" if line.outcome.is_breakdown or unreached else "failure"
    kind = finding.error_type if finding else line.error_type or str(line.outcome)
    _add(case, tag, body, type=kind, message=message)


def _body(finding: Finding | None, said: str, traceback: str) -> str:
    """Return diagnosis and advice, then messages too long for an attribute, then the traceback."""
    advice = [f"- {text}" for text in finding.recommendations] if finding else []
    cells = [f"Cells: {', '.join(finding.cells)}"] if finding and finding.cells else []
    head = [finding.message, *cells, "What to do:", *advice] if finding else []
    whole = ["", said] if said and one_line(said) != said else []
    return "\n".join([*head, *whole, *(["", traceback] if traceback else [])]).strip("\n")


def _others(root: Element, report: Report) -> None:
    """Add findings without a check. Errors fail; warnings and remarks are skipped with their messages."""
    suite = _add(root, "testsuite", name=_OTHER_SUITE, timestamp=_moment(report.timestamp))
    _properties(suite, count(report.findings).items())
    for finding in report.findings:
        if finding.evidence_ids:
            continue
        case = _case(suite, finding.component, finding.id)
        message = one_line(f"{finding.severity}: {finding.hardware_type}: {finding.message}", longest=_LONGEST)
        if finding.severity.rank >= Severity.ERROR.rank:
            _add(case, "failure", _body(finding, "", finding.traceback), type=finding.error_type, message=message)
        else:
            _add(case, "skipped", type=str(finding.severity), message=message)
    _sum_up(suite)


FORMAT = Format(suffix="xml", render=junit_report)
