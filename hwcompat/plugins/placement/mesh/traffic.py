"""Counts what a rank says to others: every call of torch.distributed passes torch's dispatcher, collectives and point
to point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_NAMESPACES = ("c10d", "_c10d_functional")
_NAMES = {
    "allreduce_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "broadcast_": "broadcast",
    "send": "send",
    "recv_": "recv",
}
"""Operators of torch's namespace c10d -> what they are called in its documentation."""


class Traffic:
    """`calls` and `sizes` (bytes) by what was called and along which axis, such as `all_reduce on tensor`."""

    def __init__(self, axes: Mapping[str, str], on_call: Callable[[int], None]) -> None:
        self.axes = dict(axes)
        self.calls: Counter[str] = Counter()
        self.sizes: Counter[str] = Counter()
        self._on_call = on_call
        self._mode = _watching(self)

    def __enter__(self) -> Traffic:
        self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._mode.__exit__(*error)

    def note(self, operator: str, arguments: tuple[Any, ...]) -> None:
        """Remember one call."""
        groups = [name for one in arguments if (name := _group_name(one))]
        axis = self.axes.get(groups[0], "others") if groups else "others"
        name = f"{_NAMES.get(operator, operator)} on {axis}"
        self.calls[name] += 1
        self.sizes[name] += sum(one.numel() * one.element_size() for one in _tensors(arguments[:1]))
        self._on_call(sum(self.calls.values()))


def _watching(traffic: Traffic) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watching(TorchDispatchMode):  # type: ignore[misc] # torch is Any to mypy
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if operator.namespace in _NAMESPACES:
                traffic.note(operator._schema.name.partition("::")[2], args)
            return operator(*args, **(kwargs or {}))

    return Watching()


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
    elif hasattr(value, "element_size"):
        yield value


def _group_name(value: Any) -> str:
    """The name of the process group that an argument of an operator is; empty where it is none."""
    if isinstance(value, str):
        return value
    try:
        from torch.distributed import ProcessGroup

        return str(ProcessGroup.unbox(value).group_name)
    except Exception:  # whatever torch says of what is no group
        return ""
