"""Specifications of time series: the past, what is known of each step and of the whole series, and the future."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from .scopes import attribute_of, known_of

Spec = dict[str, Any]


def series_makers(takes: Collection[str]) -> dict[str, Callable[[Any], Spec]]:
    """What makes the specification of each input of a forward that takes these; empty where it takes no series."""
    if "past_values" not in takes:
        return {}
    makers: dict[str, Callable[[Any], Spec]] = {
        "past_values": _series,
        "past_observed_mask": _observed,
        "past_time_features": _past_features,
        "freq": _frequency,
    }
    if "future_time_features" not in takes:  # there future values are labels
        return makers
    return makers | {
        "future_values": _future,
        "future_time_features": _future_features,
        "static_real_features": _real_features,
        "static_categorical_features": _category,
    }


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
