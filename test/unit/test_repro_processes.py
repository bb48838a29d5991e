"""Repros in processes of their own: scripts run alone, and what a suite compares is recorded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from judged_cells import line

from hardware.cell import Cell
from hardware.errors import NothingMatched
from hardware.evidence.record import Outcome
from hardware.evidence.store import Evidence
from hwcompat.plugins.triage import repro_command
from hwcompat.plugins.triage.repro.captured_failure import CapturedFailure, Shape
from hwcompat.plugins.triage.repro.repro_script import SCRIPT, run_script
from hwcompat.plugins.triage.repro_command import make_repro

CELL = Cell.parse("bert/fill-mask/cpu/float32")


def test_a_script_runs_alone_and_is_ended_if_it_hangs(tmp_path: Path) -> None:
    (tmp_path / SCRIPT).write_text("print('here')\nimport hardware\n", encoding="utf-8")
    shown = run_script(tmp_path, seconds=60)
    assert (shown.code, shown.exception, shown.printed) == (1, "ModuleNotFoundError", "here\n")
    (tmp_path / SCRIPT).write_text("import time\ntime.sleep(600)\n", encoding="utf-8")
    assert run_script(tmp_path, seconds=0.3).code is None


_WATCHED = """
import sys, types
from dataclasses import replace
from pathlib import Path
import numpy as np
from hwcompat.plugins.triage.repro.failure_recorder import FailureRecorder
from hwcompat.plugins.triage.repro.hooks import watch
from hardware.cell import Cell
from hardware.testing.measurement import Outputs
from hardware.testing.model_test import ModelTest
from hardware.testing.watched_passes import SuitePass

recorder = FailureRecorder(folder=Path(sys.argv[1]), with_weights=False)
watch(recorder)
case = ModelTest("bert/fill-mask/cpu/float32", lambda: None, {}, gain=None, outputs=("y",))
case.__dict__["runnable"] = types.SimpleNamespace(gives_all=True, actual_dtype="float32", model=None)
case.__dict__["_placement"] = types.SimpleNamespace(target=Cell.parse("bert/fill-mask/cpu/float32").target), ""
case._passes = types.SimpleNamespace(
    run=lambda runnable, inputs: SuitePass(outputs={"y": inputs["x"] * 2}, latency_ms=1.0, watched=None, left={})
)
recorder.began("matches_reference")
inputs = {"x": np.arange(4.0).reshape(2, 2)}
want = Outputs(arrays={"y": inputs["x"] * 2}, masks={}, inputs=inputs)
right = case.error(case._run(case.runnable, inputs), want)
assert right == 0 and recorder.compared is None
want.arrays["y"][0, 0] = 9
wrong = case.error(case._run(case.runnable, inputs), want)
_, expected, found = recorder.compared
assert wrong > 1 and found["error"] == wrong and list(expected) == ["y"]
recorder.ended(AssertionError())
"""


def test_the_arrays_that_a_suite_compares_are_recorded(tmp_path: Path) -> None:
    """In a process of its own, since what is watched stays so: also whether everything that is watched is there."""
    command = [sys.executable, "-c", _WATCHED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr
    found = CapturedFailure.read(tmp_path)
    assert (found.shape, found.stage, found.check) == (Shape.NUMBERS, "compare", "matches_reference")
    assert (found.error or 0) > 1


def test_only_a_failed_check_is_run_again_and_it_is_said_before(tmp_path, monkeypatch, capsys):
    class Reached(Exception):
        """The suite would run now."""

    def stop(*_, **__):
        raise Reached

    def evidence(check: str, outcome: Outcome) -> Evidence:
        return Evidence(runs=(), checks=(line(check, outcome, cell_id=CELL.id),), ends=(), broken=())

    with pytest.raises(NothingMatched, match="no check"):
        make_repro(CELL, evidence("builds", Outcome.PASSED), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    suite = SimpleNamespace(
        text="def test_builds(case): ...", device=CELL.target, profile=SimpleNamespace(folders=())
    )
    monkeypatch.setattr(repro_command, "planned_again", lambda *_: suite)
    monkeypatch.setattr(repro_command, "model_source", lambda text: SimpleNamespace(checkpoint=False))
    monkeypatch.setattr(repro_command, "capture", stop)
    for given, what in ((evidence("backward", Outcome.FAILED), "backward"), (None, "the suite")):
        with pytest.raises(Reached):
            make_repro(CELL, given, tmp_path / "made")
        assert f"running {what} of {CELL.id} again" in capsys.readouterr().err.replace("\n", " ")
