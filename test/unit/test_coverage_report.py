"""`hwcompat coverage`: what it prints and keeps, its comparison with the last report, and its exit codes."""

from __future__ import annotations

import html
import json
import re

import jsonschema
import pytest
from coverage_evidence import BERT, GPT2, VIT, refusal, seven_types, write_run
from front_doors import invoke

from generators.models.recipe_store import Obstacle
from hardware.values import data_file
from reports.coverage.coverage_report import SCHEMA

HOSTILE = "</script><script>alert(1)</script> | [x](javascript:1) \x1b[31m `a` \u202e"


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
def ask():
    """Run the command on the evidence; return the exit code and what was printed."""

    def run(*arguments: str) -> tuple[int, str, str]:
        done = invoke("coverage", "--evidence", "evidence", "--report-dir", "reports", *arguments)
        return done.code, done.out, done.err

    return run


# Formats


def test_every_format_has_both_denominators_and_names_what_did_not_pass(evidence, ask):
    for format in ("text", "markdown", "html"):
        code, out, _ = ask("--format", format)
        assert code == 0
        flat = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", out)).split())
        for words in (
            "passed 1 of the 6 types that can be built (16.7 %); of all 7 types, 14.3 %",
            "1 of 7 types (14.3 %) can't be built with their defaults: 1 missing dependency",
            "2 types were never tried; they count as buildable",
            *("numerical mismatch", "electra", "gpt2", "clip", "machine-", "torch"),
        ):
            assert words in flat, (format, words)


# Comparison


def test_what_passes_and_fails_newly_since_the_last_report(evidence, ask):
    assert "Compared with" not in ask()[1]
    assert "nothing changed" in ask()[1]
    write_run(evidence, VIT, run_id="r3")
    write_run(evidence, BERT, "builds", run_id="r4", error_message="no kernel")
    first, again = (ask("--format", "markdown")[1] for _ in range(2))
    assert "- cpu: newly passing (1): not run → passed: vit" in first
    assert "- cpu: newly failing (1): passed → failed: bert" in first
    news = [text.partition("## Changes")[2].partition("##")[0] for text in (first, again)]
    assert news[0] == news[1], "a report that is made again has the same news"


def test_another_version_with_new_and_vanished_types_and_obstacles(evidence, ask, monkeypatch, tmp_path):
    before = json.loads(ask("--format", "json")[1])
    before["versions"]["transformers"] = "5.0.0"
    (tmp_path / "before.json").write_text(json.dumps(before))
    changed = [refusal("electra", Obstacle.NOT_DERIVED), refusal("albert", Obstacle.NO_CLASS)]
    seven_types(monkeypatch, *changed, more=["xlnet"])
    now = json.loads(ask("--format", "json", "--previous", "before.json")[1])
    jsonschema.validate(now, data_file(SCHEMA))
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
    text = " ".join(ask("--previous", "before.json")[1].split())
    assert f"of transformers 5.0.0 of {before['timestamp'][:10]}" in text
    assert f"now {now['versions']['transformers']}." in text


def test_only_reports_of_the_same_targets_and_precision_are_compared(evidence, ask, tmp_path):
    data = json.loads(ask("--format", "json")[1])
    assert "Compared with" not in ask("--targets", "cpu,simulated")[1]
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == [
        "coverage-last-cpu-float32.json",
        "coverage-last-cpu-simulated-float32.json",
    ]
    (tmp_path / "cpu.json").write_text(json.dumps(data))
    out = ask("--targets", "simulated", "--previous", "cpu.json")[1]
    assert "not in the earlier report (1): simulated" in out
    (tmp_path / "earlier.json").write_text(json.dumps(data | {"precision": "bfloat16"}))
    code, out, err = ask("--previous", "earlier.json")
    assert (code, out) == (4, "")
    assert "is of bfloat16, this report of float32" in err


# The command


def test_exit_codes(evidence, ask, tmp_path):
    for percent, wanted in (("16.6", 0), ("16.7", 1), ("0", 0), ("100", 1)):
        code, out, err = ask("--fail-under", percent)
        assert code == wanted
        assert out.startswith("Coverage of transformers")
        assert ("error: cpu: 1 of the 6 types that can be built (16.7 %)" in err) is bool(wanted)
    (tmp_path / "broken.json").write_text('{"schema_version": 1}')
    for words in (
        "--format csv",
        "--targets cdua",
        "--evidence no-such-folder",
        "--previous no-such.json",
        "--previous broken.json",
        "--fail-under 101",
        "--fail-under nan",
    ):
        code, out, err = ask(*words.split())
        assert (code, out) == (4, ""), words
        assert err.startswith("error: ")
        assert "Traceback" not in err
    for words in ("--previous a.json", "--fail-under 5", "--targets cpu"):
        done = invoke("generate", "--model", "bert", *words.split())
        assert (done.code, f"No such option '{words.split()[0]}'" in done.err) == (4, True)


def test_without_evidence_the_report_is_shown_not_kept_and_the_code_is_5(ask, tmp_path):
    (tmp_path / "evidence").mkdir()
    code, out, err = ask()
    assert code == 5
    assert "passed 0 of the 6 types that can be built (0.0 %); of all 7 types, 0.0 %" in out
    assert err.startswith("error: nothing was measured: there is no evidence in evidence.")
    assert not (tmp_path / "reports").exists()
