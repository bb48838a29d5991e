"""A torch device implemented in Python: the dispatch key PrivateUse1, with tensors in the memory of a driver.

For torch the device is real: tensors report it, factories and modules use it, and mixing devices is an error. Every
operator ends in the driver's `launch`, which takes and returns tensors in device memory. A process can have one such
device and can't remove it, because torch renames the key only once.

Source of the calls: torch.utils.backend_registration of torch 2.13; the part for Python exists since torch 2.9.
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
"""Operators whose indices may be on the host, as for CUDA: torch moves them."""
_CHANGING_SHAPE = frozenset({"aten::resize_", "aten::set_", "aten::squeeze_", "aten::t_", "aten::transpose_"})
"""Operators that change the shape of a tensor in place, which its wrapper can't follow."""
_CALLED_BENEATH = ("_copy_from", "_to_copy", "copy_", "_local_scalar_dense")
"""Copies, and operators that torch's own code calls without checking for a subclass: `torch.tensor([one])` and
`x[indices] = one` read numbers with them."""


class Driver(Protocol):
    """The part that computes, and the only one that accesses device memory."""

    def has_kernel(self, name: str) -> bool:
        """Return whether the device computes an operator, such as `aten::addmm`."""

    def launch(self, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Compute one operator on tensors in device memory and return tensors in device memory."""


def installed_name() -> str:
    """Return the name of PrivateUse1 in this process, `privateuseone` unless it was renamed."""
    import torch

    return str(torch._C._get_privateuse1_backend_name())


def install(name: str, driver: Driver) -> None:
    """Register a device called `name` whose operators `driver` computes.

    Registering the same name again replaces the driver. Raises `BackendUnavailable` if torch is older than 2.9 or the
    process has another PrivateUse1 device.
    """
    import torch

    # Parameters of a module are swapped with those on the device, which keeps tied weights tied.
    swap = torch.__future__.set_swap_module_params_on_conversion
    found = _installed.get(name)
    if found is not None:
        found.driver = driver
        swap(True)
        return
    taken = installed_name()
    if taken != "privateuseone" or hasattr(torch, name):
        raise BackendUnavailable(
            f"can't register a device {name} with torch",
            why=f"this process already has a device {taken if taken != 'privateuseone' else name}",
            fix="Register it in a separate process.",
        )
    try:
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as set_up
    except ImportError as error:
        raise BackendUnavailable(
            f"can't register a device {name} with torch",
            why=f"torch {torch.__version__} doesn't support devices written in Python",
            fix="Install torch 2.9 or later.",
        ) from error
    set_up(name, backend_module=device_module(name))
    atexit.register(time.sleep, _LETTING_GO_S)
    swap(True)
    _installed[name] = _Device(name, driver)


_installed: dict[str, _Device] = {}

_LETTING_GO_S = 0.1
"""Seconds for which a process releases the interpreter before it ends. The thread of autograd drops the last
gradient, a Python object, after `backward` has returned, and a process that ends at that moment is aborted
(pytorch/pytorch#190489)."""


def device_module(name: str) -> SimpleNamespace:
    """Return the module `torch.<name>`: the functions that torch and its users call on a device's module."""
    import torch

    def must_be_there(device: Any = None) -> None:
        if device is not None and (torch.device(device).index or 0 if not isinstance(device, int) else device):
            raise RuntimeError(f"the only {name} device is {name}:0")

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
    """The tensors of one device, and the kernels that create them."""

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
        def create(*args: Any, **kwargs: Any) -> Any:
            self._refuse_index(kwargs.get("device"))
            return self.run(operator, args, {**kwargs, "device": self.place})

        return create

    def _kernel(self, operator: Any) -> Any:
        return lambda *args, **kwargs: self.run(operator, args, kwargs)

    def run(self, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one operator on tensors of this device (and of the host, if it copies) and return tensors of this
        device."""
        import torch
        from torch.utils._pytree import tree_leaves, tree_map

        if _is_composite(operator):  # inside a custom operator torch passes it undecomposed
            return operator.decompose(*args, **kwargs)
        name = operator._schema.name
        if not name.startswith("aten::") and not self.driver.has_kernel(name) and (key := _own_kernel(operator)):
            return operator._op_dk(key, *args, **kwargs)  # decomposed into operators that are dispatched here
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        self._refuse(name, args, tensors)
        wished = kwargs.get("device")
        self._refuse_index(wished)
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
            known = wrapped.get(id(value))  # in place or `out=`: return the same tensor
            return known if known is not None else self.tensor(value) if stays else value

        return tree_map(again, result)

    def _refuse_index(self, wished: Any) -> None:
        """Refuse another index of this device: its driver has one."""
        import torch

        place = None if wished is None else torch.device(wished)
        if place is not None and place.type == self.name and place.index not in (None, self.place.index):
            raise RuntimeError(f"there is no {place}: the only {self.name} device is {self.place}")

    def _refuse(self, name: str, args: tuple[Any, ...], tensors: list[torch.Tensor]) -> None:
        if name in _CHANGING_SHAPE or not self.driver.has_kernel(name):
            raise NotImplementedError(f"{self.name} has no kernel for {name}")
        if name in _CROSSING or not any(map(self._is_here, tensors)):
            return
        if name in _PLACED:
            places = {id(one) for one in args[1]}
            tensors = [one for one in tensors if id(one) not in places]
        # As on other devices, a number in a tensor without dimensions may be on the host.
        for tensor in tensors:
            if tensor.dim() > 0 and not self._is_here(tensor):
                raise RuntimeError(
                    f"all tensors must be on one device, but {name} got {self.place} and {tensor.device}"
                )

    def _is_here(self, value: Any) -> bool:
        return isinstance(value, self.tensor)


def _tensor_class(device: _Device) -> Any:
    import torch

    class DeviceTensor(torch.Tensor):  # type: ignore[misc] # torch is Any to mypy
        """A tensor on the device; `raw` is its data there."""

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
            return self.cpu().tolist()  # torch can't read a subclass

        @property
        def data(self) -> Any:
            return torch.Tensor.data.__get__(self)

        @data.setter
        def data(self, other: Any) -> None:
            torch.Tensor.data.__set__(self, other)
            self.raw = other.raw  # torch takes over the shape of the other tensor, but not its data

        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            copied = type(self)(self.raw.clone(), self.requires_grad)
            memo[id(self)] = copied
            return copied

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return device.run(func, args, kwargs or {})

    return DeviceTensor


def _factories() -> Iterator[Any]:
    """Yield every operator that creates a tensor: it takes a device and no tensor."""
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
    """Return whether torch implements it only by other operators."""
    import torch

    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd"))


def _own_kernel(operator: Any) -> Any:
    """Return the key under which a custom operator has a kernel for this device, or for all kinds of devices."""
    import torch

    keys = torch._C.DispatchKey
    registered = torch._C._dispatch_has_kernel_for_dispatch_key
    names = ("PrivateUse1", "CompositeExplicitAutograd")
    return next((getattr(keys, key) for key in names if registered(operator.name(), key)), None)
