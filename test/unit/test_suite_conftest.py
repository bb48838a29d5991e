"""The conftest.py beside generated suites: what it says where our package isn't the one that is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from generators.suites.files import prepare_folder

ROOT = Path(__file__).parents[2]


def plain_pytest(folder: Path, *, python_path: str = "") -> subprocess.CompletedProcess[str]:
    """`python -m pytest` in somebody's repository, whose top folder Python looks into first."""
    prepare_folder(folder / "tests" / "hwcompat")
    (folder / "tests" / "hwcompat" / "test_one.py").write_text("def test_one():\n    assert True\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "tests", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env={**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("own_init", [True, False])
def test_another_package_called_hardware_is_named_and_the_bundle_offered(tmp_path, own_init):
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / ("__init__.py" if own_init else "motor.py")).write_text("SPEED = 3\n")
    done = plain_pytest(tmp_path, python_path=str(ROOT))
    said = " ".join((done.stdout + done.stderr).split())
    if own_init:
        assert done.returncode == 2, said
        assert f"another one is in the way: {tmp_path / 'hardware'}" in said
        assert "--bundle suite.zip" in said
        assert "ModuleNotFoundError" not in said
    else:  # a folder without __init__.py gives way to a real package
        assert done.returncode == 0, said


def test_no_package_called_hardware_is_said_so(tmp_path):
    done = plain_pytest(tmp_path)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, said
    assert "none is found" in said


def test_a_broken_installation_of_ours_keeps_its_own_error(tmp_path):
    (tmp_path / "pytest_needs.py").write_text("")
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "__init__.py").write_text("import a_library_that_is_missing\n")
    done = plain_pytest(tmp_path)
    assert done.returncode != 0
    assert "a_library_that_is_missing" in done.stdout + done.stderr
