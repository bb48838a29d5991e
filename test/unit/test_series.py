"""Time series: the past reaches back as far as lags do, and what is known of each step fits the model's counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from generators.models.catalog import load_catalog
from generators.models.inputs import make_inputs
from generators.recipes.modality_inputs import modality_spec
from generators.recipes.tiny import tiny_configs

FORECASTER = (
    "past_values", "past_time_features", "past_observed_mask", "static_categorical_features",
    "static_real_features", "future_values", "future_time_features",
)  # fmt: skip


def inputs_of(config: Any, takes: tuple[str, ...]) -> dict[str, Any]:
    specs = {name: modality_spec(name, takes, config) for name in takes}
    return make_inputs({name: spec for name, spec in specs.items() if spec is not None})


def test_a_forecaster_is_told_as_much_as_its_configuration_counts() -> None:
    import transformers

    arguments = next(tiny_configs("time_series_transformer", load_catalog()))
    config = transformers.TimeSeriesTransformerConfig(**arguments)
    arrays = inputs_of(config, FORECASTER)
    past = config.context_length + max(config.lags_sequence)
    assert arrays["past_values"].shape == arrays["past_observed_mask"].shape == (2, past)
    assert arrays["past_time_features"].shape == (2, past, config.num_time_features)
    assert arrays["future_time_features"].shape == (2, config.prediction_length, config.num_time_features)
    assert arrays["future_values"].shape == (2, config.prediction_length)
    assert arrays["static_real_features"].shape == (2, config.num_static_real_features)
    assert arrays["static_categorical_features"].dtype == np.int64
    assert arrays["static_categorical_features"].max() < min(config.cardinality)
    assert all(array.size for array in arrays.values())


def test_every_channel_has_its_numbers() -> None:
    config = SimpleNamespace(
        model_type="some", context_length=6, lags_sequence=[1, 3], input_size=2, prediction_length=4,
        num_time_features=1, num_dynamic_real_features=1,
    )  # fmt: skip
    arrays = inputs_of(config, ("past_values", "past_time_features", "future_values", "future_time_features"))
    assert arrays["past_values"].shape == (2, 9, 2)
    assert arrays["past_time_features"].shape == (2, 9, 2)
    assert arrays["future_values"].shape == (2, 4, 2)


def test_future_values_that_are_labels_and_frequencies_of_no_series_are_left_out() -> None:
    config = SimpleNamespace(model_type="some", context_length=8, freq_size=3, prediction_length=4)
    assert list(inputs_of(config, ("past_values", "freq", "future_values"))) == ["past_values", "freq"]
    assert modality_spec("freq", ("input_ids", "freq"), config) is None
