"""Mutants: each break is what it says, and falls where the outputs depend on it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from tiny_models import broken, changed_parameters, run, tiny

from generators.mutants.model_anatomy import SMALLEST_CHANGE, ModelAnatomy, change
from generators.mutants.mutation_operators import OPERATORS, mutate
from generators.recipes.attention_layers import attention_layers, scale_attention
from hardware.model.calls import to_tensors
from hardware.model.greedy_decoding import greedy
from hardware.target import Target
from hardware.testing.tolerances import tolerance_for

KINDS = ("bert", "vit", "mixtral", "mamba", "resnet", "patchtst", "wav2vec2", "detr", "swin", "deepseek_v3")
"""Kinds that are broken in different ways: each has a break that no other has in this form."""
LARGE = pytest.param("rag", marks=pytest.mark.extended)


@pytest.mark.parametrize("model_type", [*KINDS, LARGE])
def test_every_operator_changes_every_kind(model_type: str) -> None:
    model, inputs, recipe = tiny(model_type)
    anatomy = ModelAnatomy(model, inputs)
    for operator in OPERATORS:
        mutant = copy.deepcopy(model)
        assert mutate(mutant, operator, 0, anatomy).site
        moved = change(model, mutant, inputs, generates=recipe.generate, masked_by=recipe.masked_by)
        assert moved > 1e-4, operator


def test_scaled_attention_is_one_query_times_eleven_tenths() -> None:
    model, inputs, _ = tiny("bert")
    mutant, site = broken(model, inputs, "attention_scale")
    changed = changed_parameters(model, mutant)
    assert sorted(name.rpartition(".")[2] for name in changed) == ["bias", "weight"]
    for name, (before, after) in changed.items():
        assert ".query." in name
        torch.testing.assert_close(after, before * 1.1)
    assert site.partition("[")[0] in changed


def test_swapped_query_of_grouped_heads_gives_its_first_rows() -> None:
    model, inputs, _ = tiny("mixtral")
    mutant, _ = broken(model, inputs, "swapped_query_key")
    changed = changed_parameters(model, mutant)
    (query_before, query_after), (key_before, key_after) = (
        next(pair for name, pair in changed.items() if part in name) for part in ("q_proj", "k_proj")
    )
    rows = len(key_before)
    assert torch.equal(query_after[:rows], key_before)
    assert torch.equal(key_after, query_before[:rows])
    assert torch.equal(query_after[rows:], query_before[rows:])


def test_transposed_head_exchanges_heads_and_features() -> None:
    model, inputs, _ = tiny("gpt2")
    mutant, site = broken(model, inputs, "transposed_head")
    ((name, (before, after)),) = changed_parameters(model, mutant).items()
    heads = attention_layers(model)[0].heads
    out = before.shape[1]
    assert name.endswith("c_proj.weight")
    assert site.startswith(name)
    assert torch.equal(after.reshape(-1, heads, out), before.reshape(heads, -1, out).transpose(0, 1))


def test_shifted_rotation_is_the_rotation_of_the_next_position() -> None:
    from transformers.models.mixtral.modeling_mixtral import apply_rotary_pos_emb

    model, inputs, _ = tiny("mixtral")
    mutant, _ = broken(model, inputs, "position_off_by_one")
    ((_, (before, after)),) = changed_parameters(model, mutant).items()
    heads = attention_layers(model)[0].heads
    states = torch.randn(1, 1, before.shape[1], generator=torch.Generator().manual_seed(0))

    def at(weight: torch.Tensor, position: int) -> torch.Tensor:
        query = (states @ weight.T).reshape(1, 1, heads, -1).transpose(1, 2)
        cos, sin = model.model.rotary_emb(states, torch.tensor([[position]]))
        turned: torch.Tensor = apply_rotary_pos_emb(query, query, cos, sin)[0]
        return turned

    torch.testing.assert_close(at(after, 4), at(before, 5))
    assert not torch.allclose(at(after, 4), at(before, 4), atol=1e-2)


def test_dropped_mask_is_a_mask_of_ones() -> None:
    masks = {"bert": "attention_mask", "patchtst": "past_observed_mask", "rag": "context_attention_mask"}
    for model_type, mask in masks.items():
        model, inputs, recipe = tiny(model_type)
        mutant, site = broken(model, inputs, "dropped_mask")
        unmasked = inputs | {mask: np.ones_like(inputs[mask])}
        output = recipe.outputs[0]
        assert site == f"input {mask}"
        assert np.array_equal(run(mutant, inputs)[output], run(model, unmasked)[output])


def test_without_a_mask_input_the_mask_inside_is_dropped_or_one_place_of_the_cut_input() -> None:
    for model_type, place in (("swin", "blocks.1"), ("nougat", "decoder"), ("whisper", "decoder")):
        model, inputs, _ = tiny(model_type)
        found = broken(model, inputs, "dropped_mask")[1]
        assert found.startswith("mask of ")
        assert place in found
    model, inputs, _ = tiny("vit")
    mutant, site = broken(model, inputs, "dropped_mask")
    patches = {}
    for name, one in (("clean", model), ("broken", mutant)):
        projection = one.get_submodule(site.partition(",")[0])
        patches[name] = projection(torch.tensor(inputs["pixel_values"]))
    lost = (patches["broken"] == 0).all(dim=1)
    assert lost.sum() == len(inputs["pixel_values"])
    assert torch.equal(patches["broken"][:, :, ~lost[0]], patches["clean"][:, :, ~lost[0]])


def test_where_query_and_key_have_other_shapes_key_and_value_are_exchanged() -> None:
    model, inputs, _ = tiny("deepseek_v3")
    mutant, _ = broken(model, inputs, "swapped_query_key")
    ((name, (before, after)),) = changed_parameters(model, mutant).items()
    layer = next(one for one in attention_layers(model) if one.query.weight.split(".")[:3] == name.split(".")[:3])
    assert layer.key is not None
    assert layer.value is not None
    for (start, stop), (other, end) in zip(layer.key.ranges, layer.value.ranges, strict=True):
        assert torch.equal(after[start:stop], before[other:end])
        assert torch.equal(after[other:end], before[start:stop])


def test_a_tenth_more_at_any_attention_that_matters_is_well_above_the_tolerance() -> None:
    limit = tolerance_for(Target(name="cpu"), "float32").limit
    for model_type in ("detr", "resnet", "clip", "mixtral"):
        model, inputs, recipe = tiny(model_type)
        for layer in ModelAnatomy(model, inputs).attention_layers:
            mutant = copy.deepcopy(model)
            scale_attention(mutant, layer, 1.1)
            assert change(model, mutant, inputs, masked_by=recipe.masked_by) > 5 * limit, layer.module


def test_channels_of_a_convolution_are_exchanged_where_there_are_no_heads() -> None:
    model, inputs, _ = tiny("resnet")
    mutant, site = broken(model, inputs, "transposed_head")
    ((name, (before, after)),) = changed_parameters(model, mutant).items()
    half = before.shape[1] // 2
    assert site == f"{name}, 2 groups of {half}"
    assert torch.equal(after[:, 0::2], before[:, :half])
    assert torch.equal(after[:, 1::2], before[:, half:])


@pytest.mark.parametrize(
    ("model_type", "operator", "site"),
    [
        ("patchtsmixer", "attention_scale", "patch_mixer"),
        ("patchtsmixer", "swapped_query_key", " with "),
        ("patchtsmixer", "stale_cache", "output of model.encoder.mlp_mixer_encoder.mixers"),
        ("mobilenet_v1", "transposed_head", "2 groups of"),
        ("mamba2", "stale_cache", "cache of layer"),
        ("zamba2", "stale_cache", "cache of layer"),
    ],
)
def test_a_kind_without_a_place_for_a_break_has_a_counterpart(model_type: str, operator: str, site: str) -> None:
    model, inputs, recipe = tiny(model_type)
    mutant, where = broken(model, inputs, operator)
    assert site in where
    assert "layer -1" not in where
    assert change(model, mutant, inputs, generates=recipe.generate, masked_by=recipe.masked_by) > 1e-4


def test_positions_of_every_form_are_off_by_one() -> None:
    for model_type, site in (
        ("modernbert-decoder", "rotated by one position"),
        ("bloom", "linear biases"),
        ("detr", "position_embedding, positions"),
        ("wav2vec2", "pos_conv_embed, positions"),
        ("resnet", "kernel"),
        ("marian", "embed_positions.weight, rows"),
        ("patchtst", "position_enc, rows"),
    ):
        model, inputs, _ = tiny(model_type)
        assert site in broken(model, inputs, "position_off_by_one")[1]


def test_a_weight_that_the_outputs_do_not_depend_on_is_no_site() -> None:
    """LLaVA reads its image before the last layer; the first attention among DETR's queries sees equal values."""
    for model_type, dead in (("llava", "vision_model.encoder.layers.1"), ("detr", "decoder.layers.0.self_attn")):
        model, inputs, recipe = tiny(model_type)
        unused = next(layer for layer in attention_layers(model) if dead in layer.module)
        assert unused.module not in {layer.module for layer in ModelAnatomy(model, inputs).attention_layers}
        mutant = copy.deepcopy(model)
        scale_attention(mutant, unused, 2.0)
        assert change(model, mutant, inputs, masked_by=recipe.masked_by) < SMALLEST_CHANGE


