"""Specify inputs other than text by name: images, tiles and patches with their sizes, grids and masks; pairs of
images, videos, prompts and depth; boxes and regions; time series. Sounds are in input_layouts.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from hwcompat.generators.models.catalog import TaskEntry

from .config_scopes import attribute_of, known_of, roles, tree

Spec = dict[str, Any]

_COORDINATES = 1001
"""Boxes are normalized to 0 ... 1000, as the documentation of LayoutLM says."""
_REGIONS = 4
"""Regions of an image that a detector passes to a model of its features."""
_OBJECTS = 5
"""Objects that a user points at: enough for a spread of the numbers about each."""
_POINTS = 3
"""Points on one object; with the two corners of its box their number differs from that of objects."""
_MASK_PLACES_A_PATCH = 4
"""Places per side of a prompt mask for each patch of the image, as in the output."""
_FRAMES = 4
"""Frames of a video if the configuration has no number: each is split like an image."""
_DEPTH_A_SIDE = 8
"""Places per side of measured depth, which is coarser than the image."""
_IMAGE = 64
"""Pixels per side if a configuration has no size."""
_SIDE = 4
"""Patches per side if their number is free."""
_PLACES_A_SIDE = 3
"""More places than object queries, so that the best of them are chosen."""


def modality_spec(name: str, takes: Collection[str], config: Any) -> Spec | None:
    """Return the specification of an input by its name, or None for other inputs. `takes` are the names of all.

    Raises `ModelError` if the configuration leaves the shape open.
    """
    makers: dict[str, Callable[[Any], Spec]] = {
        "bbox": _boxes,
        "visual_feats": lambda config: _regions(config, "visual_feat_dim"),
        "visual_pos": lambda config: _regions(config, "visual_pos_dim"),
        "visual_embeds": lambda config: _regions(config, "visual_embedding_dim"),
    }
    makers |= image_makers(takes) | series_makers(takes)
    return makers[name](config) if name in makers else None


def _regions(config: Any, width: str) -> Spec:
    return {"kind": "features", "shape": [_REGIONS, *known_of(config, "regions", width)]}


def _boxes(config: Any) -> Spec:
    if attribute_of(config, "bbox_scale"):  # the model converts shares of the page to numbers
        return {"kind": "boxes", "high": _COORDINATES, "divisor": _COORDINATES - 1}
    (most,) = known_of(config, "boxes", "max_2d_position_embeddings")
    return {"kind": "boxes", "high": min(most, _COORDINATES)}


def scene_spec(name: str, takes: Collection[str], config: Any, entry: TaskEntry) -> Spec | None:
    """Return the specification of an input by its name, or None for other inputs. `takes` are the names of all.

    Raises `ModelError` if the configuration leaves the shape open.
    """
    frames = attribute_of(config, *roles()["config"]["frames"])
    if name == "pixel_values" and (entry.images > 1 or frames):
        return _several(entry.images if entry.images > 1 else frames, config)
    if name == "pixel_values_videos" and "video_grid_thw" not in takes and "input_ids" not in takes:
        return _several(frames or _FRAMES, config)
    makers: Mapping[str, Callable[[Any], Spec]] = {
        "input_points": lambda config: {
            "kind": "points",
            "shape": [_OBJECTS, _POINTS, 2],
            "high": _one_image(config)[-1],
        },
        "input_labels": lambda config: {"kind": "categories", "shape": [_OBJECTS, _POINTS], "high": 2},
        "input_boxes": lambda config: {"kind": "regions", "count": _OBJECTS, "high": _one_image(config)[-1]},
        "input_masks": _mask_prompt,
        "task_inputs": _task,
        "prompt_depth": lambda config: {"kind": "features", "shape": [1, _DEPTH_A_SIDE, _DEPTH_A_SIDE]},
    }
    return makers[name](config) if name in makers else None


def _one_image(config: Any) -> list[int]:
    """Return channels, height and width of one image."""
    spec = modality_spec("pixel_values", (), config) or {}
    return list(spec["shape"])


def _several(count: int, config: Any) -> Spec:
    """Return several images per example, each with its channels: a pair, or the frames of a video."""
    return {"kind": "pixels", "shape": [count, *_one_image(config)]}


def _task(config: Any) -> Spec:
    """Return the task of an image model (OneFormer) as a text of fixed length."""
    return {"kind": "categories", "shape": [config.task_seq_len], "high": config.text_encoder_vocab_size}


def _mask_prompt(config: Any) -> Spec:
    scope = next(one for one in tree(config) if getattr(one, "mask_input_channels", None))
    side = _MASK_PLACES_A_PATCH * scope.image_size // scope.patch_size
    return {"kind": "features", "shape": [1, side, side]}


def image_makers(takes: Collection[str]) -> dict[str, Callable[[Any], Spec]]:
    """Return functions that make an input's specification from the configuration, by the input's name. `takes` are
    the names of all inputs."""
    pixels = _pixels_of(takes)
    makers: dict[str, Callable[[Any], Spec]] = {
        "pixel_values": pixels,
        "prompt_pixel_values": pixels,
        "prompt_masks": pixels,
        "pixel_values_images": _pixels,
        "image_grid_thw": lambda config: _constant(_grid_of(config)),
        "image_sizes": lambda config: _constant(_largest(config)),
        "spatial_shapes": lambda config: _constant([_side(config)] * 2),
        "target_sizes": lambda config: _constant([_merged_side(config)] * 2),
        "pixel_attention_mask": lambda config: {
            "kind": "ones",
            "shape": [_side(config) ** 2] if "spatial_shapes" in takes else [1, *_size(config)],
        },
        "high_res_pixel_values": lambda config: _pixels(config.high_res_vision_config),
        "image_merge_sizes": lambda config: _constant(1),
        "flattened_patches": _flattened,
        "image_patches": _packed,
        "grid_thw": lambda config: _constant(_grid_of(config)),
        "merge_sizes": lambda config: _constant(1),
        "pixel_position_ids": _places,
        "noise": _order,
        **(_TILE_MAKERS if "aspect_ratio_ids" in takes else {}),
    }
    if "grid_thw" in takes:
        makers["hidden_states"] = _patches
    if "perceiver_embeddings" in takes:  # a mask of a text's images; in other models, of an image's patches
        makers["image_attention_mask"] = lambda config: {"kind": "seen", "shape": [1]}
    return makers


_TILE_MAKERS: Mapping[str, Callable[[Any], Spec]] = {
    "aspect_ratio_ids": lambda config: _constant([_full_ratio(config)]),
    "aspect_ratio_mask": lambda config: {"kind": "ones", "shape": _tiles(config)},
    "cross_attention_mask": lambda config: {"kind": "seen", "shape": _tiles(config)},
}
"""Inputs of an image in tiles with a numbered shape; a cross-attention mask alone may cover patches of text."""


def _constant(value: Any) -> Spec:
    return {"kind": "constant", "value": value}


def _pixels_of(takes: Collection[str]) -> Callable[[Any], Spec]:
    """Return the form of images by the other inputs: patches, an axis for several images or tiles, or plain."""
    signs: Mapping[str, Callable[[Any], Spec]] = {
        "image_grid_thw": _patches,
        "grid_thw": _patches,
        "pixel_position_ids": _packed,
        "prompt_pixel_values": _beside_prompt,
        "spatial_shapes": _packed,
        "target_sizes": _strip,
        "aspect_ratio_ids": lambda config: _pixels(config, *_tiles(config)),
        "pixel_attention_mask": lambda config: _pixels(config, 1),
        "perceiver_embeddings": lambda config: _pixels(config, 1),
        "image_sizes": _tiled,
    }
    return next((maker for sign, maker in signs.items() if sign in takes), _pixels)


def _free_side(config: Any) -> int:
    """Return the pixels per side if a configuration has no size: a few places per side at the coarsest level."""
    strides = attribute_of(config, *roles()["config"]["feature_strides"]) or ()
    return int(max(_IMAGE, *(_PLACES_A_SIDE * stride for stride in strides), 0))


def _size(config: Any) -> list[int]:
    """Return height and width of an image."""
    size = attribute_of(config, *roles()["config"]["image"]) or _free_side(config)
    return list(size) if isinstance(size, list | tuple) else [size, size]


def _pixels(config: Any, *before: int) -> Spec:
    return {"kind": "pixels", "shape": [*before, attribute_of(config, "num_channels") or 3, *_size(config)]}


def _largest(config: Any) -> list[int]:
    """Return height and width of the original image: of the first shape of tiles, else of the image itself."""
    shapes = attribute_of(config, *roles()["config"]["image_grids"])
    return list(shapes[0]) if shapes else _size(config)


def _tiled(config: Any) -> Spec:
    """Return the whole image made small, then its tiles, if its shape is one of several."""
    if not attribute_of(config, *roles()["config"]["image_grids"]):
        return _pixels(config)
    tiles = math.prod(whole // tile for whole, tile in zip(_largest(config), _size(config), strict=True))
    return _pixels(config, 1 + tiles)


def _tiles(config: Any) -> list[int]:
    """Return one image of the largest number of tiles."""
    return [1, *known_of(config, "tiles", "max_num_tiles")]


def _full_ratio(config: Any) -> int:
    """Return the number, counted from 1, of the first shape that uses all tiles."""
    shapes, most = known_of(config, "tiles", "supported_aspect_ratios", "max_num_tiles")
    return 1 + next(number for number, shape in enumerate(shapes) if math.prod(shape) == most)


def _side(config: Any) -> int:
    """Return the patches per side: two after neighbors are merged."""
    return 2 * (attribute_of(config, "spatial_merge_size", "downsample_factor", "pooling_kernel_size") or 1)


def _merged_side(config: Any) -> int:
    """Return the patches per side: two after windows of them become one and neighbors are merged."""
    merges = (attribute_of(config, name) for name in ("window_kernel_size", "merge_kernel_size"))
    side: int = 2 * math.prod(max(merge) for merge in merges if merge)
    return side


def _strip(config: Any) -> Spec:
    """Return images of any size as one row of patches, as high as a patch; `target_sizes` has the number of each."""
    (patch,) = known_of(config, "patches", "patch_size")
    shape = [attribute_of(config, "num_channels") or 3, patch, patch * _merged_side(config) ** 2]
    return {"kind": "pixels", "shape": shape, "side_by_side": True}


def _packed(config: Any) -> Spec:
    """Return one image's patches, each a row of all its values."""
    (patch,) = known_of(config, "patches", "patch_size")
    return {"kind": "features", "shape": [_side(config) ** 2, (attribute_of(config, "num_channels") or 3) * patch**2]}


