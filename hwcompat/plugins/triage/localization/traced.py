"""Every tensor that a module computes in float64, with the module and operator that it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Traced:
    """One tensor of the reference: its values, the path of the module that was computing, and the operator."""

    values: Array
    module: str
    operator: str


class TracedValues:
    """The tensors of one float64 pass, found by their values."""

    def __init__(self, tensors: Sequence[Traced], padding: Sequence[Array]) -> None:
        self._padding = padding
        self._by_size: dict[int, list[Traced]] = {}
        for one in tensors:
            self._by_size.setdefault(one.values.size, []).append(one)

    def find(self, values: Array) -> Traced | None:
        """The reference's tensor with these values in this order, whatever its axes are; None where there is none."""
        for one in self._by_size.get(values.size, ()):
            wanted = one.values.reshape(values.shape)
            error = error_of(values, wanted, precision="float32", tolerance=FOUND, padding=self._padding)
            if error is not None and error <= FOUND:
                return one
        return None


def traced_values(
    model: torch.nn.Module, inputs: Mapping[str, Array], padding: Sequence[Array]
) -> tuple[TracedValues, dict[str, Array]]:
    """Run a reference (as `as_reference` makes it) and keep every floating tensor that an operator gives, and the
    outputs. Attention is computed step by step, as converted graphs often do. Raises `ReferenceNotFinite`."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils._python_dispatch import TorchDispatchMode

    kept: list[Traced] = []
    stack: list[str] = [""]

    def keep(one: Any, operator: str) -> None:
        if isinstance(one, torch.Tensor) and one.is_floating_point() and one.numel() > 1:
            kept.append(Traced(values=to_arrays({"": one})[""].copy(), module=stack[-1], operator=operator))

    class Keeping(TorchDispatchMode):  # type: ignore[misc] # torch is Any to mypy
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for one in out if isinstance(out, tuple | list) else (out,):
                keep(one, str(func).removesuffix(".default"))
            for one in _inside(func, args, kwargs or {}, out):
                keep(one, f"inside {func}".removesuffix(".default"))
            return out

    def leave(*_: Any) -> None:
        stack.pop()

    handles = []
    for name, module in model.named_modules():
        before = module.register_forward_pre_hook(lambda *_, name=name: stack.append(name))
        handles += [before, module.register_forward_hook(leave)]
    try:
        with sdpa_kernel(SDPBackend.MATH), Keeping():
            outputs = reference.float64_outputs(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    # What the model is given, too: graphs hand it on.
    given = [Traced(values=np.asarray(one), module="", operator="input") for one in inputs.values() if one.size > 1]
    return TracedValues([*given, *kept], padding), outputs


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
