"""Formats that are read elsewhere: a badge, a section of a model card, records of PyTorch's benchmark database.

CTRF: what is written is read back by the importer, and only what counts is a pass.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from judged_cells import line

from generators.compatibility.verdict import Basis, Level, Verdict
from hardware.evidence.importers.ctrf_json import IMPORTER
from hardware.evidence.record import EDITED, Outcome
from reports.cell_report import CellReport
from reports.formats import report_text
from reports.report import Report


def report(*levels: Level) -> Report:
    cells = []
    for number, level in enumerate(levels):
        name = f"bert{number}/fill-mask/cpu/float32"
        one = replace(line("matches_reference", Outcome.PASSED), cell_id=name, max_rel_error=1e-6, latency_ms=2.5)
        verdict = Verdict(cell=name, level=level, basis=Basis.MEASURED, evidence_ids=("run/cell",))
        cells.append(CellReport(verdict=verdict, lines=(one,)))
    return Report(timestamp="2026-01-01T00:00:00+00:00", findings=(), cells=tuple(cells))


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ((), "nothing measured"),
        ((Level.HIGH, Level.MEDIUM), "2 of 2 cells work"),
        ((Level.HIGH, Level.UNSUPPORTED, Level.LOW), "1 of 3 cells work"),
        ((Level.HIGH, Level.UNKNOWN), "1 of 2 cells work, 1 unknown"),
    ],
)
def test_a_badge_says_how_many_cells_work_and_its_color_is_green_only_if_all_do(
    levels: tuple[Level, ...], said: str
) -> None:
    text = report_text(report(*levels), "badge")
    root = ElementTree.fromstring(text)
    assert root.attrib["aria-label"] == f"hwcompat: {said}"
    assert ("#116329" in text) == (bool(levels) and all(one in (Level.HIGH, Level.MEDIUM) for one in levels))


def test_what_was_measured_with_other_versions_is_no_result_here() -> None:
    (cell,) = report(Level.HIGH).cells
    old = replace(report(), cells=(replace(cell, verdict=replace(cell.verdict, basis=Basis.EXPIRED)),))
    assert "0 of 1 cells work, 1 unknown" in report_text(old, "badge")
    assert report_text(old, "card") == "Nothing was measured.\n"
    assert json.loads(report_text(old, "benchmark")) == []


def test_a_model_card_lists_measured_cells_alone_and_names_of_devices_are_text() -> None:
    measured = report(Level.HIGH, Level.UNKNOWN, Level.UNSUPPORTED)
    (first, *others) = measured.cells
    named = replace(first, lines=(replace(first.lines[0], accelerator="a|b<i>"),))
    text = report_text(replace(measured, cells=(named, *others)), "card")
    assert text.count("## Tested devices") == 2
    assert "| yes |" in text
    assert "| no |" in text
    assert "a|b" not in text
    assert "<i>" not in text
    assert report_text(report(Level.UNKNOWN), "card") == "Nothing was measured.\n"


def test_records_name_model_device_and_metric_and_an_unknown_cell_has_none() -> None:
    records = json.loads(report_text(report(Level.HIGH, Level.UNSUPPORTED, Level.UNKNOWN), "benchmark"))
    found = {(one["model"]["name"], one["metric"]["name"]): one["metric"]["benchmark_values"] for one in records}
    assert found == {
        **{("bert0", "works"): [1.0], ("bert0", "max_rel_error"): [1e-6], ("bert0", "latency"): [2.5]},
        **{("bert1", "works"): [0.0], ("bert1", "max_rel_error"): [1e-6], ("bert1", "latency"): [2.5]},
    }
    assert {one["benchmark"]["dtype"] for one in records} == {"float32"}
    assert {one["model"]["backend"] for one in records} == {"cpu"}


def test_each_check_is_a_span_of_its_cell_and_only_a_pass_passes() -> None:
    lines = (
        line("matches_reference", Outcome.PASSED),
        line("backward", Outcome.FAILED),
        line("honours_mask", Outcome.PASSED_ON_FALLBACK),
    )
    text = report_text(Report(timestamp="2026-01-01T00:00:00+00:00", findings=(), checks=lines), "otlp")
    (scope,) = json.loads(text)["resourceSpans"][0]["scopeSpans"]
    suite, *checks = scope["spans"]
    assert [one["name"] for one in checks] == ["matches_reference", "backward", "honours_mask"]
    assert {one["parentSpanId"] for one in checks} == {suite["spanId"]}
    assert len({one["spanId"] for one in scope["spans"]}) == 4
    assert all(len(one["spanId"]) == 16 and len(one["traceId"]) == 32 for one in scope["spans"])
    assert all(int(one["endTimeUnixNano"]) >= int(one["startTimeUnixNano"]) > 0 for one in scope["spans"])
    results = [
        {one["key"]: one["value"]["stringValue"] for one in check["attributes"]}.get("test.case.result.status")
        for check in checks
    ]
    assert results == ["pass", "fail", None]
    assert [one["status"].get("code") for one in (suite, *checks)] == [2, 1, 2, None]


def test_a_ctrf_report_is_read_back(tmp_path: Path) -> None:
    lines = [
        line("matches_reference", Outcome.PASSED),
        line("backward", Outcome.FAILED),
        line("cache_matches", Outcome.SKIPPED),
        line("honours_mask", Outcome.PASSED_ON_FALLBACK),
        replace(line("builds", Outcome.PASSED), conditions={EDITED: "yes"}),
    ]
    report = Report(timestamp="2026-01-01T00:00:00+00:00", findings=(), checks=tuple(lines))
    (tmp_path / "report.json").write_text(report_text(report, "ctrf"), encoding="utf-8")
    rows = list(IMPORTER.rows(tmp_path))
    assert [row.outcome for row in rows] == ["pass", "fail", "skip", "untested", "untested"]
    model, _, target, precision = lines[0].cell_id.split("/")
    assert {(row.model, row.target, row.precision) for row in rows} == {(model, target, precision)}
    results = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["results"]
    summary = results["summary"]
    assert {name: summary[name] for name in ("tests", "passed", "failed", "skipped", "pending", "other")} == {
        **{"tests": 5, "passed": 1, "failed": 1, "skipped": 1},
        **{"pending": 0, "other": 2},
    }
    assert all(isinstance(test["duration"], int) and test["stop"] >= test["start"] for test in results["tests"])
    assert summary["start"] <= summary["stop"]
