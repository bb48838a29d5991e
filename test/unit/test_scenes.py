"""Models that find, cut out, measure and match: what they take beyond one image, and how their networks shrink."""

from __future__ import annotations

import ast
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from generators.models.catalog import TaskEntry, load_catalog, task_entries
from generators.models.inputs import make_inputs
from generators.models.recipe_store import load_recipe
from generators.recipes.build_model import configured_type
from generators.recipes.config_division import kept_lists, layers_needed, telling_layers
from generators.recipes.derive import task_class
from generators.recipes.modality_inputs import scene_spec
from generators.recipes.tiny import tiny_configs
from generators.suites.render import render
from hardware.cell import Cell
from hardware.target import Target

PROMPTED = SimpleNamespace(model_type="sam", image_size=64, patch_size=16, num_channels=3, mask_input_channels=16)
PROMPTS = ("input_points", "input_labels", "input_boxes", "input_masks")


def entry_of(task: str) -> TaskEntry:
    return next(entry for entry in task_entries() if entry.task == task)


def prompt_specs() -> dict[str, Any]:
    return {name: scene_spec(name, PROMPTS, PROMPTED, entry_of("mask-generation")) or {} for name in PROMPTS}


def test_a_user_points_into_the_image_and_says_of_as_many_objects_what_belongs_to_them() -> None:
    prompts = make_inputs(prompt_specs(), 0, (4, 4))
    points, labels, boxes = (prompts[name] for name in PROMPTS[:3])
    assert points.shape[:-1] == labels.shape
    assert boxes.shape == (*points.shape[:2], 4)
    assert all(0 <= numbers.min() <= numbers.max() < 64 for numbers in (points, boxes))
    assert (boxes[..., :2] <= boxes[..., 2:]).all()
    assert set(labels.ravel()) == {0, 1}
    assert prompts["input_masks"].shape[-1] == 4 * 64 // 16
    assert {array.dtype for array in (points, boxes)} == {np.dtype(np.float32)}


def test_a_suite_draws_the_prompts_that_its_recipe_says() -> None:
    recipe = load_recipe("vit")
    assert recipe is not None
    recipe = replace(recipe, inputs={"pixel_values": recipe.inputs["pixel_values"], **prompt_specs()})
    cell = Cell(model=recipe.model_type, task=recipe.task, target=Target.parse("cpu"))
    tree = ast.parse(render(recipe, cell, ()))
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "make_inputs")
    names: dict[str, Any] = {"np": np}
    exec(compile(ast.Module(body=[function], type_ignores=[]), "suite", "exec"), names)
    ours, written = make_inputs(recipe.inputs, 2, (5, 12, 7)), names["make_inputs"](2, (5, 12, 7))
    assert list(ours) == list(written)
    assert all(ours[name].dtype == written[name].dtype and np.array_equal(ours[name], written[name]) for name in ours)


def test_a_pair_has_two_images_and_a_video_its_frames() -> None:
    still = SimpleNamespace(model_type="some", image_size=32)
    takes, matching, watching = ("pixel_values",), entry_of("keypoint-matching"), entry_of("video-classification")
    pair = scene_spec("pixel_values", takes, still, matching)
    assert pair == {"kind": "pixels", "shape": [2, 3, 32, 32]}
    assert scene_spec("pixel_values", takes, still, watching) is None
    moving = SimpleNamespace(model_type="some", image_size=32, num_frames=4)
    assert scene_spec("pixel_values", takes, moving, watching) == {"kind": "pixels", "shape": [4, 3, 32, 32]}
    videos = scene_spec("pixel_values_videos", ("pixel_values_videos",), moving, watching)
    assert videos == {"kind": "pixels", "shape": [4, 3, 32, 32]}
    inside_a_text = ("input_ids", "pixel_values_videos")
    assert scene_spec("pixel_values_videos", inside_a_text, moving, watching) is None


@pytest.mark.parametrize("model_type", ["timesformer", "videomae", "vivit", "vjepa2"])
def test_a_video_has_two_steps_in_time_of_small_images(model_type: str) -> None:
    config = next(tiny_configs(model_type, load_catalog()))
    assert config.get("num_frames", config.get("frames_per_clip")) == 4
    assert config.get("image_size", config.get("crop_size")) == 64


