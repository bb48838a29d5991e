"""Specifications of what vision models take that is more than one image: pairs of images, videos, a user's prompts
and depth that was measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from generators.models.catalog import TaskEntry

from .modalities import modality_spec
from .scopes import attribute_of, roles, tree

Spec = dict[str, Any]

_OBJECTS = 5
"""Objects in an image that a user points at: so many that single numbers about each of them have a spread."""
_POINTS = 3
"""Points on one object; with the two corners of its box they differ from the objects."""
_MASK_PLACES_A_PATCH = 4
"""Places a side of a mask that is given as a prompt, for each patch of the image: so many come out, too."""
_FRAMES = 4
"""Frames of a video where the configuration names no number: each is cut like an image."""
_DEPTH_A_SIDE = 8
"""Places a side of measured depth, which is coarser than the image."""


def scene_spec(name: str, takes: Collection[str], config: Any, entry: TaskEntry) -> Spec | None:
    """The specification of an input by its name, None where it isn't one of these. `takes` are the names of all.

    Raises `ModelError` where the configuration doesn't say the shape.
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
            "high": _pixels(config)[-1],
        },
        "input_labels": lambda config: {"kind": "categories", "shape": [_OBJECTS, _POINTS], "high": 2},
        "input_boxes": lambda config: {"kind": "regions", "count": _OBJECTS, "high": _pixels(config)[-1]},
        "input_masks": _mask_prompt,
        "task_inputs": _task,
        "prompt_depth": lambda config: {"kind": "features", "shape": [1, _DEPTH_A_SIDE, _DEPTH_A_SIDE]},
    }
    return makers[name](config) if name in makers else None


def _pixels(config: Any) -> list[int]:
    """Channels, height and width of one image."""
    spec = modality_spec("pixel_values", (), config) or {}
    return list(spec["shape"])


def _several(count: int, config: Any) -> Spec:
    """Images of an example one behind the other, each with its channels: a pair, or the frames of a video."""
    return {"kind": "pixels", "shape": [count, *_pixels(config)]}


def _task(config: Any) -> Spec:
    """What is wanted of an image (OneFormer), as a text of fixed length."""
    return {"kind": "categories", "shape": [config.task_seq_len], "high": config.text_encoder_vocab_size}


def _mask_prompt(config: Any) -> Spec:
    scope = next(one for one in tree(config) if getattr(one, "mask_input_channels", None))
    side = _MASK_PLACES_A_PATCH * scope.image_size // scope.patch_size
    return {"kind": "features", "shape": [1, side, side]}
