"""What is taken over from a run that was cut off, and every reason for which it isn't."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hardware.cell import Cell
from hardware.evidence.latest import read_latest
from hardware.evidence.modeling_files import modeling_fingerprint
from hardware.evidence.record import EDITED, CheckLine, EndLine, Outcome, PlannedCell, RunLine
from hardware.evidence.store import read_cells, read_folder
from hardware.evidence.writer import EvidenceWriter
from hardware.testing.pytest_environment import DEVICES_VARIABLE
from hardware.testing.resume import Resumable, close_run, find_resumable
from hardware.testing.suite_file import SuiteFile

CHECKS = ("builds", "matches_reference")
NOW = {"torch": "2.13.0", "transformers": "5.5.4", "hwcompat": "0.1.0", "openvino": "2026.2"}


def suite(model: str, target: str = "cpu") -> SuiteFile:
    cell = Cell.parse(f"{model}/fill-mask/{target}/float32")
    return SuiteFile(
        path=Path(f"{cell.slug}.py"), cell=cell, subject="tiny", checks=CHECKS, suite_hash=f"hash of {model}"
    )


BERT, GPT2, VIT = (suite(name) for name in ("bert", "gpt2", "vit"))
ALL = (BERT, GPT2, VIT)


def planned(one: SuiteFile) -> PlannedCell:
    return one.planned({"level": "high"})


def line(one: SuiteFile, run_id: str, check: str, outcome: Outcome = Outcome.PASSED) -> CheckLine:
    return CheckLine(
        run_id=run_id,
        cell_id=one.cell.id,
        check_name=check,
        outcome=outcome,
        subject="tiny",
        requested_target=str(one.cell.target),
        actual_target=str(one.cell.target),
        precision="float32",
        model=one.cell.model,
        task=one.cell.task,
        suite_hash=one.suite_hash,
        started_at="2026-01-01T00:00:01+00:00",
        duration_s=0.1,
    )


def run_line(run_id: str, *suites: SuiteFile) -> RunLine:
    return RunLine(
        run_id=run_id,
        started_at=f"2026-01-01T00:00:0{run_id[-1]}+00:00",
        command="",
        machine="here",
        inventory={},
        versions=NOW,
        plan=tuple(planned(one) for one in suites),
    )


class Folder:
    """A folder of evidence to be filled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, run: RunLine, *lines: CheckLine, ended: str = "") -> None:
        writer = EvidenceWriter(self.path, run.run_id)
        for one in (run, *lines):
            writer.write(one)
        if ended:
            writer.write(EndLine(run_id=run.run_id, ended_at="", reason=ended, counts={}))
        writer.close()

    def find(self, *suites: SuiteFile, versions: dict[str, str] = NOW, machine: str = "here") -> Resumable:
        return find_resumable(self.path, suites or ALL, versions, machine)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "evidence")


def whole(one: SuiteFile, run_id: str) -> list[CheckLine]:
    return [line(one, run_id, check) for check in CHECKS]


def test_what_is_complete_is_taken_over_and_the_rest_runs_whole(folder):
    folder.write(run_line("run-1", *ALL), *whole(BERT, "run-1"), line(GPT2, "run-1", "builds"))
    found = folder.find()
    assert found.run_ids == ("run-1",)
    assert found.done == {BERT.cell.id: "run-1"}
    assert "cut off before matches_reference" in found.again[GPT2.cell.id]
    assert "cut off before builds, matches_reference" in found.again[VIT.cell.id]
    notes = found.notes()
    assert notes[0] == "resuming run run-1: 1 cell(s) are done, 2 run"
    assert len(notes) == 3


def test_without_any_run_everything_runs_with_a_note(folder):
    assert folder.find() == Resumable()
    folder.path.mkdir()
    assert folder.find() == Resumable()
    assert "no run to resume" in folder.find().notes()[0]


def test_a_run_that_is_complete_leaves_nothing_to_resume(folder):
    folder.write(run_line("run-1", *ALL), *(x for one in ALL for x in whole(one, "run-1")), ended="finished")
    found = folder.find()
    assert set(found.done.values()) == {"run-1"}
    assert found.notes() == ("nothing to resume: run run-1 is complete",)


