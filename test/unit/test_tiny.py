"""Tiny configurations: divided by one factor or with remainders, valid, and with each kind of layer kept."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from generators.models.architectures import UNKNOWN
from generators.models.catalog import load_catalog
from generators.models.classifier import classify_type
from generators.models.inputs import LENGTHS, make_inputs
from generators.models.model_libraries import diffusion_catalog, is_known
from generators.recipes import config_scopes, derive
from generators.recipes.build_model import build, class_of, configured_type, part_of
from generators.recipes.config_division import (
    Division,
    divided,
    divisions_of,
)
from generators.recipes.config_scopes import all_overrides, token_ids
from generators.recipes.derive import task_class
from generators.recipes.input_specs import first_special, input_specs
from generators.recipes.modality_inputs import modality_spec
from generators.recipes.tiny import (
    LABELS,
    _layers_apart,
    decodes_beside_its_primary_task,
    head_arguments,
    tiny_configs,
)
from hardware.errors import ModelError
from hardware.testing.seeded_weights import fill


def tiny(model_type: str) -> dict[str, Any]:
    return next(tiny_configs(model_type, load_catalog()))


def default(model_type: str, **arguments: Any) -> Any:
    return getattr(transformers, load_catalog().config_class(model_type))(**arguments)


def built(model_type: str) -> Any:
    return default(model_type, **tiny(model_type))


# Widths


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "t5", "vit", "clip", "whisper", "mixtral"])
def test_one_divisor_keeps_proportions_and_special_tokens_apart(model_type: str) -> None:
    small, large = built(model_type), default(model_type)
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


def test_a_division_that_fits_leaves_no_remainder_and_rounded_widths_stay_equal() -> None:
    bert, blt = default("bert"), default("blt")
    division = divisions_of(bert)[0]
    assert division == Division(factor=division.factor)
    assert divided(bert, division)["intermediate_size"] * division.factor == bert.intermediate_size
    rounded = divisions_of(blt)[0]
    assert rounded.rounded
    encoder, decoder, whole = (
        divided(part, rounded) for part in (blt.encoder_config, blt.decoder_config, blt.global_config)
    )
    assert encoder["hidden_size"] == decoder["hidden_size"]
    assert encoder["hidden_size_global"] == whole["hidden_size"]
    assert all(width % 8 == 0 for width in encoder.values() if isinstance(width, int) and width > 4)


def test_a_tree_without_a_common_divisor_is_divided_with_remainders() -> None:
    """DeepSeek-V2's experts are 1407 wide; GPT-OSS' stream of 2880 has no heads that divide it."""
    small, large = tiny("deepseek_v2"), default("deepseek_v2")
    assert large.moe_intermediate_size % 2 == 1
    assert small["hidden_size"] <= 64
    assert small["qk_nope_head_dim"] == 2 * small["qk_rope_head_dim"]
    one = tiny("gpt_oss")
    assert one["hidden_size"] == one["intermediate_size"] <= 64
    for model_type, width in (("afmoe", "moe_intermediate_size"), ("flex_olmo", "intermediate_size")):
        one = tiny(model_type)  # rows of experts are even for half precision
        assert one["hidden_size"] % 8 == one[width] % 8 == 0
    assert tiny("qwen3_next")["rms_norm_eps"] >= 0.01
    assert "rms_norm_eps" not in tiny("llama")


def test_heads_divide_the_stream_that_they_share() -> None:
    assert tiny("mixtral")["num_attention_heads"] == 4 * tiny("mixtral")["num_key_value_heads"]
    large, one = default("glm4_moe"), tiny("glm4_moe")
    assert large.hidden_size % large.num_attention_heads
    assert one["hidden_size"] % (4 * one["num_attention_heads"]) == 0
    assert one["num_attention_heads"] > one["num_key_value_heads"] > 0
    swin = tiny("swin2sr")
    assert swin["embed_dim"] % swin["num_heads"][0] == 0
    assert swin["embed_dim"] < 180
    given = list(tiny_configs("ministral", load_catalog()))
    first = ["head_dim" in one for one in given].index(True)
    assert first > 0  # what heads leave unset is set in the configurations that follow
    assert given[first]["head_dim"] * given[first]["num_attention_heads"] == given[first]["hidden_size"]


@pytest.mark.parametrize("model_type", ["bamba", "mamba2"])
def test_the_heads_of_a_state_space_fill_the_expanded_stream_in_more_than_one_chunk(model_type: str) -> None:
    config = built(model_type)
    heads, width = (
        next(getattr(config, name) for name in names if hasattr(config, name))
        for names in (("mamba_n_heads", "num_heads"), ("mamba_d_head", "head_dim"))
    )
    expand = getattr(config, "mamba_expand", None) or config.expand
    assert heads * width == expand * config.hidden_size
    assert heads % (getattr(config, "mamba_n_groups", None) or config.n_groups) == 0
    assert (getattr(config, "mamba_chunk_size", None) or config.chunk_size) < 9


def test_linear_attention_beside_the_other_is_divided_by_itself() -> None:
    one = tiny("qwen3_next")
    assert one["linear_num_value_heads"] == 2 * one["linear_num_key_heads"] <= 8
    assert one["linear_key_head_dim"] == one["linear_value_head_dim"] <= 32


def test_sections_of_rotary_positions_fill_half_a_head() -> None:
    for model_type in ("glm4v_text", "qwen2_5_vl_text", "qwen3_vl_text"):
        config = built(model_type)
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        assert sum(config.rope_parameters["mrope_section"]) == width // 2


def test_experts_in_one_parameter_have_the_scale_of_a_matrix_and_drawn_frequencies_are_alike() -> None:
    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down_proj = torch.nn.Parameter(torch.empty(4, 64, 64))

    class Positions(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("positional_embedding", torch.randn(2, 8))

    filled = fill(torch.nn.ModuleDict({"experts": Experts()})).experts.down_proj.detach()
    assert float(filled.std()) == pytest.approx(1 / 8, rel=0.05)
    one, other = (fill(Positions()).state_dict()["positional_embedding"] for _ in range(2))
    assert torch.equal(one, other)
    assert one.std() > 0


# Layers


def test_larger_configurations_follow_the_smallest() -> None:
    sizes = [(one["num_hidden_layers"], one["hidden_size"]) for one in tiny_configs("bert", load_catalog())]
    assert len(sizes) > 3
    assert sizes[:3] == sorted(set(sizes))[:3]
    first, *_, last = tiny_configs("idefics3_vision", load_catalog())
    assert last["num_hidden_layers"] == 2 * first["num_hidden_layers"]
    assert (last["patch_size"], last["image_size"]) == (16, 64)
    assert last["hidden_size"] == first["hidden_size"]


def test_one_layer_of_each_kind_is_kept() -> None:
    assert set(tiny("gemma3_text")["layer_types"]) == {"sliding_attention", "full_attention"}
    qwen = tiny("qwen3_next")
    assert qwen["layer_types"] == ["linear_attention", "full_attention"]
    assert qwen["num_hidden_layers"] == 2
    gemma = tiny("gemma3n_text")
    assert gemma["layer_types"] == ["sliding_attention", "full_attention"]
    assert len(gemma["intermediate_size"]) == len(gemma["activation_sparsity_pattern"]) == 2
    assert gemma["num_hidden_layers"] == 2
    assert gemma["num_kv_shared_layers"] == 0  # shared keys make numbers with and without a cache differ
    kinds = built("zamba").layers_block_type  # which its configuration counts out
    assert kinds.count("hybrid") >= 2
    assert "mamba" in kinds
    backbone = tiny("sam2")["vision_config"]["backbone_config"]
    assert backbone["blocks_per_stage"] == [2, 2, 2, 2]
    assert backbone["global_attention_blocks"] == [5]


def test_a_backbone_gives_as_many_feature_maps_as_the_network_around_it_takes() -> None:
    for model_type in ("depth_anything", "dpt", "zoedepth"):
        config = tiny(model_type)
        backbone = config.get("backbone_config", config)
        outputs = backbone.get("out_indices", config.get("backbone_out_indices"))
        assert len(outputs) == len(config["neck_hidden_sizes"])
        assert max(outputs) <= backbone["num_hidden_layers"] == len(outputs)


def test_what_a_single_layer_has_otherwise_is_shrunk_and_follows_it_to_its_new_place() -> None:
    """As transformers 5.2x says it, whose configurations name such layers by number."""
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


def test_experts_are_still_chosen_among_several_in_two_steps() -> None:
    one = tiny("deepseek_v3")
    assert one["topk_group"] < one["n_group"]
    in_a_group = one["n_routed_experts"] // one["n_group"]
    assert in_a_group * one["n_group"] == one["n_routed_experts"]
    assert one["num_experts_per_tok"] < one["topk_group"] * in_a_group
    assert one["first_k_dense_replace"] < one["num_hidden_layers"]
    dots = tiny("dots1")
    assert dots["num_experts_per_tok"] < dots["n_routed_experts"]
    assert dots["n_shared_experts"] == 1
    assert "num_experts" not in tiny("gemma4_text")


# Images, positions and tokens


def test_windows_and_positions_fit_the_inputs() -> None:
    for model_type in ("mistral", "gemma2"):  # local attention is local in the shorter row too
        assert 1 < tiny(model_type)["sliding_window"] < min(LENGTHS)
    found = list(tiny_configs("roberta", load_catalog()))
    first, last = found[0], found[-1]
    assert first["pad_token_id"] > first["max_position_embeddings"]
    assert "pad_token_id" not in last  # the library's own: 1
    assert {k: v for k, v in first.items() if k != "pad_token_id"} in found
    assert "roberta" not in all_overrides()
    ids = sorted(tiny("wav2vec2")[f"{name}_token_id"] for name in ("pad", "bos", "eos"))
    assert ids == [29, 30, 31]  # inside a vocabulary that is small already


def test_stages_of_images_keep_their_ratios_and_more_than_one_patch() -> None:
    swin = tiny("swin")
    assert swin["num_heads"] == [3, 6, 12, 24]
    assert swin["embed_dim"] % 3 == 0
    assert (swin["depths"], swin["window_size"]) == ([2, 2, 2, 2], 2)
    assert swin["image_size"] == 4 * 2**4
    sizes = tiny("segformer")["hidden_sizes"]
    assert [size / sizes[0] for size in sizes] == [1, 2, 5, 8]
    assert tiny("mobilevit")["image_size"] // 32 >= 2 * 2  # strides of 32, two places a side to a patch
    assert tiny("lw_detr")["backbone_config"]["image_size"] == 2 * 4 * 16
    stem = tiny("hgnet_v2")
    assert stem["stem_channels"][0] == 3
    assert stem["stem_channels"][2] == stem["stage_in_channels"][0]
    assert stem["stage_out_channels"][-1] == stem["hidden_sizes"][-1]
    vision = tiny("sam2")["vision_config"]
    assert vision["backbone_config"]["image_size"] == [64, 64]
    assert vision["backbone_feature_sizes"] == [[16, 16], [8, 8], [4, 4]]
    spec = modality_spec("pixel_values", (), SimpleNamespace(model_type="rt_detr", feat_strides=[8, 16, 32]))
    assert spec is not None
    places = sum((spec["shape"][-1] // stride) ** 2 for stride in (8, 16, 32))
    assert places > tiny("rt_detr")["num_queries"]


def test_a_video_has_two_steps_in_time_of_small_images() -> None:
    for model_type in ("timesformer", "videomae", "vivit", "vjepa2"):
        config = tiny(model_type)
        assert config.get("num_frames", config.get("frames_per_clip")) == 4
        assert config.get("image_size", config.get("crop_size")) == 64


def test_a_network_whose_widths_are_in_its_code_is_shrunk_by_their_multiplier() -> None:
    small = tiny("efficientnet")
    assert small["width_coefficient"] < 1
    assert small["hidden_dim"] / 2560 == small["width_coefficient"] / 2  # 1280 in the code is what both come from
    assert small["hidden_dim"] % 8 == 0
    assert (small["depth_coefficient"], set(small["num_block_repeats"])) == (1.0, {1})
    assert tiny("mobilenet_v1")["image_size"] == 64


def test_a_forecaster_gets_as_many_inputs_as_its_configuration_counts() -> None:
    config = built("time_series_transformer")
    takes = (
        *("past_values", "past_time_features", "past_observed_mask", "static_categorical_features"),
        *("static_real_features", "future_values", "future_time_features"),
    )
    arrays = make_inputs({name: modality_spec(name, takes, config) or {} for name in takes})
    past = config.context_length + max(config.lags_sequence)
    assert arrays["past_values"].shape == arrays["past_observed_mask"].shape == (2, past)
    assert arrays["past_time_features"].shape == (2, past, config.num_time_features)
    assert arrays["future_time_features"].shape == (2, config.prediction_length, config.num_time_features)
    assert arrays["future_values"].shape == (2, config.prediction_length)
    assert arrays["static_real_features"].shape == (2, config.num_static_real_features)
    assert arrays["static_categorical_features"].dtype == np.int64
    assert arrays["static_categorical_features"].max() < min(config.cardinality)
    assert all(array.size for array in arrays.values())


# Parts and classes


def test_a_composed_configuration_builds_again_and_again() -> None:
    config = tiny("rag")
    parts = {name: part["model_type"] for name, part in config.items() if isinstance(part, dict)}
    assert parts == {"question_encoder": "dpr", "generator": "bart"}
    assert config["decoder_start_token_id"] == config["generator"]["decoder_start_token_id"]
    before = copy.deepcopy(config)
    models = [build("RagConfig", "RagTokenForGeneration", config) for _ in range(2)]
    assert config == before
    assert len({sum(p.numel() for p in model.parameters()) for model in models}) == 1


def test_a_part_keeps_what_only_the_whole_says_and_replaces_another_library() -> None:
    """LLaVA's vision part has other patches than the class of that part has by default; DETR's needs timm."""
    vision = tiny("llava")["vision_config"]
    assert (vision["model_type"], vision["patch_size"], vision["image_size"]) == ("clip_vision_model", 14, 56)
    assert tiny("detr")["backbone_config"]["model_type"] == "resnet"
    assert tiny("chmv2")["backbone_config"]["return_class_token"] is True


def test_a_class_and_a_part_are_built_from_the_configuration_that_they_name() -> None:
    expected = {"sam2": "sam2", "sam2_video": "sam2", "sam3_video": "sam3_tracker", "vit": "vit"}
    assert {name: configured_type(name, task_class(name, None).model_class) for name in expected} == expected
    assert set(expected.values()) <= set(load_catalog().configs)
    assert part_of("Emu3Config", "Emu3ForCausalLM") == ("text_config", "Emu3TextConfig")
    assert part_of("Llama4Config", "Llama4VisionModel") == ("vision_config", "Llama4VisionConfig")
    assert part_of("Llama4Config", "Llama4ForConditionalGeneration") == ("", "")
    assert part_of("BertConfig", "BertModel") == ("", "")


def test_every_override_has_its_reason_and_a_known_type_unless_it_is_of_another_version() -> None:
    folder = Path(config_scopes.__file__).with_name("overrides")
    newer, older = (tomllib.loads((folder / f"{age}_types.toml").read_text()) for age in ("newer", "older"))
    assert len(all_overrides()) > 150
    for model_type, entry in all_overrides().items():
        assert entry.get("reason") or entry["refused"]
        name, _, narrowed = model_type.partition("@")
        known = is_known(name) or bool(diffusion_catalog().types_of_class(name))
        if model_type in older:
            assert narrowed == "4.57" or not known, model_type
            continue
        assert known == (model_type not in newer), model_type
        assert not narrowed or narrowed in {one.task for one in load_catalog().tasks_of(name)}, model_type


def test_failure_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ImportError("timm is not installed")

    monkeypatch.setattr("transformers.BertConfig", broken)
    with pytest.raises(ModelError, match="timm is not installed"):
        tiny("bert")


# Heads of tasks


def headed(model_type: str, task: str) -> tuple[Any, dict[str, Any], Mapping[str, Any]]:
    """Return the model of a task, what its head changed, and its inputs."""
    chosen, what = task_class(model_type, task), classify_type(model_type)
    made_with, config = load_catalog().config_class(model_type), tiny(model_type)
    changed = head_arguments(config, class_of(made_with), chosen, what)
    model = build(made_with, chosen.model_class, config | changed)
    return model, changed, input_specs(model, chosen.entry, what.architecture, "right", 16)


def test_a_decoder_that_classifies_gets_a_padding_token_that_no_text_holds_and_an_encoder_keeps_its_own() -> None:
    model, changed, specs = headed("gpt2", "text-classification")
    assert changed["num_labels"] == LABELS
    assert changed["pad_token_id"] == specs["input_ids"]["high"] == first_special(model.config)
    assert "pad_token_id" not in headed("bert", "text-classification")[1]
    model, _, specs = headed("bart", "text-classification")  # a decoder reads what its encoder reads, to its end
    assert "decoder_input_ids" not in specs
    assert specs["input_ids"]["end"] == model.config.eos_token_id


def test_answers_are_several_for_each_question() -> None:
    _, _, specs = headed("bert", "multiple-choice")
    assert {name: spec["choices"] for name, spec in specs.items()} == {"input_ids": 3, "attention_mask": 3}


def test_an_encoder_that_decodes_is_marked_as_such() -> None:
    for model_type, task, decodes in (
        ("roberta", "text-generation", True),
        ("roberta", "fill-mask", False),
        ("gpt2", "text-generation", False),
    ):
        made_with = class_of(load_catalog().config_class(model_type))
        chosen = task_class(model_type, task)
        assert decodes_beside_its_primary_task(classify_type(model_type), chosen, made_with) is decodes


def test_a_type_of_an_unknown_kind_has_no_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = replace(classify_type("bert"), architecture=UNKNOWN)
    monkeypatch.setattr(derive, "classify_type", lambda _: unknown)
    with pytest.raises(ModelError, match="its architecture is unknown"):
        derive.derive_tiny("bert")
