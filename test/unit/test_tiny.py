"""Tiny models: divided by one factor, valid, and with sites where faults can be made."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from generators.models.catalog import load_catalog
from generators.models.inputs import LENGTHS
from generators.models.model_libraries import diffusion_catalog, is_known
from generators.recipes import config_scopes
from generators.recipes.config_scopes import all_overrides
from generators.recipes.on_demand import recipe_for
from generators.recipes.tiny import tiny_configs
from hardware.errors import ModelError

EIGHT = ("bert", "gpt2", "t5", "vit", "clip", "whisper", "mixtral", "mamba")


def model_of(model_type: str) -> Any:
    from generators.recipes.build_model import build

    recipe = recipe_for(model_type)
    return build(recipe.config_class, recipe.model_class, recipe.config)


@pytest.mark.parametrize("model_type", [name for name in EIGHT if name != "mamba"])
def test_one_divisor_keeps_proportions_and_special_tokens_apart(model_type: str) -> None:
    import transformers

    arguments = next(tiny_configs(model_type, load_catalog()))
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
    arguments = next(tiny_configs("mixtral", load_catalog()))
    assert arguments["num_attention_heads"] == 4 * arguments["num_key_value_heads"]


def test_larger_configurations_follow_the_smallest() -> None:
    sizes = [(one["num_hidden_layers"], one["hidden_size"]) for one in tiny_configs("bert", load_catalog())]
    assert len(sizes) > 3
    assert sizes[:3] == sorted(set(sizes))[:3]


def test_every_kind_of_layer_is_kept() -> None:
    kinds = next(tiny_configs("gemma3_text", load_catalog()))["layer_types"]
    assert set(kinds) == {"sliding_attention", "full_attention"}


def test_local_attention_is_local_in_the_shorter_row_too() -> None:
    for model_type in ("mistral", "gemma2"):
        assert 1 < next(tiny_configs(model_type, load_catalog()))["sliding_window"] < min(LENGTHS)


def test_experts_in_groups_are_still_chosen_in_two_steps() -> None:
    one = next(tiny_configs("deepseek_v3", load_catalog()))
    assert one["topk_group"] < one["n_group"]
    in_a_group = one["n_routed_experts"] // one["n_group"]
    assert in_a_group * one["n_group"] == one["n_routed_experts"]
    assert one["num_experts_per_tok"] < one["topk_group"] * in_a_group
    assert one["first_k_dense_replace"] < one["num_hidden_layers"]


def test_a_composed_configuration_builds_as_often_as_one_likes() -> None:
    from generators.recipes.build_model import build

    config = next(tiny_configs("rag", load_catalog()))
    assert {name: part["model_type"] for name, part in config.items() if isinstance(part, dict)} == {
        "question_encoder": "dpr",
        "generator": "bart",
    }
    assert config["decoder_start_token_id"] == config["generator"]["decoder_start_token_id"]
    before = copy.deepcopy(config)
    models = [build("RagConfig", "RagTokenForGeneration", config) for _ in range(2)]
    assert config == before
    assert len({sum(p.numel() for p in model.parameters()) for model in models}) == 1


def test_every_override_has_its_reason_and_a_known_type_unless_it_is_of_another_version() -> None:
    folder = Path(config_scopes.__file__).with_name("overrides")
    newer, older = (tomllib.loads((folder / f"{age}_types.toml").read_text()) for age in ("newer", "older"))
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
    import transformers

    def broken() -> None:
        raise ImportError("timm is not installed")

    monkeypatch.setattr(transformers, "BertConfig", broken)
    with pytest.raises(ModelError, match="timm is not installed"):
        next(tiny_configs("bert", load_catalog()))


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
        arguments = next(tiny_configs(model_type, load_catalog()))
        config = getattr(transformers, load_catalog().config_class(model_type))(**arguments)
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        assert sum(config.rope_parameters["mrope_section"]) == width // 2


def test_stages_keep_their_ratios_and_leave_two_patches_a_side_to_the_last() -> None:
    swin = next(tiny_configs("swin", load_catalog()))
    assert swin["num_heads"] == [3, 6, 12, 24]
    assert swin["embed_dim"] % 3 == 0
    assert (swin["depths"], swin["window_size"]) == ([2, 2, 2, 2], 2)
    assert swin["image_size"] == 4 * 2**4
    sizes = next(tiny_configs("segformer", load_catalog()))["hidden_sizes"]
    assert [size / sizes[0] for size in sizes] == [1, 2, 5, 8]


def test_a_part_says_what_its_own_class_would_not_know_and_stands_in_for_another_library() -> None:
    """LLaVA's vision part has other patches than the class of that part has by default; DETR's needs timm."""
    vision = next(tiny_configs("llava", load_catalog()))["vision_config"]
    assert (vision["model_type"], vision["patch_size"], vision["image_size"]) == ("clip_vision_model", 14, 56)
    assert next(tiny_configs("detr", load_catalog()))["backbone_config"]["model_type"] == "resnet"


def test_special_tokens_lie_inside_a_vocabulary_that_is_small_already() -> None:
    arguments = next(tiny_configs("wav2vec2", load_catalog()))
    assert sorted(arguments[f"{name}_token_id"] for name in ("pad", "bos", "eos")) == [29, 30, 31]


def test_a_network_whose_widths_stand_in_its_code_is_shrunk_by_their_multiplier() -> None:
    small = next(tiny_configs("efficientnet", load_catalog()))
    assert small["width_coefficient"] < 1
    assert small["hidden_dim"] / 2560 == small["width_coefficient"] / 2  # 1280 in the code is what both come from
    assert small["hidden_dim"] % 8 == 0
    assert (small["depth_coefficient"], set(small["num_block_repeats"])) == (1.0, {1})
    assert next(tiny_configs("mobilenet_v1", load_catalog()))["image_size"] == 64


def test_the_channels_of_the_image_are_not_divided_with_the_stem() -> None:
    stem = next(tiny_configs("hgnet_v2", load_catalog()))
    assert stem["stem_channels"][0] == 3
    assert stem["stem_channels"][2] == stem["stage_in_channels"][0]
    assert stem["stage_out_channels"][-1] == stem["hidden_sizes"][-1]


def test_attention_among_patches_of_the_last_stage_has_more_than_one_to_choose_from() -> None:
    small = next(tiny_configs("mobilevit", load_catalog()))
    assert small["image_size"] // 32 >= 2 * 2  # strides of 32, two places a side to a patch


def test_the_last_configuration_is_deeper_with_finer_patches() -> None:
    first, *_, last = tiny_configs("idefics3_vision", load_catalog())
    assert last["num_hidden_layers"] == 2 * first["num_hidden_layers"]
    assert (last["patch_size"], last["image_size"]) == (16, 64)
    assert last["hidden_size"] == first["hidden_size"]


@pytest.mark.parametrize(
    ("model_type", "task", "says"),
    [("roberta", "text-generation", True), ("roberta", "fill-mask", False), ("gpt2", "text-generation", False)],
)
def test_an_encoder_that_stands_in_as_a_decoder_is_told_so(model_type: str, task: str, says: bool) -> None:
    from generators.models.classifier import classify_type
    from generators.recipes.build_model import class_of
    from generators.recipes.derive import task_class
    from generators.recipes.tiny import decodes_beside_its_primary_task

    chosen = task_class(model_type, task)
    made_with = class_of(load_catalog().config_class(model_type))
    assert decodes_beside_its_primary_task(classify_type(model_type), chosen, made_with) is says
