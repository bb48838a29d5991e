"""The program, started as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_closed_pipe_is_no_error():
    for arguments in (["devices", "list"], ["--help"]):
        read, write = os.pipe()
        os.close(read)
        words = [sys.executable, "-m", "hwcompat", *arguments]
        done = subprocess.run(words, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
        os.close(write)
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_matrix_in_a_pipe_has_the_whole_names_of_cells():
    done = start("-m", "hwcompat", "matrix", "--by", "model", "--targets", "cpu,openvino")
    assert done.returncode == 0
    assert "…" not in done.stdout
    assert "audio-spectrogram-transformer/audio-classification/float32" in done.stdout
