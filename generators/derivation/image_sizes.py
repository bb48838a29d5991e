"""What the images of a tiny model measure: pixels, patches, windows, tiles and stages."""

from __future__ import annotations

import math
from typing import Any

from .division import Division
from .scopes import numbers, role_of, stages, tree, whole_numbers

_PATCHES_A_SIDE = 4
_IMAGE = 64
"""Pixels a side where nothing is cut into patches: two places a side are left by strides that multiply to 32."""
_FINE_PATCH = 16
_IMAGE_WINDOW = 2


def image_sizes(config: Any, division: Division) -> dict[str, Any]:
    """The constructor arguments of one scope that say how large images, windows and stages are."""
    return _sizes(config, division) | _shapes(config, division)


def _sizes(config: Any, division: Division) -> dict[str, Any]:
    sizes, depths = role_of(config, "image"), stages(role_of(config, "depths"))
    if not any(role_of(config, role) for role in ("patch", "video_patch", "channels")):
        sizes = {}  # of something else, as of what a stack of layers takes
    patches = whole_numbers(role_of(config, "patch"))
    if division.deeper:
        patches = {name: min(value, _FINE_PATCH) for name, value in patches.items()}
    patch = next(iter([*patches.values(), *_listed_patches(config)]), None)
    windows = whole_numbers(role_of(config, "image_window")) if patches else {}
    blocks = 2 if windows or role_of(config, "layers_apart") else 1
    side = _side(config, patch)
    changed: dict[str, Any] = {name: [blocks] * len(value) for name, value in depths.items()} | patches
    for name, size in whole_numbers(sizes).items():
        changed[name] = side if patch else min(size, side)
    for name, both in stages(sizes).items():
        step = patch or 1
        changed[name] = [min(one, side * one // min(both) // step * step) for one in both]
    merged = whole_numbers({"side": getattr(config, "spatial_merge_size", None)})
    window = patch * merged["side"] if merged and patch else _IMAGE_WINDOW  # where patches merge, in pixels
    return changed | dict.fromkeys(windows, window)


def _listed_patches(config: Any) -> list[int]:
    """The side of patches where a configuration says both sides, or for a video their length in time as well."""
    listed = [stages(role_of(config, role)).values() for role in ("patch", "video_patch")]
    return [patch[-1] for patches in listed for patch in patches]


def _side(config: Any, patch: int | None) -> int:
    """Pixels a side of an image: as many patches as leave two a side to the last stage and to a window."""
    strides = whole_numbers(role_of(config, "output_stride")).values()
    if patch is None:
        return max([_IMAGE, *(2 * stride for stride in strides)])
    halvings = [2 ** len(value) for value in stages(role_of(config, "depths")).values()]
    windows = [math.isqrt(count) for count in whole_numbers(role_of(config, "windows")).values()]
    a_side: int = max([_PATCHES_A_SIDE, *halvings, *(2 * one for one in (*strides, *windows))])
    return patch * a_side


def _shapes(config: Any, division: Division) -> dict[str, Any]:
    """Shapes that tiles make up and those of feature maps: they shrink as the image does, which may be a part's."""
    shapes = role_of(config, "image_grids") | role_of(config, "feature_sizes")
    shapes = {name: value for name, value in shapes.items() if isinstance(value, list)}
    sizes = [
        (numbers({name: getattr(part, name)})[0], numbers({name: after})[0])
        for part in tree(config)
        for name, after in (_sizes(part, division) if shapes else {}).items()
        if name in role_of(part, "image")
    ]
    if not sizes:
        return {}
    before, after = sizes[0]
    return {name: [[one * after // before for one in shape] for shape in value] for name, value in shapes.items()}
