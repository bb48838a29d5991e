"""Weights that compute as float64 and take the memory of their own dtype.

Each operator gets a float64 copy that is freed afterwards, so that a model computes in float64 from a memory-mapped
file, with one operator's weights in memory at a time. The results are those of a whole copy.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import torch


_VIEWS = frozenset(
    {"t", "transpose", "permute", "view", "unsqueeze", "squeeze", "select", "slice", "detach", "alias"}
)
"""Views of the same weights stay narrow, so that what a backward pass keeps takes no memory."""

_FRESH = frozenset({"mm", "addmm", "bmm", "baddbmm", "convolution", "native_layer_norm"})
"""Operators whose results have memory of their own, so that the copies for them may be overwritten afterwards."""


def widen(model: torch.nn.Module) -> torch.nn.Module:
    """Make all floating-point parameters of `model` appear as float64, and convert its buffers, in place.

    Tied parameters stay tied. Writing into such a parameter raises `RuntimeError`.
    """
    import torch

    done: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None or not parameter.is_floating_point():
                continue
            if id(parameter) not in done:
                wide = _wide_class()(parameter.detach())
                done[id(parameter)] = torch.nn.Parameter(wide, requires_grad=parameter.requires_grad)
            module._parameters[name] = done[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                module._buffers[name] = buffer.double()
    return model


@functools.cache
def _wide_class() -> Any:
    """Return the tensor class, which is defined once torch is imported."""
    import torch
    from torch.utils._python_dispatch import return_and_correct_aliasing
    from torch.utils._pytree import tree_map

    scratch = _Scratch()

    class Wide(torch.Tensor):  # type: ignore[misc] # torch is Any to mypy
        narrow: torch.Tensor

        @staticmethod
        def __new__(cls: Any, narrow: torch.Tensor) -> Any:
            made = torch.Tensor._make_wrapper_subclass(
                cls,
                narrow.size(),
                strides=narrow.stride(),
                storage_offset=narrow.storage_offset(),
                dtype=torch.float64,
                device=narrow.device,
            )
            made.narrow = narrow
            return made

        __torch_function__ = torch._C._disabled_torch_function_impl

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = kwargs or {}
            name = func.overloadpacket.__name__
            if name in _VIEWS:
                out = cls(func(args[0].narrow, *args[1:], **given))
                return return_and_correct_aliasing(func, args, given, out)
            if name == "embedding" and isinstance(args[0], cls):
                return func(args[0].narrow, *args[1:], **given).double()  # the selected rows, not the table
            if func._schema.is_mutable and any(isinstance(one, cls) for one in args[:1]):
                raise RuntimeError(f"{func} would overwrite weights of the reference")
            if name in _FRESH and not given:
                return func(*scratch.copies(args, cls))
            return func(*tree_map(_widened, args), **tree_map(_widened, given))

    def _widened(value: Any) -> Any:
        return value.narrow.double() if isinstance(value, Wide) else value

    return Wide


class _Scratch:
    """Memory for the copies of one operator, reused for the next: allocating takes longer than copying."""

    _ALIGNED = 8

    def __init__(self) -> None:
        self.buffer: torch.Tensor | None = None

    def copies(self, args: tuple[Any, ...], wide: Any) -> list[Any]:
        """Return `args` with weights as float64 copies of the same layout."""
        import torch

        needed = sum(one.numel() + self._ALIGNED for one in args if isinstance(one, wide))
        if self.buffer is None or self.buffer.numel() < needed:
            self.buffer = torch.empty(needed, dtype=torch.float64)
        place = 0
        found: list[Any] = []
        for one in args:
            if isinstance(one, wide) and _is_dense(one.narrow):
                copied = self.buffer.as_strided(one.narrow.size(), one.narrow.stride(), place).copy_(one.narrow)
                place += -(-one.numel() // self._ALIGNED) * self._ALIGNED
                found.append(copied)
            else:
                found.append(one.narrow.double() if isinstance(one, wide) else one)
        return found


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill their memory without gaps, in any order of axes."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return bool(span == tensor.numel())


def copy_over(model: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of `model` over the same weights: its parameters are new and share their memory."""
    import copy

    import torch

    memo: dict[int, Any] = {
        id(parameter): torch.nn.Parameter(parameter.detach(), requires_grad=parameter.requires_grad)
        for parameter in model.parameters()
    }
    return cast("torch.nn.Module", copy.deepcopy(model, memo))
