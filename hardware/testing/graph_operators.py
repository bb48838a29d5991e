"""Operators for onnx's evaluator that compute with torch: its own convolutions and pools are slow, and it normalizes
batches of opset 9 to 13 by their own mean."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..compare import Array

_LOWEST = {"f": -np.inf, "i": np.iinfo(np.int8).min, "u": 0}


def window_padding(
    automatic: str,
    given: Sequence[int],
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Return the padding before and after each axis of a window that slides over arrays of `size`: `given` (all
    before, then all after), none if `automatic` is `valid`, and for `same_upper` and `same_lower` as much as gives
    one result for each `strides` entries, more of it after or before."""
    automatic, axes = automatic.lower(), len(kernel)
    if not automatic.startswith("same"):
        pads = list(given) if automatic != "valid" and given else [0] * (2 * axes)
        return pads[:axes], pads[axes:]
    before, after = [], []
    for length, width, stride, dilation in zip(size, kernel, strides, dilations, strict=True):
        total = max((-(-length // stride) - 1) * stride + (width - 1) * dilation + 1 - length, 0)
        small = total // 2
        before.append(small if automatic == "same_upper" else total - small)
        after.append(total - before[-1])
    return before, after


def convolved(
    data: Array,
    weights: Array,
    bias: Array | None,
    *,
    pads: tuple[Sequence[int], Sequence[int]],
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Array:
    """Return the convolution of (batch, channels, *size) with (out, in / groups, *kernel) in float64."""
    import torch

    functions = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)
    padded = np.pad(data, [(0, 0), (0, 0), *zip(*pads, strict=True)])
    tensors = [
        None if one is None else torch.as_tensor(np.array(one, dtype=np.float64)) for one in (padded, weights, bias)
    ]
    convolve: Any = functions[data.ndim - 3]
    return np.asarray(convolve(*tensors, stride=list(strides), dilation=list(dilations), groups=groups).numpy())


def _tensors(*arrays: Array | None) -> list[Any]:
    """Return float64 tensors with their own memory: an evaluator's constants are read-only."""
    import torch

    return [None if one is None else torch.as_tensor(np.array(one, dtype=np.float64)) for one in arrays]


def _window(given: Mapping[str, Any], size: Sequence[int], kernel: Sequence[int]) -> dict[str, Any]:
    """Return the padding, strides and dilations that a node's attributes give a window over arrays of `size`."""
    strides, dilations = (list(given.get(name) or [1] * len(kernel)) for name in ("strides", "dilations"))
    pads = window_padding(given["auto_pad"] or "", given["pads"] or (), size, kernel, strides, dilations)
    return {"pads": pads, "strides": strides, "dilations": dilations}


@functools.cache
def torch_operators() -> tuple[Any, ...]:
    """Return the classes for `onnx.reference.ReferenceEvaluator(new_ops=...)`. They keep the dtype of their input."""
    import torch
    from onnx.reference.op_run import OpRun

    class Conv(OpRun):  # type: ignore[misc] # onnx is Any to mypy
        def _run(self, data: Array, weights: Array, bias: Array | None = None, **given: Any) -> tuple[Array]:
            window = _window(given, data.shape[2:], weights.shape[2:])
            found = convolved(data, weights, bias, **window, groups=given["group"] or 1)
            return (found.astype(data.dtype),)

    class ConvTranspose(OpRun):  # type: ignore[misc]
        def _run(self, data: Array, weights: Array, bias: Array | None = None, **given: Any) -> tuple[Array]:
            axes = weights.ndim - 2
            if given["output_shape"] or (given["auto_pad"] or "NOTSET") not in ("NOTSET", "VALID"):
                raise NotImplementedError("ConvTranspose with a chosen output shape")
            functional = torch.nn.functional
            functions = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)
            convolve: Any = functions[axes - 1]
            whole = convolve(
                *_tensors(data, weights, bias),
                stride=list(given["strides"] or [1] * axes),
                output_padding=list(given["output_padding"] or [0] * axes),
                groups=given["group"] or 1,
                dilation=list(given["dilations"] or [1] * axes),
            ).numpy()
            cut = list(given["pads"] or [0] * (2 * axes))
            kept = [slice(cut[axis], whole.shape[2 + axis] - cut[axes + axis]) for axis in range(axes)]
            return (whole[(slice(None), slice(None), *kept)].astype(data.dtype),)

    return (Conv, ConvTranspose, *_norms_and_pools())


def _norms_and_pools() -> tuple[Any, ...]:
    import torch
    from onnx.reference.op_run import OpRun

    class BatchNormalization(OpRun):  # type: ignore[misc]
        def _run(
            self,
            data: Array,
            scale: Array,
            bias: Array,
            mean: Array,
            variance: Array,
            epsilon: float | None = None,
            training_mode: int | None = None,
            **_: Any,
        ) -> tuple[Array]:
            if training_mode:
                raise NotImplementedError("BatchNormalization in training mode")
            factor = scale / np.sqrt(variance + (1e-5 if epsilon is None else epsilon))
            shape = (1, -1, *[1] * (data.ndim - 2))
            return ((data * factor.reshape(shape) + (bias - mean * factor).reshape(shape)).astype(data.dtype),)

    class MaxPool(OpRun):  # type: ignore[misc]
        def _run(self, data: Array, **given: Any) -> tuple[Array]:
            kernel, ceil = given["kernel_shape"], bool(given["ceil_mode"])
            window = _window(given, data.shape[2:], kernel)
            if len(self.onnx_node.output) > 1 or (ceil and any(map(any, window["pads"]))):
                raise NotImplementedError("MaxPool with indices, or with padding and ceil_mode")
            padding = [(0, 0), (0, 0), *zip(*window["pads"], strict=True)]
            padded = np.pad(data, padding, constant_values=_LOWEST[data.dtype.kind])
            functional = torch.nn.functional
            pool: Any = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[len(kernel) - 1]
            found = pool(*_tensors(padded), list(kernel), window["strides"], 0, window["dilations"], ceil)
            return (found.numpy().astype(data.dtype),)

    class GlobalMaxPool(OpRun):  # type: ignore[misc]
        def _run(self, data: Array) -> tuple[Array]:
            return (data.max(axis=tuple(range(2, data.ndim)), keepdims=True),)

    return (BatchNormalization, MaxPool, GlobalMaxPool)
