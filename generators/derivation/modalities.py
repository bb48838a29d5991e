"""Specifications of the inputs that aren't text: images, sound, boxes, time series."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from hardware.errors import ModelError

from .scopes import attribute_of, roles

Spec = dict[str, Any]

_IMAGE = 64
"""Pixels a side where a configuration names no size."""
_COORDINATES = 1001
"""Boxes are normalised to 0 ... 1000, as the documentation of LayoutLM has it."""


def modality_spec(name: str, takes: Collection[str], config: Any) -> Spec | None:
    """The specification of an input by its name, None where it isn't one of these. `takes` are the names of all.

    Raises `ModelError` where the configuration doesn't say the shape.
    """
    makers: Mapping[str, Callable[[Any], Spec]] = {
        "pixel_values": _pixels_of(takes),
        "pixel_values_images": _pixels,
        "image_grid_thw": lambda config: _constant(_grid_of(config)),
        "image_sizes": lambda config: _constant(_largest(config)),
        "spatial_shapes": lambda config: _constant([_side(config)] * 2),
        "pixel_attention_mask": _packed_mask if "spatial_shapes" in takes else _pixel_mask,
        "aspect_ratio_ids": lambda config: _constant([_full_ratio(config)]),
        "aspect_ratio_mask": lambda config: {"kind": "ones", "shape": _tiles(config)},
        "cross_attention_mask": lambda config: {"kind": "seen", "shape": _tiles(config)},
        "image_attention_mask": lambda config: {"kind": "seen", "shape": [1]},
        "input_features": _features,
        "input_values": _waveform,
        "bbox": _boxes,
        "past_values": _series,
        "past_observed_mask": _observed,
    }
    return makers[name](config) if name in makers else None


def _constant(value: list[Any]) -> Spec:
    return {"kind": "constant", "value": value}


def _pixels_of(takes: Collection[str]) -> Callable[[Any], Spec]:
    """How images come, by what comes with them: in patches, with an axis for several images or tiles, or plainly."""
    signs: Mapping[str, Callable[[Any], Spec]] = {
        "image_grid_thw": _patches,
        "spatial_shapes": _packed,
        "aspect_ratio_ids": lambda config: _pixels(config, *_tiles(config)),
        "pixel_attention_mask": lambda config: _pixels(config, 1),
        "image_attention_mask": lambda config: _pixels(config, 1),
        "image_sizes": _tiled,
    }
    return next((maker for sign, maker in signs.items() if sign in takes), _pixels)


def _known(config: Any, what: str, *names: str) -> list[Any]:
    values = [attribute_of(config, name) for name in names]
    if None in values:
        raise ModelError(
            f"the shape of the {what} of {config.model_type} is not known",
            why=f"its configuration has no {' and '.join(names)}",
        )
    return values


def _size(config: Any) -> list[int]:
    """Height and width of an image."""
    size = attribute_of(config, *roles()["config"]["image"]) or _IMAGE
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
    return [1, *_known(config, "tiles", "max_num_tiles")]


def _full_ratio(config: Any) -> int:
    """The number, counted from 1, of the first shape that takes all tiles."""
    shapes, most = _known(config, "tiles", "supported_aspect_ratios", "max_num_tiles")
    return 1 + next(number for number, shape in enumerate(shapes) if math.prod(shape) == most)


def _side(config: Any) -> int:
    """Patches a side: two after neighbours are merged."""
    return 2 * (attribute_of(config, "spatial_merge_size", "downsample_factor") or 1)


def _packed(config: Any) -> Spec:
    """One image's patches, each a row of all its values."""
    channels, patch = _known(config, "patches", "num_channels", "patch_size")
    return {"kind": "features", "shape": [_side(config) ** 2, channels * patch**2]}


def _packed_mask(config: Any) -> Spec:
    return {"kind": "ones", "shape": [_side(config) ** 2]}


def _grid_of(config: Any) -> list[int]:
    """Time steps, rows and columns of patches."""
    return [1, _side(config), _side(config)]


def _patches(config: Any) -> Spec:
    """Images of any size as one list of patches; `image_grid_thw` says how many belong to each."""
    (patch,) = _known(config, "patches", "patch_size")
    channels = attribute_of(config, "in_channels", "num_channels", "in_chans") or 3
    width = channels * (attribute_of(config, "temporal_patch_size") or 1) * patch**2
    return {"kind": "patches", "grid": _grid_of(config), "width": width}


def _features(config: Any) -> Spec:
    bins, frames = _known(config, "features", "num_mel_bins", "max_source_positions")
    return {"kind": "features", "shape": [bins, 2 * frames]}


def _waveform(config: Any) -> Spec:
    """Samples that a stack of convolutions makes exactly `length` frames of."""
    kernels, strides = _known(config, "waveform", "conv_kernel", "conv_stride")
    reach, step = 1, 1
    for kernel, stride in zip(kernels, strides, strict=True):
        reach += (kernel - 1) * step
        step *= stride
    return {"kind": "waveform", "step": step, "extra": reach - step}


def _boxes(config: Any) -> Spec:
    (most,) = _known(config, "boxes", "max_2d_position_embeddings")
    return {"kind": "boxes", "high": min(most, _COORDINATES)}


def _series_shape(config: Any) -> list[int]:
    return _known(config, "series", "context_length", "num_input_channels")


def _series(config: Any) -> Spec:
    return {"kind": "features", "shape": _series_shape(config)}


def _observed(config: Any) -> Spec:
    return {"kind": "observed", "shape": _series_shape(config)}
