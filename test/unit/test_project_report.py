"""What a project file makes of a run, as people and CI servers see it: an acceptance is said, and never a pass."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from generators.compatibility.verdict import Basis, Level, Verdict
from generators.project.project_finding import ProjectFindingKind, ProjectOutcome
from generators.project.project_outcome import CellRun, judge_project
from generators.project.project_reader import parse_project
from hardware.evidence.record import CheckLine, Outcome
from reports.diagnose import diagnose
from reports.finding import SCHEMA, Severity, worst_first
from reports.formats import report_text
from reports.formats.json import report_object
from reports.project import project_findings, project_text
from reports.reason_text import reason_text
from reports.report import Report
from reports.saved_reports import schema_of

CELL = "bert/fill-mask/cpu/float32"
TEXT = f"""\
schema_version = 1
[[model]]
name = "bert"
[expected]
"{CELL}" = "high"
[[accepted_failure]]
cell = "{CELL}"
check = "matches_reference"
reason = "a <script>broken</script> kernel"
link = "https://example.org/issues/1"
until = 2027-03-31
"""


def outcome_of(matches: Outcome, today: date = date(2026, 1, 1)) -> tuple[ProjectOutcome, tuple[CheckLine, ...]]:
    common = {
        "run_id": "r1",
        "cell_id": CELL,
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
    failed = matches is Outcome.FAILED
    lines = (
        CheckLine(**common, check_name="builds", outcome=Outcome.PASSED),
        CheckLine(
            **common,
            check_name="matches_reference",
            outcome=matches,
            error_type="numerical_mismatch" if failed else "",
            error_message="off by 0.3" if failed else "",
        ),
    )
    level = Level.UNSUPPORTED if failed else Level.HIGH
    verdict = Verdict(
        cell=CELL, level=level, basis=Basis.MEASURED, evidence_ids=tuple(line.evidence_id for line in lines)
    )
    project = parse_project(TEXT, Path("hwcompat.toml"))
    runs = {CELL: CellRun(verdict=verdict, lines=lines)}
    return judge_project(project, runs, today, words=reason_text), lines


def report_of(matches: Outcome, today: date = date(2026, 1, 1)) -> Report:
    outcome, lines = outcome_of(matches, today)
    time = "2026-01-02T00:00:00+00:00"
    findings = worst_first([*diagnose(lines), *project_findings(outcome, time)])
    return Report(timestamp=time, findings=findings, checks=lines, project=outcome)


def cases(report: Report) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(report_text(report, "junit"))
    return {case.get("name", ""): case for case in root.iter("testcase")}


def test_an_accepted_failure_is_skipped_in_junit_with_its_reason():
    report = report_of(Outcome.FAILED)
    case = cases(report)["matches_reference"]
    assert [child.tag for child in case if child.tag in ("skipped", "failure", "error")] == ["skipped"]
    message = next(case.iter("skipped")).get("message", "")
    for text in ("failed", "off by 0.3", "accepted until 2027-03-31", "https://example.org/issues/1"):
        assert text in message
    root = ElementTree.fromstring(report_text(report, "junit"))
    assert (root.get("failures"), root.get("errors")) == ("0", "0")


@pytest.mark.parametrize(
    ("matches", "today", "kind"),
    [
        (Outcome.FAILED, date(2027, 4, 1), ProjectFindingKind.RAN_OUT),
        (Outcome.PASSED, date(2026, 1, 1), ProjectFindingKind.PASSES_NOW),
    ],
)
def test_what_breaks_the_build_fails_in_junit(matches, today, kind):
    report = report_of(matches, today)
    root = ElementTree.fromstring(report_text(report, "junit"))
    assert int(root.get("failures", "0")) > 0
    told = [
        failure.get("message", "")
        for case in root.iter("testcase")
        if case.get("classname") == "project_file"
        for failure in case.iter("failure")
    ]
    assert any(str(kind).replace("_", " ") in message for message in told)


def test_every_format_says_what_was_accepted_and_stays_what_it_is():
    report = report_of(Outcome.FAILED)
    data = report_object(report)
    jsonschema.validate(data, schema_of(SCHEMA))
    assert data["project"]["exit_code"] == 0
    assert data["outcomes"] == {"passed": 1, "failed": 1}
    for name in ("markdown", "html"):
        text = report_text(report, name)
        assert "2027-03-31" in text
        assert "<script>broken" not in text
    json.dumps(data, allow_nan=False)


def test_findings_grade_what_breaks_and_what_is_accepted():
    outcome, _ = outcome_of(Outcome.FAILED)
    assert {finding.severity for finding in project_findings(outcome, "t")} == {Severity.INFO}
    broken, _ = outcome_of(Outcome.PASSED)
    (finding,) = project_findings(broken, "t")
    assert (finding.severity, finding.cells, finding.model_name) == (Severity.ERROR, (CELL,), "bert")
    assert "Remove lines 6-11 of hwcompat.toml" in finding.recommendations[0]


def test_the_terminal_shows_the_entry_that_is_to_be_removed_line_by_line():
    outcome, _ = outcome_of(Outcome.PASSED)
    text = project_text(outcome, width=80)
    assert "Passes now" in text
    for line in TEXT.splitlines()[5:]:
        assert f"    {line}\n" in text
    assert "the build is broken (exit code 1)" in text
    assert all(len(line) <= 80 for line in text.splitlines() if "https" not in line)


def test_the_terminal_is_given_no_command_by_the_files_text():
    outcome, _ = outcome_of(Outcome.PASSED)
    hostile = replace(outcome.findings[0], quote="\x1b[31m red", message="a\x1b[2Jb")
    text = project_text(replace(outcome, findings=(hostile,)))
    assert "\x1b" not in text


def test_what_is_met_is_counted_and_what_is_accepted_is_told():
    outcome, _ = outcome_of(Outcome.FAILED)
    text = project_text(outcome)
    assert "1 met, 1 accepted" in text
    assert "Accepted" in text
    assert "nothing breaks the build" in text
