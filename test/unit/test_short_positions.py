"""A model with fewer positions than the default inputs have tokens gets inputs, and decodes texts, that fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from generators.models.inputs import make_inputs, other_draws
from generators.recipes.derive import derive_checkpoint
from hardware.backends.base import STEPS
from hardware.testing.capability_checks import replay_inputs
from hardware.testing.reference import as_reference, float64_generation, float64_outputs

transformers = pytest.importorskip("transformers")

SMALL = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
INNER = {**SMALL, "intermediate_size": 64}
GPT2 = {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 4}
LAYERS = {"layers": 2, "attention_heads": 4, "ffn_dim": 64}
BOTH = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in LAYERS.items()}
MODELS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", 8, {**GPT2, "n_positions": 8}),
    "longer gpt2": ("GPT2Config", "GPT2LMHeadModel", 18, {**GPT2, "n_positions": 18}),
    "opt": ("OPTConfig", "OPTForCausalLM", 8, {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", 8, INNER),
    "bert": ("BertConfig", "BertForMaskedLM", 8, INNER),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", 10, {**INNER, "pad_token_id": 1}),
    "roberta decodes": (
        *("RobertaConfig", "RobertaForCausalLM", 12),
        {**INNER, "pad_token_id": 1, "is_decoder": True},
    ),
    "bart": ("BartConfig", "BartForConditionalGeneration", 8, {"vocab_size": 96, "d_model": 32, **BOTH}),
}
"""Configuration, model, positions and settings."""


@pytest.mark.parametrize("name", MODELS)
def test_all_inputs_and_decoded_texts_fit(name: str, tmp_path: Path) -> None:
    import torch

    config_class, model_class, most, settings = MODELS[name]
    if "n_positions" not in settings:
        settings = {**settings, "max_position_embeddings": most}
    config = getattr(transformers, config_class)(**settings, bos_token_id=1, eos_token_id=2)
    torch.manual_seed(0)
    made = getattr(transformers, model_class)(config)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.mul_(5)
    made.save_pretrained(tmp_path)

    recipe = derive_checkpoint(tmp_path)
    lengths = recipe.recorded["lengths"]
    model: Any = as_reference(type(made).from_pretrained(tmp_path))
    assert max(lengths) <= most
    assert min(lengths) < max(lengths), "a row is padded, so that a dropped mask shows"
    draws = [make_inputs(recipe.inputs, seed, rows or lengths) for seed, rows in other_draws(lengths)]
    for inputs in [make_inputs(recipe.inputs, 0, lengths), *draws]:
        float64_outputs(model, inputs)
    if recipe.generate != "none":
        inputs = make_inputs(recipe.inputs, 0, lengths)
        decoded = float64_generation(model, inputs, steps=STEPS)
        assert 2 <= decoded.tokens.shape[1] <= STEPS
        float64_outputs(model, replay_inputs(inputs, decoded, recipe.generate))
