"""Specifications of the inputs that aren't text: images, sound, boxes, time series, and the places that an image
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
_REGIONS = 4
"""Regions of an image that a detector hands to a model of its features."""
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
        "input_features": _features,
        "input_values": _waveform,
        "bbox": _boxes,
        "past_values": _series,
        "past_observed_mask": _observed,
        "past_time_features": _past_features,
        "freq": _frequency,
        "visual_feats": lambda config: _regions(config, "visual_feat_dim"),
        "visual_pos": lambda config: _regions(config, "visual_pos_dim"),
        "visual_embeds": lambda config: _regions(config, "visual_embedding_dim"),
    }
    if "future_time_features" in takes:  # elsewhere future values are labels
        makers = makers | {
            "future_values": _future,
            "future_time_features": _future_features,
            "static_real_features": _real_features,
            "static_categorical_features": _category,
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


def _regions(config: Any, width: str) -> Spec:
    return {"kind": "features", "shape": [_REGIONS, *_known(config, "regions", width)]}


def _boxes(config: Any) -> Spec:
    if attribute_of(config, "bbox_scale"):  # the model itself makes numbers of shares of the page
        return {"kind": "boxes", "high": _COORDINATES, "divisor": _COORDINATES - 1}
    (most,) = _known(config, "boxes", "max_2d_position_embeddings")
    return {"kind": "boxes", "high": min(most, _COORDINATES)}


def _series_shape(config: Any) -> list[int]:
    """Time steps and, where there are several, channels. Lags look back to before the context."""
    (steps,) = _known(config, "series", "context_length")
    lags = attribute_of(config, "lags_sequence") or [0]
    channels = attribute_of(config, "num_input_channels")  # PatchTST keeps the axis of a single one
    return [steps + max(lags), *([channels] if channels else _channels(config))]


def _channels(config: Any) -> list[int]:
    size = attribute_of(config, "input_size") or 1
    return [size] if size > 1 else []


def _series(config: Any) -> Spec:
    return {"kind": "features", "shape": _series_shape(config)}


def _observed(config: Any) -> Spec:
    return {"kind": "observed", "shape": _series_shape(config)}


def _time_features(config: Any, steps: int) -> Spec:
    counts = _known(config, "time features", "num_time_features", "num_dynamic_real_features")
    return {"kind": "features", "shape": [steps, sum(counts)]}


def _past_features(config: Any) -> Spec:
    return _time_features(config, _series_shape(config)[0])


def _future_features(config: Any) -> Spec:
    return _time_features(config, *_known(config, "future", "prediction_length"))


def _future(config: Any) -> Spec:
    return {"kind": "features", "shape": [*_known(config, "future", "prediction_length"), *_channels(config)]}


def _real_features(config: Any) -> Spec:
    return {"kind": "features", "shape": _known(config, "static features", "num_static_real_features")}


def _category(config: Any) -> Spec:
    count, sizes = _known(config, "categories", "num_static_categorical_features", "cardinality")
    return {"kind": "categories", "shape": [count], "high": min(sizes)}


def _frequency(config: Any) -> Spec:
    (count,) = _known(config, "frequency", "freq_size")
    return {"kind": "categories", "shape": [], "high": count}


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
