"""SARIF, GitHub and GitLab get what their servers need, and all formats count the same findings.

JUnit files have a suite for each cell, an element for each outcome, and what CI servers show of it.
"""

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
from evidence_lines import BERT, check_line, planned_cell, run_line
from report_parts import HOSTILE, finding, hostile_finding, report, report_of_each_outcome, verdict

from generators.compatibility.verdict import Level, Reason
from generators.project.project_finding import ProjectOutcome
from hardware.errors import OutputError
from hardware.evidence.record import EDITED, CheckLine, Outcome
from reports.cell_report import CellReport
from reports.delivery import SUMMARY_VARIABLE, deliver_to_github
from reports.diagnose import diagnose
from reports.finding import Finding, Remedy, Severity
from reports.formats import FORMATS, report_text, sarif
from reports.formats.github import LARGEST_SUMMARY, MOST_ANNOTATIONS, github_annotations, github_summary
from reports.report import Report
from reports.source_places import SuitePlace, place_of, suite_places

# From the npm package @microsoft/jest-sarif 1.0.0-beta.0, under the MIT licence.
SCHEMA = Path(__file__).parents[1] / "support/data" / "sarif-2.1.0-rtm.5.json.gz"
SUITE = "hwcompat-out/suites/test_b%2Cc%3Ad.py"


def many(count: int, severity: Severity = Severity.ERROR) -> list[Finding]:
    """Findings with a cause each."""
    causes = (f"{chr(97 + number % 26)}{'x' * (number // 26)}" for number in range(count))
    more = {"severity": severity, "remedies": (Remedy(do="Update it."),)}
    return [finding(BERT, message=f"cause {cause} is wrong", **more) for cause in causes]


def of_everything() -> Report:
    """A report with findings of each severity, of checks and of the machine, with hostile texts in all fields."""
    hostile = {"error_message": HOSTILE, "traceback": HOSTILE}
    two = check_line("b", Outcome.AMBIGUOUS, error_message="two", traceback="two")
    checks = (check_line(), check_line("a", Outcome.FAILED, **hostile), two)
    machine = [
        hostile_finding(severity=severity, message=f"{severity} {HOSTILE}", hardware_type="cpu", error_type=f"e{n}")
        for n, severity in enumerate((*Severity, Severity.INFO))
    ]
    suites = {BERT: SuitePlace(file="hwcompat-out/suites/test_b,c:d.py", lines={"a": 7})}
    return report(*diagnose(checks), *machine, checks=checks, suites=suites, timestamp="2026-01-02T00:00:00.5+01:00")


def sarif_of(one: Report) -> dict:
    data = json.loads(report_text(one, "sarif"))
    jsonschema.Draft4Validator(json.loads(gzip.decompress(SCHEMA.read_bytes()))).validate(data)
    return data["runs"][0]


def fingerprints(run: dict) -> list[str]:
    return [result["partialFingerprints"]["hwcompatFinding/v1"] for result in run["results"]]


def test_all_formats_count_the_same_findings_of_one_report() -> None:
    one = of_everything()
    counts = one.error_counts
    assert min(counts.values()) >= 1
    texts = {name: report_text(one, name) for name in FORMATS.names()}
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
    total = "Findings: " + ", ".join(f"{number} {name}" for name, number in counts.items())
    assert total in texts["markdown"]
    assert total in texts["github"]
    assert run["properties"]["error_counts"] == counts
    assert {name: found for name, found in shown.items() if found != counts} == {}


def test_as_many_tests_fail_in_ctrf_as_in_junit() -> None:
    edited = check_line("e", Outcome.FAILED, error_message="wrong", conditions={EDITED: "by hand"})
    unreached = check_line("u", Outcome.NOT_RUN, error_type="not_reached")
    one = of_everything()
    one = replace(one, checks=(*one.checks, edited, unreached))
    root = ElementTree.fromstring(report_text(one, "junit"))
    results = json.loads(report_text(one, "ctrf"))["results"]
    failed = [test["name"] for test in results["tests"] if test["status"] == "failed"]
    assert len(failed) == int(root.get("failures")) + int(root.get("errors")) == results["summary"]["failed"]
    assert {f"{BERT}::e", f"{BERT}::u"} <= set(failed)
    assert any(name.startswith("finding::") for name in failed)


def test_sarif_has_the_places_levels_and_fingerprints_that_a_server_tracks_alerts_by() -> None:
    run = sarif_of(of_everything())
    places = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    files = {
        (p["artifactLocation"]["uri"], p["artifactLocation"]["uriBaseId"], p["region"]["startLine"]) for p in places
    }
    assert (SUITE, "%SRCROOT%", 7) in files
    assert all(base in ("%SRCROOT%", "HWCOMPAT") and not uri.startswith(("/", ".")) for uri, base, _ in files)
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    levels = {result["properties"]["severity"]: result["level"] for result in run["results"]}
    assert levels == {"critical": "error", "error": "error", "warning": "warning", "info": "note"}
    assert len(set(fingerprints(run))) == len(run["results"])
    later = replace(of_everything(), timestamp="2027-01-01T00:00:00+00:00")
    assert fingerprints(sarif_of(later)) == fingerprints(run)
    assert run["invocations"][0]["endTimeUtc"] == "2026-01-01T23:00:00Z"
    twins = [finding(*cells, model_name="bert") for cells in ((BERT, "x"), ("y", "z"))]
    assert twins[0].id == twins[1].id
    assert fingerprints(sarif_of(report(*twins))) == [twins[0].id, f"{twins[0].id}-2"]
    # Series of analyses are named by machine.
    assert sarif_of(report(finding(), runs=(run_line(),)))["automationDetails"]["id"] == "hwcompat/lab/r1"
    assert sarif_of(report(finding()))["automationDetails"]["id"] == "hwcompat/"


