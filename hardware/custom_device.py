"""Registration of a vendor's device with torch as PrivateUse1.

`register_custom_device` returns True only if a tensor was allocated on the device, computed on there and copied back
with the right values. A device of the vendor's C++ library is loaded from `backend_library`; a device with kernels in
Python has a `driver`.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import known_answer
from .errors import HwCompatError
from .privateuse1 import Driver, install, installed_name
from .target import HardwareVendor

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PrivateUse1Config:
    """How a device is registered.

    `device_name` is the name in torch, a lower-case Python identifier. `backend_library` provides the kernels: the
    path of a shared library or the name of a module; empty if the backend has a driver or the kernels are loaded.
    `enable_autograd` verifies gradients as well, `enable_compilation` torch.compile.
    """

    device_name: str
    vendor: HardwareVendor = HardwareVendor.CUSTOM_ASIC
    backend_library: str = ""
    enable_autograd: bool = True
    enable_compilation: bool = False


class CustomDeviceBackend(ABC):
    """The class that a vendor implements. After a failed registration `reason` holds the cause."""

    driver: Driver | None = None
    """The driver of a device with kernels in Python."""

    def __init__(self, name: str, vendor: HardwareVendor | str = HardwareVendor.CUSTOM_ASIC) -> None:
        self.name = name
        self.vendor = HardwareVendor(vendor)
        self.reason = ""

    @abstractmethod
    def initialize_device(self, device_id: int = 0) -> bool:
        """Initialize a device; return False if it doesn't exist. Called once for each index; a method without the
        parameter is called without it."""

    @abstractmethod
    def get_device_count(self) -> int:
        """Return the number of devices: 1 for a driver, whose tensors have no other index."""

    @abstractmethod
    def get_device_properties(self, device_id: int = 0) -> Mapping[str, Any]:
        """Return the known properties of a device, such as its name and its memory in bytes."""

    @abstractmethod
    def allocate_memory(self, size: int, device_id: int = 0) -> torch.Tensor:
        """Return `size` bytes on the device, as a uint8 tensor of shape (size,)."""

    @abstractmethod
    def copy_to_device(self, tensor: torch.Tensor, device_id: int = 0) -> torch.Tensor:
        """Return a copy of the tensor on the device; the given tensor isn't changed."""


def register_custom_device(backend: CustomDeviceBackend, config: PrivateUse1Config) -> bool:
    """Register the device with torch and return whether it computes; if not, `backend.reason` is the cause.

    Memory on the device, a copy to it, the known answer computed there and the copy back are verified; with
    `enable_autograd` a gradient, with `enable_compilation` a compiled function. Errors of the vendor's code aren't
    raised.
    """
    backend.reason = _failure(backend, config)
    if backend.reason:
        log.warning("%s isn't registered: %s", config.device_name, backend.reason)
    return not backend.reason


def _failure(backend: CustomDeviceBackend, config: PrivateUse1Config) -> str:
    steps = [_check_presence, _register, _check_copy, _check_known_answer]
    if config.enable_autograd:
        steps.append(_check_gradient)
    if config.enable_compilation:
        steps.append(_check_compilation)
    try:
        return next((reason for step in steps if (reason := step(backend, config))), "")
    except HwCompatError as error:
        return str(error)
    except Exception as error:  # the vendor's code may raise anything
        return f"{type(error).__name__}: {error}"


def _check_presence(backend: CustomDeviceBackend, config: PrivateUse1Config) -> str:
    if not config.device_name.isidentifier() or config.device_name != config.device_name.lower():
        return f"{config.device_name!r} is not a valid device name: use a lower-case identifier"
    if not _initialize(backend, 0):
        return "the device can't be initialized"
    count = backend.get_device_count()
    if count < 1:
        return f"get_device_count returned {count}"
    if count > 1 and backend.driver is not None:
        return (
            f"get_device_count returned {count}, but only one index is supported for a device with kernels in "
            "Python: return 1, or provide the kernels in a backend_library"
        )
    failed = next((index for index in range(1, count) if not _initialize(backend, index)), None)
    return "" if failed is None else f"device {failed} of {count} can't be initialized"


