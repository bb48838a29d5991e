"""Constants of a trace: what follows from them alone is computed while the trace is made, and isn't part of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def computed_beforehand(constants: Sequence[torch.Tensor]) -> Iterator[None]:
    """Compute outside of the trace whatever is given constants alone, tensors that are made from numbers among them.

    A trace holds each call otherwise, and a converter may have no rule for one whose result has no size of its own
    before it is known: which values are there, or where a condition holds. Sizes are plain numbers, which Python may
    look up, round or hand to other libraries; a trace makes them tensors otherwise.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    sizes = {torch.Tensor.shape.__get__, torch.Tensor.size, torch.Tensor.numel, torch.Tensor.__len__}

    class Beforehand(TorchFunctionMode):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.known: dict[int, torch.Tensor] = {id(one): one for one in constants}  # held, so that ids stay theirs

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            given = list(_tensors((args, kwargs)))
            if function in sizes:
                with _no_trace():
                    return function(*args, **kwargs)
            if not torch.jit.is_tracing() or any(id(one) not in self.known for one in given):
                if given:
                    self.known.pop(id(given[0]), None)  # a call in place may have changed it
                return function(*args, **kwargs)
            with _no_trace():
                result = function(*args, **kwargs)
            self.known.update((id(one), one) for one in _tensors(result))
            return result

    with Beforehand():
        yield


@contextlib.contextmanager
def _no_trace() -> Iterator[None]:
    import torch

    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        yield
    finally:
        torch._C._set_tracing_state(state)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
