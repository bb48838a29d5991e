"""A report says the same of a folder whether DuckDB reduced it or every line became an object."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hardware.detection import detect
from hardware.evidence.compacted import compact
from hardware.evidence.history import LAST_RUNS
from hardware.evidence.latest import read_latest
from hardware.evidence.record import CheckLine, EndLine, Line, Outcome, PlannedCell, RunLine, to_dict
from hardware.evidence.store import read_folder
from reports import gathered
from reports.json_report import report_object
from reports.reporter import HardwareCompatibilityReporter

CELLS = ("bert/fill-mask/cpu/float32", "gpt2/text-generation/cuda/float16")
CHECKS = ("builds", "matches_reference")
HERE = detect()
END = EndLine(run_id="r01", ended_at="2026-01-01T01:00:00Z", reason="done", counts={})


def write(folder: Path, name: str, *lines: Line, rest: str = "") -> None:
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(to_dict(line)) + "\n" for line in lines)
    (folder / f"{name}-1.jsonl").write_text(text + rest, encoding="utf-8")


def run(number: int, **changes: object) -> RunLine:
    plan = tuple(
        PlannedCell(
            cell_id=cell,
            checks=CHECKS,
            suite="s.py",
            suite_hash="h",
            subject="tiny",
            verdict={"cell": cell, "level": "high", "basis": "predicted", "rule_ids": [f"rule.{number}"]},
        )
        for cell in CELLS
    )
    line = RunLine(
        run_id=f"r{number:02}",
        started_at=f"2026-01-{number:02}T00:00:00+00:00",
        command="",
        machine=f"lab-{number % 2}",
        inventory={"cpu": {"model": f"of run {number}"}},
        versions={"torch": f"2.{number}"},
        plan=plan,
    )
    return replace(line, **changes)


def check(number: int, cell: str, name: str, outcome: Outcome = Outcome.PASSED, **changes: object) -> CheckLine:
    model, task, target, precision = cell.split("/")
    line = CheckLine(
        run_id=f"r{number:02}",
        cell_id=cell,
        check_name=name,
        outcome=outcome,
        subject="tiny",
        requested_target=target,
        actual_target=target,
        precision=precision,
        model=model,
        task=task,
        suite_hash="h",
        started_at=f"2026-01-{number:02}T00:00:01+00:00",
        duration_s=0.1,
        error_type="numerical_mismatch" if outcome is Outcome.FAILED else "",
        error_message="off by far" if outcome is Outcome.FAILED else "",
        max_rel_error=float("nan") if outcome is Outcome.FAILED else 1e-6,
        tolerance=2e-5,
    )
    return replace(line, **changes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three runs: one that ended, one that the third resumes, and the third, which was killed within a line."""
    made = tmp_path / "evidence"
    for number in (1, 2):
        write(
            made,
            f"r{number:02}",
            run(number),
            *(check(number, cell, name) for cell in CELLS for name in CHECKS),
            *(
                [EndLine(run_id="r01", ended_at="2026-01-01T01:00:00Z", reason="done", counts={})]
                if number == 1
                else []
            ),
        )
    write(
        made,
        "r03",
        run(3, resumes=("r02",)),
        check(3, CELLS[0], "matches_reference", Outcome.FAILED),
        check(3, CELLS[0], "builds"),
        rest='{"kind": "check", "run',
    )
    return made


def said(source: object) -> dict[str, object]:
    reporter = HardwareCompatibilityReporter(source)  # type: ignore[arg-type]
    reporter.inventory = lambda: HERE  # type: ignore[method-assign]
    reporter.collect_compatibility_test_errors()
    found = report_object(reporter.report())
    for error in found["errors"]:  # what the evidence itself shows is told at the moment of asking
        error["timestamp"] = ""
    return {**found, "timestamp": "", "history": reporter.report().history, "sealed": reporter.gathered.sealed}


