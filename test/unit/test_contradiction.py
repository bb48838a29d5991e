"""Lines that contradict their run, their file or themselves: reported, and never a pass nor the end of a failure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import BERT, a_run, lines_of

from benchmarks.calibration import kept_places
from generators.compatibility.grade import grade
from generators.compatibility.judge import judge
from generators.compatibility.verdict import Level
from hardware.cell import Cell
from hardware.detection import detect
from hardware.evidence.compacted import compact
from hardware.evidence.damage import contradiction
from hardware.evidence.kept_evidence import read_kept
from hardware.evidence.latest import Latest, read_latest
from hardware.evidence.record import CheckLine, Line, Origin, Outcome, RunLine, Stage, to_dict
from hardware.evidence.store import read_folder

OLDER, NEWER, OTHER = "20260101T000000Z-aaaaaa", "20260102T000000Z-bbbbbb", "20260103T000000Z-cccccc"


def put(folder: Path, name: str, *lines: Line) -> None:
    (folder / name).write_text("".join(json.dumps(to_dict(line)) + "\n" for line in lines), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that passed, and a later one that failed."""
    for run_id, day, broken in ((OLDER, 1, ()), (NEWER, 2, ("matches_reference",))):
        run = a_run(run_id, day)
        put(tmp_path, f"{run_id}-1.jsonl", run)
        put(tmp_path, f"{run_id}-2.jsonl", *lines_of(run, broken))
    return tmp_path


def latest_of(folder: Path) -> Latest:
    """The latest results, which are the same however they are read."""
    found = read_latest(folder)
    objects = read_latest(read_folder(folder))
    assert (found.checks, found.damaged, found.cells) == (objects.checks, objects.damaged, objects.cells)
    assert {line.reason for line in found.broken} == {line.reason for line in objects.broken}
    return found


def level(latest: Latest) -> str:
    (verdict,) = judge(latest, detect(), cells=[BERT])
    return verdict.reasons[0].code if verdict.level is Level.UNKNOWN else str(verdict.level)


def test_a_second_run_line_takes_over_no_versions(folder):
    (folder / f"{NEWER}-1.jsonl").unlink()
    (folder / f"{NEWER}-2.jsonl").unlink()
    false = a_run(OLDER, 1, versions={"torch": "99"})
    put(folder, f"{OLDER}-99999.jsonl", false)
    found = latest_of(folder)
    assert found.checks == ()
    assert found.versions == {}
    assert found.damaged == {BERT: (OLDER,)}
    assert any("several run lines" in line.reason for line in found.broken)
    assert level(found) == "evidence_damaged"


def test_a_second_run_line_takes_no_failure_away(folder):
    put(folder, f"{NEWER}-99999.jsonl", replace(a_run(NEWER, 2), origin=Origin.CHANGED))
    assert level(latest_of(folder)) == "evidence_damaged"


def test_a_false_run_line_in_the_place_of_the_own_one_takes_no_failure_away(folder):
    put(folder, f"{NEWER}-1.jsonl", replace(a_run(NEWER, 2), origin=Origin.CHANGED))
    assert level(latest_of(folder)) == "evidence_damaged"


def test_a_second_run_line_of_another_day_takes_no_failure_away(folder):
    for day in ("2010-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00"):
        put(folder, f"{NEWER}-99999.jsonl", replace(a_run(NEWER, 2), started_at=day))
        assert level(read_latest(folder)) == "evidence_damaged"


def test_several_lines_of_a_run_that_agree_are_one(folder):
    put(folder, f"{NEWER}-99999.jsonl", a_run(NEWER, 2))
    other = a_run(NEWER, 2, "gpt2/text-generation/cpu/float32")
    put(folder, f"{NEWER}-99998.jsonl", other)  # as kept evidence has it: each with its part of the plan
    found = latest_of(folder)
    assert (found.damaged, found.broken) == ({}, ())
    assert found.cells == {BERT, other.plan[0].cell_id}
    assert level(found) == "unsupported"


FOREIGN = {
    "a file of another run": f"{OTHER}-1.jsonl",
    "a file of another name": "more.jsonl",
}


@pytest.mark.parametrize("name", FOREIGN.values(), ids=FOREIGN.keys())
@pytest.mark.parametrize("origin", [Origin.CHANGED, Origin.IMPORTED, Origin.HWCOMPAT])
@pytest.mark.parametrize("packed", [False, True], ids=["", "packed"])
def test_a_line_in_another_runs_file_says_nothing_of_a_run(folder: Path, name: str, origin: Origin, packed: bool):
    put(folder, name, replace(lines_of(a_run(NEWER, 2))[0], check_name="x", origin=origin))
    if packed:
        later = a_run(OTHER, 3, "gpt2/text-generation/cpu/float32", resumes=(OLDER, NEWER))
        put(folder, f"{OTHER}-2.jsonl", later)
        compact(folder)
    found = latest_of(folder)
    assert [(line.file, line.number) for line in found.broken] == [(name, 1)]
    assert level(found) == "unsupported"
    assert "x" not in {line.check_name for line in (*found.checks, *found.imported, *found.others.other_checks)}


