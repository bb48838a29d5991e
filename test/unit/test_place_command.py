"""`--place`: models onto this machine's devices, and onto those of machines that sent their inventories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from recorded_machines import machine

from generators.compatibility.memory_fit import MemoryEstimate, MemoryRequest
from hardware.detection import detect
from hardware.errors import BrokenInput, HwCompatError
from hardware.inventory_file import read_inventory
from hwcompat.plugins.placement.place_command import at_best
from hwcompat.plugins.placement.placement_device import Device, Figure
from run_test_generation import main


def place(*words: str) -> Result:
    return CliRunner().invoke(main, ["--place", *words], standalone_mode=False)


def plain(result: Result) -> dict[str, Any]:
    assert result.exception is None, result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def inventories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("inventories")
    paths = folder / "lab1.json", folder / "lab2.json"
    for path, name in zip(paths, ("nvidia/h100-x8", "amd/mi300x-x2"), strict=True):
        data = detect(machine(name)).to_dict()
        build = {"cuda": "12.8"} if name.startswith("nvidia") else {"hip": "6.4"}
        data["torch"] = {"version": "2.13.0", "cuda": None, "hip": None, "xpu": None, "reason": ""} | build
        path.write_text(json.dumps(data))
    return paths


def test_an_inventory_comes_back_as_it_was_written(inventories: tuple[Path, Path]) -> None:
    before = detect(machine("nvidia/h100-x8"))
    after = read_inventory(inventories[0])
    assert after.accelerators == before.accelerators
    assert after.memory == before.memory
    assert after.vendors == before.vendors
    assert (after.cpu.model, after.cpu.cores, after.cpu.instruction_sets) == (
        before.cpu.model,
        before.cpu.cores,
        before.cpu.instruction_sets,
    )
    assert after.torch.kind == "cuda"


def test_models_go_on_devices_of_several_machines(inventories: tuple[Path, Path]) -> None:
    lab1, lab2 = map(str, inventories)
    words = ("--model", "bert", "--model", "gpt2", "--inventory", lab1, "--inventory", lab2, "--format", "json")
    found = plain(place(*words, "--pin", "gpt2=lab1/cuda:3", "--forbid", "bert=lab1/cuda:0"))
    where = {one["workload"]: one for one in found["assignments"]}
    assert where["gpt2"]["device"] == "lab1/cuda:3"
    assert where["gpt2"]["reason"] == "pinned there"
    assert where["bert"]["device"] not in ("lab1/cuda:0", "lab1/cuda:3")
    assert where["bert"]["memory_bytes"] > 4e8, "the real configuration's, not the tiny model's"
    assert {one["device"] for one in found["devices"]} >= {"lab1/cpu", "lab2/cpu", "lab1/cuda:7", "lab2/rocm:1"}


def test_a_model_without_a_place_is_exit_code_1_with_every_reason(inventories: tuple[Path, Path]) -> None:
    result = place(
        "--model", "bert", "--inventory", str(inventories[0]), "--device", "cuda", "--forbid", "bert=lab1/cpu"
    )
    assert isinstance(result.exception, HwCompatError), "the processor was left out by --device"
    words = [word for n in range(8) for word in ("--forbid", f"bert=lab1/cuda:{n}")]
    result = place("--model", "bert", "--inventory", str(inventories[0]), "--device", "cuda", *words)
    assert result.return_value == 1
    assert "No place for bert:" in result.stdout
    assert result.stdout.count("you forbid it there") == 8


def test_the_table_shows_bound_method_and_source() -> None:
    result = place("--model", "bert")
    assert result.return_value == 0
    assert "Placed 1 of 1 (all loaded at once), exact" in result.stdout
    assert "not measured there" in result.stdout, "no speed is kept here, and none is invented"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--pin", "bert"), "no pair"),
        (("--pin", "bert=gpu9"), "no device here"),
        (("--pin", "brt=cpu"), "no workload here"),
        (("--format", "csv"), "a table or json"),
        (("--device", "cuda"), "is a device here"),
        (("--device", "cudda"), "cudda"),
        (("--run",), "two jobs"),
    ],
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], says: str) -> None:
    result = place("--model", "bert", *words)
    assert isinstance(result.exception, HwCompatError)
    assert says in str(result.exception)


def test_its_options_want_it() -> None:
    result = CliRunner().invoke(main, ["--model", "bert", "--pin", "bert=cpu"], standalone_mode=False)
    assert "go with --place" in str(result.exception)


@pytest.mark.parametrize(
    "change",
    [
        {"accelerators": [{"vendor": "NVIDIA"}]},
        {"accelerators": [{"vendor": "NVIDIA", "device_type": "gpu", "model": "x", "memory_bytes": -1}]},
        {"accelerators": [{"vendor": "NVIDIA", "device_type": "gpu", "model": 7}]},
        {"vendors": [{"vendor": "NVIDIA", "hardware": "perhaps", "driver": "ok", "library": "ok"}]},
        {"cpu": {"model": ["x"]}},
        {"cpu": {"instruction_sets": "AVX"}},
        {"memory": {"total_bytes": 1e300}},
        {"memory": {}},
        {"host": []},
        {"torch": {"version": 3}},
    ],
)
def test_an_inventory_that_no_machine_has_is_refused(
    inventories: tuple[Path, Path], tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(json.loads(inventories[0].read_text()) | change))
    with pytest.raises(BrokenInput, match="no inventory"):
        read_inventory(path)


def test_a_pass_takes_at_best_what_the_device_can_do() -> None:
    request = MemoryRequest(mode="inference", precision="float32", batch=2, context=100)
    estimate = MemoryEstimate(
        request=request, weights=4 * 10**9, gradients=0, optimiser=0, inputs=0, cache=0, activations=0, workspace=0
    )
    fast = Device(
        name="cuda:0",
        target="cuda",
        tflops={"float32": Figure(value=10.0, source="a table")},
        bandwidth_gbps=Figure(value=1000.0, source="a driver"),
    )
    found = at_best(estimate, 10**9, fast, "text_generation")
    assert found.value == pytest.approx(2 * 10**9 * 200 / 10e12)
    assert "at best: 0.4 10^12 operations at 10 TFLOPS (a table)" in found.source
    slow = Device(name="d", target="cuda", tflops=fast.tflops, bandwidth_gbps=Figure(value=10.0, source="a driver"))
    assert at_best(estimate, 10**9, slow, "text_generation").value == pytest.approx(0.4)
    assert at_best(estimate, 10**9, fast, "vision").value is None
    unknown = at_best(estimate, 10**9, Device(name="d", target="cuda"), "text_generation")
    assert unknown.value is None
    assert "stress d --keep" in unknown.reason
    elsewhere = at_best(estimate, 10**9, Device(name="lab1/cuda:0", target="cuda"), "text_generation")
    assert "on lab1: python -m hardware stress cuda:0 --keep, then write its inventory" in elsewhere.reason


def test_a_placement_fits_a_terminal_of_80_columns() -> None:
    shown = place("--model", "bert").stdout
    assert [line for line in shown.splitlines() if len(line) > 80] == []
