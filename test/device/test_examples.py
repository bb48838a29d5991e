"""The examples run as their first lines say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import REPOSITORY, CommandLine, Ran

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture
def example(command_line: CommandLine, tmp_path: Path) -> Callable[..., Ran]:
    """Run a script of the repository; the test fails if it ends with another code."""

    def run(script: str, *words: str, code: int = 0) -> Ran:
        ran = command_line.python(tmp_path, script, *words)
        assert ran.code == code, ran.err
        return ran

    return run


@pytest.mark.extended
def test_one_training_loop_learns_the_same_on_two_devices(example: Callable[..., Ran]) -> None:
    losses = []
    for device in ("cpu", "simulated"):
        ran = example("examples/training_loop.py", "--device", device, "--steps", "5")
        losses.append([float(line.split()[-1]) for line in ran.out.splitlines() if line.startswith("step")])
    assert len(losses[0]) == 5
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.extended
def test_a_model_is_compared_on_all_that_is_here(example: Callable[..., Ran]) -> None:
    ran = example("examples/compare_backends.py", "--passes", "1")
    rows = {line.split()[0]: line.split() for line in ran.out.splitlines()[2:]}
    for name in ("cpu", "openvino", "simulated"):
        assert float(rows[name][1]) < 2e-5
        assert int(rows[name][2]) > 0
        assert rows[name][3] == "0"


def test_a_pipeline_gives_what_the_model_gives_on_a_device_that_is_here(example: Callable[..., Ran]) -> None:
    assert "applied: " in example("examples/inference_pipeline.py", "--level", "O1").out
    assert "mps can't be used" in example("examples/inference_pipeline.py", "--device", "mps", code=1).err


def test_devices_of_several_vendors_are_asked_and_placed_on(example: Callable[..., Ran], tmp_path: Path) -> None:
    recorded = [REPOSITORY / "test" / "fixtures" / name for name in ("nvidia/h100-x8", "amd/mi300x-x2")]
    words = [word for path in recorded for word in ("--replay", str(path))]
    example("examples/multi_vendor_demo.py", *words, "--output", str(tmp_path / "said.json"))
    said = json.loads((tmp_path / "said.json").read_text())
    assert said["machines"]["h100-x8"]["vendors"]["nvidia"] == 8
    assert said["machines"]["mi300x-x2"]["vendors"]["amd"] >= 2
    placed = {one["workload"]: one["device"] for one in said["placement"]["assignments"]}
    nowhere = {one["workload"] for one in said["placement"]["misfits"]}
    assert set(placed) | nowhere == {"classifier", "encoder", "generator", "large generator"}
    reasons = [answer["reasons"] for one in said["machines"].values() for answer in one["answers"]]
    assert all(reasons), "each device that wasn't chosen has its reason"


def test_what_is_here_is_measured_and_a_split_model_is_the_whole_one(
    example: Callable[..., Ran], tmp_path: Path
) -> None:
    ran = example("examples/enhanced_multi_vendor_demo.py", "--quick", "--output", str(tmp_path / "said.json"))
    said = json.loads((tmp_path / "said.json").read_text())
    rows = {row["device"]: row for row in said["measured"]}
    assert rows["cpu"]["right"]
    assert rows["simulated"]["right"]
    assert all(row.get("skipped") or row["tflops"] > 0 for row in rows.values())
    assert said["mesh"]["passed"]
    assert "bert, data=2: equal to one device" in ran.out


@pytest.mark.extended
def test_models_are_shared_below_a_budget(example: Callable[..., Ran]) -> None:
    ran = example("examples/shared_models.py", "--device", "cpu")
    assert "48 of 48 calls were answered" in ran.out
    assert not ran.out.splitlines()[0].endswith(" 0 models went")
    held, budget = float(ran.out.splitlines()[1].split()[1]), 24.0
    assert 0 < held < budget
