"""Inputs of every kind: what a specification draws, and what a configuration says of its shapes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from golden_suites import MODEL_TYPES, OTHERS, recipe_of
from suite_inputs import drawn_differently, make_inputs_of, suite_of, with_inputs

from generators.models.catalog import TaskEntry, task_entries
from generators.models.inputs import OTHER_DRAWS, covered_by, make_inputs, other_draws, padding_mask
from generators.recipes.input_layouts import chosen_layout, placeholder_tokens, sound_layouts
from generators.recipes.input_specs import _count_in_the_mask
from generators.recipes.measurements import masked_outputs
from generators.recipes.modality_inputs import modality_spec, scene_spec
from hardware.errors import ModelError
from hardware.output_masks import masks_of

KINDS: dict[str, dict[str, Any]] = {
    "categories": {"kind": "categories", "shape": [3, 4], "high": 12},
    "categories_of_a_row": {"kind": "categories", "shape": [], "high": 3},
    "token_categories": {"kind": "token_categories", "high": [3, 256, 2]},
    "token_categories_from": {"kind": "token_categories", "low": [0, 1, 1], "high": [3, 2, 9]},
    "boxes": {"kind": "boxes", "high": 1001},
    "shares_of_a_page": {"kind": "boxes", "high": 1001, "divisor": 1000},
    "answers": {"kind": "tokens", "high": 50, "choices": 3, "last": 60},
    "answers_mask": {"kind": "mask", "side": "right", "choices": 3},
    "ended": {"kind": "tokens", "high": 50, "end": 60},
    "image_grid_thw": {"kind": "constant", "value": [1, 4, 4], "rows": 2},
    "image_token_pooling": {"kind": "constant", "value": [0, 1], "apart": 2},
    "states": {"kind": "frames", "step": 1, "bins": 5},
}
WITH_AN_IMAGE: dict[str, dict[str, Any]] = {
    "input_ids": {"kind": "tokens", "high": 50, "places": [[60, -9, -5], [61, -5, -3]], "padding": 1},
    "attention_mask": {"kind": "mask", "side": "left"},
    "position_ids": {"kind": "positions", "start": 2},
    "token_type_ids": {"kind": "places", "token": 60},
    "pixel_values": {"kind": "patches", "grid": [1, 2, 2], "shape": [3, 2, 2]},
    "flattened_patches": {"kind": "flattened", "side": 2, "width": 5},
    "image_grid_thw": {"kind": "constant", "value": [1, 2, 2]},
    "image_merge_sizes": {"kind": "constant", "value": 1},
    "image_position_ids": {"kind": "constant", "value": [[0, 0], [1, 0]]},
    "aspect_ratio_mask": {"kind": "ones", "shape": [1, 4]},
    "pixel_attention_mask": {"kind": "ones", "shape": [1], "boolean": True},
    "cross_attention_mask": {"kind": "seen", "shape": [1, 4]},
}
PROMPTED = SimpleNamespace(model_type="sam", image_size=64, patch_size=16, num_channels=3, mask_input_channels=16)
PROMPTS = ("input_points", "input_labels", "input_boxes", "input_masks")
TRAJECTORY = {"states": KINDS["states"], "attention_mask": {"kind": "mask", "side": "left"}}


def configured(**attributes: Any) -> SimpleNamespace:
    return SimpleNamespace(model_type="some", **attributes)


def arrays_of(takes: tuple[str, ...], lengths: tuple[int, ...] = (5, 4), **attributes: Any) -> dict[str, Any]:
    """Return the arrays that a model with this configuration takes; what has no specification is left out."""
    specs = {name: modality_spec(name, takes, configured(**attributes)) for name in takes}
    return make_inputs({name: spec for name, spec in specs.items() if spec is not None}, 0, lengths)


def shapes_of(takes: tuple[str, ...], **attributes: Any) -> list[tuple[int, ...]]:
    return [array.shape for array in arrays_of(takes, **attributes).values()]


def prompts_of_sam() -> dict[str, Any]:
    return {name: scene_spec(name, PROMPTS, PROMPTED, entry_of("mask-generation")) or {} for name in PROMPTS}


def entry_of(task: str) -> TaskEntry:
    return next(entry for entry in task_entries() if entry.task == task)


def test_a_suite_draws_the_numbers_of_its_recipe() -> None:
    wrong = [one for name in (*MODEL_TYPES, *OTHERS) for one in drawn_differently(recipe_of(name))]
    for name, spec in KINDS.items():
        recipe = with_inputs({"input_ids": {"kind": "tokens", "high": 50}, name: spec})
        wrong += drawn_differently(recipe)
        rows = len(make_inputs(recipe.inputs, 2, (5, 12, 7))[name])
        assert rows == 3 * spec.get("rows", 1), name
    wrong += drawn_differently(with_inputs(WITH_AN_IMAGE, "llava"))
    wrong += drawn_differently(with_inputs({**recipe_of("vit").inputs, **prompts_of_sam()}, "vit"))
    side_by_side = {"kind": "pixels", "shape": [3, 4, 16], "side_by_side": True}
    beside = with_inputs({"input_ids": {"kind": "tokens", "high": 50}, "pixel_values": side_by_side})
    wrong += drawn_differently(beside)
    assert make_inputs(beside.inputs, 2, (5, 12, 7))["pixel_values"].shape == (1, 3, 4, 3 * 16)
    assert wrong == []


def test_inputs_are_drawn_in_order_and_padded_where_asked() -> None:
    specs = {
        "input_ids": {"kind": "tokens", "high": 50, "last": 49},
        "attention_mask": {"kind": "mask", "side": "left"},
        "position_ids": {"kind": "positions"},
        "pixel_values": {"kind": "pixels", "shape": [3, 4, 4]},
    }
    arrays = make_inputs(specs, 7, (5, 3))
    rng = np.random.default_rng(7)
    tokens = rng.integers(0, 50, (2, 5))
    tokens[:, -1] = 49
    assert (arrays["input_ids"] == tokens).all()
    assert (arrays["pixel_values"] == rng.standard_normal((2, 3, 4, 4)).astype(np.float32)).all()
    assert arrays["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]
    assert arrays["position_ids"].tolist() == [[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]]
    assert padding_mask((3, 1), "right").tolist() == [[1, 1, 1], [1, 0, 0]]
    with pytest.raises(ValueError, match="kind of input"):
        make_inputs({"x": {"kind": "bytes"}})
    assert other_draws((16, 9)) == OTHER_DRAWS


def test_padding_holds_the_padding_token_and_positions_begin_behind_it() -> None:
    specs = {
        "input_ids": {"kind": "tokens", "high": 50, "padding": 50},
        "attention_mask": {"kind": "mask", "side": "left"},
        "position_ids": {"kind": "positions", "start": 2},
    }
    arrays = make_inputs(specs, 0, (6, 4))
    assert np.array_equal(arrays["input_ids"] == 50, arrays["attention_mask"] == 0)
    assert arrays["position_ids"].tolist() == [[2, 3, 4, 5, 6, 7], [2, 2, 2, 3, 4, 5]]
    counted: dict[str, dict[str, Any]] = {"position_ids": {"kind": "positions"}, "attention_mask": {"kind": "mask"}}
    _count_in_the_mask(counted)
    assert list(counted) == ["attention_mask", "position_ids"]


def test_padding_goes_where_it_changes_nothing() -> None:
    """SigLIP reads a text off its last column, which holds a token that ends the text, behind the padding."""
    siglip = recipe_of("siglip")
    assert make_inputs(siglip.inputs)["attention_mask"][1, -1] == 0
    assert (make_inputs(siglip.inputs)["input_ids"][:, -1] == siglip.inputs["input_ids"]["last"]).all()
    ids = make_inputs({"input_ids": KINDS["ended"]}, 1, (5, 3))["input_ids"]
    assert np.argwhere(ids == 60).tolist() == [[0, 4], [1, 2]]


def test_a_text_with_an_image_has_placeholders_and_a_mask_for_what_it_attends_to() -> None:
    arrays = make_inputs(WITH_AN_IMAGE, 0, (4, 3))
    assert arrays["input_ids"].shape == arrays["cross_attention_mask"].shape[:2] == (2, 10)
    assert not arrays["cross_attention_mask"][:, 0].any()
    assert arrays["flattened_patches"][0, :, :2].tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]
    assert arrays["pixel_attention_mask"].dtype == bool
    config = configured(image_token_id=60, video_token_index=61)
    assert placeholder_tokens(config, ("input_ids", "pixel_values")) == {"image": 60}
    assert placeholder_tokens(config, ("input_ids", "pixel_values", "pixel_values_videos")) == {
        "image": 60,
        "video": 61,
    }
    assert placeholder_tokens(config, ("pixel_values",)) == {}
    assert placeholder_tokens(configured(image_token_id=None), ("input_ids", "pixel_values")) == {}


def test_numbers_of_each_kind_lie_in_their_range() -> None:
    drawn = make_inputs({"token_type_ids": KINDS["token_categories"]}, 1)["token_type_ids"]
    assert drawn.shape == (2, 16, 3)
    assert np.all(drawn.max(axis=(0, 1)) <= [2, 255, 1])
    assert drawn[..., 1].max() > 2
    boxes, shares = (make_inputs({"bbox": KINDS[name]}, 3)["bbox"] for name in ("boxes", "shares_of_a_page"))
    assert boxes.shape == (2, 16, 4)
    assert shares.dtype == np.float32
    for corners, least, most in ((boxes, 100, 1000), (shares, 0.5, 1)):
        assert (corners[..., :2] <= corners[..., 2:]).all()
        assert corners.min() >= 0
        assert least < corners.max() <= most
    answers = make_inputs({name: KINDS[name] for name in ("answers", "answers_mask")}, 1, (5, 3))
    assert answers["answers"].shape == answers["answers_mask"].shape == (2, 3, 5)
    assert answers["answers_mask"][:, 2].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert (answers["answers"][..., -1] == 60).all()
    pooled = make_inputs({"pooling": KINDS["image_token_pooling"]}, 2, (5, 12, 7))["pooling"]
    assert pooled.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_patches_and_grid_describe_the_same_images() -> None:
    patched = {"in_channels": 3, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2}
    for pixels, grid in (("pixel_values", "image_grid_thw"), ("hidden_states", "grid_thw")):
        arrays = arrays_of((pixels, grid), **patched)
        assert arrays[pixels].shape == (arrays[grid].prod(axis=1).sum(), 3 * 2 * 14 * 14)
    assert modality_spec("hidden_states", ("hidden_states",), configured(**patched)) is None
    arrays = arrays_of(("pixel_values", "pixel_position_ids"), patch_size=16, pooling_kernel_size=3)
    assert arrays["pixel_values"].shape == (2, 36, 3 * 16**2)
    places = arrays["pixel_position_ids"]
    assert places.shape == (2, 36, 2)
    assert {tuple(place) for place in places[0]} == {(x, y) for x in range(6) for y in range(6)}
    spec = modality_spec("noise", ("pixel_values", "noise"), configured(image_size=64, patch_size=16))
    assert spec == {"kind": "features", "shape": [16]}


def test_images_in_tiles_packed_or_beside_an_example_have_the_shapes_that_a_model_takes() -> None:
    takes = ("pixel_values", "image_sizes")
    arrays = arrays_of(takes, image_size=8, image_grid_pinpoints=[[8, 16], [16, 8]])
    assert arrays["pixel_values"].shape == (2, 3, 3, 8, 8)  # the whole image, then its tiles
    assert arrays["image_sizes"].tolist() == [[8, 16]] * 2
    plain = arrays_of(takes, image_size=8)
    assert plain["pixel_values"].shape == (2, 3, 8, 8)
    assert plain["image_sizes"].tolist() == [[8, 8]] * 2

    takes = ("pixel_values", "aspect_ratio_ids", "aspect_ratio_mask", "cross_attention_mask")
    ratios = {"image_size": 8, "max_num_tiles": 4, "supported_aspect_ratios": [[1, 1], [1, 2], [1, 4], [4, 1]]}
    assert shapes_of(takes, **ratios) == [(2, 1, 4, 3, 8, 8), (2, 1), (2, 1, 4), (2, 5, 1, 4)]
    assert arrays_of(takes, **ratios)["aspect_ratio_ids"].tolist() == [[3], [3]]

    takes = ("pixel_values", "spatial_shapes", "pixel_attention_mask")
    assert shapes_of(takes, num_channels=3, patch_size=4, downsample_factor=2) == [(2, 16, 48), (2, 2), (2, 16)]
    packed = arrays_of(takes, num_channels=3, patch_size=4, downsample_factor=2)
    assert packed["spatial_shapes"].prod(axis=1).tolist() == [16, 16]
    assert shapes_of(("pixel_values", "pixel_attention_mask"), image_size=8) == [(2, 1, 3, 8, 8), (2, 1, 8, 8)]

    takes = ("pixel_values", "prompt_pixel_values", "prompt_masks")
    assert shapes_of(takes, image_size=[128, 64], patch_size=16) == [(2, 3, 64, 64)] * 3


def test_a_user_points_into_the_image_and_labels_as_many_objects() -> None:
    prompts = make_inputs(prompts_of_sam(), 0, (4, 4))
    points, labels, boxes = (prompts[name] for name in PROMPTS[:3])
    assert points.shape[:-1] == labels.shape
    assert boxes.shape == (*points.shape[:2], 4)
    assert all(0 <= numbers.min() <= numbers.max() < 64 for numbers in (points, boxes))
    assert (boxes[..., :2] <= boxes[..., 2:]).all()
    assert set(labels.ravel()) == {0, 1}
    assert prompts["input_masks"].shape[-1] == 4 * 64 // 16
    assert {array.dtype for array in (points, boxes)} == {np.dtype(np.float32)}


def test_a_pair_has_two_images_and_a_video_its_frames() -> None:
    still, moving = configured(image_size=32), configured(image_size=32, num_frames=4)
    matching, watching = entry_of("keypoint-matching"), entry_of("video-classification")
    one, several = ("pixel_values",), ("pixel_values_videos",)
    assert scene_spec("pixel_values", one, still, matching) == {"kind": "pixels", "shape": [2, 3, 32, 32]}
    assert scene_spec("pixel_values", one, still, watching) is None
    frames = {"kind": "pixels", "shape": [4, 3, 32, 32]}
    assert scene_spec("pixel_values", one, moving, watching) == frames
    assert scene_spec("pixel_values_videos", several, moving, watching) == frames
    assert scene_spec("pixel_values_videos", ("input_ids", *several), moving, watching) is None


def test_a_series_has_a_past_as_long_as_its_lags_and_numbers_for_every_channel() -> None:
    counts = {"num_time_features": 1, "num_dynamic_real_features": 1, "input_size": 2, "prediction_length": 4}
    takes = ("past_values", "past_time_features", "future_values", "future_time_features")
    shapes = shapes_of(takes, context_length=6, lags_sequence=[1, 3], **counts)
    assert shapes == [(2, 9, 2), (2, 9, 2), (2, 4, 2), (2, 4, 2)]
    short = {"context_length": 8, "freq_size": 3, "prediction_length": 4}
    assert list(arrays_of(("past_values", "freq", "future_values"), **short)) == ["past_values", "freq"]
    assert modality_spec("freq", ("input_ids", "freq"), configured(**short)) is None


def test_a_shape_that_a_configuration_leaves_open_is_refused_with_what_is_missing() -> None:
    with pytest.raises(ModelError, match="max_2d_position_embeddings"):
        modality_spec("bbox", (), configured())
    assert modality_spec("labels", (), configured()) is None


def test_frames_that_pad_a_row_are_marked_and_padded_images_too() -> None:
    specs = {"mel": {"kind": "frames", "bins": 5, "step": 4}, "mask": {"kind": "padded", "step": 4}}
    arrays = make_inputs(specs, 0, (3, 2))
    assert arrays["mel"].shape[:2] == arrays["mask"].shape == (2, 12)
    assert arrays["mask"].dtype == np.bool_
    assert arrays["mask"].sum(axis=1).tolist() == [0, 4]
    specs = {"m": {"kind": "shown", "shape": [1, 4, 6]}, "n": {"kind": "shown", "shape": [1], "boolean": True}}
    arrays = make_inputs(specs, 0, (5, 5, 5))
    assert arrays["m"][0].all()
    assert (arrays["m"][1:] == np.array([1, 1, 1, 0, 0, 0])).all()
    assert arrays["n"].all()
    assert arrays["n"].dtype == bool


class Listening:
    """Takes features of 32 frames with their bins first, and fails without a mask over those."""

    config = SimpleNamespace(model_type="some", num_mel_bins=20)

    def run(self, specs: dict[str, dict[str, Any]]) -> None:
        arrays = make_inputs(specs, 0, (4, 4))
        assert arrays["input_features"].shape == (2, 20, 64)
        assert arrays["input_features_mask"].shape == (2, 64)


def test_a_sound_in_a_text_has_a_fixed_length_and_a_mask_if_the_model_needs_one() -> None:
    model = Listening()
    layouts = sound_layouts("input_features", model, in_text=True)
    specs = {"input_features": layouts[0], "input_features_mask": {"kind": "ones", "shape": []}}
    found = chosen_layout(model, "input_features", specs, layouts, model.run)
    assert found["input_features"] == {"kind": "features", "shape": [20, 64]}
    assert found["input_features_mask"] == {"kind": "ones", "shape": [64]}
    free = chosen_layout(model, "input_features", specs, layouts, lambda tried: None)
    assert list(free) == ["input_features"]


def test_a_mask_covers_the_tokens_or_what_has_a_frame_for_each_and_every_position_of_a_step() -> None:
    tokens = {"input_ids": {"kind": "tokens", "high": 9}}
    assert covered_by("attention_mask", TRAJECTORY) == "states"
    assert covered_by("attention_mask", {**tokens, **TRAJECTORY}) == "input_ids"
    assert covered_by("attention_mask", {"attention_mask": TRAJECTORY["attention_mask"]}) == ""
    long, short = np.zeros((2, 48, 4)), np.zeros((2, 36, 4))
    found = masked_outputs({"hidden": short}, {"hidden": long}, (12, 16), TRAJECTORY)
    assert found == {"hidden": "attention_mask * 3"}
    mask = np.array([[1, 1], [0, 1]])
    assert masks_of(found, {"attention_mask": mask})["hidden"].tolist() == [[1] * 6, [0, 0, 0, 1, 1, 1]]


def test_padded_frames_are_scrambled_by_other_numbers() -> None:
    text = suite_of(with_inputs(TRAJECTORY))
    assert drawn_differently(with_inputs(TRAJECTORY), text) == []
    assert list(make_inputs_of(text)()) == ["states", "attention_mask"]
    assert 'steps = inputs["attention_mask"], inputs["states"]' in text
    assert "np.where(mask[..., None] == 1, steps, steps + 1)" in text
