"""The front doors, started as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("program", [["run_test_generation.py"], ["-m", "hardware"]], ids=["generation", "hardware"])
def test_each_front_door_answers_help_and_mistakes(program):
    done = start(*program, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage:" in done.stdout
    done = start(*program, "--modle")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_closed_pipe_is_no_error():
    for argument in ("--list-devices", "--help"):
        read, write = os.pipe()
        os.close(read)
        words = [sys.executable, "run_test_generation.py", argument]
        done = subprocess.run(words, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
        os.close(write)
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_matrix_in_a_pipe_has_the_whole_names_of_cells():
    done = start("run_test_generation.py", "--hardware-compatibility", "--by", "model", "--targets", "cpu,openvino")
    assert done.returncode == 0
    assert "…" not in done.stdout
    assert "audio-spectrogram-transformer/audio-classification/float32" in done.stdout
