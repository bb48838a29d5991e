"""Lines that contradict their run, their file or themselves are reported; they make no pass and hide no failure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from current_runs import inventory
from evidence_lines import write_lines
from made_runs import BERT, GPT2, a_run, lines_of

from generators.compatibility.grade import grade
from generators.compatibility.judge import judge
from generators.compatibility.verdict import Level
from hardware.cell import Cell
from hardware.evidence.damage import contradiction
from hardware.evidence.latest import Latest, read_latest
from hardware.evidence.record import Origin, Outcome, Stage
from hardware.evidence.store import read_folder

OLDER, NEWER, OTHER = "20260101T000000Z-aaaaaa", "20260102T000000Z-bbbbbb", "20260103T000000Z-cccccc"
FAILED, DAMAGED = "unsupported", "evidence_damaged"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that passed, and a later one that failed."""
    for run_id, day, broken in ((OLDER, 1, ()), (NEWER, 2, ("matches_reference",))):
        run = a_run(run_id, day)
        write_lines(tmp_path / f"{run_id}-1.jsonl", run)
        write_lines(tmp_path / f"{run_id}-2.jsonl", *lines_of(run, broken))
    return tmp_path


def level(latest: Latest, cell: str = BERT) -> str:
    """The level of a cell, or the code of the reason why it is unknown."""
    (verdict,) = judge(latest, inventory(), cells=[cell])
    return verdict.reasons[0].code if verdict.level is Level.UNKNOWN else str(verdict.level)


def test_a_second_run_line_takes_over_no_versions(tmp_path):
    run = a_run(OLDER, 1)
    write_lines(tmp_path / f"{OLDER}-1.jsonl", run, *lines_of(run))
    write_lines(tmp_path / f"{OLDER}-99999.jsonl", a_run(OLDER, 1, versions={"torch": "99"}))
    found = read_latest(tmp_path)
    assert (found.checks, found.versions, found.damaged) == ((), {}, {BERT: (OLDER,)})
    assert any("several run lines" in line.reason for line in found.broken)
    assert level(found) == DAMAGED


def test_no_false_run_line_takes_a_failure_away(tmp_path):
    cells = [f"{model}/fill-mask/cpu/float32" for model in ("albert", "bert", "electra", "esm")]
    changes = (
        ("99999", {"origin": Origin.CHANGED}),
        ("2", {"origin": Origin.CHANGED}),  # in the place of the true one
        ("99999", {"started_at": "2010-01-01T00:00:00+00:00"}),
        ("99999", {"started_at": "2999-01-01T00:00:00+00:00"}),
    )
    for number, (cell, (place, change)) in enumerate(zip(cells, changes, strict=True)):
        older, newer = (a_run(f"2026010{day}T000000Z-aaaaa{number}", day, cell) for day in (1, 2))
        for run, broken in ((older, ()), (newer, ("matches_reference",))):
            write_lines(tmp_path / f"{run.run_id}-1.jsonl", *lines_of(run, broken))
            write_lines(tmp_path / f"{run.run_id}-2.jsonl", run)
        write_lines(tmp_path / f"{newer.run_id}-{place}.jsonl", replace(newer, **change))
    found = read_latest(tmp_path)
    assert {cell: level(found, cell) for cell in cells} == dict.fromkeys(cells, DAMAGED)


def test_several_lines_of_a_run_that_agree_are_one(folder):
    write_lines(folder / f"{NEWER}-99999.jsonl", a_run(NEWER, 2))
    write_lines(folder / f"{NEWER}-99998.jsonl", a_run(NEWER, 2, GPT2))  # as kept evidence has it: a part of the plan
    found = read_latest(folder)
    assert (found.damaged, found.broken) == ({}, ())
    assert found.cells == {BERT, GPT2}
    assert level(found) == FAILED


def test_a_line_in_the_file_of_another_run_says_nothing_about_a_run(folder):
    (one, *_) = lines_of(a_run(NEWER, 2))
    origins = (Origin.CHANGED, Origin.IMPORTED, Origin.HWCOMPAT)
    strange = [replace(one, check_name="x", origin=origin) for origin in origins]
    names = (f"{OTHER}-1.jsonl", "more.jsonl")  # a file of another run, and one of another name
    for name in names:
        write_lines(folder / name, *strange)
    found = read_latest(folder)
    assert {(line.file, line.number) for line in found.broken} == {(name, n) for name in names for n in (1, 2, 3)}
    assert level(found) == FAILED
    assert "x" not in {line.check_name for line in (*found.checks, *found.imported, *found.others.other_checks)}


def test_a_file_of_any_name_may_hold_whole_runs(tmp_path):
    for name, run in (("cpu.jsonl", a_run(NEWER, 2)), (f"{OTHER}-1 (1).jsonl", a_run(OTHER, 3))):
        write_lines(tmp_path / name, run, *lines_of(run))  # the second as a browser names it
    found = read_latest(tmp_path)
    assert found.broken == ()
    assert {line.run_id for line in found.checks} == {OTHER}