def test_a_failure_is_a_result_and_is_taken_over(folder):
    failed = line(BERT, "run-1", "matches_reference", Outcome.FAILED)
    folder.write(run_line("run-1", BERT), line(BERT, "run-1", "builds"), failed)
    assert folder.find(BERT).done == {BERT.cell.id: "run-1"}


def test_what_did_not_run_runs_again(folder):
    silent = line(BERT, "run-1", "matches_reference", Outcome.NOT_RUN)
    folder.write(run_line("run-1", BERT), line(BERT, "run-1", "builds"), silent, ended="interrupted")
    assert folder.find(BERT).again == {BERT.cell.id: "matches_reference did not run"}


def test_a_chain_of_runs_that_were_cut_off_is_one(folder):
    folder.write(run_line("run-1", *ALL), *whole(BERT, "run-1"))
    folder.write(replace(run_line("run-2", GPT2, VIT), resumes=("run-1",)), *whole(GPT2, "run-2"))
    found = folder.find()
    assert found.run_ids == ("run-2", "run-1")
    assert found.done == {BERT.cell.id: "run-1", GPT2.cell.id: "run-2"}
    assert list(found.again) == [VIT.cell.id]


def test_an_older_run_that_was_not_resumed_is_not_reached_for(folder):
    folder.write(run_line("run-1", *ALL), *whole(BERT, "run-1"))
    folder.write(run_line("run-2", GPT2), *whole(GPT2, "run-2"))
    assert folder.find().done == {GPT2.cell.id: "run-2"}
    assert folder.find().again[BERT.cell.id] == "it was not planned there"


def test_a_newer_run_of_other_cells_is_not_gone_on_with(folder):
    folder.write(run_line("run-1", BERT, GPT2), *whole(BERT, "run-1"))
    folder.write(run_line("run-2", VIT), *whole(VIT, "run-2"), ended="finished")
    found = folder.find(BERT, GPT2)
    assert found.run_ids == ("run-1",)
    assert found.done == {BERT.cell.id: "run-1"}


def test_a_run_of_another_machine_is_not_gone_on_with(folder):
    folder.write(run_line("run-1", *ALL), *whole(BERT, "run-1"))
    folder.write(replace(run_line("run-2", *ALL), machine="elsewhere"), *whole(GPT2, "run-2"))
    assert folder.find().run_ids == ("run-1",)
    assert folder.find(machine="third").again[GPT2.cell.id] == "it ran on another machine"


def test_plain_pytest_beside_a_run_is_no_run_to_resume(folder):
    folder.write(run_line("run-1", *ALL), *whole(BERT, "run-1"))
    folder.write(replace(run_line("run-2", GPT2), isolation="none: a crash ends it"), *whole(GPT2, "run-2"))
    assert folder.find().run_ids == ("run-1",)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"suite_hash": "other"}, "its suite is another one now"),
        ({"edited": True}, "edited by hand"),
    ],
)
def test_another_suite_runs_again(folder, changed, words):
    folder.write(run_line("run-1", BERT), *whole(BERT, "run-1"))
    assert words in folder.find(replace(BERT, **changed)).again[BERT.cell.id]


def test_lines_of_a_suite_that_was_edited_are_not_taken_over(folder):
    lines = [replace(one, conditions={EDITED: "by hand"}) for one in whole(BERT, "run-1")]
    folder.write(run_line("run-1", BERT), *lines)
    assert "edited by hand" in folder.find(BERT).again[BERT.cell.id]


def test_other_modeling_files_run_again(folder):
    for modeling, again in ((modeling_fingerprint(BERT.cell), False), ("0123456789ab", True)):
        run = run_line("run-1", BERT)
        folder.write(
            replace(run, plan=tuple(replace(one, modeling=modeling) for one in run.plan)), *whole(BERT, "run-1")
        )
        assert ("modeling files" in folder.find(BERT).again.get(BERT.cell.id, "")) is again
        shutil.rmtree(folder.path)


