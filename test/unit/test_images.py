"""Images in tiles, in patches and packed, by what a model takes with them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from generators.models.inputs import make_inputs
from generators.recipes.modality_inputs import modality_spec


def arrays_of(takes: tuple[str, ...], **attributes: Any) -> dict[str, Any]:
    config = SimpleNamespace(model_type="some", **attributes)
    return make_inputs({name: modality_spec(name, takes, config) or {} for name in takes}, 0, (5, 4))


def test_tiles_come_behind_the_whole_image_where_they_may_make_up_several_shapes() -> None:
    takes = ("pixel_values", "image_sizes")
    arrays = arrays_of(takes, image_size=8, image_grid_pinpoints=[[8, 16], [16, 8]])
    assert arrays["pixel_values"].shape == (2, 3, 3, 8, 8)
    assert arrays["image_sizes"].tolist() == [[8, 16]] * 2
    plain = arrays_of(takes, image_size=8)
    assert plain["pixel_values"].shape == (2, 3, 8, 8)
    assert plain["image_sizes"].tolist() == [[8, 8]] * 2


def test_every_tile_counts_under_the_aspect_ratio_that_is_told() -> None:
    takes = ("pixel_values", "aspect_ratio_ids", "aspect_ratio_mask", "cross_attention_mask")
    shapes = [[1, 1], [1, 2], [1, 4], [4, 1]]
    arrays = arrays_of(takes, image_size=8, max_num_tiles=4, supported_aspect_ratios=shapes)
    assert arrays["pixel_values"].shape == (2, 1, 4, 3, 8, 8)
    assert arrays["aspect_ratio_ids"].tolist() == [[3], [3]]
    assert arrays["aspect_ratio_mask"].shape == (2, 1, 4)
    assert arrays["cross_attention_mask"].shape == (2, 5, 1, 4)


def test_patches_that_are_packed_are_as_many_as_their_shape_and_mask_say() -> None:
    takes = ("pixel_values", "spatial_shapes", "pixel_attention_mask")
    arrays = arrays_of(takes, num_channels=3, patch_size=4, downsample_factor=2)
    assert arrays["pixel_values"].shape == (2, 16, 48)
    assert arrays["spatial_shapes"].prod(axis=1).tolist() == [16, 16]
    assert arrays["pixel_attention_mask"].shape == (2, 16)


def test_several_images_a_text_have_an_axis() -> None:
    arrays = arrays_of(("pixel_values", "pixel_attention_mask"), image_size=8)
    assert arrays["pixel_values"].shape == (2, 1, 3, 8, 8)
    assert arrays["pixel_attention_mask"].shape == (2, 1, 8, 8)
