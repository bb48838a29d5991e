"""What a model's own code leaves to the host, whatever device its weights and inputs are on: asked on the CPU.

Each call of torch is watched with the place that its tensors would have: weights, buffers and inputs are on a device,
a tensor that is made without a device is the host's, so are those that modules keep as plain attributes, and so is
whatever follows from host tensors alone. Devices take no part in it, so that code which asks for the kind of its
device goes the way of the CPU. Calls from C++ and from inside `torch.nn.functional` aren't seen. Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

_TO_HOST = frozenset({"cpu", "tolist", "numpy", "__array__"})
"""Methods that read a tensor back."""
_MOVING = frozenset({"to", "type_as"})
_ASKING = frozenset({"__get__", "size", "dim", "stride", "numel", "is_floating_point", "__len__", "type"})
"""What asks about a tensor, and computes nothing."""


def host_functions(model: Any, inputs: Iterable[Any], work: Callable[[], object]) -> tuple[str, ...]:
    """The functions of torch in `work` that take or make tensors of the host where `model` and `inputs` are on a
    device, in alphabetical order. Numbers in tensors without dimensions don't count.

    The model should be fresh: what it keeps of an earlier pass would count as the host's. Raises what `work` raises.
    """
    from torch.overrides import TorchFunctionMode

    places = _Places()
    moved = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    kept = [tensor for module in model.modules() for tensor in _tensors(list(vars(module).values()))]
    places.put([tensor for tensor in kept if id(tensor) not in moved], there=False)
    places.put(inputs)

    class Watch(TorchFunctionMode):  # type: ignore[misc] # torch is Any to mypy
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return places.call(func, args, kwargs or {})

    with Watch():
        work()
    return tuple(sorted(places.functions))


class _Places:
    """Where tensors would be. A device's tensors say that they are on `cpu:0`, the host's on `cpu`: what code makes
    `device=` of either goes where they are."""

    def __init__(self) -> None:
        import torch

        self.here = torch.device("cpu", 0)
        self.asks_device = torch.Tensor.device
        self.known: dict[int, tuple[Any, bool]] = {}
        self.functions: set[str] = set()

    def put(self, values: Iterable[Any], *, there: bool = True) -> None:
        for value in values:
            self.known[id(value)] = (value, there)  # the tensor too, or another could take its number

    def is_there(self, tensor: Any) -> bool:
        """Whether it is on the device: weights, and what nobody saw being made, as inside `vmap`, are taken to be."""
        known = self.known.get(id(tensor))
        return known is None or known[1]

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        name = str(getattr(func, "__name__", func))
        given = list(_tensors((args, kwargs)))
        if getattr(func, "__self__", None) is self.asks_device:
            return self.here if self.is_there(args[0]) else result
        made = list(_tensors(result))
        if name in _ASKING and not made:
            return result
        there = self._goes_there(name, args, kwargs, given)
        if args and name.endswith("_") and not name.endswith("__"):
            there = self.is_there(args[0])  # in place
        touches_host = self._touches_host(name, given)
        moved = name in _MOVING  # on the CPU there may be nothing to do, and the same tensor comes back
        self.put([one for one in made if moved or all(one is not other for other in given)], there=there)
        if touches_host or any(one.dim() and not self.is_there(one) for one in made):
            self.functions.add(name)
        return result

    def _goes_there(self, name: str, args: Any, kwargs: Any, given: list[Any]) -> bool:
        import torch

        if name in _TO_HOST:
            return False
        texts = [kwargs.get("device"), *(args[1:2] if name == "to" else ())]
        wished = [torch.device(one) for one in texts if isinstance(one, str)]
        wished += [one for one in (*args, *kwargs.values()) if isinstance(one, torch.device)]
        if wished:
            return bool(wished[0] == self.here)
        if name in _MOVING and len(given) > 1:
            return self.is_there(given[1])
        return any(map(self.is_there, given))

    def _touches_host(self, name: str, given: list[Any]) -> bool:
        return any(name in _TO_HOST or not self.is_there(one) for one in given if one.dim())


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
