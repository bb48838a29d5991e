"""All formats have the same findings and counts, and untrusted text stays text in each."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import jsonschema
import pytest
from evidence_lines import BERT, check_line, run_line
from report_parts import HOSTILE, finding, report, report_of_each_outcome, verdict

from generators.compatibility.verdict import Basis, Level, Reason
from hardware.errors import UsageError
from hardware.evidence.record import Outcome
from hardware.values import data_file
from reports.cell_report import CellReport
from reports.finding import SCHEMA
from reports.formats import FORMATS, report_text
from reports.reason_text import explained, folded, with_texts
from reports.report import Report
from reports.text import advice_markdown, fenced, markdown, working


def as_json(one: Report) -> dict:
    data = json.loads(report_text(one, "json"))
    jsonschema.validate(data, data_file(SCHEMA))
    return data


def test_json_fits_the_published_schema_and_counts_what_it_lists():
    data = as_json(report_of_each_outcome(HOSTILE))
    severities = [error["severity"] for error in data["errors"]]
    assert {name: severities.count(name) for name in data["error_counts"]} == data["error_counts"]
    assert sum(len(ids) for ids in data["hardware_errors"].values()) == len(data["errors"])
    assert "bert" in data["models_tested"]
    assert data["components_available"]["torch"]["available"] is False
    infinite = check_line("a", Outcome.FAILED, max_rel_error=float("inf"), tolerance=1e-5)
    assert as_json(report(checks=(infinite,)))["checks"][0]["max_rel_error"] == "inf"


def test_a_report_without_anything_says_that_nothing_was_measured():
    text = report_text(report(), "markdown")
    assert "No findings." in text
    assert "Nothing was measured" in text
    as_json(report())
    with pytest.raises(UsageError, match="Did you mean 'json'"):
        report_text(report(), "jsn")


def test_no_control_character_of_untrusted_text_reaches_a_report():
    for name in FORMATS.names():
        text = report_text(report_of_each_outcome(HOSTILE), name)
        assert all(char.isprintable() or char == "\n" for char in text), name
        assert not {"\x1b", "\x9b", "\u202e"} & set(text)
    root = ElementTree.fromstring(report_text(report_of_each_outcome(HOSTILE + "\x00\ud800\ufffe]]>"), "junit"))
    assert root.find(".//script") is None


def test_markdown_keeps_hostile_text_inside_its_cell():
    text = report_text(report_of_each_outcome(HOSTILE), "markdown")
    outside_blocks = re.sub(r"(`{4,})text\n.*?\n\1\n", "", text, flags=re.DOTALL)
    assert "<script>" not in outside_blocks
    assert "\n# head" not in outside_blocks
    rows = [row for row in outside_blocks.splitlines() if row.startswith("| [")]
    assert rows
    assert {row.replace("\\|", "").count("|") for row in rows} == {6}
    block = fenced("a\n````\nb").splitlines()
    assert block[0].startswith("`````")
    assert block[-1] == "`````"


def test_markdown_escapes_links_mentions_and_marks_and_no_more():
    shown = markdown("[x](http://evil.example) @user **b** `c` a_b _i_ www.evil.example")
    assert [one for one in ("://", "www.", "@") if one in shown] == []
    assert [one for one in ("\\[x]", "\\*\\*b", "a_b") if one not in shown] == []
    for text in ("2.13.0+cpu", "-1", "1) a #2", "needs macOS; this is Linux"):
        assert markdown(text) == text
    assert markdown("1. a", opens_block=True) == "&#49;. a"
    assert markdown("# a", opens_block=True) == "\\# a"
    advice = advice_markdown("Look at <it>: `dmesg | grep -E 'a_|*b' \\x`, `y`.")
    assert advice == "Look at &lt;it&gt;: `dmesg | grep -E 'a_|*b' \\x`, `y`."
    assert advice_markdown("```<b>```") == "\\`\\``<b>`\\`\\`"


def test_reasons_that_checks_share_and_conditions_are_stated_once():
    def failed(check: str, message: str = "b", **more: object) -> Reason:
        return Reason.of("check", check=check, outcome="failed", message=message, **more)

    builds, backward = (failed(name, "no", stage="load") for name in ("builds", "backward"))
    reasons = (builds, failed("a").on("gpu"), backward, Reason.of("nothing_measured"))
    assert folded(reasons) == ("builds, backward failed at load: no", "gpu: a failed: b", "nothing was measured")
    shapes, adapter, x = (Reason.of("text", text=one) for one in ("static shapes", "on a software adapter; so", "x"))
    tiny = Reason.of("weights", weights="tiny")
    of_one = verdict(Level.MEDIUM, reasons=(shapes, adapter, failed("a")), conditions=(shapes, adapter, tiny))
    assert explained(of_one) == (
        ("static shapes; on a software adapter; so", "a failed: b"),
        ("tiny: operators and numerics, not size",),
    )
    of_two = verdict(Level.MEDIUM, reasons=(x.on("gpu a"), x.on("gpu b")), conditions=(x,))
    assert explained(of_two) == (("gpu a: x", "gpu b: x"), ())
    levels = [Level.MEDIUM, Level.HIGH, Level.MEDIUM, Level.UNSUPPORTED, Level.UNKNOWN]
    assert working(levels) == "5 cells: 1 works, 2 work under conditions, 1 doesn't work, 1 is unknown"
    assert working([Level.MEDIUM]) == "1 cell: 1 works under conditions"


def test_report_of_a_run_holds_its_result():
    stored = verdict(basis=Basis.PREDICTED, rule_ids=("rule.x",), evidence_ids=())
    measured = verdict(
        Level.UNSUPPORTED,
        reasons=(Reason.of("check", check="a", outcome="failed"),),
        conditions=(Reason.of("text", text="tiny"),),
    )
    lines = (
        check_line("builds", accelerator="a CPU"),
        check_line("a", Outcome.FAILED, max_rel_error=0.5, tolerance=2e-5, actual_target="openvino:CPU"),
    )
    run = run_line(inventory={"cpu": {"model": "some CPU"}}, versions={"torch": "2.13.0+cpu"})
    cell = CellReport(verdict=measured, lines=lines, stored=stored.to_dict())
    found = report(checks=lines, cells=(cell,), runs=(run,))
    text = report_text(found, "markdown")
    for part in (
        f"## {BERT}",
        "**unsupported** (measured)",
        "because: a failed",
        "condition: tiny",
        "predicted before the run: high (predicted: rule.x)",
        "weights: tiny",
        "from run: r1",
        "ran on: cpu, openvino:CPU (a CPU)",
        "| builds | passed | cpu | cpu | - | 0.25 s |",
        "| a | failed | cpu | openvino:CPU | 5.0e-01 / 2e-05 | 0.25 s |",
        f"`{run.command}`",
        "processor: some CPU",
        "torch 2.13.0+cpu",
    ):
        assert part in text
    data = as_json(found)
    assert data["verdicts"] == [with_texts(measured.to_dict())]
    assert [one["text"] for one in data["verdicts"][0]["reasons"]] == ["a failed"]
    assert data["checks"][1]["max_rel_error"] == 0.5


def test_a_long_traceback_keeps_the_complete_frames_of_the_code_at_fault():
    own = '  File "/x/site-packages/transformers/cache_utils.py", line 7, in update\n    keys = stack(keys)'
    inner = '  File "/x/site-packages/torch/nn/module.py", line 1, in call\n    return call()'
    found = finding(traceback="\n".join(["Traceback:", own, *[inner] * 30, "ValueError: no"]))
    for shown in (report_text(report(found), "markdown"), report_text(report(found), "html")):
        assert "Frames outside of torch" in shown
        assert "keys = stack(keys)" in shown.partition("Frames outside of torch")[2].partition("torch/nn")[0]
    short = finding(traceback=f"Traceback:\n{own}\nValueError: no")
    assert "Frames outside of torch" not in report_text(report(short), "markdown")
