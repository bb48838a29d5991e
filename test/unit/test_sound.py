"""Sound as an input: how a configuration says its shape, and how what it leaves open is asked of the model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from generators.models.inputs import make_inputs
from generators.recipes.input_layouts import chosen_layout, sound_layouts
from hardware.compare import scale_of
from hardware.errors import ModelError
from hardware.testing.seeded_weights import fill

WAVES = {"conv_kernel": (10, 3, 3, 3, 3, 2, 2), "conv_stride": (5, 2, 2, 2, 2, 2, 2), "vocab_size": 32}


def model_of(**attributes: Any) -> Any:
    """A model with nothing in it but a configuration."""
    import torch

    model = torch.nn.Module()
    model.config = SimpleNamespace(model_type="some", **attributes)  # type: ignore[assignment]
    return model


def test_a_waveform_gives_one_frame_for_each_position() -> None:
    spec = sound_layouts("input_values", model_of(**WAVES), in_text=False)[0]
    samples = make_inputs({"input_values": spec}, 0, (16, 9))["input_values"].shape[1]
    for kernel, stride in zip(WAVES["conv_kernel"], WAVES["conv_stride"], strict=True):
        samples = (samples - kernel) // stride + 1
    assert samples == 16


def test_a_codec_gets_as_many_samples_as_its_convolutions_step_over() -> None:
    import torch

    model = model_of(audio_channels=2)
    model.encoder = torch.nn.Sequential(torch.nn.Conv1d(2, 4, 8, stride=4), torch.nn.Conv1d(4, 4, 4, stride=2))
    model.decoder = torch.nn.ConvTranspose1d(4, 2, 8, stride=8)
    plain, channels = sound_layouts("input_values", model, in_text=False)
    assert make_inputs({"input_values": plain}, 0, (3, 2))["input_values"].shape == (2, 24)
    assert make_inputs({"input_values": channels}, 0, (3, 2))["input_values"].shape == (2, 2, 24)


def test_a_sound_inside_a_text_has_a_length_of_its_own() -> None:
    spec = sound_layouts("input_values", model_of(hop_length=10), in_text=True)[0]
    shapes = {make_inputs({"input_values": spec}, 0, lengths)["input_values"].shape for lengths in ((16, 9), (5, 3))}
    assert len(shapes) == 1


def test_a_shape_that_no_configuration_tells_is_refused_with_what_is_missing() -> None:
    with pytest.raises(ModelError, match="conv_kernel and conv_stride"):
        sound_layouts("input_values", model_of(), in_text=False)
    with pytest.raises(ModelError, match="num_mel_bins"):
        sound_layouts("input_features", model_of(), in_text=False)
    assert sound_layouts("labels", model_of(), in_text=False) == []


@pytest.mark.parametrize("axis", [1, 2])
def test_the_order_of_axes_is_what_the_model_takes(axis: int) -> None:
    layouts = sound_layouts("input_features", model_of(num_mel_bins=20), in_text=False)

    def run(specs: Any) -> None:
        if make_inputs(specs)["input_features"].shape[axis] != 20:
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    chosen = chosen_layout(model_of(), "input_features", {}, layouts, run)["input_features"]
    assert make_inputs({"input_features": chosen})["input_features"].shape[axis] == 20


def test_frames_that_pad_a_row_are_marked() -> None:
    specs = {"mel": {"kind": "frames", "bins": 5, "step": 4}, "mask": {"kind": "padded", "step": 4}}
    arrays = make_inputs(specs, 0, (3, 2))
    assert arrays["mel"].shape[:2] == arrays["mask"].shape == (2, 12)
    assert arrays["mask"].dtype == np.bool_
    assert arrays["mask"].sum(axis=1).tolist() == [0, 4]


def test_codes_of_a_codec_differ() -> None:
    """A library leaves its tables of codes 0, with which every sound becomes the same code."""
    import torch

    model = torch.nn.Module()
    model.register_buffer("embed", torch.zeros(16, 4))
    model.register_buffer("other", torch.zeros(16, 4))
    fill(model)
    assert len(torch.unique(model.embed, dim=0)) == 16
    assert not model.other.any()  # type: ignore[operator]


def test_a_number_alone_or_repeated_has_its_magnitude_for_a_scale() -> None:
    assert scale_of(np.array(3.0)) == 3.0
    assert scale_of(np.array([-2.0, -2.0])) == 2.0
    assert scale_of(np.array([1.0, 3.0])) == 1.0
