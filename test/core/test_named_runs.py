"""The runs that a word of `--compare` names, and the side that they make."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_runs import BERT, GPT2, a_run, write

from hardware.errors import NothingMatched, UsageError
from hardware.evidence.runs import RunEvidence
from reports.compare_command import named_runs, run_before, side_of
from reports.comparison.cell_changes import since_green

BROKEN = ("matches_reference", "backward")
GREEN, RED = "20260101T000000Z-aaaaaa", "20260102T000000Z-bbbbbb"


@pytest.fixture
def folder(tmp_path):
    """A green run, and a broken one with another torch."""
    write(tmp_path, a_run(GREEN, 1, BERT, GPT2))
    write(tmp_path, a_run(RED, 2, BERT, GPT2, versions={"torch": "2.14.0"}), BROKEN)
    return tmp_path


def test_a_run_is_named_by_its_id_its_beginning_or_its_machine(folder):
    with RunEvidence(folder) as evidence:
        found = {
            word: named_runs(word, evidence) for word in (RED, "20260102", "20260101t000000z-A", "latest", "desk")
        }
        assert {word: [run.run_id for run in side.runs] for word, side in found.items()} == {
            RED: [RED],
            "20260102": [RED],
            "20260101t000000z-A": [GREEN],
            "latest": [RED],
            "desk": [RED, GREEN],
        }
        with pytest.raises(UsageError, match="is ambiguous: it matches 2"):
            named_runs("2026", evidence)
        assert [named_runs(word, evidence) for word in ("dsk", "20", "20260103", "")] == [None] * 4


def test_a_run_includes_what_it_resumed_and_latest_is_none_that_is_dated_ahead(folder):
    write(folder, a_run("r3", 3, BERT, resumes=(RED,)))
    write(folder, replace(a_run("r4", 4), started_at="2999-01-01T00:00:00+00:00"))
    with RunEvidence(folder) as evidence:
        latest = named_runs("latest", evidence)
        assert [run.run_id for run in latest.runs] == ["r3", RED]
        states = {cell: (one.run.run_id, one.state) for cell, one in side_of(latest, evidence).showings.items()}
        assert states == {BERT: ("r3", "green"), GPT2: (RED, "failed")}
        assert run_before(latest, evidence).runs[0].run_id == GREEN  # what it resumed is no run before it
        with pytest.raises(NothingMatched):
            run_before(named_runs(GREEN, evidence), evidence)


def test_a_machine_has_the_newest_run_of_each_cell_that_was_not_cut_off(folder):
    cut = a_run("r3", 3, BERT, machine="desk")
    write(folder, cut, ended=False)
    lines = (folder / "r3-2.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "r3-2.jsonl").write_text(lines[0], encoding="utf-8")
    write(folder, a_run("r4", 4, BERT, machine="lab"))
    with RunEvidence(folder) as evidence:
        desk = side_of(named_runs("desk", evidence), evidence)
        assert desk.showings[BERT].run.run_id == RED
        alone = side_of(named_runs("r3", evidence), evidence)
        assert not alone.showings[BERT].is_whole
    write(folder, a_run("lab-of-one", 5))
    with RunEvidence(folder) as evidence, pytest.raises(UsageError, match="is ambiguous: it matches 2"):
        named_runs("lab", evidence)


def test_the_last_green_run_of_each_broken_cell_is_found(folder):
    with RunEvidence(folder) as evidence:
        red, green = (side_of(named_runs(run_id, evidence), evidence) for run_id in (RED, GREEN))
        found = since_green(red, evidence, "desk")
        assert {cell: [one.run.run_id for one in shown] for cell, shown in found.items()} == {
            BERT: [GREEN, RED],
            GPT2: [GREEN, RED],
        }
        assert since_green(green, evidence, "desk") == since_green(red, evidence, "another machine") == {}
