"""Several suites at a time: the same results, the same isolation, and a run that was killed is gone on with."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import CommandLine, Ran, together
from suites_by_hand import process_id, put_sleeping_suite, put_suite, wait_until

from hardware.evidence.latest import read_latest
from hardware.evidence.record import CheckLine, Outcome
from hardware.evidence.store import read_file, read_folder

pytestmark = pytest.mark.slow

BERT = "bert/fill-mask/cpu/float32"
VIT = "vit/image-classification/cpu/float32"
GPT2 = "gpt2/text-generation/cpu/float32"
CELLS = (BERT, VIT, GPT2)
MODELS = ("--model", "bert", "--model", "vit", "--model", "gpt2", "--device", "cpu")
CRASHES = """def test_second():
    os.abort()


def test_third():
    pass
"""


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


def test_a_killed_run_is_finished_and_only_what_was_left_runs_again(killed_and_resumed: dict[str, Ran]) -> None:
    killed, ran = killed_and_resumed["killed"], killed_and_resumed["resumed"]
    assert killed.code == -signal.SIGKILL
    assert ran.code == 0, ran.err
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


@pytest.fixture(scope="module")
def crashing(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """The same three cells, one of which crashes, one and two at a time."""
    jobs = {}
    for number in ("1", "2"):
        folder = tmp_path_factory.mktemp(f"crashing-{number}")
        put_suite(folder, VIT, CRASHES)
        jobs[number] = partial(command_line.run, folder, *MODELS, "--run", "--jobs", number)
    return together(jobs)


def test_a_crash_costs_its_own_suite_only_however_many_run(crashing: dict[str, Ran]) -> None:
    one, two = crashing["1"], crashing["2"]
    for ran in (one, two):
        assert ran.code == 1, ran.err
        assert ran.outcomes(VIT) == {"first": Outcome.AMBIGUOUS, "second": Outcome.CRASHED, "third": Outcome.NOT_RUN}
        assert set(ran.outcomes(BERT).values()) == set(ran.outcomes(GPT2).values()) == {Outcome.PASSED}
    assert (one.run_line.jobs, two.run_line.jobs) == (1, 2)
    for cell in CELLS:
        assert (one.outcomes(cell), one.verdict(cell)) == (two.outcomes(cell), two.verdict(cell))
    cells_of = {}
    for path in (two.folder / "evidence").iterdir():
        lines, broken = read_file(path)
        assert not broken
        if two.run_line not in lines:
            cells_of[path.name] = {line.cell_id for line in lines if isinstance(line, CheckLine)}
    assert sorted(cell for cells in cells_of.values() for cell in cells) == sorted(CELLS)
    assert {len(cells) for cells in cells_of.values()} == {1}, "lines of two children are never in one file"


def test_an_interruption_ends_all_children_and_closes_the_record(command_line: CommandLine, tmp_path: Path) -> None:
    """Ctrl-C while two suites sleep and a third waits."""
    notes = [put_sleeping_suite(tmp_path, cell) for cell in (BERT, VIT)]
    process = command_line.start(tmp_path, *MODELS, "--run", "--jobs", "2")
    children = [process_id(note, process) for note in notes]
    process.send_signal(signal.SIGINT)
    ran = command_line.wait(process, tmp_path)
    assert ran.code == 2
    assert ran.error.startswith("error: interrupted: ")
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    for cell in CELLS:
        assert Outcome.NOT_RUN in ran.outcomes(cell).values()
        assert set(ran.outcomes(cell).values()) <= {Outcome.NOT_RUN, Outcome.AMBIGUOUS}
    (end,) = ran.evidence.ends
    assert end.reason == "interrupted"
