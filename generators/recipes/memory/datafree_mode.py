"""A mode in which torch computes whole numbers and runs all else on tensors without data; and `StorageLog`, which
records when each storage was allocated and released, to find the peak and its parts.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .kernel_workspace import workspace_of

if TYPE_CHECKING:
    import torch

WHOLE_LIMIT = 2**27
"""The largest result of whole numbers or booleans that is computed, in bytes."""
FLOATING_LIMIT = 2**14
"""The same for floating-point numbers: tables of rates and frequencies that code converts to whole numbers."""

_CHOOSING = ("topk", "sort", "argsort", "argmax", "argmin", "multinomial", "max", "min")
"""Operators whose whole numbers depend on missing values; each choice is made equally often instead, which
distributes tokens evenly among experts."""
_DYNAMIC = ("data_dependent_output", "dynamic_output_shape")
"""Torch's tags of operators whose results have no size without data."""
KINDS = ("weights", "gradients", "optimiser", "inputs", "cache", "activations", "workspace")
"""The purposes of a byte."""
ACTIVATIONS = "activations"


class NeedsData(Exception):
    """A model reads a value that only computing gives."""


class DataFree:
    """How operators are computed in the mode; `storages` records each new storage."""

    def __init__(self, storages: StorageLog) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.storages = storages
        self.sizes = FakeTensorMode(allow_non_fake_inputs=True)

    def mode(self) -> Any:
        """Return the mode as a context manager."""
        from torch.utils._python_dispatch import TorchDispatchMode

        computed = self._computed

        class Mode(TorchDispatchMode):  # type: ignore[misc] # torch is Any to mypy
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return computed(func, args, kwargs or {})

        return Mode()

    def _computed(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        import torch
        from torch._subclasses.fake_tensor import FakeTensor
        from torch.utils._pytree import tree_leaves

        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        if any(isinstance(one, FakeTensor) for one in given):
            result = self._without_data(func, args, kwargs)
        else:
            result = self._really_if_small(func, args, kwargs)
        made = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
        self.storages.track(made)
        if inside := workspace_of(func._schema.name.removeprefix("aten::"), args, made):
            self.storages.passing(inside)
        return result

    def without_data(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor like `tensor`, but without data."""
        bare: torch.Tensor = self.sizes.from_tensor(tensor, static_shapes=True)
        return bare

    def _really_if_small(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        import torch
        from torch.utils._pytree import tree_leaves

        if func._schema.is_mutable or any(tag.name in _DYNAMIC for tag in func.tags):
            return func(*args, **kwargs)
        with self.sizes:
            planned = func(*args, **kwargs)
        small = all(
            one.untyped_storage().nbytes() <= (FLOATING_LIMIT if one.is_floating_point() else WHOLE_LIMIT)
            for one in tree_leaves(planned)
            if isinstance(one, torch.Tensor)
        )
        return func(*args, **kwargs) if small else planned

    def _without_data(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        import torch
        from torch._subclasses.fake_tensor import (
            DataDependentOutputException,
            DynamicOutputShapeException,
            FakeTensor,
        )
        from torch.utils._pytree import tree_map

        name = func._schema.name.removeprefix("aten::")
        if name in ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"):
            args = tuple(map(_places_of_truth, args))
        elif name == "masked_select" and not isinstance(args[1], FakeTensor):
            func, args = torch.ops.aten.index.Tensor, (args[0], list(args[1].nonzero(as_tuple=True)))
        try:
            with self.sizes:
                result = _grouped(*args) if name == "_grouped_mm" else func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            if name == "_local_scalar_dense" and args[0].dtype == torch.bool:
                return False  # such checks look for wrong values, such as infinite ones
            raise NeedsData(f"{name} needs values that only a computation gives") from error
        if func._schema.is_mutable and isinstance(args[0], torch.Tensor) and not isinstance(args[0], FakeTensor):
            return args[0]
        if name in _CHOOSING and "out" not in kwargs:
            return tree_map(lambda one: _evenly_chosen(one, args, kwargs), result)
        return result


def _places_of_truth(one: Any) -> Any:
    """Return the indices of boolean masks, so that their number is known."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if not isinstance(one, list):
        return one
    found: list[Any] = []
    for part in one:
        is_known = isinstance(part, torch.Tensor) and not isinstance(part, FakeTensor) and part.dtype == torch.bool
        found += part.nonzero(as_tuple=True) if is_known else [part]
    return found


def _grouped(left: Any, right: Any, offsets: Any = None, *_: Any) -> Any:
    """Return the result of a grouped product in any precision, because torch knows its size only for bfloat16."""
    groups = [offsets.shape[0]] if left.dim() == right.dim() == 2 else []
    groups = [left.shape[0]] if left.dim() == right.dim() == 3 else groups
    return left.new_empty([*groups, left.shape[-2], right.shape[-1]])


def _evenly_chosen(one: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if not isinstance(one, FakeTensor) or one.dtype != torch.int64 or one.nbytes > WHOLE_LIMIT:
        return one
    of = args[0]
    axis = kwargs.get("dim", next((a for a in reversed(args[1:]) if isinstance(a, int)), -1) if of.dim() else 0)
    choices = of.shape[axis] if of.dim() and -of.dim() <= axis < of.dim() else max(of.numel(), 1)
    return (torch.arange(one.numel()) % max(choices, 1)).reshape(one.shape)


class StorageLog:
    """Storages in the order of allocation and release. A storage counts once, however many views it has."""

    def __init__(self) -> None:
        self._kinds: list[str] = []
        self._sizes: list[int] = []
        self._moves: list[int] = []
        """Each entry is a storage's place + 1 at its birth, minus that at its end."""
        self._alive: dict[int, tuple[Any, int]] = {}

    def track(self, tensors: Iterable[torch.Tensor], kind: str = "") -> None:
        """Count the storages of `tensors`; `kind` sets their purpose, also of known ones."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata
            known = self._alive.get(key)
            if known is None:
                place = len(self._sizes)
                self._sizes.append(storage.nbytes())
                self._kinds.append(kind or ACTIVATIONS)
                self._moves.append(place + 1)
                self._alive[key] = (weakref.ref(storage, self._releaser(key, place)), place)
            elif kind:
                self._kinds[known[1]] = kind

    def _releaser(self, key: int, place: int) -> Callable[[Any], None]:
        def release(_: Any) -> None:
            self._moves.append(-place - 1)
            self._alive.pop(key, None)

        return release

    def passing(self, size: int) -> None:
        """Count a kernel's temporary allocation, in bytes."""
        place = len(self._sizes)
        self._sizes.append(size)
        self._kinds.append("workspace")
        self._moves += [place + 1, -place - 1]

    def at_peak(self) -> dict[str, int]:
        """Return the bytes by kind when most were allocated."""
        total = highest = when = 0
        for step, move in enumerate(self._moves):
            total += self._sizes[move - 1] if move > 0 else -self._sizes[-move - 1]
            if total > highest:
                highest, when = total, step
        found = dict.fromkeys(KINDS, 0)
        for move in self._moves[: when + 1]:
            place = abs(move) - 1
            found[self._kinds[place]] += self._sizes[place] if move > 0 else -self._sizes[place]
        return found
