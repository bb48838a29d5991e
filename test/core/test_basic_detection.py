"""When the detection of hardware fails, torch is asked for devices, and the failure is reported."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from hardware import basic_detection, recording
from hardware.basic_detection import detect_somehow
from hardware.detection import targets
from hardware.process import Ended
from hwcompat.cli.earlier_scripts import generation_main

SCHEMA = Path(recording.__file__).parent / "schemas" / "inventory.json"
FOUND = {
    "devices": [["NVIDIA", "NVIDIA H200", 0, 150 * 10**9]],
    "torch": {"version": "2.13.0+cu130", "cuda": "13.0", "hip": None, "xpu": None},
}


@pytest.fixture
def torch_child(monkeypatch):
    """Make the detection fail, and set how the child process that imports torch ends."""

    def fails():
        raise ValueError("a file of\nthe kernel has another form")

    def ends(returncode=0, stdout="", stderr=""):
        def run(_words, *, limit_s):
            assert 10 < limit_s <= 120
            return Ended(returncode=returncode, stdout=stdout, stderr=stderr, seconds=limit_s, limit_s=limit_s)

        monkeypatch.setattr(basic_detection, "run", run)

    monkeypatch.setattr(basic_detection, "detect", fails)
    return ends


def test_devices_come_from_torch_when_the_detection_fails(torch_child, capsys):
    torch_child(stdout=json.dumps(FOUND))
    found = detect_somehow()
    assert found.detection_failure.startswith("ValueError: a file of the kernel has another form")
    (device,) = found.accelerators
    assert (device.vendor, device.model, device.extra_info["told_by"]) == ("NVIDIA", "NVIDIA H200", "torch")
    expected = {one.target for one in targets(found) if one.expected}
    assert {"cpu", "cuda"} <= expected
    assert "rocm" not in expected
    jsonschema.validate(found.to_dict(), json.loads(SCHEMA.read_text()))
    assert generation_main(["--model", "bert", "--list"]) == 0
    said = capsys.readouterr()
    assert "bert/fill-mask/cuda/float32" in said.out
    assert "hardware detection failed: ValueError" in said.err


def test_a_torch_that_fails_or_hangs_is_a_reason_and_no_device(torch_child):
    torch_child(returncode=1, stderr="libcuda is broken\n")
    found = detect_somehow()
    assert "which fails too: libcuda is broken" in found.detection_failure
    assert found.accelerators == ()
    assert found.torch.version is None
    torch_child(returncode=None)
    assert "timed out after" in detect_somehow().detection_failure


def test_torch_is_not_imported_when_the_detection_works(monkeypatch):
    monkeypatch.setattr(basic_detection, "run", lambda *_, **__: pytest.fail("a process was started"))
    assert detect_somehow().detection_failure == ""
