"""Estimates of memory agree with torch's allocator, and allocate nothing."""

from __future__ import annotations

import functools
import json
import tomllib
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from safetensors.numpy import save_file
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from benchmarks.memory.measuring import measured
from generators.compatibility.memory_fit import MemoryEstimate, MemoryRequest
from generators.models.recipe_store import load_recipe
from generators.recipes.build_model import build
from generators.recipes.memory import kernel_workspace
from generators.recipes.memory.memory_estimate import Skeleton, Stack, built
from generators.recipes.memory.memory_request import memory_of, weights_of_another
from hardware.errors import ModelError

CONFIGS = Path(__file__).parents[1] / "fixtures" / "configs"
GB = 10**9


@pytest.mark.parametrize(("model_type", "mode"), [("llama", "training"), ("resnet", "inference")])
def test_estimate_agrees_with_the_allocator(model_type, mode):
    recipe = load_recipe(model_type)
    assert recipe is not None
    model = (recipe.config_class, recipe.model_class, recipe.config)
    asked = MemoryRequest(mode=mode, precision="float32", batch=24, context=16)
    found = Skeleton(lambda: build(*model)).estimate(asked, recipe.inputs, [16] * 24)
    request = {"inputs": recipe.inputs, "length": 16, "batch": 24, "precision": "float32", "mode": mode}
    real, _ = measured(built(lambda: build(*model)), request)
    assert found.total == pytest.approx(real, rel=0.1)


def test_estimate_for_an_accelerator_agrees_with_adamw_on_all_parameters_at_once(monkeypatch):
    """Torch does so by default on a GPU; on a CPU it does if asked to."""
    recipe = load_recipe("llama")
    assert recipe is not None
    model = (recipe.config_class, recipe.model_class, recipe.config)
    asked = MemoryRequest(mode="training", precision="float32", batch=1, context=4)
    found = Skeleton(lambda: build(*model)).estimate(asked, recipe.inputs, [4])
    monkeypatch.setattr(torch.optim, "AdamW", functools.partial(torch.optim.AdamW, foreach=True))
    request = {"inputs": recipe.inputs, "length": 4, "batch": 1, "precision": "float32", "mode": "training"}
    real, _ = measured(built(lambda: build(*model)), request)
    assert found.total < 0.95 * real
    assert found.on_accelerator.total == pytest.approx(real, rel=0.02)


def test_seventy_billion_parameters_are_counted_without_being_allocated():
    before = psutil.Process().memory_info().rss
    said = memory_of(str(CONFIGS / "llama-3-70b"), None, {"batch": 2, "context": 1024})
    assert psutil.Process().memory_info().rss - before < GB
    published = tomllib.loads((CONFIGS / "sources.toml").read_text())["llama-3-70b"]["parameters"]
    assert said["anatomy"]["parameters"] == published
    found = MemoryEstimate.from_dict(said["estimates"][0])
    assert found.weights == pytest.approx(2 * published, rel=1e-3)
    # Keys and values of two texts of 1,025 tokens, for 8 heads of 128 in 80 layers, in two bytes.
    assert found.cache == pytest.approx(2 * 2 * 1025 * 8 * 128 * 80 * 2, rel=0.01)


