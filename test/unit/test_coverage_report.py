"""The coverage report in its formats, what differs from the last one, and the command with its exit codes."""

from __future__ import annotations

import html
import importlib
import json
import re
from dataclasses import replace

import jsonschema
import pytest
from coverage_evidence import BERT, GPT2, VIT, refusal, seven_types, write_run

from generators.models.recipe_store import Obstacle
from hardware.command_line import open_door
from hardware.errors import BrokenInput
from hardware.evidence.store import read_folder
from reports.coverage.coverage_facts import Coverage, Standing
from reports.coverage.coverage_report import SCHEMA, CoverageReport, coverage_json, read_report
from reports.coverage.coverage_results import coverage_here
from reports.coverage.coverage_view import coverage_markdown, coverage_text
from reports.document import Table, text_document
from reports.html.coverage_html import coverage_html
from reports.saved_reports import schema_of

HOSTILE = "</script><script>alert(1)</script> | [x](javascript:1) \x1b[31m `a` \u202e"

door = importlib.import_module("run_test_generation")


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seven_types(monkeypatch, refusal("electra", Obstacle.MISSING_DEPENDENCY, f"ImportError: {HOSTILE}"))


@pytest.fixture
def evidence(tmp_path):
    folder = tmp_path / "evidence"
    write_run(folder, BERT)
    wrong = {"error_type": "numerical_mismatch", "error_message": f"output differs {HOSTILE}"}
    write_run(folder, GPT2, "matches_reference", run_id="r2", **wrong)
    return folder


@pytest.fixture
def ask(capsys):
    """Runs the command on the evidence; gives the exit code and what was printed."""

    def run(*arguments: str) -> tuple[int, str, str]:
        given = ["--coverage-report", "--evidence", "evidence", "--report-dir", "reports", *arguments]
        code = open_door(door.main, given, program="x")
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def report(coverage: Coverage, **changes: object) -> CoverageReport:
    values = {
        "timestamp": "2026-01-02T03:04:05.000000+00:00",
        "command": "python run_test_generation.py --coverage-report",
        "machine": "a-machine",
        "versions": {"transformers": "5.5.4", "torch": "2.13.0"},
        "coverage": coverage,
    }
    return CoverageReport(**{**values, **changes})


def here(folder) -> Coverage:
    from hardware.detection import detect

    return coverage_here(read_folder(folder), detect(), ("cpu",))


def with_standing(coverage: Coverage, **standings: Standing) -> Coverage:
    target = coverage.targets[0]
    results = tuple(
        replace(one, standing=standings[one.model_type]) if one.model_type in standings else one
        for one in target.results
    )
    return replace(coverage, targets=(replace(target, results=results),))


# Formats


def test_every_format_says_both_denominators_and_names_what_did_not_pass(evidence, ask):
    for format in ("text", "markdown", "html"):
        code, out, _ = ask("--format", format)
        assert code == 0
        flat = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", out)).split())
        assert "passed 1 of the 6 types that can be built (16.7 %); of all 7 types, 14.3 %" in flat
        assert "1 of 7 types (14.3 %) can't be built here as they come: 1 missing dependency" in flat
        assert "2 types were never tried; they count as buildable" in flat
        assert "numerical mismatch" in flat
        assert all(name in flat for name in ("electra", "gpt2", "clip", "machine-", "torch"))


def test_json_fits_its_schema_and_suffices_for_the_markdown(evidence, tmp_path):
    made = report(here(evidence))
    made = made.compared(report(with_standing(made.coverage, bert=Standing.FAILED)), go_on=False)
    path = tmp_path / "one.json"
    path.write_text(coverage_json(made))
    data = json.loads(path.read_text())
    jsonschema.validate(data, schema_of(SCHEMA))
    counts = data["targets"]["cpu"]["counts"]
    assert (counts["passed"], counts["buildable"], counts["types"], counts["percent_of_buildable"]) == (1, 6, 7, 16.7)
    assert coverage_markdown(read_report(path)) == coverage_markdown(made)


def test_the_same_input_gives_the_same_text(evidence):
    first, second = report(here(evidence)), report(here(evidence))
    for form in (coverage_text, coverage_markdown, coverage_json, coverage_html):
        assert form(first) == form(second)


def test_a_terminal_of_80_columns_is_enough(evidence):
    made = report(here(evidence))
    worst = dict.fromkeys(("passed", "failed", "crashed", "timeout", "out_of_memory", "not_run"), 499)
    wide = replace(made.coverage.targets[0], checks={"generates_like_reference": {**worst, "ambiguous": 1}})
    made = replace(made, coverage=replace(made.coverage, targets=(wide,)))
    assert max(map(len, coverage_text(made).splitlines())) <= 80


