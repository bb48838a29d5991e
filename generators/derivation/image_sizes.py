"""What the images of a tiny model measure: pixels, patches, windows, tiles and stages."""

from __future__ import annotations

from typing import Any

from .division import Division
from .scopes import children, role_of, stages, whole_numbers

_PATCHES_A_SIDE = 4
_IMAGE = 64
"""Pixels a side where nothing is cut into patches: two places a side are left by strides that multiply to 32."""
_FINE_PATCH = 16
_IMAGE_WINDOW = 2


def image_sizes(config: Any, division: Division) -> dict[str, Any]:
    """The constructor arguments of one scope that say how large images, windows and stages are."""
    return _sizes(config, division) | _tile_grids(config, division)


def _sizes(config: Any, division: Division) -> dict[str, Any]:
    sizes, depths = role_of(config, "image"), stages(role_of(config, "depths"))
    patches = whole_numbers(role_of(config, "patch"))
    if division.deeper:
        patches = {name: min(value, _FINE_PATCH) for name, value in patches.items()}
    windows = whole_numbers(role_of(config, "image_window")) if patches else {}
    side = _side(config, next(iter(patches.values()), None))
    changed: dict[str, Any] = {name: [2 if windows else 1] * len(value) for name, value in depths.items()} | patches
    for name, size in whole_numbers(sizes).items():
        changed[name] = side if patches else min(size, side)
    for name, both in stages(sizes).items():
        step = next(iter(patches.values()), 1)
        changed[name] = [min(one, side * one // min(both) // step * step) for one in both]
    return changed | dict.fromkeys(windows, _IMAGE_WINDOW)


def _side(config: Any, patch: int | None) -> int:
    """Pixels a side of an image: as many patches as leave two a side to the last stage."""
    strides = whole_numbers(role_of(config, "output_stride")).values()
    if patch is None:
        return max([_IMAGE, *(2 * stride for stride in strides)])
    halvings = [2 ** len(value) for value in stages(role_of(config, "depths")).values()]
    a_side: int = max([_PATCHES_A_SIDE, *halvings, *(2 * stride for stride in strides)])
    return patch * a_side


def _tile_grids(config: Any, division: Division) -> dict[str, Any]:
    """The shapes that tiles make up, in pixels: they shrink as one tile does, an image of a part."""
    grids = {name: value for name, value in role_of(config, "image_grids").items() if isinstance(value, list)}
    sizes = {
        before: _sizes(part, division)[name]
        for part in children(config).values()
        for name, before in whole_numbers(role_of(part, "image")).items()
        if name in _sizes(part, division)
    }
    for before, after in sizes.items():
        return {name: [[one * after // before for one in pair] for pair in grid] for name, grid in grids.items()}
    return {}
