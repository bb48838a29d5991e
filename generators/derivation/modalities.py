"""Specifications of the inputs that aren't text, by name: boxes, videos and regions, and what the modules of images,
series and scenes say; sound.py asks the model itself."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from .images import image_makers
from .scopes import attribute_of, known_of
from .series import series_makers

Spec = dict[str, Any]

_COORDINATES = 1001
"""Boxes are normalised to 0 ... 1000, as the documentation of LayoutLM has it."""
_REGIONS = 4
"""Regions of an image that a detector hands to a model of its features."""


def modality_spec(name: str, takes: Collection[str], config: Any) -> Spec | None:
    """The specification of an input by its name, None where it isn't one of these. `takes` are the names of all.

    Raises `ModelError` where the configuration doesn't say the shape.
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
    if attribute_of(config, "bbox_scale"):  # the model itself makes numbers of shares of the page
        return {"kind": "boxes", "high": _COORDINATES, "divisor": _COORDINATES - 1}
    (most,) = known_of(config, "boxes", "max_2d_position_embeddings")
    return {"kind": "boxes", "high": min(most, _COORDINATES)}
