"""Reports say what a project file accepts; an accepted failure is never shown as a pass."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
from evidence_lines import BERT, check_line
from report_parts import report, verdict

from generators.compatibility.verdict import Level
from generators.project.project_finding import ProjectOutcome
from generators.project.project_outcome import CellRun, judge_project
from generators.project.project_reader import parse_project
from hardware.evidence.record import CheckLine, Outcome
from hardware.values import data_file
from reports.diagnose import diagnose
from reports.finding import SCHEMA, Severity
from reports.formats import report_text
from reports.formats.json import report_object
from reports.project import project_findings, project_text
from reports.reason_text import reason_text
from reports.report import Report

TEXT = f"""\
schema_version = 1
[[model]]
name = "bert"
[expected]
"{BERT}" = "high"
[[accepted_failure]]
cell = "{BERT}"
check = "matches_reference"
reason = "a <script>broken</script> kernel"
link = "https://example.org/issues/1"
until = 2027-03-31
"""
FAILED, PASSED = Outcome.FAILED, Outcome.PASSED


def outcome_of(matches: Outcome, today: date = date(2026, 1, 1)) -> tuple[ProjectOutcome, tuple[CheckLine, ...]]:
    failure = {"error_type": "numerical_mismatch", "error_message": "off by 0.3"} if matches is FAILED else {}
    lines = (check_line(), check_line("matches_reference", matches, **failure))
    level = Level.UNSUPPORTED if matches is FAILED else Level.HIGH
    judged = verdict(level, evidence_ids=tuple(line.evidence_id for line in lines))
    project = parse_project(TEXT, Path("hwcompat.toml"))
    return judge_project(project, {BERT: CellRun(verdict=judged, lines=lines)}, today, words=reason_text), lines


def report_of(matches: Outcome, today: date = date(2026, 1, 1)) -> Report:
    outcome, lines = outcome_of(matches, today)
    findings = [*diagnose(lines), *project_findings(outcome, "2026-01-02T00:00:00+00:00")]
    return report(*findings, checks=lines, project=outcome)


def test_an_accepted_failure_is_skipped_in_junit_with_its_reason():
    root = ElementTree.fromstring(report_text(report_of(FAILED), "junit"))
    (case,) = [case for case in root.iter("testcase") if case.get("name") == "matches_reference"]
    assert [child.tag for child in case if child.tag in ("skipped", "failure", "error")] == ["skipped"]
    message = next(case.iter("skipped")).get("message", "")
    for text in ("failed", "off by 0.3", "accepted until 2027-03-31", "https://example.org/issues/1"):
        assert text in message
    assert (root.get("failures"), root.get("errors")) == ("0", "0")


def test_what_breaks_the_build_fails_in_junit():
    for matches, today, kind in ((FAILED, date(2027, 4, 1), "ran out"), (PASSED, date(2026, 1, 1), "passes now")):
        root = ElementTree.fromstring(report_text(report_of(matches, today), "junit"))
        assert int(root.get("failures", "0")) > 0
        cases = [case for case in root.iter("testcase") if case.get("classname") == "project_file"]
        assert any(kind in failure.get("message", "") for case in cases for failure in case.iter("failure"))


def test_every_format_states_what_was_accepted_and_keeps_it_text():
    data = report_object(report_of(FAILED))
    jsonschema.validate(data, data_file(SCHEMA))
    json.dumps(data, allow_nan=False)
    assert data["project"]["exit_code"] == 0
    assert data["outcomes"] == {"passed": 1, "failed": 1}
    for name in ("markdown", "html"):
        text = report_text(report_of(FAILED), name)
        assert "2027-03-31" in text
        assert "<script>broken" not in text


def test_findings_grade_what_breaks_and_what_is_accepted():
    outcome, _ = outcome_of(FAILED)
    assert {finding.severity for finding in project_findings(outcome, "t")} == {Severity.INFO}
    (finding,) = project_findings(outcome_of(PASSED)[0], "t")
    assert (finding.severity, finding.cells, finding.model_name) == (Severity.ERROR, (BERT,), "bert")
    assert "Remove lines 6-11 of hwcompat.toml" in finding.recommendations[0]


def test_the_terminal_shows_counts_and_the_lines_to_remove_as_text():
    accepted = project_text(outcome_of(FAILED)[0])
    assert [one for one in ("1 met, 1 accepted", "Accepted", "the build passes") if one not in accepted] == []
    outcome, _ = outcome_of(PASSED)
    text = project_text(outcome, width=80)
    assert "Passes now" in text
    assert [line for line in TEXT.splitlines()[5:] if f"    {line}\n" not in text] == []
    assert "the build fails (exit code 1)" in text
    assert all(len(line) <= 80 for line in text.splitlines() if "https" not in line)
    hostile = replace(outcome.findings[0], quote="\x1b[31m red", message="a\x1b[2Jb")
    assert "\x1b" not in project_text(replace(outcome, findings=(hostile,)))
