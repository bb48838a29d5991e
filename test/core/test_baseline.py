"""A report compared with an earlier one: new findings fail, known ones don't, and what didn't run isn't fixed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from evidence_lines import BERT as A
from evidence_lines import GPT2 as B
from evidence_lines import check_line
from report_parts import finding, report

from generators.options import Options
from hardware.errors import BrokenInput
from hardware.evidence.record import CheckLine, Outcome
from hardware.values import data_file
from reports.baseline import Baseline, compare, read_baseline
from reports.finding import SCHEMA, Finding, FindingComparison, FindingState, Severity
from reports.formats import report_text
from reports.report import Report
from reports.run_command import _by_findings
from reports.stack import StackResult


def line(cell: str, outcome: Outcome = Outcome.PASSED, check: str = "backward") -> CheckLine:
    return check_line(check, outcome, cell_id=cell)


def against(now: Report, *before: Finding) -> FindingComparison:
    return compare(now, Baseline(name="b.json", timestamp="2026-01-01", findings=before))


def test_only_the_same_problem_in_the_same_places_is_known() -> None:
    known, new, worse = FindingState.KNOWN, FindingState.NEW, FindingState.WORSE
    warning = {"severity": Severity.WARNING}
    for now, before, state in (
        (finding(A), finding(A), known),
        (finding(A, message="off by 0.7"), finding(A), known),
        (finding(A), finding(A, B), known),
        (finding(A), finding(B), new),
        (finding(A), finding(A, message="out of range"), new),
        (finding(A), finding(A, hardware_type="cuda"), new),
        (finding(A, B), finding(A), worse),
        (finding(A, checks=("backward", "builds")), finding(A), worse),
        (finding(A), finding(A, **warning), worse),
        (finding(A, **warning), finding(A), known),
        (finding(component="torch"), finding(component="torch"), known),
    ):
        compared = against(report(now), before)
        assert compared.state(now) is state, (now, before)
        assert report(now, baseline=compared).fails(Severity.WARNING) is (state is not known)
        assert report(now).fails(Severity.WARNING)


def test_a_finding_that_is_gone_is_fixed_only_if_its_check_ran_again() -> None:
    ran = against(report(checks=(line(A),)), finding(A))
    assert [one.cells for one in ran.fixed] == [(A,)]
    for checks in ((), (line(B),), (line(A, Outcome.NOT_RUN),), (line(A, check="builds"),)):
        idle = against(report(checks=checks), finding(A))
        assert not idle.fixed
        assert idle.counts["not checked again"] == 1
    of_a_model = finding(model_name="bert")
    assert not against(report(), of_a_model).fixed
    assert against(report(checks=(line(A, check="builds"),)), of_a_model).fixed
    broken = finding(component="hardware_stack", hardware_type="cuda")
    assert not against(report(), broken).fixed
    assert against(report(stack=(StackResult(target="cuda", state="computed"),)), broken).fixed


def test_a_report_that_was_kept_is_a_baseline_and_the_new_one_says_what_changed(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(report_text(report(finding(A), finding(B)), "json"), encoding="utf-8")
    of_version_2 = json.loads(kept.read_text(encoding="utf-8")) | {"schema_version": 2}
    for error in of_version_2["errors"]:
        del error["remedies"]
    older = tmp_path / "older.json"
    older.write_text(json.dumps(of_version_2), encoding="utf-8")
    assert [one.id for one in read_baseline(older).findings] == [one.id for one in read_baseline(kept).findings]
    now = report(finding(A), finding(A, message="no memory"), checks=(line(B),))
    now = report(*now.findings, checks=now.checks, baseline=compare(now, read_baseline(kept)))
    data = json.loads(report_text(now, "json"))
    jsonschema.validate(data, data_file(SCHEMA))
    assert sorted(error["baseline"] for error in data["errors"]) == ["known", "new"]
    assert [error["cells"] for error in data["baseline"]["fixed"]] == [[B]]
    assert "1 new, 1 known, 1 fixed" in report_text(now, "markdown")
    assert "fixed: error, cpu: off by 0.5" in report_text(now, "markdown")
    assert report_text(now, "github").count("\n::error") == 1
    page = report_text(now, "html")
    assert page.count('class="tag against known"') == page.count('class="tag against new"') == 1
    assert 'id="baseline"' in page
    assert "Fixed: 1" in page
    assert "tag against" not in report_text(replace(now, baseline=None), "html")
    states = [one["baselineState"] for one in json.loads(report_text(now, "sarif"))["runs"][0]["results"]]
    assert sorted(states) == ["new", "unchanged"]
    (tmp_path / "again.json").write_text(report_text(now, "json"), encoding="utf-8")
    assert len(read_baseline(tmp_path / "again.json").findings) == 2


def test_a_file_that_is_no_report_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    for text, why in (
        ("{", "is not JSON"),
        ("[]", "is not a report"),
        ('{"compatibility": {}}', "it is a matrix"),
        ('{"errors": [], "schema_version": 1}', "schema version 1"),
        ('{"errors": [1], "timestamp": "a", "schema_version": 2}', "errors.0."),
        ('{"errors": [], "schema_version": 7}', "schema version 7"),
        ('{"errors": [1], "timestamp": "a", "schema_version": 3}', "errors.0."),
        ('{"errors": [{"cells": "x"}], "timestamp": "a", "schema_version": 3}', "errors.0."),
        ("[" * 100_000, "is not JSON"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(BrokenInput, match=why) as refused:
            read_baseline(path)
        assert "\n" not in str(refused.value)
        assert str(tmp_path) not in str(refused.value)


def result(*lines: CheckLine, missing: bool = False) -> SimpleNamespace:
    planned = SimpleNamespace(required=missing, profile=SimpleNamespace(missing=""))
    cell = SimpleNamespace(
        substituted="gone" if missing else "", written=SimpleNamespace(planned=planned), lines=lines
    )
    return SimpleNamespace(cells=(cell,))


def test_a_runs_findings_decide_by_their_severity_and_what_was_not_reached_fails() -> None:
    def code(fail_on: str, found: SimpleNamespace, *findings: Finding, code: int = 1) -> int:
        return _by_findings(Options(fail_on=(fail_on,), allow_fallback=False), found, report(*findings), code)

    failed, not_run = (result(line(A, outcome)) for outcome in (Outcome.FAILED, Outcome.NOT_RUN))
    assert code("critical", failed, finding(A)) == 0
    assert code("error", failed, finding(A)) == 1
    assert code("info", failed, finding(A, severity=Severity.INFO)) == 1
    assert code("error", failed) == 0
    assert code("critical", result(line(A), missing=True)) == 1
    assert code("critical", not_run) == 1
    assert code("critical", not_run, finding(A, evidence_ids=(line(A).evidence_id,))) == 0
    assert code("critical", result(line(A)), code=5) == 5
