"""Real weights: a checkpoint is tested as itself, and a suite never runs on other weights than its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import CommandLine, Ran, together

from hardware.evidence.record import Outcome
from hardware.testing.checkpoints import weights_hash

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

NAME = "mini-embedder"
TARGETS = ("cpu", "openvino")


@pytest.fixture(scope="module")
def folder(real_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint under a name of our own; its weights aren't copied."""
    made = tmp_path_factory.mktemp("checkpoints") / NAME
    made.mkdir()
    shutil.copy(real_checkpoint / "config.json", made)
    (made / "model.safetensors").symlink_to(real_checkpoint / "model.safetensors")
    return made


@pytest.fixture(scope="module")
def measured(folder: Path, command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    devices = [word for target in TARGETS for word in ("--device", target)]
    return command_line.run(tmp_path_factory.mktemp("measured"), "--model", folder, *devices, "--run")


def test_real_weights_pass_and_are_named_by_their_hash(measured: Ran, folder: Path) -> None:
    assert measured.code == 0, measured.err + measured.out
    for target in TARGETS:
        cell = next(one.cell_id for one in measured.run_line.plan if f"/{target}/" in one.cell_id)
        assert cell.startswith(f"{NAME}@")
        assert measured.verdict(cell) in ("high", "medium")
        assert set(measured.outcomes(cell).values()) == {Outcome.PASSED}
        for line in measured.lines(cell).values():
            assert (line.subject, line.model_revision) == ("checkpoint", weights_hash(folder))


def test_other_weights_are_refused_by_the_old_suite_and_missing_ones_asked_for(
    measured: Ran, folder: Path, command_line: CommandLine, tmp_path: Path
) -> None:
    other, elsewhere = tmp_path / "other" / NAME, tmp_path / "elsewhere" / "deeper" / "suites"
    shutil.copytree(folder, other)
    with (other / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\x00\x00\x00\x3f")  # the last weight becomes 0.5: a valid file with another number
    (made,) = measured.suites.glob("*_cpu_float32.py")
    shutil.copytree(measured.suites, elsewhere)  # the way to its folder leads nowhere there
    suite, named = elsewhere / made.name, {"HWCOMPAT_CHECKPOINTS": str(other)}
    found = together(
        {
            "other": lambda: command_line.pytest(tmp_path / "refused", suite, env=named),
            "none": lambda: command_line.pytest(tmp_path / "nowhere", suite, "-k", "builds"),
        }
    )
    assert [ran.code for ran in found.values()] == [1, 1]
    assert {line.outcome for line in found["other"].evidence.checks} == {Outcome.FAILED}
    for line in found["other"].evidence.checks:
        for words in ("wasn't found", "have other weights", "generate the suite again"):
            assert words in line.error_message
    (line,) = found["none"].evidence.checks
    assert "HWCOMPAT_CHECKPOINTS" in line.error_message
