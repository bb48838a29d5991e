"""SARIF, GitHub's summaries and annotations, GitLab's entries: what servers ask for, and the same counts in all."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import jsonschema
import pytest

from hardware.errors import OutputError
from hardware.evidence.record import CheckLine, Outcome, PlannedCell, RunLine
from reports.delivery import SUMMARY_VARIABLE, deliver_to_github
from reports.diagnose import diagnose
from reports.finding import Finding, Remedy, Severity, worst_first
from reports.formats import FORMATS, report_text, sarif, suffix_of
from reports.formats.github import LARGEST_SUMMARY, MOST_ANNOTATIONS, github_annotations, github_summary
from reports.report import Report
from reports.source_places import SuitePlace, place_of, suite_places

# From the npm package @microsoft/jest-sarif 1.0.0-beta.0, under the MIT licence.
ROOT = Path(__file__).parents[2]
SCHEMA = Path(__file__).parents[1] / "support/data" / "sarif-2.1.0-rtm.5.json.gz"
CELL = "bert/fill-mask/cpu/float32"
HOSTILE = (
    "a|b `c` <script>alert(1)</script>\n::error::x\r\n::set-output name=a::b [x](http://e.example) {0} %0A \x1b[31m"
)


def finding(number: int = 0, severity: Severity = Severity.ERROR, **changes: object) -> Finding:
    values = {
        "hardware_type": "cpu",
        "error_type": "numerical_mismatch",
        "severity": severity,
        "message": f"cause {chr(97 + number % 26)}{'x' * (number // 26)} is wrong",
        "component": "compatibility_test",
        "timestamp": "2026-01-01T00:00:00+00:00",
        "cells": (CELL,),
        "checks": ("backward",),
        "remedies": (Remedy(do="Update it."),),
    }
    return Finding(**{**values, **changes})


def report(*findings: Finding, **changes: object) -> Report:
    return Report(timestamp="2026-01-02T00:00:00.5+01:00", findings=worst_first(findings), **changes)


def line(name: str, outcome: Outcome, text: str = "") -> CheckLine:
    return CheckLine(
        run_id="r1",
        cell_id=CELL,
        check_name=name,
        outcome=outcome,
        subject="tiny",
        requested_target="cpu",
        actual_target="cpu",
        precision="float32",
        model="bert",
        task="fill-mask",
        suite_hash="h",
        started_at="2026-01-01T00:00:00+00:00",
        duration_s=0.1,
        error_message=text,
        traceback=text,
    )


def of_everything() -> Report:
    """A report with findings of each severity, of checks and of the machine, with hostile texts in all fields."""
    checks = (line("builds", Outcome.PASSED), line("a", Outcome.FAILED, HOSTILE), line("b", Outcome.AMBIGUOUS, "two"))
    machine = [
        finding(
            n, severity, cells=(), checks=(), message=f"{severity} {HOSTILE}", component=HOSTILE, traceback=HOSTILE
        )
        for n, severity in enumerate((*Severity, Severity.INFO))
    ]
    suites = {CELL: SuitePlace(file="hwcompat-out/suites/test_b,c:d.py", lines={"a": 7})}
    return report(*diagnose(checks), *machine, checks=checks, suites=suites)


def sarif_of(one: Report) -> dict:
    text = report_text(one, "sarif")
    data = json.loads(text)
    jsonschema.Draft4Validator(json.loads(gzip.decompress(SCHEMA.read_bytes()))).validate(data)
    return data["runs"][0]


def test_all_formats_count_the_same_findings_of_one_report() -> None:
    one = of_everything()
    counts = one.error_counts
    assert min(counts.values()) >= 1
    texts = {name: report_text(one, name) for name in FORMATS.names()}
    said = "Findings: " + ", ".join(f"{number} {name}" for name, number in counts.items())
    run = sarif_of(one)
    junit = ElementTree.fromstring(texts["junit"]).find("testsuite[@name='findings']/properties")
    levels = Counter(entry["severity"] for entry in json.loads(texts["gitlab"]))
    shown = {
        "markdown": {name: texts["markdown"].count(f"### {name}: ") for name in counts},
        "json": json.loads(texts["json"])["error_counts"],
        "html": {name: len(re.findall(rf'<article[^>]*class="[^"]*\b{name}\b', texts["html"])) for name in counts},
        "junit": {one.get("name"): int(one.get("value")) for one in junit},
        "sarif": dict(Counter(result["properties"]["severity"] for result in run["results"])),
        "github": {name: texts["github"].count(f"### {name}: ") for name in counts},
        "gitlab": dict(zip(counts, (levels[word] for word in ("blocker", "critical", "minor", "info")), strict=True)),
    }
    assert said in texts["markdown"]
    assert said in texts["github"]
    assert run["properties"]["error_counts"] == counts
    assert {name: told for name, told in shown.items() if told != counts} == {}


def test_sarif_points_into_the_suite_at_the_check_and_never_at_this_machine() -> None:
    results = sarif_of(of_everything())["results"]
    places = [result["locations"][0]["physicalLocation"] for result in results]
    files = {
        (p["artifactLocation"]["uri"], p["artifactLocation"]["uriBaseId"], p["region"]["startLine"]) for p in places
    }
    assert ("hwcompat-out/suites/test_b%2Cc%3Ad.py", "%SRCROOT%", 7) in files
    assert all(base in ("%SRCROOT%", "HWCOMPAT") and not uri.startswith(("/", ".")) for uri, base, _ in files)


def test_sarif_levels_rules_and_fingerprints_are_what_a_server_tracks_alerts_by() -> None:
    run = sarif_of(of_everything())
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    levels = {result["properties"]["severity"]: result["level"] for result in run["results"]}
    assert levels == {"critical": "error", "error": "error", "warning": "warning", "info": "note"}
    prints = [result["partialFingerprints"]["hwcompatFinding/v1"] for result in run["results"]]
    assert len(set(prints)) == len(prints)
    later = replace(of_everything(), timestamp="2027-01-01T00:00:00+00:00")
    assert [r["partialFingerprints"]["hwcompatFinding/v1"] for r in sarif_of(later)["results"]] == prints
    assert run["invocations"][0]["endTimeUtc"] == "2026-01-01T23:00:00Z"


def test_findings_that_share_an_id_have_fingerprints_of_their_own() -> None:
    twins = [finding(cells=cells, model_name="bert") for cells in ((CELL, "x"), ("y", "z"))]
    assert twins[0].id == twins[1].id
    prints = [one["partialFingerprints"]["hwcompatFinding/v1"] for one in sarif_of(report(*twins))["results"]]
    assert prints == [twins[0].id, f"{twins[0].id}-2"]


def test_series_of_analyses_are_told_apart_by_machine_and_not_by_run() -> None:
    run = RunLine(run_id="r1", started_at="", command="", machine="lab", inventory={}, versions={}, plan=())
    assert sarif_of(report(finding(), runs=(run,)))["automationDetails"]["id"] == "hwcompat/lab/r1"
    assert sarif_of(report(finding()))["automationDetails"]["id"] == "hwcompat/"


def test_text_that_a_reader_of_sarif_would_fill_in_or_link_is_shown_as_it_is() -> None:
    text = sarif_of(report(finding(message="got {0} of [x](http://e.example)")))["results"][0]["message"]["text"]
    assert "{{0}}" in text
    assert "](" not in text


def test_one_finding_of_many_cells_is_one_result_with_related_cells_up_to_the_limit() -> None:
    cells = tuple(f"m{number}/fill-mask/cpu/float32" for number in range(300))
    (result,) = sarif_of(report(finding(cells=cells)))["results"]
    assert len(result["relatedLocations"]) == sarif.MOST_LOCATIONS - 1
    assert result["properties"]["cell_count"] == 300
    assert "In: 300 cells" in result["message"]["text"]


def test_sarif_beyond_the_limits_keeps_the_worst_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "MOST_RESULTS", 6)
    findings = [*(finding(n, Severity.WARNING) for n in range(9)), finding(9, Severity.CRITICAL)]
    run = sarif_of(report(*findings))
    assert [result["properties"]["severity"] for result in run["results"]] == ["critical", *["warning"] * 5]
    (told,) = run["invocations"][0]["toolExecutionNotifications"]
    assert told["message"]["text"].startswith("6 of 10 findings are in this file")
    assert run["properties"]["findings"] == 10
    monkeypatch.setattr(sarif, "LARGEST_PACKED", 1200)
    assert 0 < len(sarif_of(report(*findings))["results"]) < 6


def test_annotations_cannot_be_left_by_what_they_quote() -> None:
    lines = github_annotations(of_everything()).splitlines()
    assert all(re.match(r"::(error|warning|notice) [^:]+::", text) for text in lines)
    assert not [text for text in lines if "\r" in text or "\x1b" in text]
    in_suite = next(text for text in lines if "file=" in text)
    assert in_suite.startswith("::error file=hwcompat-out/suites/test_b%2Cc%3Ad.py,line=7,title=")
    assert "%0A%3A" not in in_suite
    assert "%250A" in in_suite


def test_annotations_beyond_a_steps_limit_are_counted_in_its_last_place() -> None:
    lines = github_annotations(report(*(finding(n) for n in range(25)))).splitlines()
    assert len(lines) == MOST_ANNOTATIONS
    assert "16 more of 25 findings" in lines[-1]
    exactly = github_annotations(report(*(finding(n) for n in range(10)))).splitlines()
    assert len(exactly) == MOST_ANNOTATIONS
    assert "more of" not in exactly[-1]


def test_a_summary_stays_in_its_room_with_the_worst_first_and_says_what_is_cut() -> None:
    findings = [*(finding(n, Severity.INFO, message="ä" * 500 + str(n)) for n in range(40)), finding(50)]
    cut = github_summary(report(*findings), room=10_000)
    assert len(cut.encode()) <= 10_000
    shown = cut.count("### ")
    assert 1 < shown < 41
    assert cut.index("### error") < cut.index("### info")
    assert f"{shown} of 41 findings are shown here, the worst ones" in cut
    assert "are shown here" not in github_summary(report(*findings))


def test_no_line_of_a_summary_is_a_command_to_the_server_that_prints_it() -> None:
    text = github_summary(of_everything())
    assert not [one for one in text.splitlines() if one.lstrip().startswith("::") or "##[" in one]


def test_the_summary_is_appended_where_github_says_and_only_annotations_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "summary"
    path.write_text("before", encoding="utf-8")
    monkeypatch.setenv(SUMMARY_VARIABLE, str(path))
    deliver_to_github(report(finding()), SimpleNamespace(), to_files=False)
    assert path.read_text(encoding="utf-8").startswith("before\n# Hardware compatibility\n")
    assert capsys.readouterr().out.startswith("::error ")
    path.write_text("x" * (LARGEST_SUMMARY - 9_000), encoding="utf-8")
    deliver_to_github(report(*(finding(n) for n in range(90))), SimpleNamespace(), to_files=False)
    assert LARGEST_SUMMARY - 9_000 < path.stat().st_size <= LARGEST_SUMMARY
    assert "of 90 findings are shown here" in path.read_text(encoding="utf-8")
    capsys.readouterr()
    path.write_text("x" * (LARGEST_SUMMARY - 5), encoding="utf-8")
    deliver_to_github(report(finding()), SimpleNamespace(), to_files=False)
    assert path.stat().st_size == LARGEST_SUMMARY - 5
    assert "no summary is added" in capsys.readouterr().err
    monkeypatch.setenv(SUMMARY_VARIABLE, str(tmp_path / "no" / "folder"))
    with pytest.raises(OutputError, match="can't be written"):
        deliver_to_github(report(finding()), SimpleNamespace(), to_files=False)
    monkeypatch.delenv(SUMMARY_VARIABLE)
    deliver_to_github(report(finding()), SimpleNamespace(), to_files=False)
    assert re.search(r"# Hardware compatibility(.|\n)*\n::error ", capsys.readouterr().out)


def test_gitlab_has_what_its_widget_needs() -> None:
    entries = json.loads(report_text(of_everything(), "gitlab"))
    for entry in entries:
        assert set(entry) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert "\n" not in entry["description"]
        assert not entry["location"]["path"].startswith(("/", "./"))
    assert len({entry["fingerprint"] for entry in entries}) == len(entries)


def test_suites_are_found_by_plain_names_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s").mkdir()
    Path("s/test_bert.py").write_text("import x\n\n\ndef test_builds(case):\n    pass\n", encoding="utf-8")
    Path("test_out.py").write_text("def test_builds(case): ...\n", encoding="utf-8")
    Path("s/test_link.py").symlink_to(tmp_path / "test_out.py")
    names = {CELL: "test_bert.py", "b/x/cpu/float32": "../test_out.py", "c/x/cpu/float32": "test_link.py"}
    plan = tuple(
        PlannedCell(cell_id=cell, checks=(), suite=name, suite_hash="h", subject="tiny")
        for cell, name in names.items()
    )
    found = suite_places(plan, names, Path("s"))
    assert found == {CELL: SuitePlace(file="s/test_bert.py", lines={"builds": 4})}
    assert place_of(finding(checks=("builds",)), found).line == 4
    assert not place_of(finding(cells=()), found).is_file


def test_the_failure_that_the_documentation_shows_is_the_same_in_every_format() -> None:
    shown = ROOT / "docs" / "formats"
    texts = {name: (shown / f"failure.{suffix_of(name)}").read_text(encoding="utf-8") for name in FORMATS.names()}
    (known,) = json.loads(texts["json"])["errors"]
    assert all("off by" in text or "0.41 of the output" in text for text in texts.values())
    (result,) = json.loads(texts["sarif"])["runs"][0]["results"]
    assert result["partialFingerprints"]["hwcompatFinding/v1"] == known["id"]
    assert len(json.loads(texts["gitlab"])) == 1
    assert texts["github"].count("\n::error ") == texts["markdown"].count("### error: ") == 1
    assert not [name for name, text in texts.items() if re.search(r"/(home|root|tmp|work|Users)/", text)]
