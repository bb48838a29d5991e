"""Every tensor that a module computes in float64, to be found by its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hardware.model.tensors import to_arrays
from hardware.testing import reference

from .comparing import error_of

if TYPE_CHECKING:
    import torch

    from hardware.compare import Array

FOUND = 1e-4
"""The largest error of a value of a graph that counts as one of torch's: what an export may be off by."""


class TracedValues:
    """The tensors of one float64 pass, found by their values."""

    def __init__(self, tensors: Iterable[Array], padding: Sequence[Array]) -> None:
        self._padding = padding
        self._by_size: dict[int, list[Array]] = {}
        for one in tensors:
            self._by_size.setdefault(one.size, []).append(one)

    def has(self, values: Array) -> bool:
        """Whether the reference has a tensor with these values in this order, whatever its axes are."""
        how: dict[str, Any] = {"precision": "float32", "tolerance": FOUND, "padding": self._padding}
        wanted = (one.reshape(values.shape) for one in self._by_size.get(values.size, ()))
        errors = (error_of(values, one, **how) for one in wanted)
        return any(error is not None and error <= FOUND for error in errors)


def traced_values(
    model: torch.nn.Module, inputs: Mapping[str, Array], padding: Sequence[Array]
) -> tuple[TracedValues, dict[str, Array]]:
    """Run a reference (as `as_reference` makes it) and keep every floating tensor that an operator gives, and the
    outputs. Attention is computed step by step, as converted graphs often do. Raises `ReferenceNotFinite`."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils._python_dispatch import TorchDispatchMode

    kept = [np.asarray(one) for one in inputs.values() if one.size > 1]  # graphs hand on what they are given

    class Keeping(TorchDispatchMode):  # type: ignore[misc] # torch is Any to mypy
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for one in (*(out if isinstance(out, tuple | list) else (out,)), *_inside(func, args, kwargs or {}, out)):
                if isinstance(one, torch.Tensor) and one.is_floating_point() and one.numel() > 1:
                    kept.append(to_arrays({"": one})[""].copy())
            return out

    with sdpa_kernel(SDPBackend.MATH), Keeping():
        outputs = reference.float64_outputs(model, inputs)
    return TracedValues(kept, padding), outputs


def _inside(func: Any, args: Any, kwargs: Mapping[str, Any], out: Any) -> list[Any]:
    """What converted graphs compute in several nodes and torch in one: products before their bias, and what a norm
    scales."""
    import torch

    aten = torch.ops.aten
    if func is aten.addmm.default:
        return [args[1] @ args[2]]
    if func is aten.convolution.default and args[2] is not None:
        return [func(args[0], args[1], None, *args[3:], **kwargs)]
    if func is aten.native_layer_norm.default and args[2] is not None:
        return [out[0] - args[3] if args[3] is not None else out[0], func(args[0], args[1], None, None, args[4])[0]]
    return []
