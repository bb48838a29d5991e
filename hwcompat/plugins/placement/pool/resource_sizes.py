"""Bytes that a resource holds on each device, counted by storages, and whether they are freed."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

_DEEPEST = 4
"""The number of levels of attributes, lists and mappings searched for the tensors of a resource."""


@dataclass(frozen=True, kw_only=True)
class SizePart:
    """One piece of memory of a resource. `is_alive` returns whether it is still referenced."""

    device: str
    bytes: int
    is_alive: Callable[[], bool]


@dataclass(frozen=True, kw_only=True)
class Size:
    """Bytes by device. `measured_by` is `tensors` (each storage once, arrays included), `declared` (the caller's
    figure), `process` (growth of the process while nothing else was loaded) or `nothing`."""

    bytes_by_device: Mapping[str, int]
    measured_by: str
    parts: tuple[SizePart, ...] = ()

    def at_least(self, device: str, bytes: int | None) -> Size:
        """Return the size with at least `bytes` on `device`, if that is known."""
        if bytes is None or bytes <= self.bytes_by_device.get(device, 0):
            return self
        return replace(self, bytes_by_device={**self.bytes_by_device, device: bytes})


def size_of(resource: object, device: str, name_of: Callable[[Any], str], declared: int | None = None) -> Size:
    """Return the size of a resource. `device` is where a declared figure counts, `name_of` returns the pool's name of
    a torch device."""
    # Each storage once, however many tensors share it.
    tensors = _leaves_of(resource, _DEEPEST, set())
    parts = {identity: part for one in tensors for part, identity in _storages(one, name_of)}
    if parts:
        found: Counter[str] = Counter()
        for part in parts.values():
            found[part.device] += part.bytes
        return Size(bytes_by_device=dict(found), measured_by="tensors", parts=tuple(parts.values()))
    if declared is not None:
        return Size(bytes_by_device={device: declared}, measured_by="declared")
    return Size(bytes_by_device={device: 0}, measured_by="nothing")


def whole(resource: object, size: Size) -> tuple[SizePart, ...]:
    """Return the resource itself as the only piece, for one without known parts."""
    if size.parts or weak(resource) is None:
        return size.parts
    return tuple(_weakly_held(resource, device, count) for device, count in size.bytes_by_device.items())


def weak(resource: object) -> weakref.ref[Any] | None:
    """Return a weak reference; `None` for types that have none (numbers, strings, plain lists and mappings)."""
    try:
        return weakref.ref(resource)
    except TypeError:
        return None


def _leaves_of(resource: object, depth: int, met: set[int]) -> Iterator[Any]:
    """Yield tensors and arrays of a resource. Reads attributes, and calls no methods but those of every torch
    module."""
    if id(resource) in met:
        return
    met.add(id(resource))
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(resource, torch.nn.Module):
        yield from resource.parameters()
        yield from resource.buffers()
    elif (torch is not None and isinstance(resource, torch.Tensor)) or (
        numpy is not None and isinstance(resource, numpy.ndarray)
    ):
        yield resource
    elif depth and not isinstance(resource, str | bytes | int | float | type | None):
        for value in _members_of(resource):
            yield from _leaves_of(value, depth - 1, met)


def _members_of(resource: object) -> list[object]:
    if isinstance(resource, Mapping):
        return list(resource.values())
    if isinstance(resource, list | tuple | set | frozenset):
        return list(resource)
    attributes = getattr(resource, "__dict__", None)
    return list(attributes.values()) if isinstance(attributes, dict) and not callable(resource) else []


def _storages(one: Any, name_of: Callable[[Any], str]) -> Iterator[tuple[SizePart, tuple[str, int]]]:
    if type(one).__module__.partition(".")[0] == "numpy":
        while isinstance(one.base, type(one)):
            one = one.base
        yield _weakly_held(one, "cpu", one.nbytes), ("array", id(one))
        return
    if one.device.type == "meta":
        return
    inner = _inner_tensors(one)
    if inner:
        for tensor in inner:
            yield from _storages(tensor, name_of)
        return
    device = name_of(one.device)
    try:
        storage = one.untyped_storage()
    except (RuntimeError, NotImplementedError):  # a layout without one
        yield _weakly_held(one, device, one.numel() * one.element_size()), ("tensor", id(one))
        return
    from torch.multiprocessing.reductions import StorageWeakRef

    reference = StorageWeakRef(storage)
    part = SizePart(device=device, bytes=storage.nbytes(), is_alive=lambda: not reference.expired())
    yield part, ("storage", storage._cdata)


def _weakly_held(one: Any, device: str, count: int) -> SizePart:
    reference = weakref.ref(one)
    return SizePart(device=device, bytes=count, is_alive=lambda: reference() is not None)


def _inner_tensors(tensor: Any) -> list[Any]:
    """Return the tensors inside a tensor that wraps others (quantized: integers and scales; sparse: values and
    indices)."""
    import torch
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if not is_traceable_wrapper_subclass(tensor):
        return []
    names, _ = tensor.__tensor_flatten__()
    return [getattr(tensor, name) for name in names]
