"""Temporary memory of convolution kernels on a CPU, which no operator shows.

In single precision oneDNN uses its own layouts: input, weights and result are copied to blocks of channels and back.
In half precision, on processors without oneDNN kernels, torch unfolds the input into columns, one per place of the
result. Facts are in kernel_workspace.toml.
"""

from __future__ import annotations

import contextlib
import functools
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@functools.cache
def _facts() -> Mapping[str, Any]:
    found: Mapping[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return found


_OTHER: ContextVar[str] = ContextVar("_OTHER", default="")


@contextlib.contextmanager
def on_processor(capability: str) -> Iterator[None]:
    """Use the kernel memory of another kind of processor in this context: `AVX2` or `AVX512`."""
    token = _OTHER.set(capability if capability != _capability() else "")
    try:
        yield
    finally:
        _OTHER.reset(token)


@functools.cache
def _capability() -> str:
    import torch

    return str(torch.backends.cpu.get_cpu_capability())


def _block() -> int:
    blocks = _facts()["convolution"]["block"]
    return int(blocks.get(_OTHER.get() or _capability(), blocks["AVX2"]))


def _has_kernels(dtype: torch.dtype) -> bool:
    """Return whether oneDNN computes in a precision; below AVX-512 it doesn't in half precision."""
    import torch

    if other := _OTHER.get():
        return bool(dtype == torch.float32 or (dtype == torch.bfloat16 and other.startswith("AVX512")))
    return _has_kernels_here(dtype)


@functools.cache
def _has_kernels_here(dtype: torch.dtype) -> bool:
    import torch

    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return bool(dtype == torch.float32)


def workspace_of(name: str, args: Sequence[Any], made: Sequence[Any]) -> int:
    """Return the largest memory of an operator's kernel in bytes, without its results."""
    if name == "convolution":
        return _forward(args, made[0])
    if name == "convolution_backward":
        return _backward(args)
    if name in _facts()["in_order"]:
        return sum(_in_order(one) for one in args if hasattr(one, "is_contiguous"))
    if name in _facts()["in_order_or_last"]:
        return 0 if _is_last(args[0]) else _in_order(args[0])
    if name in _facts()["both_in_order"]:
        copied = 0 if _is_last(args[0]) else _in_order(args[0])
        return copied + int(made[0].nbytes) if copied else 0
    if name == "_safe_softmax":  # booleans: masked scores, and completely masked rows
        return int(args[0].numel() + args[0].numel() // max(args[0].shape[args[1]], 1))
    return 0


def _padded(channels: int) -> int:
    return -(-channels // _block()) * _block()


def _blocked(tensor: Any) -> int:
    """Return the bytes of (batch, channels, ...) in blocks of channels."""
    batch, channels, *places = tensor.shape
    return int(batch * _padded(channels) * math.prod(places) * tensor.itemsize)


def _copied(tensor: Any) -> int:
    """Return the same for an input: few channels are read in place."""
    return _blocked(tensor) if tensor.shape[1] >= _block() else 0


def _weights(weight: Any, groups: int) -> int:
    first, second = (weight.shape[0], weight.shape[1])
    if groups > 1:
        return int(weight.nbytes)
    second = _padded(second) if second >= _block() else second
    return int(_padded(first) * second * math.prod(weight.shape[2:]) * weight.itemsize)


def _by_onednn(given: Any, weight: Any, groups: int) -> bool:
    if not _has_kernels(given.dtype):
        return False
    sides = [*weight.shape[2:], 1][:2] if weight.dim() > 3 else [1, weight.shape[2]]
    small = all(side <= _facts()["convolution"]["small_kernel"] for side in sides)
    return groups > 1 or not small or given.shape[0] > 1 or given.numel() > _facts()["convolution"]["small_input"]


def _columns(given: Any, weight: Any, result: Any, args: Sequence[Any]) -> int:
    """Return the bytes of an unfolded input, one column per place of the result."""
    stride, padding, dilation, transposed, groups = args
    kernel = list(weight.shape[2:])
    spread = any(one != 1 for one in dilation)
    if all(one == 1 for one in kernel) and all(one == 1 for one in stride) and not any(padding):
        return 0
    if transposed:
        return int(weight.shape[1] * math.prod(kernel) * math.prod(given.shape[2:]) * given.itemsize)
    rows = 1 if spread else given.shape[0]
    each = given.shape[1] // groups * math.prod(kernel) * math.prod(result.shape[2:])
    return int(rows * each * given.itemsize)


def _forward(args: Sequence[Any], result: Any) -> int:
    given, weight, _, stride, padding, dilation, transposed, _, groups = args
    if not _by_onednn(given, weight, groups):
        columns = _columns(given, weight, result, (stride, padding, dilation, transposed, groups))
        parts = result.nbytes if groups > 1 else 0  # results of groups, before they are concatenated
        copies = _beside_last(weight) if _is_last(given) else _in_order(given)
        return int(columns + copies if transposed else columns + parts + copies)
    if _is_last(given):
        return _weights(weight, groups) + _beside_last(weight)
    blocked = _blocked(result)
    inside = max(_copied(given) + _weights(weight, groups) + blocked - int(result.nbytes), blocked)
    return _in_order(given) + inside


def _backward(args: Sequence[Any]) -> int:
    gradient, given, weight, _, stride, padding, dilation, transposed, _, groups, wanted = args
    if not _by_onednn(given, weight, groups):
        columns = _columns(given, weight, gradient, (stride, padding, dilation, transposed, groups))
        return columns + _in_order(gradient) + _in_order(given)
    if _is_last(given):
        return _weights(weight, groups) + (0 if _is_last(gradient) else int(gradient.nbytes))
    of_result, of_weights, of_input = _blocked(gradient), _weights(weight, groups), _copied(given)
    moments = [0]
    if wanted[0]:
        back = _blocked(given)
        moments += [of_result + of_weights + back, back + given.nbytes]
    kept = given.nbytes if wanted[0] else 0
    if wanted[1]:
        moments.append(kept + of_input + of_result + of_weights)
    copies = _in_order(gradient) + _in_order(given)
    return copies + max(max(moments) - kept - (weight.nbytes if wanted[1] else 0), 0)


def _in_order(tensor: Any) -> int:
    """Return the bytes of a contiguous copy, if the tensor isn't contiguous."""
    return 0 if tensor.is_contiguous() else int(tensor.nbytes)


def _beside_last(weight: Any) -> int:
    """Return the bytes of a kernel with channels last, like its input; a kernel of one place already is."""
    return int(weight.nbytes) if math.prod(weight.shape[2:]) > 1 else 0


def _is_last(tensor: Any) -> bool:
    """Return whether channels are last, as oneDNN can read them."""
    if tensor.dim() not in (4, 5) or tensor.is_contiguous():
        return False
    import torch

    last = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
    return bool(tensor.is_contiguous(memory_format=last))
