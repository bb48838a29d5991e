"""Silent fallbacks planted into real runs: a few of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fallbacks.__main__ import Bench, Plant, plants
from hardware.backends.factory import get_backend

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("fallbacks"), Path("no-device-is-built-here"))


@pytest.mark.parametrize(
    "name",
    [
        "decoding_on_host",
        "torch_behind_openvino",
        pytest.param("web_log_without_host", marks=pytest.mark.extended),
    ],
)
def test_a_planted_fallback_is_caught(bench: Bench, name: str) -> None:
    (plant,) = (one for one in plants() if one.name == name)
    if reason := get_backend(plant.target).unavailable():
        pytest.skip(f"{plant.target} isn't here: {reason}")
    found = bench.run(plant)
    assert found.took_effect, found
    assert found.is_caught, found


def test_without_its_plant_the_same_run_is_a_pass(bench: Bench) -> None:
    found = bench.run(Plant(name="nothing", target="simulated"))
    assert not found.took_effect
    assert found.level == "high", found.reason
