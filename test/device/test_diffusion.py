"""A diffusion model on the command line: it runs as any other, a broken one fails, without diffusers it says why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import REPOSITORY, CommandLine, Ran

from generators.models.model_libraries import installed_diffusers
from hardware.evidence.record import Outcome

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

CELL = "stable-diffusion/text-to-image/cpu/float32"
ASKED = ("--model", "stable-diffusion", "--device", "cpu")

# As on a machine that never had it: neither its metadata nor its modules are found.
WITHOUT_DIFFUSERS = """
import importlib.metadata, sys
known = importlib.metadata.version
def version(name):
    if name == "diffusers":
        raise importlib.metadata.PackageNotFoundError(name)
    return known(name)
importlib.metadata.version = version
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "diffusers":
            raise ModuleNotFoundError("No module named 'diffusers'", name="diffusers")
sys.meta_path.insert(0, Hidden())
"""


@pytest.fixture(scope="module")
def ran(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    if not installed_diffusers():
        pytest.skip("diffusers isn't installed")
    return command_line.run(tmp_path_factory.mktemp("diffusion"), *ASKED, "--run")


def test_a_diffusion_model_passes_every_check(ran: Ran) -> None:
    assert ran.code == 0, ran.err
    assert ran.verdict(CELL) == "high"
    assert set(ran.outcomes(CELL).values()) == {Outcome.PASSED}
    assert {"matches_reference", "matches_recorded", "honours_mask", "save_reload"} <= set(ran.outcomes(CELL))
    assert ran.run_line.versions["diffusers"] == installed_diffusers()
    assert ran.network == []


def test_its_suite_fails_when_the_model_is_broken(ran: Ran, command_line: CommandLine, tmp_path: Path) -> None:
    verified = command_line.run(tmp_path, "--verify", ran.suites)
    assert verified.code == 0, verified.out + verified.err
    assert "1 pass on CPU, 1 fail when broken" in verified.out


@pytest.fixture(scope="module")
def without(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    hidden = tmp_path_factory.mktemp("hidden")
    (hidden / "sitecustomize.py").write_text(WITHOUT_DIFFUSERS, encoding="utf-8")
    path = os.pathsep.join([str(hidden), str(REPOSITORY)])
    return command_line.run(tmp_path_factory.mktemp("without"), *ASKED, "--run", env={"PYTHONPATH": path})


def test_without_diffusers_nothing_passes_and_the_command_is_named(without: Ran) -> None:
    assert without.code != 0
    assert "pip install -e '.[diffusion]'" in without.err
    lines = without.lines(CELL)
    assert lines
    assert {line.error_type for line in lines.values()} == {"missing_dependency"}
    assert Outcome.PASSED not in without.outcomes(CELL).values()
    assert without.verdict(CELL) not in ("high", "medium")