def test_stale_cache_spares_decoding_without_one() -> None:
    for model_type in ("gpt2", "mamba"):
        model, inputs, _ = tiny(model_type)
        mutant, _ = broken(model, inputs, "stale_cache")
        tensors = to_tensors(inputs, "cpu", torch.float32)
        for use_cache, spared in ((False, True), (True, False)):
            clean, other = (greedy(m, tensors, steps=4, use_cache=use_cache).logits for m in (model, mutant))
            assert np.array_equal(clean, other) is spared
            assert np.array_equal(clean[:, :2], other[:, :2])  # the third step is the first that reads a wrong entry


def test_outputs_are_broken_in_the_rows_of_the_site_or_kept_from_the_first_call() -> None:
    model, inputs, _ = tiny("vit")
    clean = run(model, inputs)["logits"]
    nan = run(broken(model, inputs, "nan_row")[0], inputs)["logits"]
    assert np.isnan(nan[-1]).all()
    assert np.array_equal(nan[:-1], clean[:-1])
    half = run(broken(model, inputs, "half_batch")[0], inputs)["logits"]
    assert np.array_equal(half, clean[[0, 0]])
    mutant, _ = broken(model, inputs, "frozen_output")
    other = {name: value[::-1] for name, value in inputs.items()}
    assert np.array_equal(run(mutant, inputs)["logits"], clean)
    assert np.array_equal(run(mutant, other)["logits"], clean)


def test_a_seed_draws_one_site_and_a_model_without_a_site_is_an_error() -> None:
    model, inputs, _ = tiny("t5")
    places = [broken(model, inputs, "attention_scale", seed)[1] for seed in range(6)]
    assert broken(model, inputs, "attention_scale", 3)[1] == places[3]
    assert len(set(places)) > 1
    without = torch.nn.Sequential(torch.nn.ReLU())
    with pytest.raises(ValueError, match="no attention"):
        mutate(without, "attention_scale", 0, ModelAnatomy(without, {}))