def test_sarif_shows_placeholders_and_links_as_text_and_related_cells_up_to_the_limit() -> None:
    (result,) = sarif_of(report(finding(message="got {0} of [x](http://e.example)")))["results"]
    assert "{{0}}" in result["message"]["text"]
    assert "](" not in result["message"]["text"]
    cells = tuple(f"m{number}/fill-mask/cpu/float32" for number in range(300))
    (result,) = sarif_of(report(finding(*cells)))["results"]
    assert len(result["relatedLocations"]) == sarif.MOST_LOCATIONS - 1
    assert result["properties"]["cell_count"] == 300
    assert "In: 300 cells" in result["message"]["text"]


def test_sarif_beyond_the_limits_keeps_the_worst_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "MOST_RESULTS", 6)
    one = report(*many(9, Severity.WARNING), finding(BERT, severity=Severity.CRITICAL))
    run = sarif_of(one)
    assert [result["properties"]["severity"] for result in run["results"]] == ["critical", *["warning"] * 5]
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("6 of 10 findings are in this file")
    assert run["properties"]["findings"] == 10
    monkeypatch.setattr(sarif, "LARGEST_PACKED", 1200)
    assert 0 < len(sarif_of(one)["results"]) < 6


def test_annotations_are_escaped_and_those_beyond_a_steps_limit_are_counted() -> None:
    lines = github_annotations(of_everything()).splitlines()
    assert all(re.match(r"::(error|warning|notice) [^:]+::", text) for text in lines)
    assert not [text for text in lines if "\r" in text or "\x1b" in text]
    in_suite = next(text for text in lines if "file=" in text)
    assert in_suite.startswith(f"::error file={SUITE},line=7,title=")
    assert "%0A%3A" not in in_suite
    assert "%250A" in in_suite
    lines = github_annotations(report(*many(25))).splitlines()
    assert len(lines) == MOST_ANNOTATIONS
    assert "16 more of 25 findings" in lines[-1]
    exactly = github_annotations(report(*many(10))).splitlines()
    assert len(exactly) == MOST_ANNOTATIONS
    assert "more of" not in exactly[-1]


def test_a_summary_has_the_worst_first_states_what_is_cut_and_is_no_command() -> None:
    minor = [finding(BERT, severity=Severity.INFO, message="ä" * 500 + str(number)) for number in range(40)]
    cut = github_summary(report(*minor, finding(BERT)), room=10_000)
    assert len(cut.encode()) <= 10_000
    shown = cut.count("### ")
    assert 1 < shown < 41
    assert cut.index("### error") < cut.index("### info")
    assert f"{shown} of 41 findings are shown here, worst first" in cut
    assert "are shown here" not in github_summary(report(*minor))
    text = github_summary(of_everything())
    counted = github_summary(report(*many(2), cells=(CellReport(verdict=verdict()),)))
    assert "\n- cpu: 1 cell: 1 works\n\nCauses: numerical mismatch (2).\n" in counted
    assert not [one for one in text.splitlines() if one.lstrip().startswith("::") or "##[" in one]


def test_the_summary_is_appended_where_github_says_and_only_annotations_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "summary"

    def deliver(before: str, *findings: Finding) -> tuple[str, str]:
        """Deliver to a summary that has this text; return what it has then, and what was printed."""
        path.write_text(before, encoding="utf-8")
        deliver_to_github(report(*findings), SimpleNamespace(), to_files=False)
        printed = capsys.readouterr()
        return path.read_text(encoding="utf-8"), printed.out + printed.err

    monkeypatch.setenv(SUMMARY_VARIABLE, str(path))
    text, printed = deliver("before", finding(BERT))
    assert text.startswith("before\n# Hardware compatibility\n")
    assert printed.startswith("::error ")
    text, _ = deliver("x" * (LARGEST_SUMMARY - 9_000), *many(90))
    assert LARGEST_SUMMARY - 9_000 < len(text.encode()) <= LARGEST_SUMMARY
    assert "of 90 findings are shown here" in text
    text, printed = deliver("x" * (LARGEST_SUMMARY - 5), finding(BERT))
    assert len(text) == LARGEST_SUMMARY - 5
    assert "the summary was not added" in printed
    monkeypatch.setenv(SUMMARY_VARIABLE, str(tmp_path / "no" / "folder"))
    with pytest.raises(OutputError, match="can't be written"):
        deliver("", finding(BERT))
    monkeypatch.delenv(SUMMARY_VARIABLE)
    assert re.search(r"# Hardware compatibility(.|\n)*\n::error ", deliver("", finding(BERT))[1])


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
    names = {BERT: "test_bert.py", "b/x/cpu/float32": "../test_out.py", "c/x/cpu/float32": "test_link.py"}
    plan = tuple(planned_cell(cell, suite=name) for cell, name in names.items())
    found = suite_places(plan, names, Path("s"))
    assert found == {BERT: SuitePlace(file="s/test_bert.py", lines={"builds": 4})}
    assert place_of(finding(BERT, checks=("builds",)), found).line == 4
    assert not place_of(finding(), found).is_file


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
