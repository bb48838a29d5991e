"""Where a model's attention lies, and faults that are put there: scaled queries, swapped rows."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from golden_suites import recipe_of
from tiny_models import run, tiny
from torch.nn.utils.parametrizations import weight_norm

from generators.models.catalog import load_catalog
from generators.models.inputs import make_inputs
from generators.recipes.attention_layers import (
    WeightSlice,
    attention_layers,
    half_of_heads,
    position_tables,
    scale_attention,
    scale_slice,
    swap_slices,
    swap_two,
)
from generators.recipes.build_model import build
from generators.recipes.measurements import layers_reached, sensitivity_of
from generators.recipes.tiny import tiny_configs
from hardware.compare import Array, compare
from hardware.output_masks import masks_of
from hardware.testing.seeded_weights import fill

SITES = {
    "bert": (2, "attention", 1),
    "gpt2": (2, "attention", 1),
    "t5": (6, "attention", 2),
    "vit": (2, "attention", 1),
    "clip": (4, "attention", 2),
    "whisper": (6, "attention", 2),
    "mixtral": (2, "attention", 0),
    "mamba": (2, "state-space", 0),
}
"""How many layers of which kind a type has, and how many tables of positions."""


def model_of(model_type: str) -> Any:
    recipe = recipe_of(model_type)
    return build(recipe.config_class, recipe.model_class, recipe.config)


def layer_of(**layers: torch.nn.Module) -> Any:
    """Return the only layer of a model with one attention layer."""
    (layer,) = attention_layers(torch.nn.ModuleDict({"a": torch.nn.ModuleDict(layers)}))
    return layer


def projections(width: int = 8) -> dict[str, torch.nn.Module]:
    return {name: torch.nn.Linear(width, width) for name in ("q_proj", "k_proj", "v_proj")}


def moved(model: Any, layer: Any, inputs: torch.Tensor) -> float:
    before = model(inputs)
    scale_attention(model, layer, 1.1)
    return float((model(inputs) - before).detach().abs().max())


def test_attention_layers_and_position_tables() -> None:
    for model_type, (count, kind, tables) in SITES.items():
        model, _, _ = tiny(model_type)
        layers = attention_layers(model)
        assert [layer.kind for layer in layers] == [kind] * count, model_type
        assert all(layer.key and layer.output and (layer.value or kind == "state-space") for layer in layers)
        assert len(position_tables(model)) == tables, model_type


@pytest.mark.parametrize("model_type", ["gpt2", "t5", "clip", "mixtral", "mamba"])
def test_a_fault_at_any_layer_is_detected(model_type: str) -> None:
    model, inputs, recipe = tiny(model_type)
    masks, clean = masks_of(recipe.masked_by, inputs), run(model, inputs)
    for layer in attention_layers(model):
        scaled, swapped = copy.deepcopy(model), copy.deepcopy(model)
        scale_attention(scaled, layer, 1.1)
        swap_two(swapped, layer)
        for broken in (scaled, swapped):
            assert compare(run(broken, inputs), clean, masks=masks).max_rel_error > 50 * 2e-5, layer


def test_scaling_touches_only_the_rows_named() -> None:
    model = model_of("gpt2")
    before = {name: p.detach().clone().numpy() for name, p in model.named_parameters()}
    layer = attention_layers(model)[0]
    scale_slice(model, layer.query, 2.0)
    after = {name: p.detach().numpy() for name, p in model.named_parameters()}
    assert [n for n in before if not np.array_equal(before[n], after[n])] == [layer.query.weight]
    assert np.array_equal(after[layer.query.weight][:, :48], 2 * before[layer.query.weight][:, :48])
    assert np.array_equal(after[layer.query.weight][:, 48:], before[layer.query.weight][:, 48:])


def test_a_normalized_query_is_scaled_after_its_normalization() -> None:
    """Scaling the projection itself changes nothing there, so that a mutant made of it would always live."""
    config = next(tiny_configs("qwen3", load_catalog()))
    layer = attention_layers(build("Qwen3Config", "Qwen3ForCausalLM", config))[0]
    assert layer.query_norm is not None
    assert layer.query_norm.weight == "model.layers.0.self_attn.q_norm.weight"


def test_latent_attention_tells_key_from_value() -> None:
    """Key and value of all heads are one matrix there: rows swapped as a block would be neither."""
    layer = attention_layers(model_of("deepseek_v3"))[0]
    assert layer.key is not None
    assert layer.value is not None
    assert layer.query.weight.endswith("q_b_proj.weight")
    assert layer.key.weight == layer.value.weight
    rows = [set(range(*one)) for part in (layer.key, layer.value) for one in part.ranges]
    assert len(set().union(*rows)) == sum(map(len, rows)) == layer.key.size + layer.value.size


def test_a_state_space_that_normalizes_b_and_c_is_scaled_in_its_time_step() -> None:
    assert attention_layers(model_of("mamba"))[0].query_norm is None
    norm = attention_layers(model_of("falcon_mamba"))[0].query_norm
    assert norm is not None
    assert norm.weight.endswith("dt_proj.weight")


def test_swapping_twice_gives_the_model_back_and_other_shapes_are_refused() -> None:
    model = model_of("mixtral")
    layer = attention_layers(model)[0]
    before = {name: p.detach().clone().numpy() for name, p in model.named_parameters()}
    assert swap_two(model, layer) == "key and value"
    swap_two(model, layer)
    assert all(np.array_equal(before[n], p.detach().numpy()) for n, p in model.named_parameters())
    assert layer.key is not None
    with pytest.raises(ValueError, match="shapes differ"):
        swap_slices(model, layer.query, layer.key)


def fused(name: str, features: int = 24, **attributes: int) -> Any:
    attention = torch.nn.Module()
    attention.num_heads = 2  # type: ignore[assignment]
    for attribute, value in attributes.items():
        setattr(attention, attribute, value)
    attention.add_module(name, torch.nn.Linear(8, features))
    return torch.nn.ModuleDict({"a": attention})


def test_fused_projections_are_told_apart() -> None:
    assert attention_layers(fused("query_key_value"))[0].query.ranges == ((0, 4), (12, 16))
    shared = attention_layers(fused("query_key_value", 24, head_dim=6))[0]
    assert shared.key is not None
    assert (shared.query.ranges, shared.key.ranges) == (((0, 12),), ((12, 18),))
    assert [layer.kind for layer in attention_layers(fused("query_key_value", 23))] == ["weight"]
    value = attention_layers(fused("qkv"))[0].value
    assert value == WeightSlice(weight="a.qkv.weight", bias="a.qkv.bias", ranges=((16, 24),), axis=0)


def test_a_normalized_query_of_a_fused_projection_is_scaled_after_its_normalization() -> None:
    model = fused("qkv")
    model["a"].add_module("q_norm", torch.nn.LayerNorm(4))
    assert attention_layers(model)[0].query_norm == WeightSlice(
        weight="a.q_norm.weight", bias="a.q_norm.bias", ranges=((0, 4),), axis=0
    )


def test_a_model_without_attention_or_convolutions_has_its_largest_matrix_as_layer() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Conv2d(4, 9, 1), torch.nn.Linear(9, 2))
    layers = attention_layers(model)
    assert [(layer.kind, layer.query.weight) for layer in layers] == [("weight", "1.weight")]


def test_a_convolution_is_scaled_in_half_its_channels_so_that_a_normalization_does_not_undo_it() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.GroupNorm(1, 8), torch.nn.Conv2d(8, 2, 1))
    layers = attention_layers(model)
    assert [(layer.module, layer.kind, layer.query.ranges) for layer in layers] == [("0", "convolution", ((0, 4),))]
    assert moved(model, layers[0], torch.randn(1, 3, 6, 6)) > 1e-2
    assert swap_two(model, layers[0]) == "query and key"


def test_a_query_that_is_normalized_without_weights_is_scaled_in_half_of_each_head() -> None:
    class Cosine(torch.nn.Module):
        num_heads = 2

        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (torch.nn.Linear(8, 8) for _ in range(3))

        def forward(self, past_values: Any) -> Any:
            query, key, value = (
                part(past_values).unflatten(-1, (2, 4)).transpose(1, 2) for part in (self.query, self.key, self.value)
            )
            unit = torch.nn.functional.normalize
            scores = 8 * unit(query, dim=-1) @ unit(key, dim=-1).mT
            return {"logits": scores.softmax(dim=-1) @ value}

    model = fill(Cosine())
    inputs: dict[str, Array] = make_inputs({"past_values": {"kind": "features", "shape": [5, 8]}}, 0)
    (layer,) = attention_layers(model)
    assert half_of_heads(layer).query.ranges == ((0, 2), (4, 6))
    with torch.no_grad():
        reference = {"logits": model(torch.as_tensor(inputs["past_values"]))["logits"].numpy()}
    found, faults = sensitivity_of(model, inputs, reference, {}, None)
    assert found["attention_x2"] > found["attention_x1.1"] > 2e-3
    moves = [np.abs(one["logits"] - reference["logits"]).max() / reference["logits"].std() for one in faults]
    assert moves == pytest.approx([found["attention_x1.1"], found["swapped"]], rel=0.01)


def test_rows_of_equal_number_are_swapped_only_where_their_inputs_are_equal_too() -> None:
    class Across(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = torch.nn.Linear(6, 8), torch.nn.Linear(4, 8), torch.nn.Linear(4, 8)

    model = Across()
    (layer,) = attention_layers(model)
    assert swap_two(model, layer) == "key and value"


def test_a_convolution_that_standardizes_its_weight_is_scaled_in_half_of_its_inputs() -> None:
    class StandardizedConvolution(torch.nn.Conv2d):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            flat = self.weight.flatten(1)
            weight = (flat - flat.mean(1, keepdim=True)) / flat.std(1, keepdim=True)
            return torch.nn.functional.conv2d(image, weight.reshape(self.weight.shape), self.bias)

    torch.manual_seed(0)
    model = torch.nn.Sequential(StandardizedConvolution(4, 8, 3))
    (layer,) = attention_layers(model)
    assert (layer.query.axis, layer.query.ranges, layer.query.bias) == (1, ((0, 2),), "")
    assert moved(model, layer, torch.randn(1, 4, 6, 6)) > 1e-2


def test_cosine_attention_is_scaled_in_its_temperature() -> None:
    config = next(tiny_configs("swinv2", load_catalog()))
    layer = attention_layers(build("Swinv2Config", "Swinv2Model", config))[0]
    assert layer.query_norm is not None
    assert layer.query_norm.weight.endswith("logit_scale")
    assert layer.query_norm.size == config["num_heads"][0]


def test_a_projection_in_a_module_that_clips_it_is_found() -> None:
    layer = layer_of(**{name: torch.nn.ModuleDict({"linear": one}) for name, one in projections().items()})
    assert (layer.kind, layer.query.weight) == ("attention", "a.q_proj.linear.weight")


def test_a_normalized_weight_is_scaled_where_the_normalization_does_not_undo_it() -> None:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(weight_norm(torch.nn.Conv1d(3, 8, 3)), weight_norm(torch.nn.ConvTranspose1d(8, 2, 4)))
    sound = torch.randn(1, 3, 9)
    before = model(sound)
    layers = attention_layers(model)
    assert [layer.module for layer in layers] == ["0", "1"]
    for layer in layers:
        scale_attention(model, layer, 1.5)
        assert (model(sound) - before).abs().max() > 1e-2
        scale_attention(model, layer, 1 / 1.5)
        assert torch.allclose(model(sound), before, atol=1e-5)


def test_a_gate_of_inputs_is_scaled_where_the_state_is_divided_by_what_the_query_finds() -> None:
    layer = torch.nn.ModuleDict({name: torch.nn.Linear(8, 8) for name in ("q", "k", "v", "igate_preact")})
    layer = attention_layers(torch.nn.ModuleDict({"mlstm_layer": layer}))[0]
    assert layer.query_norm is not None
    assert layer.query_norm.weight == "mlstm_layer.igate_preact.weight"


def test_a_normalization_without_weights_stands_for_half_of_each_head() -> None:
    attention = torch.nn.ModuleDict(projections())
    attention["q_norm"] = torch.nn.RMSNorm(4, elementwise_affine=False)
    attention.num_heads = 2  # type: ignore[assignment]
    layer = attention_layers(torch.nn.ModuleDict({"attention": attention}))[0]
    assert layer.query_norm is not None
    assert layer.query_norm.ranges == ((0, 2), (4, 6))


def test_a_normalization_whose_weights_are_constants_is_no_place_for_a_fault() -> None:
    """FalconMamba's of B and C in newer versions: a buffer of ones, which no fault could be put into."""

    class Ones(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.ones(4))

    mixer = torch.nn.ModuleDict(
        {"x_proj": torch.nn.Linear(8, 12), "dt_proj": torch.nn.Linear(4, 8), "c_layernorm": Ones()}
    )
    mixer.ssm_state_size = 4  # type: ignore[assignment]
    (layer,) = attention_layers(torch.nn.ModuleDict({"mixer": mixer}))
    assert layer.kind == "state-space"
    assert layer.query_norm is not None
    assert layer.query_norm.weight == "mixer.dt_proj.weight"


def test_a_convolution_whose_weight_a_function_takes_is_reached_where_no_module_is_called() -> None:
    class Handed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = torch.nn.Conv1d(4, 4, 3), torch.nn.Conv1d(4, 4, 3)

        def forward(self, states: Any) -> Any:
            return {"out": torch.nn.functional.conv1d(states, self.used.weight, self.used.bias)}

    layers = layers_reached(Handed(), {"states": np.zeros((2, 4, 8), dtype=np.float32)})
    assert [layer.module for layer in layers] == ["used"]