def test_a_backbone_gives_as_many_feature_maps_as_the_network_around_it_takes() -> None:
    for model_type in ("depth_anything", "dpt", "zoedepth"):
        config = next(tiny_configs(model_type, load_catalog()))
        backbone = config.get("backbone_config", config)
        outputs = backbone.get("out_indices", config.get("backbone_out_indices"))
        assert len(outputs) == len(config["neck_hidden_sizes"])
        assert max(outputs) <= backbone["num_hidden_layers"] == len(outputs)


class Layered:
    def __init__(
        self,
        num_hidden_layers: int = 12,
        num_blocks: int = 1,
        window_block_indices: tuple[int, ...] = (),
        backbone_out_indices: tuple[int, ...] = (),
    ) -> None:
        self.num_hidden_layers = num_hidden_layers
        self.num_blocks = num_blocks
        self.window_block_indices = window_block_indices
        self.backbone_out_indices = backbone_out_indices


def test_lists_of_layers_follow_the_layers_that_are_kept() -> None:
    two_kinds = Layered(num_hidden_layers=10, num_blocks=4, window_block_indices=(0, 1, 3, 6))
    assert telling_layers(two_kinds) == {0, 2}
    assert kept_lists(two_kinds, [0, 2]) == {"window_block_indices": [0], "num_blocks": 1}
    assert kept_lists(two_kinds, [0, 1, 2, 3]) == {"window_block_indices": [0, 1, 3], "num_blocks": 3}
    used = Layered(backbone_out_indices=(2, 5, 8, 11))
    assert layers_needed(used) == 4
    assert kept_lists(used, [0, 1, 2, 3]) == {"backbone_out_indices": [0, 1, 2, 3]}


def test_stages_keep_a_block_of_each_kind() -> None:
    backbone = next(tiny_configs("sam2", load_catalog()))["vision_config"]["backbone_config"]
    assert backbone["blocks_per_stage"] == [2, 2, 2, 2]
    assert backbone["global_attention_blocks"] == [5]


def test_feature_maps_shrink_with_the_image() -> None:
    vision = next(tiny_configs("sam2", load_catalog()))["vision_config"]
    assert vision["backbone_config"]["image_size"] == [64, 64]
    assert vision["backbone_feature_sizes"] == [[16, 16], [8, 8], [4, 4]]


def test_there_are_more_places_than_objects_that_are_asked_for() -> None:
    from generators.recipes.modality_inputs import modality_spec

    config = next(tiny_configs("rt_detr", load_catalog()))
    spec = modality_spec("pixel_values", (), SimpleNamespace(model_type="rt_detr", feat_strides=[8, 16, 32]))
    assert spec is not None
    side = spec["shape"][-1]
    assert sum((side // stride) ** 2 for stride in (8, 16, 32)) > config["num_queries"]


def test_an_image_leaves_two_patches_a_side_to_each_of_its_windows() -> None:
    backbone = next(tiny_configs("lw_detr", load_catalog()))["backbone_config"]
    assert backbone["image_size"] == 2 * 4 * 16


def test_heads_of_any_width_are_divided_where_they_share_a_stream_evenly() -> None:
    config = next(tiny_configs("swin2sr", load_catalog()))
    assert config["embed_dim"] % config["num_heads"][0] == 0
    assert config["embed_dim"] < 180


def test_a_class_is_built_from_the_configuration_that_it_names() -> None:
    catalog = load_catalog()
    types = {
        name: configured_type(name, task_class(name, None).model_class)
        for name in ("sam2", "sam2_video", "sam3_video", "vit")
    }
    assert types == {"sam2": "sam2", "sam2_video": "sam2", "sam3_video": "sam3_tracker", "vit": "vit"}
    assert all(name in catalog.configs for name in types.values())


def test_frequencies_that_a_constructor_draws_are_the_same_in_every_model() -> None:
    import torch

    from hardware.testing.seeded_weights import fill

    class Positions(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("positional_embedding", torch.randn(2, 8))

    one, other = (fill(Positions()).state_dict()["positional_embedding"] for _ in range(2))
    assert torch.equal(one, other)
    assert one.std() > 0


def test_part_of_an_override_that_only_the_whole_says_by_default_stays() -> None:
    backbone = next(tiny_configs("chmv2", load_catalog()))["backbone_config"]
    assert backbone["return_class_token"] is True
