"""Specifications of the inputs that are sound: waveforms, and features by frame.

A configuration says how many bins a frame has, or how convolutions stride, but neither the order of axes nor whether
the length is free. The likely layouts are tried on the model, and the first that it takes is right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from generators.models.inputs import make_inputs
from hardware.errors import ModelError

from .modalities import Spec
from .scopes import attribute_of, roles

_FRAMES_A_STEP = 8
"""Frames for each position of a text: encoders merge two to eight frames into one."""


def sound_layouts(name: str, model: Any) -> list[Spec]:
    """The specifications that an input of this name may have, the likeliest first; empty where it isn't sound.

    Raises `ModelError` where the configuration doesn't say the shape.
    """
    if name == "input_features":
        return _frames(model.config)
    if name == "input_values":
        return _values(model)
    return []


def chosen_layout(model: Any, name: str, specs: Mapping[str, Spec], layouts: list[Spec], most: int) -> Spec:
    """The first of `layouts` with which the model runs, the other inputs being those of `specs`.

    The first of all where none does: what the model says then is the reason why it has no recipe.
    """
    import torch

    from hardware.backends._torch import forward, to_tensors

    for layout in layouts if len(layouts) > 1 else ():
        inputs = make_inputs({**specs, name: layout}, 0, (most, most))
        try:
            with torch.no_grad():
                forward(model, to_tensors(inputs, "cpu", torch.float32))
        except Exception:  # noqa: BLE001, S112 - any error means the same: these aren't the model's axes
            continue
        return layout
    return layouts[0]


def _frames(config: Any) -> list[Spec]:
    names = roles()["config"]["mel_bins"]
    bins = attribute_of(config, *names)
    if bins is None:
        raise ModelError(
            f"the shape of the features of {config.model_type} is not known",
            why=f"its configuration has none of {', '.join(names)}",
        )
    free = {"kind": "frames", "bins": bins, "step": _FRAMES_A_STEP}
    layouts: list[Spec] = [free, {**free, "bins_first": True}]
    longest = attribute_of(config, "max_source_positions")
    return [*layouts, {"kind": "features", "shape": [bins, 2 * longest]}] if longest else layouts


def _values(model: Any) -> list[Spec]:
    config = model.config
    kernels, strides = (attribute_of(config, name) for name in ("conv_kernel", "conv_stride"))
    if isinstance(kernels, list | tuple) and isinstance(strides, list | tuple):
        return [_exact(kernels, strides)]
    bins, frames = attribute_of(config, *roles()["config"]["mel_bins"]), attribute_of(config, "max_length")
    if bins and frames:
        return [{"kind": "features", "shape": [frames, bins]}]
    step = math.prod(_strides(model))
    if step == 1:
        raise ModelError(
            f"the shape of the waveform of {config.model_type} is not known",
            why="its configuration has no conv_kernel and conv_stride, and no convolution of the model has a stride",
        )
    plain = {"kind": "waveform", "step": step, "extra": 0}
    return [plain, {**plain, "channels": attribute_of(config, "audio_channels", "channels") or 1}]


def _exact(kernels: Any, strides: Any) -> Spec:
    """Samples that a stack of convolutions makes exactly `length` frames of."""
    reach, step = 1, 1
    for kernel, stride in zip(kernels, strides, strict=True):
        reach += (kernel - 1) * step
        step *= stride
    return {"kind": "waveform", "step": step, "extra": reach - step}


def _strides(model: Any) -> list[int]:
    """How far each convolution over a waveform steps; those of a decoder widen and are of another class."""
    import torch

    return [module.stride[0] for module in model.modules() if isinstance(module, torch.nn.Conv1d)]
