"""JUnit files have a suite for each cell, an element for each outcome, and what CI servers show of it."""

from __future__ import annotations

from xml.etree import ElementTree

from evidence_lines import BERT, check_line, planned_cell, run_line
from report_parts import finding, report, report_of_each_outcome, verdict

from generators.compatibility.verdict import Level, Reason
from generators.project.project_finding import ProjectOutcome
from hardware.evidence.record import EDITED, CheckLine, Outcome
from reports.cell_report import CellReport
from reports.diagnose import diagnose
from reports.formats import report_text
from reports.report import Report

CUDA = "bert/fill-mask/cuda/float32"


def junit(one: Report) -> ElementTree.Element:
    return ElementTree.fromstring(report_text(one, "junit"))


def of_lines(*lines: CheckLine, **changes: object) -> ElementTree.Element:
    why = (Reason.of("check", check="a", outcome="failed"),)
    cell = CellReport(verdict=verdict(Level.UNSUPPORTED, BERT, reasons=why), lines=lines)
    run = run_line(planned_cell(suite="test_bert.py"))
    return junit(report(checks=lines, cells=(cell,), runs=(run,), **changes))


def properties(element: ElementTree.Element) -> dict[str, str]:
    return {one.get("name"): one.get("value") for one in element.findall("properties/property")}


def test_each_outcome_has_its_element_and_counts():
    root = junit(report_of_each_outcome())
    suite = root.find(f"testsuite[@name='{BERT}']")
    results = {"failure", "error", "skipped"}
    marks = {case.get("name"): [one.tag for one in case if one.tag in results] for case in suite.findall("testcase")}
    expected = {"a": "failure", **dict.fromkeys("bcdg", "error"), **dict.fromkeys("ef", "skipped")}
    assert marks == {"builds": [], **{name: [tag] for name, tag in expected.items()}}
    assert suite.attrib.items() >= {"tests": "8", "failures": "1", "errors": "4", "skipped": "2"}.items()
    fallback = root.find(f"testsuite[@name='{CUDA}']/testcase/skipped")
    assert "passed_on_fallback: no CUDA device can be used" in fallback.get("message")
    assert all(skip.get("message").partition(": ")[2] for skip in root.iter("skipped"))
    error = root.find(".//testcase[@name='b']/error")
    assert error.get("type") == "crash"
    assert "What to do" in error.text


def test_a_finding_without_a_check_fails_and_an_edited_suite_is_no_pass():
    (failure,) = junit(report(finding(message="no such part"))).iter("failure")
    assert "no such part" in failure.get("message")
    lines = (check_line(conditions={EDITED: "by hand"}),)
    root = junit(report(*diagnose(lines), checks=lines))
    assert "edited by hand" in root.find(".//testcase/skipped").get("message")


def test_a_case_has_its_target_figures_and_operators_in_the_order_of_the_schema():
    wrong = {"max_rel_error": 0.5, "tolerance": 2e-5, "requested_target": "cuda", "error_message": "no"}
    case = of_lines(check_line("a", Outcome.FAILED, **wrong, offloaded_ops={"aten.mm": 3})).find(".//testcase")
    shown = properties(case)
    assert (shown["requested_target"], shown["actual_target"]) == ("cuda", "cpu")
    assert (shown["error"], shown["tolerance"]) == ("0.5", "2e-05")
    assert "peak_memory_bytes" not in shown
    assert case.get("file") == "test_bert.py"
    assert "aten.mm x 3" in case.find("system-out").text
    assert [child.tag for child in case] == ["properties", "failure", "system-out"]


def test_a_suite_has_verdict_file_machine_time_and_a_timestamp_that_readers_accept():
    at = {"started_at": "2026-01-01T01:00:00.250000+01:00"}
    root = of_lines(check_line("a", **at), check_line("b", **at))
    suite = root.find("testsuite")
    assert suite.get("timestamp") == "2026-01-01T00:00:00"
    assert (suite.get("file"), suite.get("hostname")) == ("test_bert.py", "lab")
    assert float(suite.get("time")) == float(root.get("time")) == 0.5
    shown = properties(suite)
    assert (shown["verdict"], shown["because"], shown["cell"]) == ("unsupported (measured)", "a failed", BERT)


def test_a_reason_too_long_for_an_attribute_is_in_the_body():
    text = "first\n" + "x" * 2000
    failed = of_lines(check_line("a", Outcome.FAILED, error_message=text)).find(".//failure")
    skipped = of_lines(check_line("a", Outcome.SKIPPED, error_message=text)).find(".//skipped")
    for element in (failed, skipped):
        assert len(element.get("message")) < 400
        assert text in element.text
    assert skipped.get("type") == "skipped"


def test_a_failure_that_a_project_accepts_is_a_skip_with_its_reason_and_never_a_pass():
    one, other = (check_line(name, Outcome.FAILED, error_message="boom", traceback="here") for name in ("a", "b"))
    accepted = {one.evidence_id: "the vendor knows"}
    root = of_lines(one, other, project=ProjectOutcome(file="hwcompat.toml", findings=(), accepted=accepted))
    skipped = root.find(".//testcase[@name='a']/skipped")
    assert skipped.get("message") == "accepted failure: the vendor knows; failed: boom"
    assert "here" in skipped.text
    assert root.find(".//testcase[@name='b']/failure") is not None
    assert (root.get("failures"), root.get("skipped")) == ("1", "1")
