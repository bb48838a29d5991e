"""CTRF: what is written is read back by the importer, and only what counts is a pass."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from judged_cells import line

from hardware.evidence.importers.ctrf_json import IMPORTER
from hardware.evidence.record import EDITED, Outcome
from reports.formats import report_text
from reports.report import Report


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
