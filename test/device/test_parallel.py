"""A run of several suites at a time that was killed is gone on with."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import CommandLine, Ran
from suites_by_hand import put_sleeping_suite, wait_until

from hardware.evidence.latest import read_latest
from hardware.evidence.record import CheckLine
from hardware.evidence.store import read_file, read_folder

pytestmark = pytest.mark.slow

BERT = "bert/fill-mask/cpu/float32"
VIT = "vit/image-classification/cpu/float32"
GPT2 = "gpt2/text-generation/cpu/float32"
CELLS = (BERT, VIT, GPT2)
MODELS = ("--model", "bert", "--model", "vit", "--model", "gpt2", "--device", "cpu")


def _whole_cells(folder: Path) -> set[str]:
    evidence = read_folder(folder) if folder.is_dir() else None
    planned = {one.cell_id: set(one.checks) for run in evidence.runs for one in run.plan} if evidence else {}
    return {
        cell
        for cell, checks in planned.items()
        if evidence and {line.check_name for line in evidence.checks if line.cell_id == cell} == checks
    }


@pytest.fixture(scope="module")
def killed_and_resumed(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """A run of three cells that is killed when two are done, then resumed, and resumed once more."""
    folder = tmp_path_factory.mktemp("resumed")
    ready = put_sleeping_suite(folder, GPT2)
    process = command_line.start(folder, *MODELS, "--run", "--jobs", "2")
    wait_until(lambda: ready.exists() and {BERT, VIT} <= _whole_cells(folder / "evidence"), process)
    os.kill(process.pid, signal.SIGKILL)
    killed = command_line.wait(process, folder)
    resumed = command_line.run(folder, *MODELS, "--run", "--jobs", "2", "--force", "--resume")
    again = command_line.run(folder, *MODELS, "--run", "--resume")
    return {"killed": killed, "resumed": resumed, "again": again}


@pytest.mark.extended
def test_a_killed_run_is_finished_and_only_what_was_left_runs_again(killed_and_resumed: dict[str, Ran]) -> None:
    killed, ran = killed_and_resumed["killed"], killed_and_resumed["resumed"]
    assert killed.code == -signal.SIGKILL
    assert ran.code == 0, ran.err
    for path in (ran.folder / "evidence").iterdir():
        cells = {line.cell_id for line in read_file(path)[0] if isinstance(line, CheckLine)}
        assert len(cells) <= 1, "lines of two children are never in one file"
    assert [ran.verdict(cell) for cell in CELLS] == ["high"] * 3
    first, second = sorted(ran.evidence.runs, key=lambda run: run.started_at)
    assert second.resumes == (first.run_id,)
    assert [one.cell_id for one in second.plan] == [GPT2]
    assert {line.cell_id for line in ran.evidence.checks if line.run_id == second.run_id} == {GPT2}
    assert f"note: resuming run {first.run_id}: 2 cell(s) are done, 1 run" in ran.err
    assert f"note: {GPT2} runs again: its suite was edited by hand" in ran.err
    assert read_latest(ran.evidence, details=True).unfinished == ()


def test_the_result_shows_all_cells_and_where_they_are_from(killed_and_resumed: dict[str, Ran]) -> None:
    ran = killed_and_resumed["resumed"]
    first, second = sorted(ran.evidence.runs, key=lambda run: run.started_at)
    resumed = ", ".join(sorted(one.cell_id for one in first.plan if one.cell_id != GPT2))
    assert f"{resumed}: from run {first.run_id}" in " ".join(ran.out.split())
    junit = ElementTree.parse(ran.reports / f"{second.run_id}.xml").getroot()
    suites = {suite.get("name"): suite for suite in junit}
    for planned in first.plan:
        cases = suites[planned.cell_id].findall("testcase")
        expected = next((p for p in second.plan if p.cell_id == planned.cell_id), planned)
        assert [case.get("name") for case in cases] == list(expected.checks)
        assert not suites[planned.cell_id].findall("testcase/skipped")
    told = (ran.reports / f"{second.run_id}.md").read_text(encoding="utf-8")
    for cell in CELLS:
        assert cell in told
    assert f"from run: {first.run_id}" in told


def test_where_nothing_is_left_nothing_runs_and_the_result_is_shown(killed_and_resumed: dict[str, Ran]) -> None:
    ran = killed_and_resumed["again"]
    assert ran.code == 0, ran.err
    assert "note: nothing to resume" in ran.err
    assert len(ran.evidence.runs) == 2
    assert [ran.verdict(cell) for cell in CELLS] == ["high"] * 3
