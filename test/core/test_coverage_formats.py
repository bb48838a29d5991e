"""A coverage report as text, Markdown, JSON and a page, and the comparison of two reports."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import jsonschema
import pytest
from coverage_evidence import made_report, with_standings

from hardware.errors import BrokenInput
from hardware.values import data_file
from reports.coverage.coverage_facts import CoverageCounts, CoverageStatus, percent
from reports.coverage.coverage_report import SCHEMA, CoverageReport, coverage_json, read_report
from reports.coverage.coverage_view import coverage_markdown, coverage_text
from reports.document import Table, text_document
from reports.html.coverage_html import coverage_html

HOSTILE = "</script><script>alert(1)</script> | [x](javascript:1) \x1b[31m `a` \u202e"


@pytest.fixture
def made(monkeypatch) -> CoverageReport:
    return made_report(monkeypatch, HOSTILE)


def test_json_fits_its_schema_and_suffices_for_the_markdown(made, tmp_path):
    earlier = with_standings(
        made.coverage, bert=CoverageStatus.FAILED, gpt2=CoverageStatus.PASSED, t5=CoverageStatus.PASSED
    )
    made = made.compared(replace(made, coverage=earlier), go_on=False)
    path = tmp_path / "one.json"
    path.write_text(coverage_json(made))
    data = json.loads(path.read_text())
    jsonschema.validate(data, data_file(SCHEMA))
    counts = data["targets"]["cpu"]["counts"]
    assert (counts["passed"], counts["buildable"], counts["types"], counts["percent_of_buildable"]) == (1, 6, 7, 16.7)
    text = coverage_markdown(made)
    assert coverage_markdown(read_report(path)) == text
    assert "- cpu: newly passing (1): failed → passed: bert" in text
    assert "- cpu: newly failing (1): passed → failed: gpt2" in text
    results = data["targets"]["cpu"]["results"]
    for wrong in (results[:-1], [results[0] | {"model_type": "another"}, *results[1:]], [*results, results[0]]):
        data["targets"]["cpu"]["results"] = wrong
        path.write_text(json.dumps(data))
        with pytest.raises(BrokenInput, match="its results don't match its types"):
            read_report(path)


def test_texts_fit_the_terminal_and_untrusted_words_stay_text(made):
    forms = (coverage_text, coverage_markdown, coverage_html, coverage_json)
    for form in forms:
        assert form(made) == form(made)
        assert not {"\x1b", "\u202e"} & set(form(made))
    assert "<script>alert" not in coverage_markdown(made) + coverage_html(made)
    row = next(line for line in coverage_markdown(made).splitlines() if line.startswith("| gpt2"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 5
    assert not re.search(r"(?<!\\)\[x\]", row)
    worst = dict.fromkeys(("passed", "failed", "crashed", "timeout", "out_of_memory", "not_run"), 499)
    wide = replace(made.coverage.targets[0], checks={"generates_like_reference": {**worst, "ambiguous": 1}})
    made = replace(made, coverage=replace(made.coverage, targets=(wide,)))
    assert max(map(len, coverage_text(made).splitlines())) <= 80
    name = "automatic-speech-recognition-with-a-long-name-" * 2
    table = Table(headings=("name", "number"), short=("name", "n"), rows=((name, "1"),))
    assert name not in text_document([table], 80)
    assert name in text_document([table], 200)


def test_counts_are_of_types_that_can_be_built_and_of_all(made):
    counts = CoverageCounts.of(made.coverage.targets[0].results)
    assert counts.share == "1 of the 6 types that can be built (16.7 %); of all 7 types, 14.3 %"
    assert counts.share in " ".join(coverage_text(made).split())
    shares = {(412, 456): 90.4, (412, 499): 82.6, (9998, 9999): 99.9, (1, 9999): 0.1, (0, 9): 0, (9, 9): 100}
    assert {share: percent(*share) for share in shares} == shares
    assert percent(0, 0) is None
