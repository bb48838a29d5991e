"""Specifications of the inputs that are neither text nor sound: images, boxes, time series, and the places that an image
takes in a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from generators.models.inputs import make_inputs
from hardware.errors import ModelError

from .scopes import children, roles

Spec = dict[str, Any]

_IMAGE = 64
"""Pixels a side where a configuration names no size."""
_COORDINATES = 1001
"""Boxes are normalised to 0 ... 1000, as the documentation of LayoutLM has it."""
_TEXT_BEHIND = 3
"""Tokens behind the places of an image: fewer than the shortest text of a suite has."""


def attribute_of(config: Any, *names: str) -> Any:
    """The first of these that a configuration or one of its parts has; None where none does."""
    for scope in (config, *children(config).values()):
        for name in names:
            value = getattr(scope, name, None)
            if value is not None:
                return value
    return None


def modality_spec(name: str, takes: Collection[str], config: Any) -> Spec | None:
    """The specification of an input by its name, None where it isn't one of these. `takes` are the names of all.

    Raises `ModelError` where the configuration doesn't say the shape.
    """
    makers: Mapping[str, Callable[[Any], Spec]] = {
        "pixel_values": _patches if "image_grid_thw" in takes else _pixels,
        "image_grid_thw": _grid,
        "bbox": _boxes,
        "past_values": _series,
        "past_observed_mask": _observed,
    }
    return makers[name](config) if name in makers else None


def _known(config: Any, what: str, *names: str) -> list[Any]:
    values = [attribute_of(config, name) for name in names]
    if None in values:
        raise ModelError(
            f"the shape of the {what} of {config.model_type} is not known",
            why=f"its configuration has no {' and '.join(names)}",
        )
    return values


def _pixels(config: Any) -> Spec:
    size = attribute_of(config, *roles()["config"]["image"]) or _IMAGE
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return {"kind": "pixels", "shape": [attribute_of(config, "num_channels") or 3, height, width]}


def _grid_of(config: Any) -> list[int]:
    """Time steps, rows and columns of patches: two a side after neighbours are merged."""
    side = 2 * (attribute_of(config, "spatial_merge_size") or 1)
    return [1, side, side]


def _patches(config: Any) -> Spec:
    """Images of any size as one list of patches; `image_grid_thw` says how many belong to each."""
    channels, patch = _known(config, "patches", "in_channels", "patch_size")
    width = channels * (attribute_of(config, "temporal_patch_size") or 1) * patch**2
    return {"kind": "patches", "grid": _grid_of(config), "width": width}


def _grid(config: Any) -> Spec:
    return {"kind": "grid", "grid": _grid_of(config)}


def _boxes(config: Any) -> Spec:
    (most,) = _known(config, "boxes", "max_2d_position_embeddings")
    return {"kind": "boxes", "high": min(most, _COORDINATES)}


def _series_shape(config: Any) -> list[int]:
    return _known(config, "series", "context_length", "num_input_channels")


def _series(config: Any) -> Spec:
    return {"kind": "features", "shape": _series_shape(config)}


def _observed(config: Any) -> Spec:
    return {"kind": "observed", "shape": _series_shape(config)}


def image_token(model: Any, takes: Collection[str]) -> int | None:
    """The token that keeps a place in the text for an image, for models that take both in that way."""
    if not hasattr(model, "get_image_features") or not {"input_ids", "pixel_values"} <= set(takes):
        return None
    token = attribute_of(model.config, "image_token_id", "image_token_index")
    return token if isinstance(token, int) else None


def image_places(model: Any, token: int, specs: Mapping[str, Spec], side: str) -> Spec:
    """Which columns of the text an image takes: as many as the model itself makes embeddings of one image.

    They lie where no row is padded.
    """
    count = _embeddings_of_one_image(model, specs)
    at = [-count - _TEXT_BEHIND, -_TEXT_BEHIND] if side == "left" else [1, 1 + count]
    return {"placeholder": token, "at": at}


def _embeddings_of_one_image(model: Any, specs: Mapping[str, Spec]) -> int:
    import torch

    from hardware.backends._torch import to_tensors

    of_image = {name: spec for name, spec in specs.items() if name in ("pixel_values", "image_grid_thw")}
    with torch.no_grad():
        features = model.get_image_features(**to_tensors(make_inputs(of_image, 0, (1,)), "cpu", torch.float32))
    found = getattr(features, "pooler_output", features)  # 4.x gives the embeddings alone
    parts = found if isinstance(found, list | tuple) else [found]
    return sum(math.prod(part.shape[:-1]) for part in parts)
