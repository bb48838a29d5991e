"""Specifications of the inputs that are sound: waveforms, and features by frame.

A configuration says how many bins a frame has, or how convolutions stride, but neither the order of axes nor whether
the length is free. The likely layouts are tried on the model, and the first that it takes is right.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from hardware.errors import ModelError

from .modalities import Spec
from .scopes import attribute_of, roles

log = logging.getLogger(__name__)

_FRAMES_A_STEP = 8
"""Frames for each position of a text: encoders merge two to eight frames into one."""


SOUNDS = ("input_features", "input_values")
SOUND_MASKS = ("input_features_mask", "feature_attention_mask")
"""Masks over the frames of `input_features`. No sound is padded here."""
_FRAMES_IN_TEXT = 64
"""Frames of a sound that takes places in a text, whose number can't follow the length of the text."""


def sound_layouts(name: str, model: Any, *, in_text: bool) -> list[Spec]:
    """The specifications that an input of this name may have, the likeliest first; empty where it isn't sound.

    `in_text` says whether the sound takes places in a text, so that its length is fixed. Raises `ModelError` where
    the configuration doesn't say the shape.
    """
    if name == "input_features":
        return _frames(model.config, in_text=in_text)
    if name == "input_values":
        return _values(model, in_text=in_text)
    return []


def chosen_layout(
    model: Any, name: str, specs: Mapping[str, Spec], layouts: list[Spec], run: Callable[[dict[str, Spec]], object]
) -> dict[str, Spec]:
    """`specs` with the first of `layouts` that `run` takes, and with masks over its frames only where none does
    without.

    The first of all where none is right: what the model says then is the reason why it has no recipe.
    """
    masks = [one for one in specs if one in SOUND_MASKS]
    plain = {one: spec for one, spec in specs.items() if one not in masks}
    tried = [{**plain, name: layout} for layout in layouts]
    if masks:
        fixed = [_fixed(one[name]) for one in tried]
        tried += [{**specs, name: layout, **dict.fromkeys(masks, mask)} for layout, mask in fixed]
    for one in tried if len(tried) > 1 else ():
        try:
            run(one)
        except Exception as error:  # any error means the same: these aren't the model's axes
            log.debug("layout %s: %s", one[name], error)
            continue
        return one
    return tried[0]


def _fixed(layout: Spec) -> tuple[Spec, Spec]:
    """A sound of this layout whose length doesn't follow that of a text, and a mask of its frames which says that
    nothing of it is padded."""
    if layout["kind"] == "frames":
        shape = [_FRAMES_IN_TEXT, layout["bins"]]
        layout = {"kind": "features", "shape": shape[::-1] if layout.get("bins_first") else shape}
    sizes = layout.get("shape", ())
    frames = [_FRAMES_IN_TEXT] if _FRAMES_IN_TEXT in sizes else list(sizes[1:])
    return layout, {"kind": "ones", "shape": frames}


def _frames(config: Any, *, in_text: bool) -> list[Spec]:
    names = roles()["config"]["mel_bins"]
    bins = attribute_of(config, *names)
    if bins is None:
        raise ModelError(
            f"the shape of the features of {config.model_type} is not known",
            why=f"its configuration has none of {', '.join(names)}",
        )
    bins *= attribute_of(config, *roles()["config"]["stacked_frames"]) or 1
    free = {"kind": "frames", "bins": bins, "step": _FRAMES_A_STEP}
    layouts: list[Spec] = [free, {**free, "bins_first": True}]
    if in_text:
        shapes = ([_FRAMES_IN_TEXT, bins], [bins, _FRAMES_IN_TEXT])
        layouts = [{"kind": "features", "shape": shape} for shape in shapes]
    longest = attribute_of(config, "max_source_positions")
    return [*layouts, {"kind": "features", "shape": [bins, 2 * longest]}] if longest else layouts


def _values(model: Any, *, in_text: bool) -> list[Spec]:
    config = model.config
    bins, frames = attribute_of(config, *roles()["config"]["mel_bins"]), attribute_of(config, "max_length")
    kernels, strides = (attribute_of(config, name) for name in ("conv_kernel", "conv_stride"))
    if isinstance(kernels, list | tuple) and isinstance(strides, list | tuple):
        plain = _exact(kernels, strides)
    elif bins and frames:
        return [{"kind": "features", "shape": [frames, bins]}]
    else:
        plain = {"kind": "waveform", "step": attribute_of(config, "hop_length") or _step(model), "extra": 0}
    channels = attribute_of(config, "audio_channels") or 1
    if in_text:
        samples = _FRAMES_A_STEP * plain["step"] + plain["extra"]
        return [{"kind": "features", "shape": shape} for shape in ([samples], [channels, samples])]
    return [plain, {**plain, "channels": channels}]


def _exact(kernels: Any, strides: Any) -> Spec:
    """Samples that a stack of convolutions makes exactly `length` frames of."""
    reach, step = 1, 1
    for kernel, stride in zip(kernels, strides, strict=True):
        reach += (kernel - 1) * step
        step *= stride
    return {"kind": "waveform", "step": step, "extra": reach - step}


def _step(model: Any) -> int:
    """Samples for one frame: how far the convolutions step together; those of a decoder widen, and aren't these.

    Raises `ModelError` where none makes more than a step of one.
    """
    import torch

    step: int = math.prod(module.stride[0] for module in model.modules() if isinstance(module, torch.nn.Conv1d))
    if step == 1:
        raise ModelError(
            f"the shape of the waveform of {model.config.model_type} is not known",
            why="its configuration has no conv_kernel and conv_stride, and no convolution of the model has a stride",
        )
    return step
