"""Specifications of the inputs that aren't text: sound, boxes, time series, and images (images.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from .images import image_makers
from .scopes import attribute_of, known_of

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
    makers |= image_makers(takes)
    return makers[name](config) if name in makers else None


def _regions(config: Any, width: str) -> Spec:
    return {"kind": "features", "shape": [_REGIONS, *known_of(config, "regions", width)]}


def _boxes(config: Any) -> Spec:
    if attribute_of(config, "bbox_scale"):  # the model itself makes numbers of shares of the page
        return {"kind": "boxes", "high": _COORDINATES, "divisor": _COORDINATES - 1}
    (most,) = known_of(config, "boxes", "max_2d_position_embeddings")
    return {"kind": "boxes", "high": min(most, _COORDINATES)}


def _series_shape(config: Any) -> list[int]:
    """Time steps and, where there are several, channels. Lags look back to before the context."""
    (steps,) = known_of(config, "series", "context_length")
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
    counts = known_of(config, "time features", "num_time_features", "num_dynamic_real_features")
    return {"kind": "features", "shape": [steps, sum(counts)]}


def _past_features(config: Any) -> Spec:
    return _time_features(config, _series_shape(config)[0])


def _future_features(config: Any) -> Spec:
    return _time_features(config, *known_of(config, "future", "prediction_length"))


def _future(config: Any) -> Spec:
    return {"kind": "features", "shape": [*known_of(config, "future", "prediction_length"), *_channels(config)]}


def _real_features(config: Any) -> Spec:
    return {"kind": "features", "shape": known_of(config, "static features", "num_static_real_features")}


def _category(config: Any) -> Spec:
    count, sizes = known_of(config, "categories", "num_static_categorical_features", "cardinality")
    return {"kind": "categories", "shape": [count], "high": min(sizes)}


def _frequency(config: Any) -> Spec:
    (count,) = known_of(config, "frequency", "freq_size")
    return {"kind": "categories", "shape": [], "high": count}
