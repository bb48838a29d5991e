"""A device of torch made in Python: the dispatch key PrivateUse1 with tensors whose bytes lie where a driver says.

torch believes in the device: tensors say that they are there, factories make them there, modules move there, and what
mixes devices is refused. Every operator ends in the driver's `launch`, which is handed tensors in device memory and
gives tensors in device memory. There is one such device in a process, and it can't be taken back: torch renames the
key once.

Source of the calls: torch.utils.backend_registration of torch 2.13, whose part for Python is there since torch 2.9.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

from .errors import BackendUnavailable

if TYPE_CHECKING:
    import torch

_CROSSING = frozenset({"aten::_to_copy", "aten::copy_", "aten::_copy_from"})
"""Operators that may have tensors of two devices: copies."""
_PLACED = frozenset({"aten::index", "aten::_unsafe_index", "aten::index_put", "aten::index_put_"})
"""Operators that take places from the host, as those of CUDA do: torch moves them."""
_CHANGING_SHAPE = frozenset({"aten::resize_", "aten::set_", "aten::squeeze_", "aten::t_", "aten::transpose_"})
"""Operators that would change the shape of a tensor in place, which its wrapper can't follow."""
_CALLED_BENEATH = ("_copy_from", "_to_copy", "copy_", "_local_scalar_dense")
"""Copies, and what torch's own code asks of a tensor without looking whether it is a subclass: `torch.tensor([one])`
and `x[places] = one` read their numbers so."""


