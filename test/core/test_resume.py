"""What is taken over from a run that was cut off, and every reason for which it isn't."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence_lines import check_line, run_line

from hardware.cell import Cell
from hardware.evidence.latest import read_latest
from hardware.evidence.modeling_files import modeling_fingerprint
from hardware.evidence.record import EDITED, CheckLine, EndLine, Outcome, RunLine
from hardware.evidence.store import read_cells, read_folder
from hardware.evidence.writer import EvidenceWriter
from hardware.testing.pytest_environment import DEVICES_VARIABLE
from hardware.testing.resume import Resumable, close_run, find_resumable
from hardware.testing.suite_file import SuiteFile

CHECKS = ("builds", "matches_reference")
NOW = {"torch": "2.13.0", "transformers": "5.5.4", "hwcompat": "0.1.0", "openvino": "2026.2"}


def suite(model: str, target: str = "cpu") -> SuiteFile:
    cell = Cell.parse(f"{model}/fill-mask/{target}/float32")
    path, suite_hash = Path(f"{cell.slug}.py"), f"hash of {model}"
    return SuiteFile(path=path, cell=cell, subject="tiny", checks=CHECKS, suite_hash=suite_hash)


BERT, GPT2, VIT = (suite(name) for name in ("bert", "gpt2", "vit"))
ALL = (BERT, GPT2, VIT)


def line(one: SuiteFile, run: int, check: str, outcome: Outcome = Outcome.PASSED, **changes: object) -> CheckLine:
    facts = {"run_id": f"run-{run}", "cell_id": one.cell.id, "suite_hash": one.suite_hash, **changes}
    return check_line(check, outcome, **facts)


def whole(one: SuiteFile, run: int, **changes: object) -> list[CheckLine]:
    return [line(one, run, check, **changes) for check in CHECKS]


class Folder:
    """A folder of evidence to be filled with runs, of all suites if none are named."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(
        self, run: int, suites: Iterable[SuiteFile], lines: Iterable[CheckLine], *, ended: str = "", **of_run: Any
    ) -> None:
        plan = tuple(one.planned({"level": "high"}) for one in suites)
        if modeling := of_run.pop("modeling", None):
            plan = tuple(replace(one, modeling=modeling) for one in plan)
        facts = {"started_at": f"2026-01-01T00:00:0{run}+00:00", "machine": "here", "versions": NOW, **of_run}
        first: RunLine = run_line(*plan, run_id=f"run-{run}", **facts)
        writer = EvidenceWriter(self.path, first.run_id)
        for one in (first, *lines):
            writer.write(one)
        if ended:
            writer.write(EndLine(run_id=first.run_id, ended_at="", reason=ended, counts={}))
        writer.close()

    def find(self, *suites: SuiteFile, versions: dict[str, str] = NOW, machine: str = "here") -> Resumable:
        return find_resumable(self.path, suites or ALL, versions, machine)

    def unfinished(self) -> tuple[str, ...]:
        return read_latest(self.path, details=True).unfinished


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "evidence")


def test_what_is_complete_is_taken_over_and_the_rest_runs_whole(folder: Folder) -> None:
    folder.write(1, ALL, [*whole(BERT, 1), line(GPT2, 1, "builds")])
    found = folder.find()
    assert found.run_ids == ("run-1",)
    assert found.done == {BERT.cell.id: "run-1"}
    assert "interrupted before matches_reference" in found.again[GPT2.cell.id]
    assert "interrupted before builds, matches_reference" in found.again[VIT.cell.id]
    notes = found.notes()
    assert notes[0] == "resuming run run-1: 1 cell(s) are done, 2 run"
    assert len(notes) == 3


def test_without_any_run_everything_runs_with_a_note(folder: Folder) -> None:
    assert folder.find() == Resumable()
    folder.path.mkdir()
    assert folder.find() == Resumable()
    assert "no run to resume" in folder.find().notes()[0]


def test_a_failure_is_a_result_and_a_check_that_did_not_run_is_none(folder: Folder) -> None:
    for outcome, again in ((Outcome.FAILED, {}), (Outcome.NOT_RUN, {BERT.cell.id: "matches_reference did not run"})):
        lines = [line(BERT, 1, "builds"), line(BERT, 1, "matches_reference", outcome)]
        folder.write(1, [BERT], lines, ended="interrupted")
        found = folder.find(BERT)
        assert (found.again, set(found.done)) == (again, set() if again else {BERT.cell.id})
        shutil.rmtree(folder.path)


def test_a_chain_of_runs_that_were_cut_off_is_one(folder: Folder) -> None:
    folder.write(1, ALL, [*whole(BERT, 1), line(GPT2, 1, "builds")])
    folder.write(2, [GPT2, VIT], whole(GPT2, 2), resumes=("run-1",))
    found = folder.find()
    assert found.run_ids == ("run-2", "run-1")
    assert found.done == {BERT.cell.id: "run-1", GPT2.cell.id: "run-2"}
    assert list(found.again) == [VIT.cell.id]
    evidence = read_cells(folder.path, found.done)
    assert {(one.run_id, one.cell_id) for one in evidence.checks} == {(run, cell) for cell, run in found.done.items()}
    assert {run.run_id: [one.cell_id for one in run.plan] for run in evidence.runs} == {
        "run-1": [BERT.cell.id],
        "run-2": [GPT2.cell.id],
    }


