"""Specifications of images: whole, in tiles or in patches, and what comes with them: sizes, grids and masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from .scopes import attribute_of, known_of, roles

Spec = dict[str, Any]

_IMAGE = 64
"""Pixels a side where a configuration names no size."""
_SIDE = 4
"""Patches a side where they may be as many as one likes."""
_PLACES_A_SIDE = 3
"""So that there are more places than object queries, and the best of them are chosen."""


def image_makers(takes: Collection[str]) -> dict[str, Callable[[Any], Spec]]:
    """What makes the specification of an input from the configuration, by the input's name. `takes` are the names
    of all inputs."""
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
        "pixel_attention_mask": _packed_mask if "spatial_shapes" in takes else _pixel_mask,
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
    if "perceiver_embeddings" in takes:  # a mask of the images that a text sees, elsewhere one of an image's patches
        makers["image_attention_mask"] = lambda config: {"kind": "seen", "shape": [1]}
    return makers


_TILE_MAKERS: Mapping[str, Callable[[Any], Spec]] = {
    "aspect_ratio_ids": lambda config: _constant([_full_ratio(config)]),
    "aspect_ratio_mask": lambda config: {"kind": "ones", "shape": _tiles(config)},
    "cross_attention_mask": lambda config: {"kind": "seen", "shape": _tiles(config)},
}
"""Of an image in tiles, whose shape has a number: a mask of cross-attention alone may be one of patches of text."""


def _constant(value: Any) -> Spec:
    return {"kind": "constant", "value": value}


def _pixels_of(takes: Collection[str]) -> Callable[[Any], Spec]:
    """How images come, by what comes with them: in patches, with an axis for several images or tiles, or plainly."""
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
    """Pixels a side where a configuration names no size: some places a side where it looks most coarsely."""
    strides = attribute_of(config, *roles()["config"]["feature_strides"]) or ()
    return int(max(_IMAGE, *(_PLACES_A_SIDE * stride for stride in strides), 0))


def _size(config: Any) -> list[int]:
    """Height and width of an image."""
    size = attribute_of(config, *roles()["config"]["image"]) or _free_side(config)
    return list(size) if isinstance(size, list | tuple) else [size, size]


def _pixels(config: Any, *before: int) -> Spec:
    return {"kind": "pixels", "shape": [*before, attribute_of(config, "num_channels") or 3, *_size(config)]}


def _pixel_mask(config: Any) -> Spec:
    return {"kind": "ones", "shape": [1, *_size(config)]}


def _largest(config: Any) -> list[int]:
    """Height and width of an image as it was: of the first shape that tiles may make up, else of the image itself."""
    shapes = attribute_of(config, *roles()["config"]["image_grids"])
    return list(shapes[0]) if shapes else _size(config)


def _tiled(config: Any) -> Spec:
    """The tiles of an image behind the whole of it made small, where its shape is one of several."""
    if not attribute_of(config, *roles()["config"]["image_grids"]):
        return _pixels(config)
    tiles = math.prod(whole // tile for whole, tile in zip(_largest(config), _size(config), strict=True))
    return _pixels(config, 1 + tiles)


def _tiles(config: Any) -> list[int]:
    """One image of as many tiles as there may be."""
    return [1, *known_of(config, "tiles", "max_num_tiles")]


def _full_ratio(config: Any) -> int:
    """The number, counted from 1, of the first shape that takes all tiles."""
    shapes, most = known_of(config, "tiles", "supported_aspect_ratios", "max_num_tiles")
    return 1 + next(number for number, shape in enumerate(shapes) if math.prod(shape) == most)


def _side(config: Any) -> int:
    """Patches a side: two after neighbours are merged."""
    return 2 * (attribute_of(config, "spatial_merge_size", "downsample_factor", "pooling_kernel_size") or 1)


def _merged_side(config: Any) -> int:
    """Patches a side: two after a window of them becomes one and neighbours are merged."""
    merges = (attribute_of(config, name) for name in ("window_kernel_size", "merge_kernel_size"))
    side: int = 2 * math.prod(max(merge) for merge in merges if merge)
    return side


def _strip(config: Any) -> Spec:
    """Images of any size as one row of patches, as high as a patch; `target_sizes` says how many belong to each."""
    (patch,) = known_of(config, "patches", "patch_size")
    shape = [attribute_of(config, "num_channels") or 3, patch, patch * _merged_side(config) ** 2]
    return {"kind": "pixels", "shape": shape, "side_by_side": True}


def _packed(config: Any) -> Spec:
    """One image's patches, each a row of all its values."""
    (patch,) = known_of(config, "patches", "patch_size")
    return {"kind": "features", "shape": [_side(config) ** 2, (attribute_of(config, "num_channels") or 3) * patch**2]}


def _places(config: Any) -> Spec:
    """Column and row of each patch."""
    side = range(_side(config))
    return _constant([[column, row] for row in side for column in side])


def _order(config: Any) -> Spec:
    """A number for each patch, by whose order patches are left out: a model that isn't given them draws some."""
    (patch,) = known_of(config, "patches", "patch_size")
    return {"kind": "features", "shape": [math.prod(side // patch for side in _size(config))]}


def _beside_prompt(config: Any) -> Spec:
    """An image of half the height, because the example that it is to be treated like comes in the other half."""
    height, width = _size(config)
    return {"kind": "pixels", "shape": [attribute_of(config, "num_channels") or 3, height // 2, width]}


def _flattened(config: Any) -> Spec:
    """One image's patches, each a row that begins with the patch's place."""
    (width,) = known_of(config, "patches", "patch_embed_hidden_size")
    return {"kind": "flattened", "side": _SIDE, "width": width}


def _packed_mask(config: Any) -> Spec:
    return {"kind": "ones", "shape": [_side(config) ** 2]}


def _grid_of(config: Any) -> list[int]:
    """Time steps, rows and columns of patches."""
    return [1, _side(config), _side(config)]


def _patches(config: Any) -> Spec:
    """Images of any size as one list of patches; `image_grid_thw` says how many belong to each."""
    (patch,) = known_of(config, "patches", "patch_size")
    channels = attribute_of(config, "in_channels", "num_channels", "in_chans") or 3
    width = channels * (attribute_of(config, "temporal_patch_size") or 1) * patch**2
    return {"kind": "patches", "grid": _grid_of(config), "shape": [width]}
