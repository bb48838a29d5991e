"""A diffusion model on the command line: it runs as any other, a broken one fails, without diffusers it says why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import REPOSITORY, CommandLine, Ran

from generators.models.model_libraries import installed_diffusers
from hardware.evidence.record import Outcome

pytestmark = pytest.mark.slow

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


def test_attention_that_is_scaled_wrongly_fails(ran: Ran, command_line: CommandLine, tmp_path: Path) -> None:
    (suite,) = ran.suites.glob("test_*.py")
    text = suite.read_text(encoding="utf-8")
    built = "    return UNet2DConditionModel(**CONFIG)\n"
    broken = (
        "    model = UNet2DConditionModel(**CONFIG)\n"
        "    known = model.forward\n"
        "    def forward(*args, **kwargs):\n"
        "        if model.dtype is not torch.float64:\n"
        "            for module in model.modules():\n"
        "                if hasattr(module, 'to_q') and not hasattr(module, 'broken'):\n"
        "                    module.to_q.weight.data.mul_(1.1)\n"
        "                    module.broken = True\n"
        "        return known(*args, **kwargs)\n"
        "    model.forward = forward\n"
        "    return model\n"
    )
    assert built in text
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / suite.name).write_text("import torch\n" + text.replace(built, broken), encoding="utf-8")
    (folder / "conftest.py").write_text((ran.suites / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    again = command_line.pytest(tmp_path, "-q", folder)
    assert again.code == 1, again.out
    assert "FAILED" in again.out
    assert "test_matches_reference" in again.out
    assert "test_matches_recorded" in again.out


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
