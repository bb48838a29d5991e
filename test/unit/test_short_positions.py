"""A model with fewer positions than the default inputs have tokens gets inputs, and decodes texts, that fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from generators.models.inputs import OTHER_DRAWS, make_inputs, other_draws
from generators.recipes.derive import derive_checkpoint
from hardware.backends.base import STEPS
from hardware.testing.capability_checks import replay_inputs
from hardware.testing.reference import as_reference, float64_generation, float64_outputs

transformers = pytest.importorskip("transformers")

SMALL = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
INNER = {**SMALL, "intermediate_size": 64}
BART = {
    "vocab_size": 96,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 8,
}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {"vocab_size": 96, "n_positions": 8, "n_embd": 32, "n_layer": 2, "n_head": 4},
    ),
    "opt": (
        "OPTConfig",
        "OPTForCausalLM",
        {**SMALL, "ffn_dim": 64, "max_position_embeddings": 8, "word_embed_proj_dim": 32},
    ),
    "llama": ("LlamaConfig", "LlamaForCausalLM", {**INNER, "max_position_embeddings": 8}),
    "longer gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {"vocab_size": 96, "n_positions": 18, "n_embd": 32, "n_layer": 2, "n_head": 4},
    ),
    "bert": ("BertConfig", "BertForMaskedLM", {**INNER, "max_position_embeddings": 8}),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", {**INNER, "max_position_embeddings": 10, "pad_token_id": 1}),
    "roberta decodes": (
        "RobertaConfig",
        "RobertaForCausalLM",
        {**INNER, "max_position_embeddings": 12, "pad_token_id": 1, "is_decoder": True},
    ),
    "bart": ("BartConfig", "BartForConditionalGeneration", BART),
}


@pytest.mark.parametrize("name", MODELS)
def test_all_inputs_and_decoded_texts_fit(name: str, tmp_path: Path) -> None:
    import torch

    config_class, model_class, settings = MODELS[name]
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
    most = settings.get("max_position_embeddings") or settings["n_positions"]
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


def test_a_model_with_room_gets_the_draws_as_ever() -> None:
    assert other_draws((16, 9)) == OTHER_DRAWS
