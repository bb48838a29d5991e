"""Packing by the command line, and that every file of the package is of a kind that is packed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hardware.files import package_files
from hardware.testing.bundle_runner import read_bundle

ROOT = Path(__file__).parents[2]


def generate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "run_test_generation.py", "--output-dir", str(folder / "suites"), *arguments],
        cwd=ROOT,
        env={**os.environ, "HWCOMPAT_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_bundle_is_packed_even_if_the_same_suites_were_just_generated(tmp_path: Path):
    asked = ("--model", "bert", "--device", "auto", "--device", "cuda")
    assert generate(tmp_path, *asked).returncode == 0
    done = generate(tmp_path, *asked, "--bundle", str(tmp_path / "suite.zip"))
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "suite.zip") as archive:
        archive.extractall(tmp_path)
    required = {str(one.suite.cell.target): one.required for one in read_bundle(tmp_path / "suite")}
    assert [name for name, named in required.items() if named] == ["cuda"]


def test_every_file_of_the_package_is_of_a_kind_that_is_packed():
    done = subprocess.run(["git", "ls-files", "hardware"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no checkout")
    there = {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}
    assert there
    assert there <= {f"hardware/{name}" for name in package_files(ROOT / "hardware")}


def test_code_of_the_users_own_is_not_packed(tmp_path: Path):
    (tmp_path / "own_net.py").write_text(
        "import torch\n\nexample_inputs = {'input': torch.ones(2, 3)}\n\n\n"
        "def make():\n    return torch.nn.Linear(3, 4)\n"
    )
    done = subprocess.run(
        [sys.executable, str(ROOT / "run_test_generation.py"), "--model", "own_net:make", "--device", "cpu",
         "--bundle", str(tmp_path / "suite.zip")],
        cwd=tmp_path, env={**os.environ, "HWCOMPAT_CACHE": str(tmp_path / "cache")},
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert "own_net:make can't be packed" in done.stderr
    assert not (tmp_path / "suite.zip").exists()