def test_an_older_run_that_was_not_resumed_is_not_reached_for(folder: Folder) -> None:
    folder.write(1, ALL, whole(BERT, 1))
    folder.write(2, [GPT2], whole(GPT2, 2))
    assert folder.find().done == {GPT2.cell.id: "run-2"}
    assert folder.find().again[BERT.cell.id] == "it was not part of that run"


def test_newer_runs_of_other_cells_machines_or_of_plain_pytest_are_not_gone_on_with(folder: Folder) -> None:
    folder.write(1, [BERT, GPT2], whole(BERT, 1))
    folder.write(2, [VIT], whole(VIT, 2), ended="finished")
    folder.write(3, ALL, whole(GPT2, 3), machine="elsewhere")
    folder.write(4, [GPT2], whole(GPT2, 4), isolation="none: a crash ends it")
    found = folder.find(BERT, GPT2)
    assert (found.run_ids, found.done) == (("run-1",), {BERT.cell.id: "run-1"})
    assert folder.find(machine="third").again[GPT2.cell.id] == "it ran on another machine"


def test_another_suite_or_one_that_was_edited_runs_again(folder: Folder) -> None:
    folder.write(1, [BERT], whole(BERT, 1))
    assert "its suite has changed" in folder.find(replace(BERT, suite_hash="other")).again[BERT.cell.id]
    assert "edited by hand" in folder.find(replace(BERT, edited=True)).again[BERT.cell.id]
    shutil.rmtree(folder.path)
    folder.write(1, [BERT], whole(BERT, 1, conditions={EDITED: "by hand"}))
    assert "edited by hand" in folder.find(BERT).again[BERT.cell.id]


def test_other_modeling_files_run_again(folder: Folder) -> None:
    for modeling, again in ((modeling_fingerprint(BERT.cell), False), ("0123456789ab", True)):
        folder.write(1, [BERT], whole(BERT, 1), modeling=modeling)
        assert ("modeling files" in folder.find(BERT).again.get(BERT.cell.id, "")) is again
        shutil.rmtree(folder.path)


def test_a_checkpoint_that_was_missing_since_runs_again(folder: Folder) -> None:
    """Or it would stay reported as missing: a run that has nothing to do writes no line."""
    asked, fetched = suite("mine"), suite("mine@1377e9af")
    folder.write(1, [fetched], whole(fetched, 1), ended="finished")
    assert folder.find(fetched).done == {fetched.cell.id: "run-1"}
    facts = {"error_type": "weights_missing", "started_at": "2026-01-01T00:00:09+00:00"}
    folder.write(2, [asked], [line(asked, 2, "builds", Outcome.NOT_RUN, **facts)], ended="finished")
    assert folder.find(fetched).again == {fetched.cell.id: "its weights were missing in a later run"}


def test_other_versions_of_what_the_target_rests_on_run_again_and_are_named(folder: Folder) -> None:
    folder.write(1, [BERT], whole(BERT, 1))
    for name in ("torch", "transformers"):
        again = folder.find(BERT, versions={**NOW, name: "9.9"}).again
        assert again == {BERT.cell.id: f"it ran with {name} {NOW[name]}, now 9.9"}
    assert folder.find(BERT, versions={**NOW, "openvino": "9.9"}).done == {BERT.cell.id: "run-1"}


def test_another_device_of_the_same_kind_runs_again(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    one = suite("bert", "cuda")
    folder.write(1, [one], whole(one, 1, requested_target="cuda:0"))
    monkeypatch.setenv(DEVICES_VARIABLE, "cuda:0")
    assert folder.find(one).done == {one.cell.id: "run-1"}
    monkeypatch.setenv(DEVICES_VARIABLE, "cuda:1")
    assert folder.find(one).again == {one.cell.id: "it was requested on cuda:0, now on cuda:1"}


def test_a_machine_whose_name_is_redacted_is_known_again(folder: Folder) -> None:
    folder.write(1, [BERT], whole(BERT, 1), machine="me@example.org")
    assert folder.find(BERT, machine="me@example.org").done == {BERT.cell.id: "run-1"}


def test_a_run_that_was_resumed_is_no_longer_unfinished(folder: Folder) -> None:
    folder.write(1, ALL, whole(BERT, 1))
    assert folder.unfinished() == ("run-1",)
    folder.write(2, [GPT2], [], resumes=("run-1",), ended="finished")
    assert folder.unfinished() == ()


def test_a_run_that_was_killed_after_its_last_check_gets_its_end(folder: Folder) -> None:
    folder.write(1, ALL, [*whole(BERT, 1), *whole(GPT2, 1), line(VIT, 1, "builds")])
    assert folder.find(BERT, GPT2).again == {}  # it is complete for those who ask for no more
    close_run(folder.path, "run-1")
    assert folder.unfinished() == ("run-1",), "a check has no line"
    folder.write(1, ALL, [line(VIT, 1, "matches_reference")])
    assert folder.find().notes() == ("nothing to resume: run run-1 is complete",)
    for _ in range(2):
        close_run(folder.path, "run-1")
    assert folder.unfinished() == ()
    assert [(end.reason, end.counts) for end in read_folder(folder.path).ends] == [("finished", {"passed": 6})]