def _initialize(backend: CustomDeviceBackend, device_id: int) -> bool:
    parameters = inspect.signature(backend.initialize_device).parameters
    return backend.initialize_device(device_id) if parameters else backend.initialize_device()


def _register(backend: CustomDeviceBackend, config: PrivateUse1Config) -> str:
    import torch

    if backend.driver is not None:
        install(config.device_name, backend.driver)
    if config.backend_library:
        _load(config.backend_library)
    if installed_name() != config.device_name:
        return f"nothing was registered with torch under this name: PrivateUse1 is called {installed_name()}"
    if not hasattr(torch, config.device_name):
        return f"torch.{config.device_name} doesn't exist: the device's module was not registered"
    told, counted = backend.get_device_count(), getattr(torch, config.device_name).device_count()
    if told != counted:
        return f"get_device_count returned {told}, but torch.{config.device_name}.device_count() is {counted}"
    return ""


def _load(library: str) -> None:
    import torch

    if Path(library).suffix in (".so", ".dll", ".dylib"):
        torch.ops.load_library(library)
    else:
        importlib.import_module(library)


def _check_copy(backend: CustomDeviceBackend, config: PrivateUse1Config) -> str:
    """Check memory and copies of every index: each must be on the device that was asked for."""
    count = backend.get_device_count()
    return next((why for index in range(count) if (why := _copy_problem(backend, config, index))), "")


def _copy_problem(backend: CustomDeviceBackend, config: PrivateUse1Config, index: int) -> str:
    import torch

    memory = backend.allocate_memory(64, index)
    if memory.device.type != config.device_name or (memory.device.index or 0) != index:
        return f"allocate_memory for device {index} returned memory on {memory.device}"
    sent = torch.arange(8, dtype=torch.float32)
    there = backend.copy_to_device(sent, index)
    if not isinstance(there, torch.Tensor) or there.device.type != config.device_name:
        where = there.device if isinstance(there, torch.Tensor) else f"a {type(there).__name__}"
        return f"copy_to_device did nothing: its result is on {where}"
    if (there.device.index or 0) != index:
        return f"copy_to_device for device {index} returned a tensor on {there.device}"
    if not torch.equal((there + 1).cpu(), sent + 1):
        return "a tensor that was copied to the device, incremented and copied back has wrong values"
    return ""


def _check_known_answer(backend: CustomDeviceBackend, config: PrivateUse1Config) -> str:
    import torch

    left, right = (backend.copy_to_device(torch.as_tensor(array)) for array in known_answer.question())
    computed = torch.tanh(left @ right).sum(dim=0)[:3]
    if computed.device.type != config.device_name:
        return f"the result of an operation on device tensors is on {computed.device}"
    got = [float(value) for value in computed.cpu()]
    return (
        ""
        if known_answer.agrees(got)
        else f"the known-answer test returned {got}, not {list(known_answer.expected())}"
    )


def _check_gradient(backend: CustomDeviceBackend, config: PrivateUse1Config) -> str:
    import torch

    leaf = backend.copy_to_device(torch.linspace(-1, 1, 8)).requires_grad_()
    (leaf * leaf * 3).sum().backward()
    if leaf.grad is None or leaf.grad.device.type != config.device_name:
        return "a tensor on the device got no gradient"
    apart = (leaf.grad.cpu() - 6 * leaf.detach().cpu()).abs().max()
    return "" if float(apart) < 1e-3 else f"the gradient of 3 x² is off by {float(apart):.1e}"


def _check_compilation(backend: CustomDeviceBackend, config: PrivateUse1Config) -> str:
    import torch

    def shifted(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.tanh() + 1

    sent = torch.linspace(-1, 1, 8)
    got = torch.compile(shifted, fullgraph=True)(backend.copy_to_device(sent))
    if got.device.type != config.device_name:
        return f"a compiled function ran on {got.device} instead of the device"
    return "" if torch.allclose(got.cpu(), shifted(sent), atol=1e-2) else "a compiled function returned wrong values"