def test_untrusted_words_stay_words(evidence):
    made = report(here(evidence))
    for text in (coverage_text(made), coverage_markdown(made), coverage_html(made), coverage_json(made)):
        assert not {"\x1b", "\u202e"} & set(text)
    assert "<script>alert" not in coverage_markdown(made) + coverage_html(made)
    row = next(line for line in coverage_markdown(made).splitlines() if line.startswith("| gpt2"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 5
    assert not re.search(r"(?<!\\)\[x\]", row)


# What differs


def test_what_passes_and_fails_newly_since_the_last_report(evidence, ask):
    assert "Compared with" not in ask()[1]
    write_run(evidence, VIT, run_id="r3")
    write_run(evidence, BERT, "builds", run_id="r4", error_message="no kernel")
    out = ask("--format", "markdown")[1]
    assert "- cpu: newly passing (1): not run → passed: vit" in out
    assert "- cpu: newly failing (1): passed → failed: bert" in out


def test_a_report_made_twice_says_twice_what_is_new(evidence, ask):
    ask()
    write_run(evidence, VIT, run_id="r3")
    first = ask("--format", "markdown")[1].partition("## What is new")[2].partition("##")[0]
    again = ask("--format", "markdown")[1].partition("## What is new")[2].partition("##")[0]
    assert "newly passing (1)" in first
    assert first == again


def test_nothing_new_is_said(evidence, ask):
    ask()
    assert "nothing changed" in ask()[1]


def test_another_version_with_new_and_vanished_types_and_obstacles(evidence, ask, monkeypatch, tmp_path):
    before = json.loads(ask("--format", "json")[1])
    before["versions"]["transformers"] = "5.0.0"
    (tmp_path / "before.json").write_text(json.dumps(before))
    changed = [refusal("electra", Obstacle.NOT_DERIVED), refusal("albert", Obstacle.NO_CLASS)]
    seven_types(monkeypatch, *changed, more=["xlnet"])
    now = json.loads(ask("--format", "json", "--previous", "before.json")[1])
    jsonschema.validate(now, schema_of(SCHEMA))
    changes = now["changes"]
    assert (changes["transformers"], changes["since"]) == ("5.0.0", before["timestamp"])
    assert changes["new"] == ["xlnet"]
    assert changes["obstacles"] == [
        {"model_type": "albert", "before": "none", "now": "no_class"},
        {"model_type": "electra", "before": "missing_dependency", "now": "not_derived"},
    ]
    seven_types(monkeypatch, *changed)
    (tmp_path / "later.json").write_text(json.dumps(now))
    assert "vanished types (1): xlnet" in ask("--previous", "later.json")[1]
    version = now["versions"]["transformers"]
    assert f"of transformers 5.0.0 of {before['timestamp'][:10]}" in ask("--previous", "before.json")[1]
    assert f"now {version}." in " ".join(ask("--previous", "before.json")[1].split())


def test_other_targets_have_a_last_report_of_their_own(evidence, ask, tmp_path):
    ask()
    assert "Compared with" not in ask("--targets", "cpu,simulated")[1]
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == [
        "coverage-last-cpu-float32.json",
        "coverage-last-cpu-simulated-float32.json",
    ]


def test_a_target_that_the_earlier_report_has_not_is_said(evidence, ask, tmp_path):
    (tmp_path / "cpu.json").write_text(ask("--format", "json")[1])
    out = ask("--targets", "simulated", "--previous", "cpu.json")[1]
    assert "not in the earlier report (1): simulated" in out


def test_a_report_of_another_precision_is_not_compared_with(evidence, ask, tmp_path):
    earlier = json.loads(ask("--format", "json")[1]) | {"precision": "bfloat16"}
    (tmp_path / "earlier.json").write_text(json.dumps(earlier))
    code, out, err = ask("--previous", "earlier.json")
    assert (code, out) == (4, "")
    assert "is of bfloat16, this report of float32" in err


# The command


def test_without_evidence_the_report_is_shown_not_kept_and_the_code_is_5(ask, tmp_path):
    (tmp_path / "evidence").mkdir()
    code, out, err = ask()
    assert code == 5
    assert "passed 0 of the 6 types that can be built (0.0 %); of all 7 types, 0.0 %" in out
    assert err.startswith("error: nothing was measured: there is no evidence in evidence.")
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(("percent", "code"), [("16.6", 0), ("16.7", 1), ("0", 0), ("100", 1)])
def test_too_few_that_passed_break_the_build(evidence, ask, percent, code):
    found, out, err = ask("--fail-under", percent)
    assert found == code
    assert out.startswith("Coverage of transformers")
    assert ("error: cpu: 1 of the 6 types that can be built (16.7 %)" in err) is bool(code)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "csv"],
        ["--targets", "cdua"],
        ["--evidence", "no-such-folder"],
        ["--previous", "no-such.json"],
        ["--previous", "broken.json"],
        ["--fail-under", "101"],
        ["--fail-under", "nan"],
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_4(evidence, ask, tmp_path, arguments):
    (tmp_path / "broken.json").write_text('{"schema_version": 1}')
    code, out, err = ask(*arguments)
    assert (code, out) == (4, "")
    assert err.startswith("error: ")
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [["--previous", "a.json"], ["--fail-under", "5"], ["--targets", "cpu"]])
def test_its_options_go_with_it_alone(arguments, capsys):
    assert open_door(door.main, ["--model", "bert", *arguments], program="x") == 4
    assert "--coverage-report" in capsys.readouterr().err


@pytest.mark.parametrize("change", ["one less", "another", "twice"])
def test_a_report_whose_results_are_not_those_of_its_types_is_refused(evidence, tmp_path, change):
    data = json.loads(coverage_json(report(here(evidence))))
    results = data["targets"]["cpu"]["results"]
    if change == "one less":
        results.pop()
    elif change == "another":
        results[0]["model_type"] = "another"
    else:
        results.append(results[0])
    (tmp_path / "one.json").write_text(json.dumps(data))
    with pytest.raises(BrokenInput, match="its results aren't those of its types"):
        read_report(tmp_path / "one.json")


def test_a_wide_terminal_shows_whole_names():
    name = "automatic-speech-recognition-with-a-long-name-" * 2
    table = Table(headings=("name", "number"), short=("name", "n"), rows=((name, "1"),))
    assert name not in text_document([table], 80)
    assert name in text_document([table], 200)