def test_a_file_of_any_name_may_hold_whole_runs(tmp_path):
    run = a_run(NEWER, 2)
    put(tmp_path, "cpu.jsonl", run, *lines_of(run))
    put(tmp_path, f"{OTHER}-1 (1).jsonl", a_run(OTHER, 3), *lines_of(a_run(OTHER, 3)))  # as a browser names it
    found = latest_of(tmp_path)
    assert found.broken == ()
    assert {line.run_id for line in found.checks} == {OTHER}


def test_a_line_of_another_origin_than_its_run_is_broken_and_hides_no_failure(folder):
    failing = [line for line in lines_of(a_run(NEWER, 2), ("matches_reference",)) if line.outcome is Outcome.FAILED]
    others = [line for line in lines_of(a_run(NEWER, 2)) if line.check_name != "matches_reference"]
    put(folder, f"{NEWER}-2.jsonl", *others, replace(failing[0], origin=Origin.CHANGED))
    found = latest_of(folder)
    assert level(found) == "evidence_damaged"
    assert [line.number for line in found.broken] == [4]
    assert {line.run_id for line in found.checks} >= {NEWER}, "the other lines of the run count"


@pytest.mark.parametrize("cell_id", ["bert/fill-mask/cpu:0/float32", "bert/fill-mask/cpu/float32/", "no cell"])
def test_the_id_of_no_cell_is_broken_evidence(folder: Path, cell_id: str):
    run = a_run(OTHER, 3)
    put(folder, f"{OTHER}-1.jsonl", replace(run, plan=(replace(run.plan[0], cell_id=cell_id),)))
    put(folder, f"{OTHER}-2.jsonl", *(replace(line, cell_id=cell_id) for line in lines_of(run)))
    found = latest_of(folder)
    assert [line.reason for line in found.broken] == [f"'{cell_id}' is not the id of a cell"]
    assert found.cells == {BERT}
    assert level(found) == "unsupported"


CONTRADICTIONS: dict[str, dict[str, object]] = {
    "a negative error": {"max_rel_error": -1.0},
    "a pass with an error type": {"outcome": Outcome.PASSED, "error_type": "AssertionError"},
    "a pass that stopped": {"outcome": Outcome.PASSED, "stage": Stage.COMPARE},
    "a pass with a traceback": {"outcome": Outcome.PASSED, "traceback": "Traceback"},
    "operators that never ran": {"native_ops": {"aten.mm": 0}},
    "another precision": {"precision": "float16"},
    "another model": {"model": "gpt2"},
    "another task": {"task": "text-generation"},
    "another target": {"requested_target": "cuda"},
    "no target": {"requested_target": "-"},
    "other weights": {"subject": "checkpoint"},
    "a date before its run": {"started_at": "2026-01-01T23:59:59+00:00"},
    "a date before all runs": {"started_at": "2010-01-01T00:00:00+00:00"},
}


@pytest.mark.parametrize("changes", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_a_line_that_contradicts_something_is_broken_and_lets_no_older_pass_shine(
    folder: Path, changes: dict[str, object]
):
    run = a_run(NEWER, 2)
    lines = lines_of(run, ("matches_reference",))
    lines[1] = replace(lines[1], **changes)
    assert contradiction(lines[1], weights=["tiny"], run_started_at=run.started_at)
    put(folder, f"{NEWER}-2.jsonl", *lines)
    found = latest_of(folder)
    (broken,) = found.broken
    assert broken.reason.startswith(lines[1].evidence_id)
    assert level(found) == "evidence_damaged"
    later = a_run(OTHER, 3)
    put(folder, f"{OTHER}-1.jsonl", later, *lines_of(later))
    assert read_latest(folder).damaged == {}, "a later whole run settles it"


def test_contradictions_that_lie_below_each_other_all_go(tmp_path):
    for day in range(1, 15):
        run = a_run(f"202601{day:02}T000000Z-aaaaaa", day)
        put(tmp_path, f"{run.run_id}-1.jsonl", run, *lines_of(run, max_rel_error=-1.0 if day > 1 else 1e-6))
    found = latest_of(tmp_path)
    assert len(found.damaged[BERT]) == 13
    assert level(found) == "evidence_damaged"


def test_the_target_of_a_line_may_name_the_device():
    line = replace(lines_of(a_run(NEWER, 2, "bert/fill-mask/cuda/float32"))[0], requested_target="cuda:1")
    assert contradiction(line) == ""


def test_nothing_that_is_kept_contradicts_itself():
    for place in kept_places():
        lines = read_kept(place)
        runs = {line.run_id: line for line in lines if isinstance(line, RunLine)}
        weights = {(run.run_id, one.cell_id): [one.subject] for run in runs.values() for one in run.plan}
        for line in lines:
            if isinstance(line, CheckLine):
                planned = weights.get((line.run_id, line.cell_id), ())
                assert contradiction(line, weights=planned, run_started_at=runs[line.run_id].started_at) == ""


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [({}, Level.HIGH), ({"max_rel_error": -1.0}, Level.UNKNOWN), ({"native_ops": {"aten.mm": 0}}, Level.UNKNOWN)],
    ids=["as it is", "a negative error", "operators that never ran"],
)
def test_a_grade_asks_for_an_error_and_for_operators(changes: dict[str, object], wanted: Level):
    lines = lines_of(a_run(NEWER, 2))
    shown = [
        replace(line, **changes) if line.check_name in ("matches_reference", "runs_natively") else line
        for line in lines
    ]
    assert grade(Cell.parse(BERT), [line.check_name for line in lines], shown).level is wanted