EXPERTS = {"hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 64, "vocab_size": 64}
DEEPSEEK = {
    **EXPERTS,
    **{"num_attention_heads": 2, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 8},
    **{"n_routed_experts": 32, "n_group": 2, "topk_group": 1, "qk_nope_head_dim": 8, "num_hidden_layers": 20},
}
QWEN = {**EXPERTS, "num_experts": 8, "num_hidden_layers": 24, "num_attention_heads": 2, "num_key_value_heads": 2}


@pytest.mark.parametrize(
    ("config", "model_class", "is_extrapolated"),
    [
        (DeepseekV3Config(**DEEPSEEK, first_k_dense_replace=3), DeepseekV3ForCausalLM, True),
        (DeepseekV3Config(**DEEPSEEK, first_k_dense_replace=6), DeepseekV3ForCausalLM, True),
        (DeepseekV3Config(**DEEPSEEK, first_k_dense_replace=17), DeepseekV3ForCausalLM, False),
        (Qwen3MoeConfig(**QWEN, decoder_sparse_step=6), Qwen3MoeForCausalLM, False),
    ],
)
def test_layers_of_two_kinds_are_extrapolated_only_where_that_is_exact(config, model_class, is_extrapolated):
    stack = Stack(config, lambda one: model_class(one).eval())
    asked = MemoryRequest(mode="generation", precision="bfloat16", batch=1, context=16)
    specs = {"input_ids": {"kind": "tokens", "high": 64}}
    assert bool(stack._depths) == is_extrapolated
    assert stack.estimate(asked, specs, [16]) == stack.whole.estimate(asked, specs, [16])


def test_text_longer_than_the_positions_is_refused_with_what_is_possible():
    with pytest.raises(ModelError, match="at most 512") as refused:
        memory_of(str(CONFIGS / "bert-large"), None, {"context": 1000})
    assert "--context 512" in refused.value.fix
    with pytest.raises(ModelError, match="memory can't be estimated for more than"):
        memory_of(str(CONFIGS / "bert-large"), None, {"context": 512, "batch": 2**20})


def written(folder: Path, **changed) -> str:
    """A folder with the configuration of a small Llama."""
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 256,
        "max_position_embeddings": 512,
    }
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | changed))
    return str(folder)


def test_sizes_that_no_model_has_are_refused_by_name(tmp_path):
    for name, value in (("num_hidden_layers", -3), ("vocab_size", -1), ("hidden_size", 0)):
        with pytest.raises(ModelError, match="configuration is invalid") as refused:
            memory_of(written(tmp_path, **{name: value}), None, {})
        assert refused.value.why == f"its {name} is {value}"


def test_quantized_weights_are_counted_in_their_bits(tmp_path):
    asked = {"mode": "inference", "precision": "bfloat16", "least_room": 1}
    plain = memory_of(written(tmp_path / "plain"), None, asked)
    said = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    packed = memory_of(written(tmp_path / "packed", quantization_config=said), None, asked)
    weights = [one["estimates"][0]["weights"] for one in (plain, packed)]
    linear = plain["anatomy"]["linear"]
    assert linear == 2 * (4 * 64 * 64 + 3 * 64 * 128)
    assert weights[0] - weights[1] == 2 * linear - linear // 2 - linear * 2 // 128
    assert packed["anatomy"]["linear"] == 0  # nothing is left to quantize
    assert any("4 bits" in note for note in packed["notes"])
    unnamed = memory_of(written(tmp_path / "odd", quantization_config={"quant_method": "new"}), None, asked)
    assert unnamed["estimates"][0]["weights"] == weights[0]
    assert any("estimated without quantization" in note for note in unnamed["notes"])


def test_what_an_estimate_left_aside_is_in_its_notes(tmp_path):
    found = memory_of(written(tmp_path, dtype="float64"), None, {"mode": "inference"})
    assert found["estimates"][0]["precision"] == "float32"
    assert any("float64" in note for note in found["notes"])
    folder = written(tmp_path)
    save_file({"one": np.zeros((10, 10), np.float32), "two": np.zeros(5, np.float32)}, tmp_path / "model.safetensors")
    assert any("have 105 parameters" in note for note in memory_of(folder, None, {"mode": "inference"})["notes"])
    assert weights_of_another(tmp_path, 104) == ""
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    assert "can't be read" in weights_of_another(tmp_path, 104)


def test_the_workspace_of_kernels_is_that_of_the_given_processor():
    """Half precision has no kernels of oneDNN's below AVX-512, and channels lie in blocks of half as many."""

    given, weight = torch.ones(2, 4, 8, 8, device="meta"), torch.ones(4, 4, 3, 3, device="meta")
    args = (given, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    held = {}
    for kind in ("AVX2", "AVX512"):
        with kernel_workspace.on_processor(kind):
            held[kind] = kernel_workspace.workspace_of("convolution", args, [given])
    assert held["AVX2"] != held["AVX512"]