@pytest.mark.parametrize("compacted", [False, True])
def test_a_report_says_the_same_both_ways(folder: Path, compacted: bool):
    if compacted:
        assert compact(folder).files == 2
    wanted, found = said(read_folder(folder)), said(read_latest(folder))
    assert found == wanted
    types = sorted(error["error_type"] for error in found["errors"])  # type: ignore[attr-defined]
    assert types == ["broken_evidence", "interrupted", "numerical_mismatch"]
    assert found["sealed"][CELLS[0]]["rule_ids"] == ["rule.3"]  # type: ignore[index]


def test_without_duckdb_a_folder_is_read_line_by_line(folder: Path, monkeypatch: pytest.MonkeyPatch):
    wanted = said(read_latest(folder))
    monkeypatch.setattr(gathered, "is_installed", lambda name: name != "duckdb")
    monkeypatch.setattr(gathered, "EvidenceTable", None)
    assert said(read_latest(folder)) == wanted


def test_no_line_becomes_an_object_but_those_that_speak(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gathered, "read_folder", None)  # would be called where the tables weren't believed
    (folder / "r03-1.jsonl").unlink()
    found = read_latest(folder)
    assert {line.run_id for line in found.checks} == {"r02", "r01"}
    assert found.unfinished == ("r02",)
    assert [one.machine for one in found.machines] == ["lab-0", "lab-1"]


def test_the_history_keeps_the_last_runs_of_a_cell_and_counts_all(tmp_path: Path):
    for number in range(1, LAST_RUNS + 3):
        outcome = Outcome.FAILED if number % 2 else Outcome.PASSED
        write(tmp_path / "e", f"r{number:02}", run(number), check(number, CELLS[0], "builds", outcome))
    found, wanted = read_latest(tmp_path / "e").history, read_latest(read_folder(tmp_path / "e")).history
    assert found == wanted
    past = found.cells[CELLS[0]]
    assert [found.runs[place].run_id for place, _ in past] == [f"r{n:02}" for n in range(3, LAST_RUNS + 3)]
    assert [dict(outcomes) for _, outcomes in past[:2]] == [{"failed": 1}, {"passed": 1}]
    assert sum(sum(one.outcomes.values()) for one in found.runs) == LAST_RUNS + 2
    assert found.runs[0].versions == {"torch": "2.1"}


def test_checks_without_a_run_line_have_a_place_in_the_history(tmp_path: Path):
    write(tmp_path / "e", "r05", check(5, CELLS[0], "builds"))
    found = read_latest(tmp_path / "e")
    assert found.history == read_latest(read_folder(tmp_path / "e")).history
    assert [(one.run_id, one.machine, dict(one.outcomes)) for one in found.history.runs] == [
        ("r05", "", {"passed": 1})
    ]


@pytest.mark.parametrize(
    "changes",
    [{"versions": "torch 2"}, {"plan": [{"cell_id": CELLS[0], "checks": [1]}]}, {"inventory": []}, {"command": 1}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_run_whose_line_cant_be_read_is_told_as_broken_both_ways(folder: Path, changes: dict[str, object]):
    path = folder / "r02-1.jsonl"  # whole but for its first line, as tables have it
    first, *rest = path.read_text(encoding="utf-8").split("\n")
    path.write_text("\n".join([json.dumps({**json.loads(first), **changes}), *rest]), encoding="utf-8")
    wanted, found = said(read_folder(folder)), said(read_latest(folder))
    assert found == wanted
    assert "broken_evidence" in {error["error_type"] for error in found["errors"]}  # type: ignore[attr-defined]


def test_a_run_that_ended_did_end_whatever_else_its_file_holds(folder: Path):
    path = folder / "r01-1.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + '{"kind": "something new"}\n', encoding="utf-8")
    found, wanted = read_latest(folder), read_latest(read_folder(folder))
    assert found.unfinished == wanted.unfinished == ("r03",)
