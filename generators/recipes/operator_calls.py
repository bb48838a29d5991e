"""Record a forward pass's calls to torch's dispatcher: operators with overload and arguments, as plain values.

A call is stored once for each combination of overload, dtypes and ranks, so that the record stays small for every
model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

TENSOR = "tensor"
"""Marks the description of a tensor among arguments."""

_MOST_CALLS = 400
_LONGEST_LIST = 64


@dataclass(frozen=True, kw_only=True)
class OperatorCall:
    """One way in which an operator was called.

    `arguments` and `named` are plain values; a tensor is `{"tensor": dtype, "shape": [...]}`, with `low` and `high`
    of whole numbers if they are known. `count` is the number of calls with these dtypes and ranks.
    """

    operator: str
    overload: str
    arguments: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...] = ()
    count: int = 1

    def __str__(self) -> str:
        return ", ".join(f"{dtype}[{'x'.join(map(str, shape))}]" for dtype, shape in self.tensors) or "no tensor"

    @property
    def kind(self) -> tuple[Any, ...]:
        """What distinguishes stored calls: overload, dtypes and ranks."""
        tensors = [
            (one[TENSOR], len(one["shape"])) for one in leaves((*self.arguments, *(value for _, value in self.named)))
        ]
        return (self.operator, self.overload, *tensors)

    @property
    def tensors(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Dtype and shape of each tensor argument, in order."""
        found = leaves((*self.arguments, *(value for _, value in self.named)))
        return tuple((one[TENSOR], tuple(one["shape"])) for one in found)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OperatorCall:
        """Return the call that `to_dict` wrote."""
        named = tuple((name, value) for name, value in data["named"])
        return cls(
            operator=data["operator"],
            overload=data["overload"],
            arguments=tuple(data["arguments"]),
            named=named,
            count=data["count"],
        )


def leaves(value: Any) -> list[dict[str, Any]]:
    """Return the tensor descriptions inside plain values, in order."""
    if isinstance(value, dict):
        return [value] if TENSOR in value else []
    if isinstance(value, list | tuple):
        return [found for one in value for found in leaves(one)]
    return []


def call_recorder() -> Any:
    """Return a dispatch mode; `.calls` has each distinct way in which operators were called while it was active."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class CallRecorder(TorchDispatchMode):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self._calls: dict[tuple[Any, ...], OperatorCall] = {}
            self._counts: Counter[tuple[Any, ...]] = Counter()

        @property
        def calls(self) -> tuple[OperatorCall, ...]:
            return tuple(replace(call, count=self._counts[kind]) for kind, call in self._calls.items())

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            call = _call(func, args, kwargs or {})
            self._counts[call.kind] += 1
            if call.kind not in self._calls and len(self._calls) < _MOST_CALLS:
                self._calls[call.kind] = call
            return func(*args, **(kwargs or {}))

    return CallRecorder()


def _call(func: Any, args: Any, kwargs: Any) -> OperatorCall:
    packet, _, overload = str(func).rpartition(".")
    named = tuple((name, _plain(value)) for name, value in sorted(kwargs.items()) if value is not None)
    return OperatorCall(operator=packet, overload=overload, arguments=tuple(_plain(one) for one in args), named=named)


def _plain(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return _described(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value[:_LONGEST_LIST]]
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return str(value)
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)  # a dtype, device, layout or generator: torch.float32, cpu, torch.strided


def _described(tensor: torch.Tensor) -> dict[str, Any]:
    """Return dtype and shape, and the range of whole numbers, which indices must stay in, if there are values."""
    from torch._subclasses.fake_tensor import FakeTensor

    shape = [size if isinstance(size, int) else str(size) for size in tensor.shape]
    found: dict[str, Any] = {TENSOR: str(tensor.dtype).removeprefix("torch."), "shape": shape}
    is_whole = not (tensor.is_floating_point() or tensor.is_complex() or found[TENSOR] == "bool")
    if is_whole and not isinstance(tensor, FakeTensor) and tensor.device.type != "meta" and tensor.numel():
        values = tensor.detach().cpu().flatten().tolist()  # not by torch, which would be recorded
        if all(type(value) is int for value in values):  # fake tensors have names instead of values
            found |= {"low": min(values), "high": max(values)}
    return found