def _places(config: Any) -> Spec:
    """Return column and row of each patch."""
    side = range(_side(config))
    return _constant([[column, row] for row in side for column in side])


def _order(config: Any) -> Spec:
    """Return a number for each patch, whose order decides which are left out; without it the model draws some."""
    (patch,) = known_of(config, "patches", "patch_size")
    return {"kind": "features", "shape": [math.prod(side // patch for side in _size(config))]}


def _beside_prompt(config: Any) -> Spec:
    """Return an image of half the height: the prompt's example image takes the other half."""
    height, width = _size(config)
    return {"kind": "pixels", "shape": [attribute_of(config, "num_channels") or 3, height // 2, width]}


def _flattened(config: Any) -> Spec:
    """Return one image's patches, each a row that begins with the patch's place."""
    (width,) = known_of(config, "patches", "patch_embed_hidden_size")
    return {"kind": "flattened", "side": _SIDE, "width": width}


def _grid_of(config: Any) -> list[int]:
    """Return time steps, rows and columns of patches."""
    return [1, _side(config), _side(config)]


def _patches(config: Any) -> Spec:
    """Return images of any size as one list of patches; `image_grid_thw` has the number of each."""
    (patch,) = known_of(config, "patches", "patch_size")
    channels = attribute_of(config, "in_channels", "num_channels", "in_chans") or 3
    width = channels * (attribute_of(config, "temporal_patch_size") or 1) * patch**2
    return {"kind": "patches", "grid": _grid_of(config), "shape": [width]}


def series_makers(takes: Collection[str]) -> dict[str, Callable[[Any], Spec]]:
    """Return functions that make the specification of each input of a time series; empty for other inputs."""
    if "past_values" not in takes:
        return {}
    makers: dict[str, Callable[[Any], Spec]] = {
        "past_values": lambda config: {"kind": "features", "shape": _series_shape(config)},
        "past_observed_mask": lambda config: {"kind": "observed", "shape": _series_shape(config)},
        "past_time_features": lambda config: _time_features(config, _series_shape(config)[0]),
        "freq": _frequency,
    }
    if "future_time_features" not in takes:  # there future values are labels
        return makers
    return makers | {
        "future_values": lambda config: {"kind": "features", "shape": [_future(config), *_channels(config)]},
        "future_time_features": lambda config: _time_features(config, _future(config)),
        "static_real_features": _real_features,
        "static_categorical_features": _category,
    }


def _series_shape(config: Any) -> list[int]:
    """Return time steps and, if there are several, channels. Lags reach back before the context."""
    (steps,) = known_of(config, "series", "context_length")
    lags = attribute_of(config, "lags_sequence") or [0]
    channels = attribute_of(config, "num_input_channels")  # PatchTST keeps the axis of a single channel
    return [steps + max(lags), *([channels] if channels else _channels(config))]


def _channels(config: Any) -> list[int]:
    size = attribute_of(config, "input_size") or 1
    return [size] if size > 1 else []


def _time_features(config: Any, steps: int) -> Spec:
    counts = known_of(config, "time features", "num_time_features", "num_dynamic_real_features")
    return {"kind": "features", "shape": [steps, sum(counts)]}


def _future(config: Any) -> int:
    (steps,) = known_of(config, "future", "prediction_length")
    return int(steps)


def _real_features(config: Any) -> Spec:
    return {"kind": "features", "shape": known_of(config, "static features", "num_static_real_features")}


def _category(config: Any) -> Spec:
    count, sizes = known_of(config, "categories", "num_static_categorical_features", "cardinality")
    return {"kind": "categories", "shape": [count], "high": min(sizes)}


def _frequency(config: Any) -> Spec:
    (count,) = known_of(config, "frequency", "freq_size")
    return {"kind": "categories", "shape": [], "high": count}
