"""`fit` beside published results that tell whether a model fitted."""

from __future__ import annotations

import json

import pytest

from benchmarks.published_memory import SIZES
from generators.compatibility.published_rows import SHIPPED
from hardware.values import data_file
from hwcompat.plugins.study.fit_scores import MemoryRow, memory_tables, rows_about_memory


@pytest.fixture(scope="module")
def rows() -> list[MemoryRow]:
    return list(rows_about_memory())


def named(rows: list[MemoryRow], model: str, device: str) -> list[MemoryRow]:
    return [one for one in rows if one.row.model.startswith(model) and one.row.device == device]


def test_a_model_of_eight_billion_parameters_fits_32_gb_but_not_12(rows: list[MemoryRow]) -> None:
    large, small = (named(rows, "llama/causal_lm/pytorch-3.1_8B-single", one)[0] for one in ("p150", "n150"))
    assert (large.fits, large.fitted, small.fits, small.fitted) == (True, True, False, False)
    assert large.needed == small.needed == pytest.approx(2 * 8.03e9, rel=0.03)


def test_a_failure_that_is_listed_for_two_cards_counts_once(rows: list[MemoryRow]) -> None:
    name = "qwen_2_5/causal_lm/jax-7B-single"
    assert [len(named(rows, name, one)) for one in ("n150", "p150")] == [1, 0]
    seven_banks = "whisper/pytorch-Large-single_device-training"
    assert [len(named(rows, seven_banks, one)) for one in ("n150", "p150")] == [0, 1]


def test_rows_that_say_nothing_about_memory_are_left_out(rows: list[MemoryRow]) -> None:
    assert {one.row.outcome for one in rows if one.fitted} == {"pass", "ran_numbers_not_checked"}
    assert all("L1" not in one.row.detail and one.row.outcome != "untested" for one in rows)
    assert all(one.row.mode != "UnitTest" for one in rows)


def test_a_large_model_is_split_over_the_devices_of_its_source_and_an_engine_takes_its_share(
    rows: list[MemoryRow],
) -> None:
    (one, *_) = named(rows, "meta-llama/Llama-3.3-70B", "v6e")
    assert (one.devices, one.share, one.fits) == (8, 0.92, True)
    assert one.needed is not None
    assert 140e9 / 8 < one.needed < 140e9 / 4


def test_the_figure_is_above_the_goal_and_above_saying_that_everything_fits(rows: list[MemoryRow]) -> None:
    said, (head, *scored), _ = memory_tables(rows)
    whole = next(dict(zip(head, one, strict=True)) for one in scored if one[0] == "all")
    agreement, always = (float(whole[name].rstrip(" %")) for name in ("agreement", "always fits"))
    assert 85 <= agreement <= 100
    assert agreement > always
    assert f"({agreement} %)" in said


def test_sizes_give_the_published_numbers_of_parameters() -> None:
    estimates = json.loads(SHIPPED.with_name("published_memory.json").read_text(encoding="utf-8"))
    sizes = data_file(SIZES)
    counted = {
        key.split()[0]: one["anatomy"]["parameters"] for key, one in estimates.items() if key.split()[0] in sizes
    }
    assert set(counted) == set(sizes)
    for name, parameters in counted.items():
        assert parameters / 1e6 == pytest.approx(sizes[name]["millions"], rel=0.02), name
