"""Reports of the latest results: the same from a folder, from Parquet and from memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from evidence_folders import a_check, a_run, append, write_killed_run, write_random_runs
from evidence_lines import BERT

from hardware.detection import detect
from hardware.evidence import latest
from hardware.evidence.compacted import compact
from hardware.evidence.evidence_table import EvidenceTable, UnusualEvidenceError
from hardware.evidence.latest import Latest, read_latest
from hardware.evidence.store import Evidence, read_folder
from reports.formats.json import report_object
from reports.reporter import HardwareCompatibilityReporter


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    write_killed_run(tmp_path / "evidence")
    return tmp_path / "evidence"


def reported(source: Evidence | Latest) -> dict[str, object]:
    """Return the report of some evidence as JSON, with the parts of it that only a page shows."""
    reporter = HardwareCompatibilityReporter(source, inventory=detect())
    reporter.collect_compatibility_test_errors()
    report = reporter.report()
    found = report_object(report)
    for error in found["errors"]:  # findings about the evidence itself are dated now
        error["timestamp"] = ""
    return {**found, "timestamp": "", "history": report.history, "predictions": reporter.latest.predictions}


def types_of(report: dict[str, object]) -> list[str]:
    return sorted(error["error_type"] for error in report["errors"])


def test_a_report_is_the_same_of_a_folder_and_of_its_evidence_in_memory(killed, monkeypatch) -> None:
    wanted = reported(read_folder(killed))
    assert types_of(wanted) == ["broken_evidence", "interrupted", "numerical_mismatch"]
    assert wanted["predictions"][BERT]["rule_ids"] == ["rule.3"]
    assert reported(read_latest(killed, details=True)) == wanted

    def of_objects_only(source: Path | Evidence, **how: object) -> EvidenceTable:
        if isinstance(source, Path):
            raise UnusualEvidenceError("as if")
        return EvidenceTable(source, **how)

    with monkeypatch.context() as patch:
        patch.setattr(latest, "EvidenceTable", of_objects_only)  # as if DuckDB couldn't read the folder
        assert reported(read_latest(killed, details=True)) == wanted
    assert compact(killed).files == 2
    assert reported(read_latest(killed, details=True)) == reported(read_folder(killed))
    assert types_of(reported(read_folder(killed))) == types_of(wanted)


def test_a_run_whose_line_cant_be_read_is_reported_as_broken(killed: Path) -> None:
    path = killed / "r2-1.jsonl"  # whole but for its first line, as tables have it
    first, *rest = path.read_text(encoding="utf-8").split("\n")
    plan = [{"cell_id": BERT, "checks": [1]}]
    for changes in ({"versions": "torch 2"}, {"plan": plan}, {"inventory": []}, {"command": 1}):
        path.write_text("\n".join([json.dumps({**json.loads(first), **changes}), *rest]), encoding="utf-8")
        found = read_latest(killed, details=True)
        wanted = read_latest(read_folder(killed), details=True)
        for name in ("checks", "broken", "unfinished", "runs", "plans"):
            assert repr(getattr(found, name)) == repr(getattr(wanted, name))  # NaN isn't equal to itself
        assert "r2-1.jsonl" in {line.file for line in found.broken}
    report = reported(found)
    assert "broken_evidence" in types_of(report)
    assert any("r2-1.jsonl" in error["message"] for error in report["errors"])


@pytest.mark.parametrize("seed", [1, 2])
def test_raw_and_compacted_lines_give_what_objects_give_of_other_runs(tmp_path: Path, seed: int) -> None:
    write_random_runs(tmp_path, seed)
    wanted = read_latest(read_folder(tmp_path))
    assert read_latest(tmp_path).checks == wanted.checks
    compact(tmp_path)
    assert read_latest(tmp_path).checks == read_latest(read_folder(tmp_path)).checks == wanted.checks


def test_lines_that_two_parsers_read_otherwise_are_read_one_by_one(tmp_path: Path) -> None:
    """JSON objects may name a field twice: one parser takes the first value, another one the last."""
    path = append(tmp_path, "r1", a_run("r1", BERT), a_check("r1"))
    run, check = path.read_text(encoding="utf-8").splitlines()
    for twice in ('"run_id": "r2"', '"cell_id": "x/y/cpu/float32"', '"check_name": "backward"', '"accelerator": "B"'):
        path.write_text(f"{run}\n{check[:-1]}, {twice}}}\n", encoding="utf-8")
        assert read_latest(tmp_path).checks == read_latest(read_folder(tmp_path)).checks, twice