def test_a_checkpoint_that_was_missing_since_runs_again(folder):
    """Or it would stay reported as missing: a run that has nothing to do writes no line."""
    asked, fetched = suite("mine"), suite("mine@1377e9af")
    folder.write(run_line("run-1", fetched), *whole(fetched, "run-1"), ended="finished")
    assert folder.find(fetched).done == {fetched.cell.id: "run-1"}
    missing = line(asked, "run-2", "builds", Outcome.NOT_RUN)
    later = replace(missing, error_type="weights_missing", started_at="2026-01-01T00:00:09+00:00")
    folder.write(run_line("run-2", asked), later, ended="finished")
    assert folder.find(fetched).again == {fetched.cell.id: "its weights were missing since"}


@pytest.mark.parametrize("name", ["torch", "transformers"])
def test_other_versions_run_again_and_are_named(folder, name):
    folder.write(run_line("run-1", BERT), *whole(BERT, "run-1"))
    again = folder.find(BERT, versions={**NOW, name: "9.9"}).again
    assert again == {BERT.cell.id: f"it ran with {name} {NOW[name]}, now 9.9"}


def test_versions_that_the_target_does_not_depend_on_change_nothing(folder):
    folder.write(run_line("run-1", BERT), *whole(BERT, "run-1"))
    assert folder.find(BERT, versions={**NOW, "openvino": "9.9"}).done == {BERT.cell.id: "run-1"}


def test_another_device_of_the_same_kind_runs_again(folder, monkeypatch):
    one = suite("bert", "cuda")
    lines = [replace(x, requested_target="cuda:0") for x in whole(one, "run-1")]
    folder.write(run_line("run-1", one), *lines)
    monkeypatch.setenv(DEVICES_VARIABLE, "cuda:0")
    assert folder.find(one).done == {one.cell.id: "run-1"}
    monkeypatch.setenv(DEVICES_VARIABLE, "cuda:1")
    assert folder.find(one).again == {one.cell.id: "it was asked for on cuda:0, and now on cuda:1"}


def test_a_machine_whose_name_is_redacted_is_known_again(folder, monkeypatch):
    run = replace(run_line("run-1", BERT), machine="me@example.org")
    folder.write(run, *whole(BERT, "run-1"))
    assert folder.find(BERT, machine="me@example.org").done == {BERT.cell.id: "run-1"}


def test_a_run_that_was_resumed_is_no_longer_unfinished(folder):
    folder.write(run_line("run-1", *ALL), *whole(BERT, "run-1"))
    assert read_latest(folder.path, details=True).unfinished == ("run-1",)
    folder.write(replace(run_line("run-2", GPT2), resumes=("run-1",)), ended="finished")
    assert read_latest(folder.path, details=True).unfinished == ()


def test_a_run_that_was_killed_after_its_last_check_gets_its_end(folder):
    folder.write(run_line("run-1", *ALL), *(x for one in ALL for x in whole(one, "run-1")))
    assert folder.find().notes() == ("nothing to resume: run run-1 is complete",)
    close_run(folder.path, "run-1")
    close_run(folder.path, "run-1")
    evidence = read_folder(folder.path)
    assert read_latest(folder.path, details=True).unfinished == ()
    assert [(end.reason, end.counts) for end in evidence.ends] == [("finished", {"passed": 6})]


def test_a_run_that_leaves_a_check_untold_gets_no_end(folder):
    folder.write(run_line("run-1", *ALL), *whole(BERT, "run-1"), *whole(GPT2, "run-1"), line(VIT, "run-1", "builds"))
    assert folder.find(BERT, GPT2).again == {}  # and it is complete for who asks for no more
    close_run(folder.path, "run-1")
    assert read_latest(folder.path, details=True).unfinished == ("run-1",)


def test_the_evidence_of_cells_is_that_of_the_run_each_was_taken_from(folder):
    folder.write(run_line("run-1", *ALL), *whole(BERT, "run-1"), line(GPT2, "run-1", "builds"))
    folder.write(replace(run_line("run-2", GPT2, VIT), resumes=("run-1",)), *whole(GPT2, "run-2"))
    evidence = read_cells(folder.path, {BERT.cell.id: "run-1", GPT2.cell.id: "run-2"})
    assert {(one.run_id, one.cell_id) for one in evidence.checks} == {
        ("run-1", BERT.cell.id),
        ("run-2", GPT2.cell.id),
    }
    assert {run.run_id: [one.cell_id for one in run.plan] for run in evidence.runs} == {
        "run-1": [BERT.cell.id],
        "run-2": [GPT2.cell.id],
    }
