"""`hwcompat fit` estimates a model from its config.json alone."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hardware.errors import UsageError
from hwcompat.cli.fit import fit_command

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
