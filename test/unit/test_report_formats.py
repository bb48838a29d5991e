"""The same findings and counts in every format, and nothing untrusted gets out of its place."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import jsonschema
import pytest

from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.errors import UsageError
from hardware.evidence.record import EDITED, CheckLine, Outcome, RunLine
from reports.cell_report import CellReport
from reports.components import Component
from reports.diagnose import diagnose
from reports.finding import SCHEMA, Finding, Remedy, Severity, worst_first
from reports.formats import FORMATS, report_text
from reports.reason_text import explained, folded, with_texts
from reports.report import Report
from reports.saved_reports import schema_of
from reports.stack import StackResult
from reports.text import advice_markdown, fenced, markdown, working

HOSTILE = "a|b `c` <script>alert(1)</script>\n# head\x1b[31m \x9b2J \u202e [x](http://evil.example) @user ```"


def line(check_name: str, outcome: Outcome, **changes: object) -> CheckLine:
    values = {
        "run_id": "r1",
        "cell_id": "bert/fill-mask/cpu/float32",
        "check_name": check_name,
        "outcome": outcome,
        "subject": "tiny",
        "requested_target": "cpu",
        "actual_target": "cpu",
        "precision": "float32",
        "model": "bert",
        "task": "fill-mask",
        "suite_hash": "h",
        "started_at": "2026-01-01T00:00:00+00:00",
        "duration_s": 0.25,
    }
    return CheckLine(**{**values, **changes})


def said(words: str) -> Reason:
    return Reason.of("text", text=words)


def medium(**changes: object) -> Verdict:
    return Verdict(
        cell="bert/fill-mask/cpu/float32", level=Level.MEDIUM, basis=Basis.MEASURED, evidence_ids=("e",), **changes
    )


def make_report(text: str = "plain") -> Report:
    checks = (
        line("builds", Outcome.PASSED),
        line("a", Outcome.FAILED, error_type="unknown", error_message=text, traceback=text),
        line("b", Outcome.CRASHED, error_type="crash", error_message="ended by SIGSEGV"),
        line("c", Outcome.TIMEOUT, error_type="timeout", error_message="no sign of life for 5 s"),
        line("d", Outcome.OUT_OF_MEMORY, error_type="out_of_memory", error_message="no memory"),
        line("e", Outcome.AMBIGUOUS, error_type="ambiguous", error_message="two tokens are as good"),
        line("f", Outcome.SKIPPED, error_type="not_applicable", error_message="cannot save"),
        line("g", Outcome.NOT_RUN, error_type="not_reached", error_message="ended before it"),
        line(
            "h",
            Outcome.PASSED_ON_FALLBACK,
            cell_id="bert/fill-mask/cuda/float32",
            requested_target="cuda",
            substitution_reason="no CUDA device can be used",
        ),
    )
    other = Finding(
        hardware_type="cpu",
        error_type="component_failed",
        severity=Severity.ERROR,
        message=text,
        component=text,
        timestamp="2026-01-01T00:00:00+00:00",
        model_name=text,
        remedies=(Remedy(do=text),),
        traceback=text,
    )
    return Report(
        timestamp="2026-01-02T00:00:00+00:00",
        findings=worst_first([*diagnose(checks), other]),
        components=(Component(name="torch", state="missing", reason=text),),
        checks=checks,
        stack=(StackResult(target="cpu", state="failed", reason=text),),
    )


def test_json_fits_the_published_schema_and_counts_what_it_lists():
    report = make_report(HOSTILE)
    data = json.loads(report_text(report, "json"))
    jsonschema.validate(data, schema_of(SCHEMA))
    severities = [error["severity"] for error in data["errors"]]
    assert {name: severities.count(name) for name in data["error_counts"]} == data["error_counts"]
    assert sum(len(ids) for ids in data["hardware_errors"].values()) == len(data["errors"])
    assert data["models_tested"] == ["bert"]
    assert data["components_available"]["torch"]["available"] is False


def test_junit_has_a_suite_for_each_cell_and_maps_each_outcome():
    root = ElementTree.fromstring(report_text(make_report(), "junit"))
    suite = root.find("testsuite[@name='bert/fill-mask/cpu/float32']")
    results = {"failure", "error", "skipped"}
    marks = {case.get("name"): [one.tag for one in case if one.tag in results] for case in suite.findall("testcase")}
    assert marks == {
        "builds": [],
        "a": ["failure"],
        "b": ["error"],
        "c": ["error"],
        "d": ["error"],
        "e": ["skipped"],
        "f": ["skipped"],
        "g": ["error"],
    }
    fallback = root.find("testsuite[@name='bert/fill-mask/cuda/float32']/testcase/skipped")
    assert "passed_on_fallback: no CUDA device can be used" in fallback.get("message")
    assert suite.attrib.items() >= {"tests": "8", "failures": "1", "errors": "4", "skipped": "2"}.items()
    assert all(skip.get("message").partition(": ")[2] for skip in root.iter("skipped"))


def test_counts_of_findings_agree_in_all_formats():
    report = make_report()
    counts = json.loads(report_text(report, "json"))["error_counts"]
    root = ElementTree.fromstring(report_text(report, "junit"))
    own = root.findall("testsuite[@name='findings']/properties/property")
    properties = {one.get("name"): int(one.get("value")) for one in own}
    assert properties == counts
    text = report_text(report, "markdown")
    assert "Findings: " + ", ".join(f"{number} {name}" for name, number in counts.items()) in text
    assert all(text.count(f"### {name}: ") == number for name, number in counts.items())


def test_junit_names_the_diagnosis_and_what_to_do():
    root = ElementTree.fromstring(report_text(make_report(), "junit"))
    error = root.find(".//testcase[@name='b']/error")
    assert error.get("type") == "crash"
    assert "What to do" in error.text


def test_finding_without_a_check_fails_in_junit():
    root = ElementTree.fromstring(report_text(make_report("no such part"), "junit"))
    failure = root.find("testsuite[@name='findings']/testcase/failure")
    assert "no such part" in failure.get("message")


@pytest.mark.parametrize("format", FORMATS.names())
def test_no_control_character_of_untrusted_text_reaches_a_report(format):
    text = report_text(make_report(HOSTILE), format)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert not {"\x1b", "\x9b", "\u202e"} & set(text)


def test_junit_of_hostile_text_is_still_xml_without_elements_of_its_own():
    root = ElementTree.fromstring(report_text(make_report(HOSTILE + "\x00\ud800\ufffe]]>"), "junit"))
    assert root.find(".//script") is None


def test_markdown_keeps_hostile_text_inside_its_cell():
    text = report_text(make_report(HOSTILE), "markdown")
    assert "<script>" not in text.replace(fenced(HOSTILE), "")
    rows = [row for row in text.splitlines() if row.startswith("| [")]
    assert rows
    assert {row.replace("\\|", "").count("|") for row in rows} == {6}
    assert "\n# head" not in text.replace(fenced(HOSTILE), "")


def test_markdown_escapes_links_mentions_and_marks():
    shown = markdown("[x](http://evil.example) @user **b** `c` a_b _i_ www.evil.example")
    assert "://" not in shown
    assert "www." not in shown
    assert "@" not in shown
    assert "\\[x]" in shown
    assert "\\*\\*b" in shown
    assert "a_b" in shown


def test_text_in_a_table_is_escaped_no_more_than_it_must():
    for text in ("2.13.0+cpu", "-1", "1) a #2", "needs macOS; this is Linux"):
        assert markdown(text) == text
    assert markdown("1. a", opens_block=True) == "&#49;. a"
    assert markdown("# a", opens_block=True) == "\\# a"


def test_command_in_a_recommendation_can_be_copied():
    shown = advice_markdown("Look at <it>: `dmesg | grep -E 'a_|*b' \\x`, `y`.")
    assert shown == "Look at &lt;it&gt;: `dmesg | grep -E 'a_|*b' \\x`, `y`."
    assert advice_markdown("```<b>```") == "\\`\\``<b>`\\`\\`"


def test_reason_that_checks_share_is_said_once():
    builds, backward = (
        Reason.of("check", check=name, outcome="failed", stage="load", message="no")
        for name in ("builds", "backward")
    )
    on_gpu = Reason.of("check", check="a", outcome="failed", message="b").on("gpu")
    reasons = (builds, on_gpu, backward, Reason.of("nothing_measured"))
    assert folded(reasons) == ("builds, backward failed at load: no", "gpu: a failed: b", "nothing was measured")


def test_what_a_pass_depends_on_is_one_sentence_and_no_condition_is_said_twice():
    shapes, adapter, x = (said(text) for text in ("static shapes", "on a software adapter; so", "x"))
    tiny = Reason.of("weights", weights="tiny")
    failed = Reason.of("check", check="a", outcome="failed", message="b")
    of_one = medium(reasons=(shapes, adapter, failed), conditions=(shapes, adapter, tiny))
    assert explained(of_one) == (
        ("passes, but only: static shapes; on a software adapter; so", "a failed: b"),
        ("tiny: operators and numerics, not size",),
    )
    of_two = medium(reasons=(x.on("gpu a"), x.on("gpu b")), conditions=(x,))
    assert explained(of_two) == (("gpu a: passes, but only: x", "gpu b: passes, but only: x"), ())


def test_cells_are_counted_by_how_they_work():
    levels = [Level.MEDIUM, Level.HIGH, Level.MEDIUM, Level.UNSUPPORTED, Level.UNKNOWN]
    assert working(levels) == "5 cells: 1 works, 2 work under conditions, 1 doesn't work, 1 is unknown"
    assert working([Level.MEDIUM]) == "1 cell: 1 works under conditions"


def test_report_of_a_run_holds_its_result():
    cell = "bert/fill-mask/cpu/float32"
    sealed = Verdict(cell=cell, level=Level.HIGH, basis=Basis.PREDICTED, rule_ids=("rule.x",))
    measured = Verdict(
        cell=cell,
        level=Level.UNSUPPORTED,
        basis=Basis.MEASURED,
        reasons=(Reason.of("check", check="a", outcome="failed"),),
        conditions=(Reason.of("text", text="tiny"),),
        evidence_ids=("e",),
    )
    lines = (
        line("builds", Outcome.PASSED, accelerator="a CPU"),
        line("a", Outcome.FAILED, max_rel_error=0.5, tolerance=2e-5, actual_target="openvino:CPU"),
    )
    run = RunLine(
        run_id="r1",
        started_at="2026-01-01",
        command="python run_test_generation.py --model bert",
        machine="lab",
        inventory={"cpu": {"model": "some CPU"}},
        versions={"torch": "2.13.0+cpu"},
        plan=(),
    )
    one = CellReport(verdict=measured, lines=lines, stored=sealed.to_dict())
    report = Report(timestamp="2026-01-02", findings=(), checks=lines, cells=(one,), runs=(run,))
    text = report_text(report, "markdown")
    for said in (
        f"## {cell}",
        "**unsupported** (measured)",
        "because: a failed",
        "condition: tiny",
        "predicted before the run: high (predicted: rule.x)",
        "weights: tiny",
        "ran on: cpu, openvino:CPU (a CPU)",
        "| builds | passed | cpu | cpu | - | 0.25 s |",
        "| a | failed | cpu | openvino:CPU | 5.0e-01 / 2e-05 | 0.25 s |",
        "`python run_test_generation.py --model bert`",
        "processor: some CPU",
        "torch 2.13.0+cpu",
    ):
        assert said in text
    data = json.loads(report_text(report, "json"))
    jsonschema.validate(data, schema_of(SCHEMA))
    assert data["verdicts"] == [with_texts(measured.to_dict())]
    assert [one["text"] for one in data["verdicts"][0]["reasons"]] == ["a failed"]
    assert data["checks"][1]["max_rel_error"] == 0.5


def test_infinite_error_is_a_text_in_json_and_fits_the_schema():
    lines = (line("a", Outcome.FAILED, max_rel_error=float("inf"), tolerance=1e-5),)
    data = json.loads(report_text(Report(timestamp="2026-01-02", findings=(), checks=lines), "json"))
    jsonschema.validate(data, schema_of(SCHEMA))
    assert data["checks"][0]["max_rel_error"] == "inf"


def test_check_of_an_edited_suite_is_no_pass_in_junit():
    lines = (line("builds", Outcome.PASSED, conditions={EDITED: "by hand"}),)
    root = ElementTree.fromstring(
        report_text(Report(timestamp="2026-01-02", findings=tuple(diagnose(lines)), checks=lines), "junit")
    )
    assert "edited by hand" in root.find(".//testcase/skipped").get("message")


def test_code_block_cannot_be_left_by_its_content():
    block = fenced("a\n````\nb").splitlines()
    assert block[0].startswith("`````")
    assert block[-1] == "`````"


def test_report_without_anything_says_that_nothing_was_measured():
    report = Report(timestamp="2026-01-02T00:00:00+00:00", findings=())
    text = report_text(report, "markdown")
    assert "No findings." in text
    assert "Nothing was measured" in text
    jsonschema.validate(json.loads(report_text(report, "json")), schema_of(SCHEMA))


def test_unknown_format_is_refused_with_a_hint():
    with pytest.raises(UsageError, match="Did you mean 'json'"):
        report_text(make_report(), "jsn")
