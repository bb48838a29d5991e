"""Dividing a configuration: widths, heads, images, lists of layers and rotary positions, without any library."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from generators.recipes.config_division import (
    Division,
    divided,
    divisions_of,
    first_of_each_kind,
    image_sizes,
    kept_lists,
    kept_outputs,
    layers_needed,
    rotary_sections,
)


class Text(SimpleNamespace):
    def __init__(
        self,
        hidden_size: int = 768,
        intermediate_size: int = 3072,
        num_attention_heads: int = 12,
        num_key_value_heads: int | None = None,
        head_dim: int | None = None,
    ) -> None:
        super().__init__(**{name: value for name, value in locals().items() if name not in ("self", "__class__")})


class Staged(SimpleNamespace):
    def __init__(
        self,
        embed_dim: int = 96,
        depths: tuple[int, ...] = (2, 2, 18, 2),
        num_heads: tuple[int, ...] = (3, 6, 12, 24),
        window_size: int = 7,
        image_size: int = 224,
        patch_size: int = 4,
        num_channels: int = 3,
    ) -> None:
        super().__init__(**{name: value for name, value in locals().items() if name not in ("self", "__class__")})


class Layered(SimpleNamespace):
    def __init__(
        self,
        num_hidden_layers: int = 12,
        num_blocks: int = 1,
        window_block_indices: tuple[int, ...] = (),
        backbone_out_indices: tuple[int, ...] = (),
    ) -> None:
        super().__init__(**{name: value for name, value in locals().items() if name not in ("self", "__class__")})


class Rotary(SimpleNamespace):
    mrope_section = None

    def __init__(
        self, rope_parameters: Any = None, hidden_size: int = 128, num_attention_heads: int = 4, head_dim: Any = None
    ) -> None:
        super().__init__(**{name: value for name, value in locals().items() if name not in ("self", "__class__")})


def smallest(config: Any) -> dict[str, Any]:
    return divided(config, divisions_of(config)[0])


def test_one_factor_divides_all_widths_and_larger_and_completed_configurations_follow() -> None:
    config = Text()
    assert smallest(config) == {"hidden_size": 48, "intermediate_size": 192, "num_attention_heads": 3}
    assert divisions_of(config) == [
        *(Division(factor=factor) for factor in (16, 8, 4)),
        *(Division(factor=factor, completed=True) for factor in (16, 8, 4)),
        Division(factor=16, deeper=True),
    ]
    completed = divided(config, Division(factor=8, completed=True))
    assert (completed["num_key_value_heads"], completed["head_dim"]) == (6, 16)
    grouped = smallest(Text(4096, 14336, 32, 8))
    assert (grouped["hidden_size"], grouped["num_attention_heads"], grouped["num_key_value_heads"]) == (64, 8, 2)
    given_width = smallest(Text(2880, 2880, 64, 8, 64))
    assert given_width == {
        "hidden_size": 90,
        "intermediate_size": 90,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 8,
    }


def test_widths_without_a_common_divisor_are_rounded_to_multiples_of_8() -> None:
    config = Text(2048, 2815, 16, 16)
    first, second, third, *_ = divisions_of(config)
    assert (first, second) == (Division(factor=64, rounded=True), Division(factor=32, rounded=True))
    assert third == Division(factor=1)
    assert [divided(config, one)["intermediate_size"] for one in (first, second, third)] == [40, 80, 2815]
    assert smallest(config)["num_attention_heads"] == 2


@given(heads=st.sampled_from([2, 4, 8, 12, 16, 24, 32, 40, 64]), width=st.sampled_from([32, 64, 80, 96, 128]))
def test_a_division_that_fits_keeps_proportions_and_whole_heads(heads: int, width: int) -> None:
    config = Text(heads * width, 4 * heads * width, heads)
    for division in divisions_of(config):
        tiny = divided(config, division)
        assert tiny["intermediate_size"] == 4 * tiny["hidden_size"]
        assert tiny["hidden_size"] >= 32
        assert tiny["num_attention_heads"] >= 2
        assert tiny["hidden_size"] % (4 * tiny["num_attention_heads"]) == 0
        assert tiny["hidden_size"] // tiny["num_attention_heads"] >= 8


def test_stages_keep_their_ratios_and_images_two_patches_a_side() -> None:
    config = Staged()
    assert smallest(config) == {"embed_dim": 24, "num_heads": [3, 6, 12, 24]}
    sizes = image_sizes(config, Division(factor=4))
    assert sizes == {"depths": [2, 2, 2, 2], "patch_size": 4, "image_size": 64, "window_size": 2}
    large = image_sizes(Staged(patch_size=32), Division(factor=4, deeper=True))
    assert (large["patch_size"], large["image_size"]) == (16, 16 * 2**4)


def test_lists_of_layers_follow_the_layers_that_are_kept() -> None:
    two_kinds = Layered(num_hidden_layers=10, num_blocks=4, window_block_indices=(0, 1, 3, 6))
    assert first_of_each_kind(two_kinds) == {0, 2}
    assert kept_lists(two_kinds, [0, 2]) == {"window_block_indices": [0], "num_blocks": 1}
    assert kept_lists(two_kinds, [0, 1, 2, 3]) == {"window_block_indices": [0, 1, 3], "num_blocks": 3}
    used = Layered(backbone_out_indices=(2, 5, 8, 11))
    assert layers_needed(used) == 4
    assert kept_lists(used, [0, 1, 2, 3]) == {"backbone_out_indices": [0, 1, 2, 3]}


def test_a_backbone_gives_the_last_layers_unless_it_does_as_by_default() -> None:
    def backbone(*outputs: int) -> Any:
        return Layers(out_indices=list(outputs), stage_names=("stem", "stage1", "stage2", "stage3"))

    class Layers(SimpleNamespace):
        num_hidden_layers = 3

        def __init__(self, num_hidden_layers: int = 3, **given: Any) -> None:
            super().__init__(**given)

    assert kept_outputs(backbone(1, 3), backbone(3), 2) == {"out_indices": [1, 2]}
    assert kept_outputs(backbone(3), backbone(3), 2) == {}


def test_rotary_sections_are_the_frequencies_of_one_head() -> None:
    sections = {"rope_type": "default", "mrope_section": [4, 6, 6]}
    assert rotary_sections(Rotary(), {}) == {"rope_parameters": sections}
    narrow = rotary_sections(Rotary({"rope_theta": 1e6, "partial_rotary_factor": 0.5}), {"hidden_size": 64})
    assert narrow["rope_parameters"]["mrope_section"] == [1, 1, 2]
    assert narrow["rope_parameters"]["rope_theta"] == 1e6
    assert rotary_sections(Rotary({"full_attention": {"rope_theta": 1e6}}), {}) == {}
    assert rotary_sections(Text(), {}) == {}
