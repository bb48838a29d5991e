"""What a tiny configuration becomes where one divisor isn't enough: experts, mixers, layers of many kinds."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from generators.models.catalog import load_catalog
from generators.recipes.config_division import Division, divided, divisions_of
from generators.recipes.config_scopes import token_ids
from generators.recipes.input_specs import _count_in_the_mask
from generators.recipes.tiny import tiny_configs
from hardware.testing.seeded_weights import fill


def tiny(model_type: str) -> dict[str, Any]:
    return next(tiny_configs(model_type, load_catalog()))


def default(model_type: str) -> Any:
    import transformers

    return getattr(transformers, load_catalog().config_class(model_type))()


@pytest.mark.parametrize(
    ("model_type", "width"), [("afmoe", "moe_intermediate_size"), ("flex_olmo", "intermediate_size")]
)
def test_the_rows_of_experts_are_even_for_half_precision(model_type: str, width: str) -> None:
    one = tiny(model_type)
    assert one["hidden_size"] % 8 == one[width] % 8 == 0


def test_a_tree_without_a_common_divisor_is_divided_with_remainders() -> None:
    """DeepSeek-V2's experts are 1407 wide, GPT-OSS' stream of 2880 has no heads that divide it."""
    small, large = tiny("deepseek_v2"), default("deepseek_v2")
    assert large.moe_intermediate_size % 2 == 1
    assert small["hidden_size"] <= 64
    assert small["qk_nope_head_dim"] == 2 * small["qk_rope_head_dim"]
    one = tiny("gpt_oss")
    assert one["hidden_size"] == one["intermediate_size"] <= 64


def test_heads_that_do_not_divide_the_stream_become_a_few_that_do() -> None:
    config = default("glm4_moe")
    assert config.hidden_size % config.num_attention_heads
    one = tiny("glm4_moe")
    assert one["hidden_size"] % (4 * one["num_attention_heads"]) == 0
    assert one["num_attention_heads"] > one["num_key_value_heads"] > 0


def test_what_heads_leave_unset_is_set_behind_all_that_leave_it() -> None:
    given = ["head_dim" in one for one in tiny_configs("ministral", load_catalog())]
    first = given.index(True)
    assert first > 0
    assert not any(given[:first])
    completed = list(tiny_configs("ministral", load_catalog()))[first]
    assert completed["head_dim"] * completed["num_attention_heads"] == completed["hidden_size"]


@pytest.mark.parametrize("model_type", ["bamba", "mamba2"])
def test_the_heads_of_a_state_space_fill_the_expanded_stream(model_type: str) -> None:
    import transformers

    config = getattr(transformers, load_catalog().config_class(model_type))(**tiny(model_type))
    heads, width = (
        next(getattr(config, name) for name in names if hasattr(config, name))
        for names in (("mamba_n_heads", "num_heads"), ("mamba_d_head", "head_dim"))
    )
    expand = getattr(config, "mamba_expand", None) or config.expand
    assert heads * width == expand * config.hidden_size
    assert heads % (getattr(config, "mamba_n_groups", None) or config.n_groups) == 0


def test_a_state_goes_over_more_than_one_chunk() -> None:
    assert tiny("bamba")["mamba_chunk_size"] < 9
    assert tiny("mamba2")["chunk_size"] < 9


def test_linear_attention_beside_the_other_is_divided_by_itself() -> None:
    one = tiny("qwen3_next")
    assert one["linear_num_value_heads"] == 2 * one["linear_num_key_heads"] <= 8
    assert one["linear_key_head_dim"] == one["linear_value_head_dim"] <= 32


def test_one_layer_of_each_kind_is_kept() -> None:
    one = tiny("qwen3_next")
    assert one["layer_types"] == ["linear_attention", "full_attention"]
    assert one["num_hidden_layers"] == 2


def test_lists_with_an_entry_for_each_layer_are_as_long_as_the_layers_kept() -> None:
    one = tiny("gemma3n_text")
    assert one["layer_types"] == ["sliding_attention", "full_attention"]
    assert len(one["intermediate_size"]) == len(one["activation_sparsity_pattern"]) == one["num_hidden_layers"] == 2


def test_layers_keep_keys_of_their_own() -> None:
    """The library lets layers share keys where it has a cache, so that numbers with and without one differ."""
    assert tiny("gemma3n_text")["num_kv_shared_layers"] == 0


def test_kinds_that_a_configuration_counts_out_are_all_met() -> None:
    import transformers

    kinds = transformers.ZambaConfig(**tiny("zamba")).layers_block_type
    assert kinds.count("hybrid") >= 2
    assert "mamba" in kinds


def test_experts_that_are_unset_are_set_where_their_width_is() -> None:
    one = tiny("dots1")
    assert one["num_experts_per_tok"] < one["n_routed_experts"]
    assert one["n_shared_experts"] == 1
    assert "num_experts" not in tiny("gemma4_text")


def test_equal_widths_stay_equal_when_rounded() -> None:
    config = default("blt")
    divisions = divisions_of(config)
    assert divisions[0].rounded
    encoder, decoder = (divided(part, divisions[0]) for part in (config.encoder_config, config.decoder_config))
    assert encoder["hidden_size"] == decoder["hidden_size"]
    assert encoder["hidden_size_global"] == divided(config.global_config, divisions[0])["hidden_size"]
    assert all(width % 8 == 0 for width in encoder.values() if isinstance(width, int) and width > 4)


def test_a_division_that_fits_leaves_no_remainder() -> None:
    config = default("bert")
    division = divisions_of(config)[0]
    assert division == Division(factor=division.factor)
    assert divided(config, division)["intermediate_size"] * division.factor == config.intermediate_size


def test_experts_in_one_parameter_are_as_loud_as_a_matrix() -> None:
    import torch

    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down_proj = torch.nn.Parameter(torch.empty(4, 64, 64))

    filled = fill(torch.nn.ModuleDict({"experts": Experts()})).experts.down_proj.detach()
    assert float(filled.std()) == pytest.approx(1 / 8, rel=0.05)


def test_positions_come_behind_the_mask_that_they_are_counted_in() -> None:
    specs: dict[str, dict[str, Any]] = {"position_ids": {"kind": "positions"}, "attention_mask": {"kind": "mask"}}
    _count_in_the_mask(specs)
    assert list(specs) == ["attention_mask", "position_ids"]


def test_what_is_found_in_a_state_is_not_blown_up_where_it_is_next_to_nothing() -> None:
    assert tiny("qwen3_next")["rms_norm_eps"] >= 0.01
    assert "rms_norm_eps" not in tiny("llama")


def test_what_a_single_layer_has_otherwise_is_shrunk_and_follows_it_to_its_new_place() -> None:
    """As transformers 5.2x says it, whose configurations name such layers by number."""
    from generators.recipes.tiny import _layers_apart

    config = default("llama")
    config.head_dim = 64
    layers = [copy.copy(config) for _ in range(config.num_hidden_layers)]
    layers[1].head_dim = 512
    config.is_heterogeneous, config.per_layer_config = True, layers
    division = next(iter(divisions_of(config)))
    apart = _layers_apart(config, division, dict.fromkeys(token_ids(config).values(), 0))
    assert list(apart["per_layer_config"]) == ["1"]
    assert list(apart["per_layer_config"]["1"]) == ["head_dim"]
    assert apart["per_layer_config"]["1"]["head_dim"] < 512
    config.is_heterogeneous = False
    assert _layers_apart(config, division, {}) == {}
