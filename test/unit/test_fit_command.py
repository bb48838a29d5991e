"""`hwcompat fit` estimates a model from its config.json alone.

`fit` beside published results that tell whether a model fitted.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from benchmarks.published_memory import SIZES
from generators.compatibility.published_rows import SHIPPED
from hardware.errors import UsageError
from hardware.values import data_file
from hwcompat.cli.fit import fit_command
from hwcompat.plugins.study.fit_scores import MemoryRow, memory_tables, rows_about_memory

LLAMA_3_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
GIB = 2**30


def fit(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(fit_command, words, standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.return_value, result.stdout


def folder(parent: Path, name: str, config: dict[str, object]) -> Path:
    (parent / name).mkdir()
    (parent / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return parent / name


def test_llama_3_8b_needs_what_its_sizes_say(tmp_path):
    place = folder(tmp_path, "Llama-3-8B", LLAMA_3_8B)
    code, text = fit(str(place), "--memory", "24GiB", "--context", "8k", "--precision", "bf16")
    first = "Llama-3-8B, bfloat16, 8,192 tokens, batch 1: 16.9 GiB; fits a 24 GiB device (7.1 GiB left)"
    assert (code, text.splitlines()[0]) == (0, first)
    asked = ("--memory", "12gb", "--context", "8,192", "--precision", "bfloat16", "--format", "json")
    code, text = fit(str(place / "config.json"), *asked)
    found = json.loads(text)
    assert (code, found["model"], found["devices"][0]["device"]) == (1, "Llama-3-8B", "12 GB")
    base, *smaller = found["variants"]
    assert base["weights"] == pytest.approx(2 * 8_030_261_248, rel=1e-3)
    # Keys and values of 8,193 tokens, for 8 heads of 128 in 32 layers, in two bytes.
    assert base["cache"] == pytest.approx(2 * 8193 * 32 * 8 * 128 * 2, rel=0.01)
    assert base["activations"] < GIB
    fits = {", ".join(one["differences"]): one["fits"] for one in smaller}
    assert (fits["int8"], fits["1,024 tokens"]) == ([True], [False])


def test_training_of_gpt2_takes_weights_gradients_and_optimizer(tmp_path):
    place = folder(tmp_path, "gpt2", GPT2)
    asked = ("--training", "--context", "16", "--precision", "fp32", "--memory", "3GB", "--format", "json")
    code, text = fit(str(place), *asked)
    found = json.loads(text)["variants"][0]
    weights = 4 * 124_439_808
    assert code == 0
    assert found["gradients"] == pytest.approx(weights, rel=1e-3)
    assert found["total"] == pytest.approx(5 * weights, rel=0.02)


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--memory", "24", "with a unit"),
        ("--memory", "24 apples", "'24 apples'"),
        ("--context", "8q", "number of tokens"),
        ("--precision", "int8", "in every answer"),
        ("--device", "gpu9", "unknown device"),
    ],
)
def test_what_cannot_be_read_is_refused_with_an_example(option, value, why):
    with pytest.raises((UsageError, click.BadParameter), match=why):
        fit("gpt2", option, value)


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
