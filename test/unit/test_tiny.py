"""Tiny models: divided by one factor, valid, and with sites where faults can be made."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from generators.derivation.on_demand import recipe_for
from generators.derivation.overrides import all_overrides
from generators.derivation.rows import Rows, scale_rows, swap_rows
from generators.derivation.sites import attention_sites, half_of_heads, position_tables, scale_attention, swap_two
from generators.derivation.tiny import tiny_config, tiny_configs
from generators.models.catalog import load_catalog
from generators.models.inputs import LENGTHS, make_inputs
from generators.models.libraries import diffusion_catalog, is_known
from hardware.errors import ModelError

EIGHT = ("bert", "gpt2", "t5", "vit", "clip", "whisper", "mixtral", "mamba")


def model_of(model_type: str) -> Any:
    from generators.derivation.building import build

    recipe = recipe_for(model_type)
    return build(recipe.config_class, recipe.model_class, recipe.config)


@pytest.mark.parametrize("model_type", [name for name in EIGHT if name != "mamba"])
def test_one_divisor_keeps_proportions_and_special_tokens_apart(model_type: str) -> None:
    import transformers

    arguments = tiny_config(model_type, load_catalog())
    name = load_catalog().config_class(model_type)
    small, large = getattr(transformers, name)(**arguments), getattr(transformers, name)()
    pairs = [
        (small, large),
        *((getattr(small, n, 0), getattr(large, n, 0)) for n in ("text_config", "vision_config")),
    ]
    pairs = [pair for pair in pairs if hasattr(pair[0], "num_attention_heads")]
    assert pairs
    for one, other in pairs:
        if getattr(other, "intermediate_size", None):
            assert one.intermediate_size * other.hidden_size == other.intermediate_size * one.hidden_size
        assert 32 <= one.hidden_size <= 64
        assert one.hidden_size % one.num_attention_heads == 0
        assert one.hidden_size // one.num_attention_heads % 4 == 0
        assert one.num_hidden_layers == 2
        ids = {n: getattr(one, n, None) for n in ("pad_token_id", "bos_token_id", "eos_token_id")}
        old = {n: getattr(other, n, None) for n in ids}
        for n in ids:
            assert ids[n] is None or 0 <= ids[n] < one.vocab_size
            assert all((ids[n] == ids[m]) == (old[n] == old[m]) for m in ids)


def test_the_ratio_of_grouped_heads_is_kept() -> None:
    arguments = tiny_config("mixtral", load_catalog())
    assert arguments["num_attention_heads"] == 4 * arguments["num_key_value_heads"]


def test_larger_configurations_follow_the_smallest() -> None:
    sizes = [(one["num_hidden_layers"], one["hidden_size"]) for one in tiny_configs("bert", load_catalog())]
    assert len(sizes) > 3
    assert sizes[:3] == sorted(set(sizes))[:3]


def test_every_kind_of_layer_is_kept() -> None:
    kinds = tiny_config("gemma3_text", load_catalog())["layer_types"]
    assert set(kinds) == {"sliding_attention", "full_attention"}


def test_local_attention_is_local_in_the_shorter_row_too() -> None:
    for model_type in ("mistral", "gemma2"):
        assert 1 < tiny_config(model_type, load_catalog())["sliding_window"] < min(LENGTHS)


def test_experts_in_groups_are_still_chosen_in_two_steps() -> None:
    one = tiny_config("deepseek_v3", load_catalog())
    assert one["topk_group"] < one["n_group"]
    in_a_group = one["n_routed_experts"] // one["n_group"]
    assert in_a_group * one["n_group"] == one["n_routed_experts"]
    assert one["num_experts_per_tok"] < one["topk_group"] * in_a_group
    assert one["first_k_dense_replace"] < one["num_hidden_layers"]


def test_a_composed_configuration_builds_as_often_as_one_likes() -> None:
    from generators.derivation.building import build

    config = tiny_config("rag", load_catalog())
    assert {name: part["model_type"] for name, part in config.items() if isinstance(part, dict)} == {
        "question_encoder": "dpr",
        "generator": "bart",
    }
    assert config["decoder_start_token_id"] == config["generator"]["decoder_start_token_id"]
    before = copy.deepcopy(config)
    models = [build("RagConfig", "RagTokenForGeneration", config) for _ in range(2)]
    assert config == before
    assert len({sum(p.numel() for p in model.parameters()) for model in models}) == 1


def test_every_override_has_its_reason_and_a_known_type() -> None:
    for model_type, entry in all_overrides().items():
        assert entry.get("reason") or entry["refused"]
        assert is_known(model_type) or diffusion_catalog().types_of_class(model_type), model_type


def test_failure_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    def broken() -> None:
        raise ImportError("timm is not installed")

    monkeypatch.setattr(transformers, "BertConfig", broken)
    with pytest.raises(ModelError, match="timm is not installed"):
        tiny_config("bert", load_catalog())


@pytest.mark.parametrize(
    ("model_type", "count", "kind", "tables"),
    [
        ("bert", 2, "attention", 1),
        ("gpt2", 2, "attention", 1),
        ("t5", 6, "attention", 2),
        ("vit", 2, "attention", 1),
        ("clip", 4, "attention", 2),
        ("whisper", 6, "attention", 2),
        ("mixtral", 2, "attention", 0),
        ("mamba", 2, "state-space", 0),
    ],
)
def test_sites_and_position_tables(model_type: str, count: int, kind: str, tables: int) -> None:
    model = model_of(model_type)
    sites = attention_sites(model)
    assert [site.kind for site in sites] == [kind] * count
    assert all(site.key and site.output and (site.value or kind == "state-space") for site in sites)
    assert len(position_tables(model)) == tables


@pytest.mark.parametrize("model_type", EIGHT)
def test_a_fault_at_any_site_is_heard(model_type: str) -> None:
    from generators.derivation.measure import run
    from hardware.output_masks import masks_of
    from hardware.testing.loud_weights import fill
    from hardware.testing.parity import compare

    recipe = recipe_for(model_type)
    model = fill(model_of(model_type), gain=recipe.gain or 1.0)
    inputs = make_inputs(recipe.inputs)
    masks, clean = masks_of(recipe.masked_by, inputs), run(model, inputs)
    for site in attention_sites(model):
        scaled, swapped = copy.deepcopy(model), copy.deepcopy(model)
        scale_attention(scaled, site, 1.1)
        swap_two(swapped, site)
        for broken in (scaled, swapped):
            assert compare(run(broken, inputs), clean, masks=masks).max_rel_error > 50 * 2e-5, site


def test_scaling_touches_only_the_rows_named() -> None:
    model = model_of("gpt2")
    before = {name: p.detach().clone().numpy() for name, p in model.named_parameters()}
    site = attention_sites(model)[0]
    scale_rows(model, site.query, 2.0)
    after = {name: p.detach().numpy() for name, p in model.named_parameters()}
    assert [n for n in before if not np.array_equal(before[n], after[n])] == [site.query.weight]
    assert np.array_equal(after[site.query.weight][:, :48], 2 * before[site.query.weight][:, :48])
    assert np.array_equal(after[site.query.weight][:, 48:], before[site.query.weight][:, 48:])


def test_a_normalised_query_is_scaled_after_its_normalisation() -> None:
    """Scaling the projection itself changes nothing there, so that a mutant made of it would always live."""
    from generators.derivation.building import build

    config = tiny_config("qwen3", load_catalog())
    site = attention_sites(build("Qwen3Config", "Qwen3ForCausalLM", config))[0]
    assert site.query_norm is not None
    assert site.query_norm.weight == "model.layers.0.self_attn.q_norm.weight"


def test_latent_attention_tells_key_from_value() -> None:
    """Key and value of all heads are one matrix there: rows swapped as a block would be neither."""
    site = attention_sites(model_of("deepseek_v3"))[0]
    assert site.key is not None
    assert site.value is not None
    assert site.query.weight.endswith("q_b_proj.weight")
    assert site.key.weight == site.value.weight
    rows = [set(range(*one)) for part in (site.key, site.value) for one in part.ranges]
    assert len(set().union(*rows)) == sum(map(len, rows)) == site.key.size + site.value.size


def test_a_state_space_that_normalises_b_and_c_is_scaled_in_its_time_step() -> None:
    assert attention_sites(model_of("mamba"))[0].query_norm is None
    norm = attention_sites(model_of("falcon_mamba"))[0].query_norm
    assert norm is not None
    assert norm.weight.endswith("dt_proj.weight")


def test_swapping_twice_gives_the_model_back_and_other_shapes_are_refused() -> None:
    model = model_of("mixtral")
    site = attention_sites(model)[0]
    before = {name: p.detach().clone().numpy() for name, p in model.named_parameters()}
    assert swap_two(model, site) == "key and value"
    swap_two(model, site)
    assert all(np.array_equal(before[n], p.detach().numpy()) for n, p in model.named_parameters())
    assert site.key is not None
    with pytest.raises(ValueError, match="shapes differ"):
        swap_rows(model, site.query, site.key)


def fused(name: str, features: int = 24, **attributes: int) -> Any:
    import torch

    attention = torch.nn.Module()
    attention.num_heads = 2  # type: ignore[assignment]
    for attribute, value in attributes.items():
        setattr(attention, attribute, value)
    attention.add_module(name, torch.nn.Linear(8, features))
    return torch.nn.ModuleDict({"a": attention})


def test_fused_projections_are_told_apart() -> None:
    assert attention_sites(fused("query_key_value"))[0].query.ranges == ((0, 4), (12, 16))
    shared = attention_sites(fused("query_key_value", 24, head_dim=6))[0]
    assert shared.key is not None
    assert (shared.query.ranges, shared.key.ranges) == (((0, 12),), ((12, 18),))
    assert [site.kind for site in attention_sites(fused("query_key_value", 23))] == ["weight"]
    value = attention_sites(fused("qkv"))[0].value
    assert value == Rows(weight="a.qkv.weight", bias="a.qkv.bias", ranges=((16, 24),), axis=0)


def test_a_normalised_query_of_a_fused_projection_is_scaled_after_its_normalisation() -> None:
    import torch

    model = fused("qkv")
    model["a"].add_module("q_norm", torch.nn.LayerNorm(4))
    assert attention_sites(model)[0].query_norm == Rows(
        weight="a.q_norm.weight", bias="a.q_norm.bias", ranges=((0, 4),), axis=0
    )


def test_a_model_without_attention_or_convolutions_has_its_largest_matrix_as_site() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Conv2d(4, 9, 1), torch.nn.Linear(9, 2))
    sites = attention_sites(model)
    assert [(site.kind, site.query.weight) for site in sites] == [("weight", "1.weight")]


def test_a_convolution_is_scaled_in_half_its_channels_so_that_a_normalisation_does_not_undo_it() -> None:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.GroupNorm(1, 8), torch.nn.Conv2d(8, 2, 1))
    sites = attention_sites(model)
    assert [(site.module, site.kind, site.query.ranges) for site in sites] == [("0", "convolution", ((0, 4),))]
    image = torch.randn(1, 3, 6, 6)
    before = model(image)
    scale_attention(model, sites[0], 1.1)
    assert (model(image) - before).abs().max() > 1e-2
    assert swap_two(model, sites[0]) == "query and key"


def test_a_query_that_is_normalised_without_weights_is_scaled_in_half_of_each_head() -> None:
    import torch

    from generators.derivation.measure import sensitivity_of
    from hardware.testing.loud_weights import fill
    from hardware.testing.parity import Array

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
    (site,) = attention_sites(model)
    assert half_of_heads(site).query.ranges == ((0, 2), (4, 6))
    with torch.no_grad():
        reference = {"logits": model(torch.as_tensor(inputs["past_values"]))["logits"].numpy()}
    found = sensitivity_of(model, inputs, reference, {}, None)
    assert found["attention_x2"] > found["attention_x1.1"] > 2e-3


def test_rows_of_equal_number_are_swapped_only_where_their_inputs_are_equal_too() -> None:
    import torch

    class Across(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = torch.nn.Linear(6, 8), torch.nn.Linear(4, 8), torch.nn.Linear(4, 8)

    model = Across()
    (site,) = attention_sites(model)
    assert swap_two(model, site) == "key and value"


def test_padding_lies_inside_the_table_of_positions_in_the_configurations_that_follow() -> None:
    found = list(tiny_configs("roberta", load_catalog()))
    first, last = found[0], found[-1]
    assert first["pad_token_id"] > first["max_position_embeddings"]
    assert "pad_token_id" not in last  # the library's own: 1
    assert {k: v for k, v in first.items() if k != "pad_token_id"} in found
    assert "roberta" not in all_overrides()


def test_sections_of_rotary_positions_fill_half_a_head() -> None:
    import transformers

    for model_type in ("glm4v_text", "qwen2_5_vl_text", "qwen3_vl_text"):
        arguments = tiny_config(model_type, load_catalog())
        config = getattr(transformers, load_catalog().config_class(model_type))(**arguments)
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        assert sum(config.rope_parameters["mrope_section"]) == width // 2


def test_stages_keep_their_ratios_and_leave_two_patches_a_side_to_the_last() -> None:
    swin = tiny_config("swin", load_catalog())
    assert swin["num_heads"] == [3, 6, 12, 24]
    assert swin["embed_dim"] % 3 == 0
    assert (swin["depths"], swin["window_size"]) == ([2, 2, 2, 2], 2)
    assert swin["image_size"] == 4 * 2**4
    sizes = tiny_config("segformer", load_catalog())["hidden_sizes"]
    assert [size / sizes[0] for size in sizes] == [1, 2, 5, 8]


def test_a_part_says_what_its_own_class_would_not_know_and_stands_in_for_another_library() -> None:
    """LLaVA's vision part has other patches than the class of that part has by default; DETR's needs timm."""
    vision = tiny_config("llava", load_catalog())["vision_config"]
    assert (vision["model_type"], vision["patch_size"], vision["image_size"]) == ("clip_vision_model", 14, 56)
    assert tiny_config("detr", load_catalog())["backbone_config"]["model_type"] == "resnet"


def test_special_tokens_lie_inside_a_vocabulary_that_is_small_already() -> None:
    arguments = tiny_config("wav2vec2", load_catalog())
    assert sorted(arguments[f"{name}_token_id"] for name in ("pad", "bos", "eos")) == [29, 30, 31]


def test_a_network_whose_widths_stand_in_its_code_is_shrunk_by_their_multiplier() -> None:
    small = tiny_config("efficientnet", load_catalog())
    assert small["width_coefficient"] < 1
    assert small["hidden_dim"] / 2560 == small["width_coefficient"] / 2  # 1280 in the code is what both come from
    assert small["hidden_dim"] % 8 == 0
    assert (small["depth_coefficient"], set(small["num_block_repeats"])) == (1.0, {1})
    assert tiny_config("mobilenet_v1", load_catalog())["image_size"] == 64


def test_the_channels_of_the_image_are_not_divided_with_the_stem() -> None:
    stem = tiny_config("hgnet_v2", load_catalog())
    assert stem["stem_channels"][0] == 3
    assert stem["stem_channels"][2] == stem["stage_in_channels"][0]
    assert stem["stage_out_channels"][-1] == stem["hidden_sizes"][-1]


def test_attention_among_patches_of_the_last_stage_has_more_than_one_to_choose_from() -> None:
    small = tiny_config("mobilevit", load_catalog())
    assert small["image_size"] // 32 >= 2 * 2  # strides of 32, two places a side to a patch


def test_the_last_configuration_is_deeper_with_finer_patches() -> None:
    first, *_, last = tiny_configs("idefics3_vision", load_catalog())
    assert last["num_hidden_layers"] == 2 * first["num_hidden_layers"]
    assert (last["patch_size"], last["image_size"]) == (16, 64)
    assert last["hidden_size"] == first["hidden_size"]


def test_a_convolution_that_standardises_its_weight_is_scaled_in_half_of_its_inputs() -> None:
    import torch

    class StandardizedConvolution(torch.nn.Conv2d):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            flat = self.weight.flatten(1)
            weight = (flat - flat.mean(1, keepdim=True)) / flat.std(1, keepdim=True)
            return torch.nn.functional.conv2d(image, weight.reshape(self.weight.shape), self.bias)

    torch.manual_seed(0)
    model = torch.nn.Sequential(StandardizedConvolution(4, 8, 3))
    (site,) = attention_sites(model)
    assert (site.query.axis, site.query.ranges, site.query.bias) == (1, ((0, 2),), "")
    image = torch.randn(1, 4, 6, 6)
    before = model(image)
    scale_attention(model, site, 1.1)
    assert (model(image) - before).abs().max() > 1e-2


def test_cosine_attention_is_scaled_in_its_temperature() -> None:
    from generators.derivation.building import build

    config = tiny_config("swinv2", load_catalog())
    site = attention_sites(build("Swinv2Config", "Swinv2Model", config))[0]
    assert site.query_norm is not None
    assert site.query_norm.weight.endswith("logit_scale")
    assert site.query_norm.size == config["num_heads"][0]


def test_a_projection_in_a_module_that_clips_it_is_found() -> None:
    import torch

    def clipped() -> Any:
        return torch.nn.ModuleDict({"linear": torch.nn.Linear(8, 8)})

    attention = torch.nn.ModuleDict({name: clipped() for name in ("q_proj", "k_proj", "v_proj")})
    (site,) = attention_sites(torch.nn.ModuleDict({"a": attention}))
    assert (site.kind, site.query.weight) == ("attention", "a.q_proj.linear.weight")