class Driver(Protocol):
    """What computes: the only thing that touches a device's memory."""

    def has_kernel(self, name: str) -> bool:
        """Whether the device computes an operator (`aten::addmm`)."""

    def launch(self, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Compute one operator on tensors in device memory; its results lie there too."""


def installed_name() -> str:
    """What PrivateUse1 is called in this process: `privateuseone` where nobody has renamed it."""
    import torch

    return str(torch._C._get_privateuse1_backend_name())


def install(name: str, driver: Driver) -> None:
    """Make torch know a device called `name` whose operators `driver` computes.

    Again with the same name, the new driver takes over. Raises `BackendUnavailable` where torch is older than 2.9, or
    where the process has another PrivateUse1 device already.
    """
    import torch

    # Parameters of a module are swapped for those on the device, which keeps tied weights tied.
    swap = torch.__future__.set_swap_module_params_on_conversion
    found = _installed.get(name)
    if found is not None:
        found.driver = driver
        swap(True)
        return
    taken = installed_name()
    if taken != "privateuseone" or hasattr(torch, name):
        raise BackendUnavailable(
            f"torch can't be given a device called {name}",
            why=f"this process has one called {taken if taken != 'privateuseone' else name} already",
            fix="Register it in a process of its own.",
        )
    try:
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as set_up
    except ImportError as error:
        raise BackendUnavailable(
            f"torch can't be given a device called {name}",
            why=f"torch {torch.__version__} has no devices made in Python",
            fix="Install torch 2.9 or later.",
        ) from error
    set_up(name, backend_module=device_module(name))
    atexit.register(time.sleep, _LETTING_GO_S)
    swap(True)
    _installed[name] = _Device(name, driver)


_installed: dict[str, _Device] = {}

_LETTING_GO_S = 0.1
"""How long a process lets go of the interpreter before it ends. autograd's thread still drops the last gradient, an
object of Python's, when `backward` has returned, and a process that ends at that moment is aborted
(pytorch/pytorch#190489)."""


def device_module(name: str) -> SimpleNamespace:
    """What becomes `torch.<name>`: the functions that torch and its users ask of a device's module."""
    import torch

    def must_be_there(device: Any = None) -> None:
        if device is not None and (torch.device(device).index or 0 if not isinstance(device, int) else device):
            raise RuntimeError(f"there is one {name} device: {name}:0")

    return SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: 0,
        set_device=must_be_there,
        synchronize=must_be_there,
        empty_cache=lambda: None,
        manual_seed_all=lambda seed: None,
        get_amp_supported_dtype=lambda: [torch.float16, torch.bfloat16],
        _is_in_bad_fork=lambda: False,
    )


class _Device:
    """The tensors of one device, and the kernels that make them."""

    def __init__(self, name: str, driver: Driver) -> None:
        import torch

        self.name = name
        self.driver = driver
        self.place = torch.device(name, 0)
        self.tensor = _tensor_class(self)
        self._kernels = torch.library.Library("aten", "IMPL")
        for operator in _factories():
            self._kernels.impl(operator.name().removeprefix("aten::"), self._factory(operator), "PrivateUse1")
        for short in _CALLED_BENEATH:
            self._kernels.impl(short, self._kernel(getattr(torch.ops.aten, short).default), "PrivateUse1")

    def _factory(self, operator: Any) -> Any:
        return lambda *args, **kwargs: self.run(operator, args, {**kwargs, "device": self.place})

    def _kernel(self, operator: Any) -> Any:
        return lambda *args, **kwargs: self.run(operator, args, kwargs)

    def run(self, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """One operator, from tensors of this device (and of the host, where it copies) to tensors of this device."""
        import torch
        from torch.utils._pytree import tree_leaves, tree_map

        if _is_composite(operator):  # below autograd, as inside somebody's operator, torch hands it over as it is
            return operator.decompose(*args, **kwargs)
        name = operator._schema.name
        if not name.startswith("aten::") and not self.driver.has_kernel(name) and (key := _own_kernel(operator)):
            return operator._op_dk(key, *args, **kwargs)  # made of operators, each of which comes here
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        self._refuse(name, args, tensors)
        wished = kwargs.get("device")
        stays = any(map(self._is_here, tensors)) if wished is None else torch.device(wished).type == self.name
        wrapped = {id(tensor.raw): tensor for tensor in tensors if self._is_here(tensor)}

        def unwrapped(value: Any) -> Any:
            if isinstance(value, torch.device):
                return torch.device("cpu")
            return value.raw if self._is_here(value) else value

        plain = {key: value for key, value in tree_map(unwrapped, dict(kwargs)).items() if key != "pin_memory"}
        if isinstance(wished, str):
            plain["device"] = "cpu"
        result = self.driver.launch(operator, tree_map(unwrapped, args), plain)
        if name == "aten::copy_":
            return args[0]
        if name == "aten::_copy_from":
            return args[1]

        def again(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            known = wrapped.get(id(value))  # in place, and `out=`: the same tensor comes back
            return known if known is not None else self.tensor(value) if stays else value

        return tree_map(again, result)

    def _refuse(self, name: str, args: tuple[Any, ...], tensors: list[torch.Tensor]) -> None:
        if name in _CHANGING_SHAPE or not self.driver.has_kernel(name):
            raise NotImplementedError(f"{self.name} has no kernel for {name}")
        if name in _CROSSING or not any(map(self._is_here, tensors)):
            return
        if name in _PLACED:
            places = {id(one) for one in args[1]}
            tensors = [one for one in tensors if id(one) not in places]
        # As on other devices, a number in a tensor without dimensions may come from the host.
        for tensor in tensors:
            if tensor.dim() > 0 and not self._is_here(tensor):
                raise RuntimeError(
                    f"all tensors must be on one device, and {name} was given {self.place} and {tensor.device}"
                )

    def _is_here(self, value: Any) -> bool:
        return isinstance(value, self.tensor)


def _tensor_class(device: _Device) -> Any:
    import torch

    class DeviceTensor(torch.Tensor):  # type: ignore[misc] # torch is Any to mypy
        """A tensor that says it is on the device; `raw` is what it holds there."""

        raw: torch.Tensor

        @staticmethod
        def __new__(cls: Any, raw: torch.Tensor, requires_grad: bool = False) -> Any:
            return torch.Tensor._make_wrapper_subclass(
                cls,
                raw.size(),
                strides=raw.stride(),
                storage_offset=raw.storage_offset(),
                dtype=raw.dtype,
                device=device.place,
                requires_grad=requires_grad,
            )

        def __init__(self, raw: torch.Tensor, requires_grad: bool = False) -> None:
            self.raw = raw

        def __repr__(self, *_: Any, **__: Any) -> str:
            return f"tensor({self.raw.tolist()!r}, device='{device.place}')"

        def __format__(self, wish: str) -> str:
            return format(self.raw, wish) if wish else repr(self)

        def tolist(self) -> Any:
            return self.cpu().tolist()  # torch refuses to read a subclass

        @property
        def data(self) -> Any:
            return torch.Tensor.data.__get__(self)

        @data.setter
        def data(self, other: Any) -> None:
            torch.Tensor.data.__set__(self, other)
            self.raw = other.raw  # torch takes over the other's shape, and knows nothing of its bytes

        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            copied = type(self)(self.raw.clone(), self.requires_grad)
            memo[id(self)] = copied
            return copied

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return device.run(func, args, kwargs or {})

    return DeviceTensor


def _factories() -> Iterator[Any]:
    """Every operator that makes a tensor out of none: it takes a device, and no tensor."""
    import torch

    for full in torch._C._dispatch_get_all_op_names():
        if not full.startswith("aten::"):
            continue
        name, _, overload = full.removeprefix("aten::").partition(".")
        with contextlib.suppress(AttributeError, RuntimeError):
            operator = getattr(getattr(torch.ops.aten, name), overload or "default")
            if _is_factory(operator._schema) and not _is_composite(operator):
                yield operator


def _is_factory(schema: Any) -> bool:
    kinds = [str(argument.type) for argument in schema.arguments]
    names = {argument.name for argument in schema.arguments}
    returned = [str(one.type) for one in schema.returns]
    return returned == ["Tensor"] and "device" in names and not any("Tensor" in kind for kind in kinds)


@functools.cache
def _is_composite(operator: Any) -> bool:
    """Whether torch has it made of other operators, and of nothing else."""
    import torch

    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd"))


def _own_kernel(operator: Any) -> Any:
    """The key under which somebody gave their operator a kernel for this device, or for devices of all kinds."""
    import torch

    keys = torch._C.DispatchKey
    registered = torch._C._dispatch_has_kernel_for_dispatch_key
    names = ("PrivateUse1", "CompositeExplicitAutograd")
    return next((getattr(keys, key) for key in names if registered(operator.name(), key)), None)
