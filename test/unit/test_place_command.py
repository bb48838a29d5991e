"""`hwcompat place`: models on devices of this machine, and on those of machines whose inventories are given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from front_doors import Invoked, invoke
from recorded_machines import machine

from hardware.detection import detect


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three inventories, and a cache of memory estimates, each of which takes a process of seconds once."""
    folder = tmp_path_factory.mktemp("place")
    for label, name in (("lab1", "nvidia/h100-x8"), ("lab2", "amd/mi300x-x2"), ("board", "machines/raspberry-pi-5")):
        data = detect(machine(name)).to_dict()
        build = {"nvidia": {"cuda": "12.8"}, "amd": {"hip": "6.4"}}.get(name.partition("/")[0], {})
        data["torch"] = {"version": "2.13.0", "cuda": None, "hip": None, "xpu": None, "reason": ""} | build
        (folder / f"{label}.json").write_text(json.dumps(data))
    return folder


@pytest.fixture
def place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Invoked]:
    monkeypatch.setenv("HWCOMPAT_CACHE", str(folder / "cache"))
    return lambda *more: invoke("place", "--model", "bert", *more)


def test_models_are_placed_on_devices_of_several_machines(place: Callable[..., Invoked], folder: Path) -> None:
    words = ("--model", "gpt2", "--inventory", folder / "lab1.json", "--inventory", folder / "lab2.json")
    result = place(*words, "--format", "json", "--pin", "gpt2=lab1/cuda:3", "--forbid", "bert=lab1/cuda:0")
    found = result.document
    where = {one["workload"]: one for one in found["assignments"]}
    assert (where["gpt2"]["device"], where["gpt2"]["reason"]) == ("lab1/cuda:3", "pinned there")
    assert where["bert"]["device"] not in ("lab1/cuda:0", "lab1/cuda:3")
    assert where["bert"]["memory_bytes"] > 4e8, "the real configuration's, not the tiny model's"
    assert {one["device"] for one in found["devices"]} >= {"lab1/cpu", "lab2/cpu", "lab1/cuda:7", "lab2/rocm:1"}


def test_a_model_without_a_device_is_exit_code_1_with_every_reason(
    place: Callable[..., Invoked], folder: Path
) -> None:
    lab1 = ("--inventory", folder / "lab1.json", "--device", "cuda")
    result = place(*lab1, "--forbid", "bert=lab1/cpu")
    assert result.code == 4, "the processor was left out by --device"
    result = place(*lab1, *(word for n in range(8) for word in ("--forbid", f"bert=lab1/cuda:{n}")))
    assert result.code == 1
    assert "No device for bert:" in result.out
    assert result.out.count("forbidden by --forbid") == 8


def test_the_table_shows_bound_method_and_source_in_80_columns(place: Callable[..., Invoked], folder: Path) -> None:
    result = place("--inventory", folder / "board.json")
    assert result.code == 0
    assert "Placed 1 of 1 (all loaded at once), exact" in result.out
    assert "estimate: 0.112 10^12 operations at" in result.out, "and it is called an estimate"
    assert [line for line in result.out.splitlines() if len(line) > 80] == []


def test_no_model_is_put_on_a_processor_of_unknown_speed_beside_idle_gpus(
    place: Callable[..., Invoked], folder: Path
) -> None:
    for label in ("lab1", "lab2"):
        result = place("--inventory", folder / f"{label}.json", "--format", "json")
        (found,) = result.document["assignments"]
        assert found["device"].partition(":")[0] in ("lab1/cuda", "lab2/rocm"), found
    costs = folder / "costs.toml"
    costs.write_text('[per_hour]\n"lab1/cpu" = 0.2\n"NVIDIA H100*" = 2.5\n')
    result = place("--inventory", folder / "lab1.json", "--costs", costs)
    assert "A pass of each costs 1.16e-06." in result.out
    assert "no cost for lab2/cpu" in place("--inventory", folder / "lab2.json", "--costs", costs).err


def test_words_that_make_no_sense_are_refused(place: Callable[..., Invoked]) -> None:
    for words, reason in (
        (("--pin", "bert"), "isn't a pair"),
        (("--pin", "bert=gpu9"), "there is no device"),
        (("--pin", "brt=cpu"), "there is no workload"),
        (("--format", "csv"), "'csv' is not one of"),
        (("--device", "cuda"), "no device matches"),
        (("--device", "cudda"), "cudda"),
        (("--run",), "No such option '--run'"),
    ):
        result = place(*words)
        assert (result.code in (4, 5), result.out) == (True, ""), words
        assert reason in result.err
