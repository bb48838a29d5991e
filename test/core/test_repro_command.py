"""`hwcompat repro`: the check that is reproduced, refusals, the recorder, and the text of an issue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from judged_cells import line

from hardware.cell import Cell
from hardware.errors import NothingMatched, OutputError, UsageError
from hardware.evidence.record import Outcome, RunLine
from hwcompat.plugins.triage import repro_command
from hwcompat.plugins.triage.repro.captured_failure import CapturedFailure, Does, FailedStep, Shape, Way
from hwcompat.plugins.triage.repro.failure_recorder import FailureRecorder, TriedStep
from hwcompat.plugins.triage.repro.repro_script import Shown
from hwcompat.plugins.triage.repro_command import failing_checks, refuse
from hwcompat.plugins.triage.repro_match import ReproMatch
from hwcompat.plugins.triage.repro_text import issue_text, plain, story_of, title_of
from reports.report_request import Request

CELL = Cell.parse("bert/fill-mask/cpu/float32")
STEP = FailedStep(way=Way.TORCH, does=Does.FORWARD, device="cpu")


def test_the_latest_run_decides_and_the_most_telling_check_goes_first() -> None:
    later = "2026-01-02T00:00:00+00:00"
    lines = [
        line("backward", Outcome.FAILED, started_at="2026-01-01T00:00:00+00:00"),
        line("runs_natively", Outcome.FAILED, run_id="b", started_at=later),
        line("matches_reference", Outcome.CRASHED, run_id="b", started_at=later),
        line("honours_mask", Outcome.SKIPPED, run_id="b", started_at=later),
    ]
    assert failing_checks(lines) == ("matches_reference", "runs_natively")
    assert failing_checks([]) == ()


def test_a_cell_without_a_script_is_refused_before_anything_runs() -> None:
    for cell, why in (
        ("bert/fill-mask/simulated/float32", "no upstream"),
        ("bert/fill-mask/cpux/float32", "'cpu'"),
        ("bert/fill-mask/tpu/float32", "scripts for tpu aren't supported"),
        ("mine/module-forward/cpu/float32", "your own code"),
    ):
        with pytest.raises(UsageError, match=why):
            refuse(Cell.parse(cell))
    with pytest.raises(UsageError, match="is not a cell"):
        repro_command.report_repro(Request(), "bert")


def test_what_runs_again_is_announced_before_it_runs(tmp_path, monkeypatch, capsys):
    def stop(*_: object, **__: object) -> None:
        raise NothingMatched("stopped")

    monkeypatch.setattr(repro_command, "capture", stop)
    with pytest.raises(NothingMatched, match="stopped"):
        repro_command.make_repro(CELL, None, tmp_path / "folder")
    assert f"running the suite of {CELL} again" in capsys.readouterr().err


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match="of a repro"):
        repro_command._empty(tmp_path)
    assert (tmp_path / "thesis.txt").is_file()
    (tmp_path / "thesis.txt").rename(tmp_path / "inputs.npz")  # as of a command that was cut off
    repro_command._empty(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_issue_names_no_folder_and_no_person_and_nothing_becomes_markup() -> None:
    message = "Load model from /tmp/jane/exports/x/model.onnx failed, /home/jane/venv/lib/a.py <img src=x>"
    captured = CapturedFailure(
        check="matches_reference", shape=Shape.RAISED, step=STEP, exception="Fail", message=message
    )
    shown = Shown(
        code=1,
        seconds=1.0,
        printed=f"python 3.11.7 on Linux x86_64\ntorch 2.9.0\n{message}\n",
        exception="Fail",
        message=message,
    )
    run = RunLine(
        run_id="a",
        started_at="2026-01-01",
        command="",
        machine="janes-laptop",
        inventory={},
        versions={"torch": "2.9.0\n# heading", "hwcompat": "0.1", "onnx": "1.0", "qualcomm_driver": "7"},
        plan=(),
    )
    text = issue_text(
        captured,
        shown,
        ReproMatch(same=True, why=message),
        title=title_of(CELL, captured, "BertModel"),
        story=story_of(CELL, captured),
        script="Run       python repro.py\nNeeds     torch, onnxruntime\n",
        run=run,
    )
    assert "jane" not in text
    assert "/tmp" not in text
    outside = text.split("```")[::2]
    assert not any("<img" in part for part in outside)
    assert "\n# heading" not in text
    assert "torch 2.9.0" in text
    assert "hwcompat" not in text
    assert "onnx 1.0" not in text, "what the script doesn't need"
    assert "qualcomm_driver 7" in text
    assert "model.onnx failed" in text, "what happened stays"
    link = "see https://docs.openvino.ai/2026/a.html"
    assert plain(link) == link
    captured = CapturedFailure(check="backward", shape=Shape.NUMBERS, step=STEP, error=1.0, tolerance=1e-5)
    judged = ReproMatch(same=False, why="the script doesn't fail")
    shown = Shown(code=0, seconds=1.0, printed="")
    text = issue_text(captured, shown, judged, title="t", story=("s",), script="", run=None)
    assert "doesn't reproduce the failure of the check" in text


def test_operators_on_the_host_are_named() -> None:
    captured = CapturedFailure(
        check="matches_reference",
        shape=Shape.RAISED,
        step=STEP,
        exception="WorkerError",
        message="Fail: [ONNXRuntimeError] : 1 : FAIL : nodes of the CPU EP",
        left="Einsum (1)",
    )
    assert title_of(CELL, captured, "Model").endswith("Model: it doesn't support Einsum (1)")
    assert any("Einsum (1)" in line for line in story_of(CELL, captured))
    assert "WorkerError" not in title_of(CELL, replace(captured, left=""), "Model")


def test_the_first_comparison_that_failed_is_written_down(tmp_path: Path) -> None:
    recorder = FailureRecorder(folder=tmp_path, with_weights=False)
    recorder.began("matches_reference")
    tried = recorder.try_(STEP, {"input_ids": np.zeros((1, 2), np.int64)})
    assert CapturedFailure.read(tmp_path).shape is Shape.CRASHED
    for error in (0.5, 0.9):
        recorder.failed(tried, {"a": np.ones(2)}, error=error, tolerance=1e-5, worst="logits")
    recorder.ended(AssertionError("0.5 <= 1e-5"))
    found = CapturedFailure.read(tmp_path)
    assert (found.shape, found.error, found.step, found.refused) == (Shape.NUMBERS, 0.5, STEP, "")


def test_the_innermost_cause_counts_and_an_assertion_of_ours_is_refused(tmp_path: Path) -> None:
    recorder = FailureRecorder(folder=tmp_path, with_weights=False)
    recorder.began("matches_reference")
    recorder.tried = TriedStep(step=STEP, inputs={})
    outer = RuntimeError("QNN doesn't run the model: it leaves Einsum (1), Mod (2) to the host; Fail")
    outer.__cause__ = ValueError("the runtime's")
    recorder.ended(outer)
    found = CapturedFailure.read(tmp_path)
    assert (found.exception, found.message, found.left) == ("ValueError", "the runtime's", "Einsum (1), Mod (2)")
    recorder.ended(AssertionError("not execution.offloaded"))
    assert "something else than a comparison" in CapturedFailure.read(tmp_path).refused


def test_the_command_prints_the_folder_and_what_its_script_showed(tmp_path, monkeypatch, capsys):
    captured = CapturedFailure(check="backward", shape=Shape.NUMBERS)
    monkeypatch.setattr(repro_command, "evidence_of", lambda request: None)
    made = tmp_path / CELL.slug
    for same in (True, False):
        found = ReproMatch(same=same, why="its reason")
        monkeypatch.setattr(repro_command, "make_repro", lambda *_, found=found: (captured, found))
        code = repro_command.report_repro(Request(output_dir=tmp_path, format="text"), CELL.id)
        assert code == (0 if same else 1)
        assert capsys.readouterr().out.splitlines() == [
            f"{CELL.id}, backward: {'' if same else 'NOT '}reproduced",
            "  its reason",
            f"  {made / 'repro.py'}",
            f"  {made / 'README.md'}{'' if same else ' (states the difference)'}",
        ]
    made.mkdir()
    (made / "README.md").write_text("# The issue\n", encoding="utf-8")
    assert repro_command.report_repro(Request(output_dir=tmp_path, format="markdown"), CELL.id) == 1
    assert capsys.readouterr().out == "# The issue\n"