def test_a_line_of_another_origin_than_its_run_is_broken_and_hides_no_failure(folder):
    (failing,) = [one for one in lines_of(a_run(NEWER, 2), ("matches_reference",)) if one.outcome is Outcome.FAILED]
    others = [line for line in lines_of(a_run(NEWER, 2)) if line.check_name != "matches_reference"]
    write_lines(folder / f"{NEWER}-2.jsonl", *others, replace(failing, origin=Origin.CHANGED))
    found = read_latest(folder)
    assert level(found) == DAMAGED
    assert [line.number for line in found.broken] == [4]
    assert {line.run_id for line in found.checks} >= {NEWER}, "the other lines of the run count"


def test_the_id_of_no_cell_is_broken_evidence(folder):
    ids = ("bert/fill-mask/cpu:0/float32", "bert/fill-mask/cpu/float32/", "no cell")
    run = a_run(OTHER, 3)
    plan = tuple(replace(run.plan[0], cell_id=id_) for id_ in ids)
    lines = [replace(line, cell_id=id_) for id_ in ids for line in lines_of(run)]
    write_lines(folder / f"{OTHER}-1.jsonl", replace(run, plan=plan), *lines)
    found = read_latest(folder)
    assert {line.reason for line in found.broken} == {f"'{id_}' is not the id of a cell" for id_ in ids}
    assert found.cells == {BERT}
    assert level(found) == FAILED


CONTRADICTIONS = {
    "albert": {"max_rel_error": -1.0},
    "bert": {"outcome": Outcome.PASSED, "error_type": "AssertionError"},
    "convbert": {"outcome": Outcome.PASSED, "stage": Stage.COMPARE},
    "deberta": {"outcome": Outcome.PASSED, "traceback": "Traceback"},
    "distilbert": {"native_ops": {"aten.mm": 0}},
    "electra": {"precision": "float16"},
    "ernie": {"model": "gpt2"},
    "esm": {"task": "text-generation"},
    "funnel": {"requested_target": "cuda"},
    "ibert": {"requested_target": "-"},
    "luke": {"subject": "checkpoint"},
    "mpnet": {"started_at": "2026-01-01T23:59:59+00:00"},
    "rembert": {"started_at": "2010-01-01T00:00:00+00:00"},
}
"""What contradicts the rest of a line or its run, each in a cell of its own."""


def test_a_line_that_contradicts_something_is_broken_and_revives_no_older_pass(tmp_path):
    cells = {f"{model}/fill-mask/cpu/float32": changes for model, changes in CONTRADICTIONS.items()}
    older, newer, later = (a_run(name, day, *cells) for name, day in ((OLDER, 1), (NEWER, 2), (OTHER, 3)))
    lines = lines_of(newer, ("matches_reference",))
    wrong = [n for n, line in enumerate(lines) if line.check_name == "matches_reference"]
    for number in wrong:
        lines[number] = replace(lines[number], **cells[lines[number].cell_id])
        assert contradiction(lines[number], weights=["tiny"], run_started_at=newer.started_at), lines[number]
    write_lines(tmp_path / f"{OLDER}-1.jsonl", older, *lines_of(older))
    write_lines(tmp_path / f"{NEWER}-1.jsonl", newer, *lines)
    found, of_objects = read_latest(tmp_path), read_latest(read_folder(tmp_path))
    assert {line.reason.partition(" ")[0].rstrip(":") for line in found.broken} == {
        lines[number].evidence_id for number in wrong
    }
    assert {cell: level(found, cell) for cell in cells} == dict.fromkeys(cells, DAMAGED)
    assert (found.checks, found.damaged, found.cells) == (of_objects.checks, of_objects.damaged, of_objects.cells)
    assert {line.reason for line in found.broken} == {line.reason for line in of_objects.broken}
    write_lines(tmp_path / f"{OTHER}-1.jsonl", later, *lines_of(later))
    assert read_latest(tmp_path).damaged == {}, "a later whole run settles it"
    on_a_device = replace(lines_of(a_run(NEWER, 2, "bert/fill-mask/cuda/float32"))[0], requested_target="cuda:1")
    assert contradiction(on_a_device) == ""


def test_all_of_many_contradicting_runs_are_damaged(tmp_path):
    for day in range(1, 15):
        run = a_run(f"202601{day:02}T000000Z-aaaaaa", day)
        lines = lines_of(run, max_rel_error=-1.0 if day > 1 else 1e-6)
        write_lines(tmp_path / f"{run.run_id}-1.jsonl", run, *lines)
    found = read_latest(tmp_path)
    assert len(found.damaged[BERT]) == 13
    assert level(found) == DAMAGED


def test_a_grade_needs_an_error_and_operators():
    lines = lines_of(a_run(NEWER, 2))
    for changes, wanted in (
        ({}, Level.HIGH),
        ({"max_rel_error": -1.0}, Level.UNKNOWN),
        ({"native_ops": {"aten.mm": 0}}, Level.UNKNOWN),
    ):
        changed = [
            replace(line, **changes) if line.check_name in ("matches_reference", "runs_natively") else line
            for line in lines
        ]
        assert grade(Cell.parse(BERT), [line.check_name for line in lines], changed).level is wanted, changes
