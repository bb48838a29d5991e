"""Lines that contradict their run, their file or themselves: reported, and never a pass nor the end of a failure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import BERT, a_run, lines_of

from generators.compatibility.judge import judge
from generators.compatibility.verdict import Level
from hardware.detection import detect
from hardware.evidence.compacted import compact
from hardware.evidence.latest import Latest, read_latest
from hardware.evidence.record import Line, Origin, Outcome, to_dict
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
