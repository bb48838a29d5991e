"""Commands in a copy of the product from which a part was removed: they go on, and say what is missing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from front_doors import ROOT

_PARTS = ("hardware", "generators", "reports", "hwcompat", "templates")
_SCRIPTS = ("run_test_generation.py", "hardware_compatibility_reporter.py", "requirements.txt")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in _PARTS:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in _SCRIPTS:
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300)


def test_without_the_detection_torch_is_asked_and_a_finding_names_it(copy: Path) -> None:
    (copy / "hardware" / "detection.py").unlink()
    missing = "No module named 'hwcompat.hardware.detection'"
    listed = run(copy, "run_test_generation.py", "--list-devices", "--format", "json")
    assert listed.returncode == 0
    assert missing in json.loads(listed.stdout)["detection_failure"]
    for device in ("cpu", "auto"):
        made = run(copy, "run_test_generation.py", "--model", "bert", "--device", device, "--output-dir", device)
        assert (made.returncode, "Traceback" in made.stderr) == (0, False)
        assert missing in made.stderr
        assert list((copy / device).glob("test_bert_*.py"))
    reported = run(copy, "hardware_compatibility_reporter.py", "--collect-all", "--format", "json")
    assert reported.returncode == 1
    found = [one for one in json.loads(reported.stdout)["errors"] if one["component"] == "hardware_detection"]
    assert any(missing in one["message"] for one in found)


@pytest.mark.parametrize("text", [None, "raise OSError('disk')\n"])
def test_without_the_classifier_the_name_is_used_and_a_finding_names_it(copy: Path, text: str | None) -> None:
    module = copy / "generators" / "models" / "classifier.py"
    module.unlink() if text is None else module.write_text(text)
    missing = "cannot import name 'classifier'" if text is None else "OSError: disk"
    named = ("--model", "bert", "--model", "acme/roberta-large", "--allow-tiny")
    made = run(copy, "run_test_generation.py", *named, "--device", "cpu", "--output-dir", "made")
    assert (made.returncode, "Traceback" in made.stderr) == (0, False), made.stderr
    assert made.stderr.count(f"{missing}") == 1
    assert "using the name alone" in made.stderr
    assert {one.name.split("_")[1] for one in (copy / "made").glob("test_*.py")} == {"bert", "roberta"}
    refused = run(copy, "run_test_generation.py", "--model", "acme/zzz", "--device", "cpu")
    assert refused.returncode == 4
    assert "'acme/zzz' can't be classified" in refused.stderr
    reported = run(copy, "hardware_compatibility_reporter.py", "--collect-all", "--format", "json")
    assert reported.returncode == 1
    found = [one for one in json.loads(reported.stdout)["errors"] if one["component"] == "model_classifier"]
    assert any(missing in one["message"] for one in found)
