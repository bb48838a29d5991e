"""The examples run as their first lines say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import REPOSITORY, CommandLine

pytestmark = pytest.mark.slow


@pytest.mark.extended
def test_one_training_loop_learns_the_same_on_two_devices(command_line: CommandLine, tmp_path: Path) -> None:
    losses = []
    for device in ("cpu", "simulated"):
        folder = tmp_path / device
        process = command_line.start_python(folder, "examples/training_loop.py", "--device", device, "--steps", "5")
        ran = command_line.wait(process, folder)
        assert ran.code == 0, ran.err
        losses.append([float(line.split()[-1]) for line in ran.out.splitlines() if line.startswith("step")])
    assert len(losses[0]) == 5
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.extended
def test_a_model_is_compared_on_all_that_is_here(command_line: CommandLine, tmp_path: Path) -> None:
    ran = command_line.wait(
        command_line.start_python(tmp_path, "examples/compare_backends.py", "--passes", "1"), tmp_path
    )
    assert ran.code == 0, ran.err
    rows = {line.split()[0]: line.split() for line in ran.out.splitlines()[2:]}
    for name in ("cpu", "openvino", "simulated"):
        assert float(rows[name][1]) < 2e-5
        assert int(rows[name][2]) > 0
        assert rows[name][3] == "0"


def test_a_pipeline_gives_what_the_model_gives(command_line: CommandLine, tmp_path: Path) -> None:
    process = command_line.start_python(tmp_path, "examples/inference_pipeline.py", "--level", "O1")
    ran = command_line.wait(process, tmp_path)
    assert ran.code == 0, ran.err
    assert "applied: " in ran.out


def test_a_device_that_is_not_here_is_no_other(command_line: CommandLine, tmp_path: Path) -> None:
    process = command_line.start_python(tmp_path, "examples/inference_pipeline.py", "--device", "mps")
    ran = command_line.wait(process, tmp_path)
    assert ran.code == 1
    assert "mps can't be used" in ran.err


def test_devices_of_several_vendors_are_asked_and_placed_on(command_line: CommandLine, tmp_path: Path) -> None:
    recorded = [REPOSITORY / "test" / "fixtures" / name for name in ("nvidia/h100-x8", "amd/mi300x-x2")]
    words = [word for path in recorded for word in ("--replay", str(path))]
    process = command_line.start_python(
        tmp_path, "examples/multi_vendor_demo.py", *words, "--output", str(tmp_path / "said.json")
    )
    ran = command_line.wait(process, tmp_path)
    assert ran.code == 0, ran.err
    said = json.loads((tmp_path / "said.json").read_text())
    assert said["machines"]["h100-x8"]["vendors"]["nvidia"] == 8
    assert said["machines"]["mi300x-x2"]["vendors"]["amd"] >= 2
    placed = {one["workload"]: one["device"] for one in said["placement"]["assignments"]}
    nowhere = {one["workload"] for one in said["placement"]["misfits"]}
    assert set(placed) | nowhere == {"classifier", "encoder", "generator", "large generator"}
    reasons = [answer["reasons"] for one in said["machines"].values() for answer in one["answers"]]
    assert all(reasons), "each device that wasn't chosen has its reason"


def test_what_is_here_is_measured_and_a_split_model_is_the_whole_one(
    command_line: CommandLine, tmp_path: Path
) -> None:
    process = command_line.start_python(
        tmp_path, "examples/enhanced_multi_vendor_demo.py", "--quick", "--output", str(tmp_path / "said.json")
    )
    ran = command_line.wait(process, tmp_path)
    assert ran.code == 0, ran.err
    said = json.loads((tmp_path / "said.json").read_text())
    rows = {row["device"]: row for row in said["measured"]}
    assert rows["cpu"]["right"]
    assert rows["simulated"]["right"]
    assert all(row.get("skipped") or row["tflops"] > 0 for row in rows.values())
    assert said["mesh"]["passed"]
    assert "bert, data=2: equal to one device" in ran.out


def test_the_layer_is_measured_beside_direct_calls(command_line: CommandLine, tmp_path: Path) -> None:
    process = command_line.start_python(
        tmp_path, "benchmarks/hardware_abstraction_benchmark.py", "--quick", "--output", str(tmp_path / "said.json")
    )
    ran = command_line.wait(process, tmp_path)
    assert ran.code == 0, ran.err
    pairs = json.loads((tmp_path / "said.json").read_text())["pairs"]
    assert len(pairs) == 5
    assert all(one["ratio"] > 0 for one in pairs.values())


def test_models_are_shared_below_a_budget(command_line: CommandLine, tmp_path: Path) -> None:
    ran = command_line.wait(
        command_line.start_python(tmp_path, "examples/shared_models.py", "--device", "cpu"), tmp_path
    )
    assert ran.code == 0, ran.err
    assert "48 of 48 calls were answered" in ran.out
    assert not ran.out.splitlines()[0].endswith(" 0 models went")
    held, budget = float(ran.out.splitlines()[1].split()[1]), 24.0
    assert 0 < held < budget
