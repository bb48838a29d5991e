"""A report held against an earlier one: what is new fails, what is known doesn't, and nothing is fixed unseen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from generators.options import Options
from hardware.errors import BrokenInput
from hardware.evidence.record import CheckLine, Outcome
from reports.baseline import Baseline, compare, read_baseline
from reports.finding import SCHEMA, Finding, FindingComparison, FindingState, Severity, worst_first
from reports.formats import report_text
from reports.report import Report
from reports.run_command import _by_findings
from reports.saved_reports import schema_of
from reports.stack import StackResult

A, B = "bert/fill-mask/cpu/float32", "gpt2/text-generation/cpu/float32"


def finding(
    *cells: str, message: str = "off by 0.5", severity: Severity = Severity.ERROR, **changes: object
) -> Finding:
    values = {
        "hardware_type": "cpu",
        "error_type": "numerical_mismatch",
        "component": "compatibility_test",
        "timestamp": "2026-01-01T00:00:00",
        "checks": ("backward",) if cells else (),
    }
    return Finding(**{**values, "message": message, "severity": severity, "cells": cells, **changes})


def line(cell: str, outcome: Outcome = Outcome.PASSED, check: str = "backward") -> CheckLine:
    return CheckLine(
        run_id="r",
        cell_id=cell,
        check_name=check,
        outcome=outcome,
        subject="tiny",
        requested_target="cpu",
        actual_target="cpu",
        precision="float32",
        model=cell.partition("/")[0],
        task="fill-mask",
        suite_hash="h",
        started_at="2026-01-01T00:00:00",
        duration_s=0.1,
    )


def report(*findings: Finding, checks: tuple[CheckLine, ...] = (), **changes: object) -> Report:
    return Report(timestamp="2026-01-02", findings=worst_first(findings), checks=checks, **changes)


def against(now: Report, *before: Finding) -> FindingComparison:
    return compare(now, Baseline(name="b.json", timestamp="2026-01-01", findings=before))


@pytest.mark.parametrize(
    ("now", "before", "state"),
    [
        (finding(A), finding(A), FindingState.KNOWN),
        (finding(A, message="off by 0.7"), finding(A), FindingState.KNOWN),
        (finding(A), finding(A, B), FindingState.KNOWN),
        (finding(A), finding(B), FindingState.NEW),
        (finding(A), finding(A, message="out of range"), FindingState.NEW),
        (finding(A), finding(A, hardware_type="cuda"), FindingState.NEW),
        (finding(A, B), finding(A), FindingState.WORSE),
        (finding(A, checks=("backward", "builds")), finding(A), FindingState.WORSE),
        (finding(A), finding(A, severity=Severity.WARNING), FindingState.WORSE),
        (finding(A, severity=Severity.WARNING), finding(A), FindingState.KNOWN),
        (finding(component="torch"), finding(component="torch"), FindingState.KNOWN),
    ],
)
def test_only_the_same_problem_in_the_same_places_is_known(
    now: Finding, before: Finding, state: FindingState
) -> None:
    compared = against(report(now), before)
    assert compared.state(now) is state
    judged = report(now, baseline=compared)
    assert judged.fails(Severity.WARNING) is (state is not FindingState.KNOWN)
    assert report(now).fails(Severity.WARNING)


def test_what_is_gone_is_fixed_only_where_what_showed_it_ran_again() -> None:
    ran = against(report(checks=(line(A),)), finding(A))
    assert [one.cells for one in ran.fixed] == [(A,)]
    for checks in ((), (line(B),), (line(A, Outcome.NOT_RUN),), (line(A, check="builds"),)):
        idle = against(report(checks=checks), finding(A))
        assert not idle.fixed
        assert idle.counts["not looked at"] == 1
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
    jsonschema.validate(data, schema_of(SCHEMA))
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


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is no JSON"),
        ("[]", "is no report"),
        ('{"compatibility": {}}', "it is a matrix"),
        ('{"errors": [], "schema_version": 1}', "schema version 1"),
        ('{"errors": [1], "timestamp": "a", "schema_version": 2}', "errors.0."),
        ('{"errors": [], "schema_version": 7}', "schema version 7"),
        ('{"errors": [1], "timestamp": "a", "schema_version": 3}', "errors.0."),
        ('{"errors": [{"cells": "x"}], "timestamp": "a", "schema_version": 3}', "errors.0."),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_a_file_that_is_no_report_is_refused_in_one_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "b.json"
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


@pytest.mark.parametrize(
    ("fail_on", "severity", "expected"),
    [("critical", Severity.ERROR, 0), ("error", Severity.ERROR, 1), ("info", Severity.INFO, 1), ("error", None, 0)],
)
def test_a_runs_findings_decide_by_their_severity(fail_on: str, severity: Severity | None, expected: int) -> None:
    found = [finding(A, severity=severity)] if severity else []
    asked = Options(fail_on=(fail_on,), allow_fallback=False)
    assert _by_findings(asked, result(line(A, Outcome.FAILED)), report(*found), 1) == expected


def test_a_threshold_lets_no_missing_device_and_no_check_pass_that_was_not_reached() -> None:
    asked = Options(fail_on=("critical",), allow_fallback=False)
    assert _by_findings(asked, result(line(A), missing=True), report(), 1) == 1
    assert _by_findings(asked, result(line(A, Outcome.NOT_RUN)), report(), 1) == 1
    told = finding(A, evidence_ids=(line(A).evidence_id,))
    assert _by_findings(asked, result(line(A, Outcome.NOT_RUN)), report(told), 1) == 0
    assert _by_findings(asked, result(line(A)), report(), 5) == 5
