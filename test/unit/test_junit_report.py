"""What a CI server reads in the JUnit file beyond the outcomes: files, times, properties and reasons in full."""

from __future__ import annotations

from xml.etree import ElementTree

from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from generators.project.project_finding import ProjectOutcome
from hardware.evidence.record import CheckLine, Outcome, PlannedCell, RunLine
from reports.cell_report import CellReport
from reports.formats.junit import junit_report
from reports.report import Report

CELL = "bert/fill-mask/cuda/float32"


def line(check: str, outcome: Outcome, **changes: object) -> CheckLine:
    values = {
        "run_id": "r1",
        "cell_id": CELL,
        "check_name": check,
        "outcome": outcome,
        "subject": "tiny",
        "requested_target": "cuda",
        "actual_target": "cuda",
        "precision": "float32",
        "model": "bert",
        "task": "fill-mask",
        "suite_hash": "h",
        "started_at": "2026-01-01T01:00:00.250000+01:00",
        "duration_s": 0.25,
    }
    return CheckLine(**{**values, **changes})


def junit(*lines: CheckLine, **changes: object) -> ElementTree.Element:
    why = (Reason.of("check", check="a", outcome="failed"),)
    verdict = Verdict(cell=CELL, level=Level.UNSUPPORTED, basis=Basis.MEASURED, reasons=why, evidence_ids=("e",))
    plan = PlannedCell(cell_id=CELL, checks=(), suite="test_bert.py", suite_hash="h", subject="tiny")
    run = RunLine(run_id="r1", started_at="", command="", machine="lab", inventory={}, versions={}, plan=(plan,))
    cell = CellReport(verdict=verdict, lines=lines)
    report = Report(
        timestamp="2026-01-02T00:00:00+00:00", findings=(), checks=lines, cells=(cell,), runs=(run,), **changes
    )
    return ElementTree.fromstring(junit_report(report))


def properties(element: ElementTree.Element) -> dict[str, str]:
    return {one.get("name"): one.get("value") for one in element.findall("properties/property")}


def test_a_case_tells_where_it_ran_and_how_far_off_it_was():
    root = junit(line("a", Outcome.FAILED, max_rel_error=0.5, tolerance=2e-5, actual_target="cpu"))
    case = root.find(".//testcase")
    shown = properties(case)
    assert shown["requested_target"] == "cuda"
    assert shown["actual_target"] == "cpu"
    assert (shown["error"], shown["tolerance"]) == ("0.5", "2e-05")
    assert "peak_memory_bytes" not in shown
    assert case.get("file") == "test_bert.py"


def test_a_suite_has_verdict_file_machine_time_and_a_timestamp_that_readers_accept():
    root = junit(line("a", Outcome.PASSED), line("b", Outcome.PASSED))
    suite = root.find("testsuite")
    assert suite.get("timestamp") == "2026-01-01T00:00:00"
    assert (suite.get("file"), suite.get("hostname")) == ("test_bert.py", "lab")
    assert float(suite.get("time")) == float(root.get("time")) == 0.5
    assert properties(suite)["verdict"] == "unsupported (measured)"
    assert properties(suite)["because"] == "a failed"
    assert properties(suite)["cell"] == CELL


def test_a_reason_too_long_for_an_attribute_is_in_the_body():
    said = "first\n" + "x" * 2000
    failed = junit(line("a", Outcome.FAILED, error_message=said)).find(".//failure")
    skipped = junit(line("a", Outcome.SKIPPED, error_message=said)).find(".//skipped")
    for told in (failed, skipped):
        assert len(told.get("message")) < 400
        assert said in told.text
    assert skipped.get("type") == "skipped"


def test_a_failure_that_a_project_accepts_is_a_skip_with_its_reason_and_never_a_pass():
    one, other = (line(name, Outcome.FAILED, error_message="boom", traceback="here") for name in ("a", "b"))
    accepted = {one.evidence_id: "the vendor knows"}
    project = ProjectOutcome(file="hwcompat.toml", findings=(), accepted=accepted)
    root = junit(one, other, project=project)
    skipped = root.find(".//testcase[@name='a']/skipped")
    assert skipped.get("message") == "accepted failure: the vendor knows; failed: boom"
    assert "here" in skipped.text
    assert root.find(".//testcase[@name='b']/failure") is not None
    assert (root.get("failures"), root.get("skipped")) == ("1", "1")


def test_offloaded_operators_are_output_of_their_case():
    root = junit(line("runs_natively", Outcome.FAILED, offloaded_ops={"aten.mm": 3}))
    assert "aten.mm x 3" in root.find(".//testcase/system-out").text


def test_elements_stand_in_the_order_of_the_schema():
    case = junit(line("a", Outcome.FAILED, error_message="no", offloaded_ops={"aten.mm": 3})).find(".//testcase")
    assert [child.tag for child in case] == ["properties", "failure", "system-out"]
