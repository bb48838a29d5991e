"""Where the detection itself fails, work goes on with what torch says, and the failure is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from hardware import basic_detection
from hardware.basic_detection import detect_somehow
from hardware.detection import targets
from hardware.process import Ended
from run_test_generation import main

SCHEMA = json.loads((Path(__file__).parents[2] / "hardware" / "schemas" / "inventory.json").read_text())
TOLD = {
    "devices": [["NVIDIA", "NVIDIA H200", 0, 150 * 10**9]],
    "torch": {"version": "2.13.0+cu130", "cuda": "13.0", "hip": None, "xpu": None},
}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ValueError("a file of\nthe kernel has another form")

    monkeypatch.setattr(basic_detection, "detect", fails)


def answers(monkeypatch: pytest.MonkeyPatch, told: object) -> None:
    monkeypatch.setattr(basic_detection, "_ASK", f"print({json.dumps(told)!r})")


@pytest.mark.usefixtures("broken")
def test_torch_is_asked_where_the_detection_fails(monkeypatch):
    answers(monkeypatch, TOLD)
    found = detect_somehow()
    assert found.detection_failure.startswith("ValueError: a file of the kernel has another form")
    assert [(one.vendor, one.model, one.extra_info["told_by"]) for one in found.accelerators] == [
        ("NVIDIA", "NVIDIA H200", "torch")
    ]
    expected = {one.target for one in targets(found) if one.expected}
    assert {"cpu", "cuda"} <= expected
    assert "rocm" not in expected
    jsonschema.validate(found.to_dict(), SCHEMA)


@pytest.mark.usefixtures("broken")
def test_where_torch_fails_too_nothing_is_invented(monkeypatch):
    monkeypatch.setattr(basic_detection, "_ASK", "raise SystemExit('libcuda is broken')")
    found = detect_somehow()
    assert "and it fails too: libcuda is broken" in found.detection_failure
    assert found.accelerators == ()
    assert found.torch.version is None


@pytest.mark.usefixtures("broken")
def test_the_front_door_says_so_and_goes_on(monkeypatch):
    answers(monkeypatch, TOLD)
    done = CliRunner().invoke(main, ["--model", "bert", "--list"], standalone_mode=False)
    assert done.exception is None, done.output
    assert "bert/fill-mask/cuda/float32" in done.output
    assert "the detection of hardware failed: ValueError" in done.stderr


def test_nothing_of_it_is_asked_where_the_detection_works(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere")
    assert detect_somehow().detection_failure == ""


@pytest.mark.usefixtures("broken")
def test_a_driver_that_hangs_holds_nobody_up_for_more_than_two_minutes(monkeypatch):
    def hangs(_words: list[str], *, limit_s: float) -> Ended:
        assert 10 < limit_s <= 120
        return Ended(returncode=None, stdout="", stderr="", seconds=limit_s, limit_s=limit_s)

    monkeypatch.setattr(basic_detection, "run", hangs)
    assert "timed out after" in detect_somehow().detection_failure
