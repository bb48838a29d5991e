"""The main job: one command generates, runs and judges, and leaves evidence that says the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import CommandLine, Ran
from evidence_lines import BERT_CHECKS

from generators.compatibility.expiry import Expiry
from generators.compatibility.judge import judge_cell
from hardware.cell import Cell
from hardware.evidence.record import Outcome

pytestmark = pytest.mark.slow

BERT, VIT = "bert/fill-mask", "vit/image-classification"
CELLS = [f"{model}/{target}/float32" for model in (BERT, VIT) for target in ("cpu", "openvino", "simulated")]


@pytest.fixture(scope="module")
def auto(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return command_line.run(
        tmp_path_factory.mktemp("auto"), "--model", "bert", "--device", "auto", "--machine", "desk", "--run"
    )


def test_auto_passes_and_prints_a_table_a_verdict_and_the_files(auto: Ran) -> None:
    assert auto.code == 0, auto.err
    cell = auto.run_line.plan[0].cell_id
    assert auto.verdict(cell) in ("high", "medium")
    assert "stored before the run" in auto.out
    assert "auto selected cpu: " in auto.out
    named = dict(line.split()[:2] for line in auto.out.splitlines() if line.startswith(("  Suites ", "  Evidence ")))
    assert all(Path(name).is_dir() for name in named.values())
    assert list(named) == ["Suites", "Evidence"]
    assert "(2 files of this run)" in auto.out  # of parent and child
    last = auto.out.splitlines()[-1]
    assert last.startswith("1 of 1 cell works · report ")
    assert Path(last.rpartition(" ")[2]).is_file()
    assert "fill-mask/cpu/float32  builds" not in auto.out
    assert f"[1/1] bert/fill-mask/cpu/float32  {BERT_CHECKS} passed" in auto.err  # progress


def test_the_run_line_comes_before_any_check_and_each_process_has_its_own_file(auto: Ran) -> None:
    run = auto.run_line
    (planned,) = run.plan
    assert (run.machine, run.isolation) == ("desk", "process")
    assert run.command.startswith("hwcompat run ")
    assert run.versions["torch"]
    assert planned.verdict is not None
    assert planned.verdict["basis"] in ("predicted", "assumed")
    assert all(run.started_at < line.started_at for line in auto.evidence.checks)
    files = {path.name: path.read_text(encoding="utf-8") for path in (auto.folder / "evidence").iterdir()}
    kinds = {name: [json.loads(line)["kind"] for line in text.splitlines()] for name, text in files.items()}
    assert sorted(kinds.values()) == [["check"] * BERT_CHECKS, ["run", "end"]]
    assert all(name.startswith(run.run_id) for name in files)


def test_three_targets_pass(three_targets: Ran) -> None:
    assert three_targets.code == 0, three_targets.err
    assert [planned.cell_id for planned in three_targets.run_line.plan] == CELLS
    for cell in CELLS:
        assert three_targets.verdict(cell) in ("high", "medium"), cell


def test_every_planned_check_has_one_line(three_targets: Ran) -> None:
    planned = [(one.cell_id, check) for one in three_targets.run_line.plan for check in one.checks]
    lines = [(line.cell_id, line.check_name) for line in three_targets.evidence.checks]
    assert sorted(lines) == sorted(planned)
    (end,) = three_targets.evidence.ends
    assert end.reason == "finished"
    assert end.counts == {"passed": len(planned)}


def test_each_line_says_where_it_ran_and_parity_was_measured_against_a_tolerance(three_targets: Ran) -> None:
    for line in three_targets.evidence.checks:
        target = line.cell_id.split("/")[2]
        assert line.actual_target == line.requested_target == target
        assert (line.outcome, line.subject) == (Outcome.PASSED, "tiny")
        assert line.accelerator
    for cell in CELLS:
        line = three_targets.lines(cell)["matches_reference"]
        assert line.max_rel_error is not None
        assert line.tolerance is not None
        assert 0 <= line.max_rel_error <= line.tolerance


def test_judging_again_from_the_files_gives_what_was_printed(three_targets: Ran) -> None:
    run = three_targets.run_line
    for planned in run.plan:
        cell = Cell.parse(planned.cell_id)
        verdict = judge_cell(cell, planned.checks, three_targets.evidence.checks, expiry=Expiry.of_run(cell, run))
        assert verdict.level == three_targets.verdict(planned.cell_id)
        assert verdict.basis == "measured"
        lines = three_targets.lines(planned.cell_id).values()
        assert set(verdict.evidence_ids) == {line.evidence_id for line in lines}


def test_an_emulator_never_speaks_of_a_real_device_and_the_matrix_counts_what_was_measured(
    three_targets: Ran, command_line: CommandLine
) -> None:
    both = ", ".join(cell for cell in CELLS if "/simulated/" in cell)
    assert f"simulated: tests the tool itself, not numerics or speed ({both})" in " ".join(three_targets.out.split())
    evidence, folder = three_targets.folder / "evidence", three_targets.folder / "matrix"
    ran = command_line.run(folder, "--hardware-compatibility", "--evidence", evidence, "--format", "json")
    assert ran.code == 0, ran.err
    assert '"basis": "measured"' in ran.out


def test_nothing_tries_to_reach_the_network(auto: Ran, three_targets: Ran) -> None:
    assert auto.network == []
    assert three_targets.network == []
