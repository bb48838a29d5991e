"""Devices of a load: a torch device, or a PJRT device that JAX uses in a separate environment.

Both prove that the device computed: a load that runs on the host says nothing about the device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.hardware.backends.tpu import NOT_A_TPU, TPUBackend
from hwcompat.hardware.errors import BackendUnavailable
from hwcompat.hardware.target import Target

if TYPE_CHECKING:
    import numpy.typing as npt

_PRODUCTS = ("aten.mm", "aten._int_mm", "aten.addmm")
_OF_XLA = ("float32", "bfloat16", "int8")
"""Dtypes that XLA multiplies; float32 in full, by `precision="highest"`."""


class RanElsewhere(Exception):
    """The host, or another device, ran the load instead of the device."""


class TorchDevice:
    """A torch device. Raises `BackendUnavailable` if it is absent."""

    COPY_ADDS = 0
    REFUSALS = (RuntimeError, NotImplementedError, TypeError, AttributeError)
    """Exceptions of torch for products that a device doesn't support."""

    def __init__(self, target: str) -> None:
        import torch

        from hwcompat.hardware.backends.factory import get_backend

        backend: Any = get_backend(target)
        if reason := backend.unavailable():
            raise BackendUnavailable(reason)
        self.backend = backend
        self.torch: Any = torch
        self.device = self.backend.torch_device()
        module: Any = getattr(torch, self.device.type, None)
        if self.device.index is not None and hasattr(module, "set_device"):
            module.set_device(self.device)  # synchronization is for the current device
        self.info = self.backend.get_device_info()
        self.memory_bytes: int | None = self.info.total_memory_bytes
        self.is_on_host = self.device.type == "cpu"
        self._set_arithmetic("float32")

    def identity(self) -> dict[str, Any]:
        """Return its name and version, and its identity in the list of its driver."""
        found = {
            "name": self.info.device_name,
            "index": self.device.index or 0,
            "torch": self.torch.__version__,
        }
        if self.device.type != "cuda":
            return found
        known = self.torch.cuda.get_device_properties(self.device)
        if getattr(known, "uuid", None):
            found["uuid"] = f"GPU-{known.uuid}"
        if hasattr(known, "pci_bus_id"):
            found["pci_address"] = f"{known.pci_domain_id:04x}:{known.pci_bus_id:02x}:{known.pci_device_id:02x}.0"
        return found

    def prepared(self, precision: str) -> str:
        """Set the arithmetic of products; return why there are none in this precision, empty if there are."""
        if precision not in (*self.backend.PRECISIONS, "int8"):
            return f"{self.backend.BACKEND_NAME} doesn't support {precision}"
        self._set_arithmetic(precision)
        return ""

    def _set_arithmetic(self, precision: str) -> None:
        """Set float32 in full, TF32 if requested, and sums of half precisions in float32."""
        if self.device.type == "cuda":
            matmul = self.torch.backends.cuda.matmul
            matmul.allow_tf32 = precision == "tf32"
            matmul.allow_fp16_reduced_precision_reduction = False
            matmul.allow_bf16_reduced_precision_reduction = False

    def put(self, array: npt.NDArray[Any], precision: str = "") -> Any:
        """Copy an array into the device's memory, in a precision or as it is."""
        from hwcompat.hardware.model.calls import torch_dtype

        tensor = self.torch.as_tensor(array)
        dtype = tensor.dtype if precision in ("", "int8") else torch_dtype(precision)
        return tensor.to(dtype).to(self.device)

    def multiply(self, left: Any, right: Any, out: Any = None) -> Any:
        """Return the product, written into `out` if possible."""
        multiply = self.torch._int_mm if left.dtype == self.torch.int8 else self.torch.mm
        if out is None or self.device.type == "simulated":  # its driver has no kernels that write into a tensor
            return multiply(left, right)
        return multiply(left, right, out=out)

    def copy(self, source: Any, out: Any) -> Any:
        """Copy the array into `out`."""
        return out.copy_(source)

    def wide(self, array: Any) -> Any:
        """Return the array in float32, on the device."""
        return array.float()

    def host(self, array: Any) -> npt.NDArray[Any]:
        """Return the array in float64, on the host."""
        found: npt.NDArray[Any] = array.cpu().double().numpy()
        return found

    def wait(self, result: Any) -> None:
        """Wait until all is done."""
        self.backend.synchronize()

    def prove(self, load: Any) -> None:
        """Run once under the tracers of `hardware/backends`. Raises `RanElsewhere` if the host took part.

        Uses a dispatch trace, and the profiler's records of work inside kernels, or the driver's own launch log if
        the device has one.
        """
        from hwcompat.hardware.backends._launch_log import LaunchLogBackend
        from hwcompat.hardware.backends._trace import host_calls_inside, operator_trace

        if self.is_on_host:
            return
        trace = operator_trace(self.device.type)
        has_launch_log = isinstance(self.backend, LaunchLogBackend)
        if has_launch_log:
            self.backend.ledger.clear()
        with trace:
            load.run(1)
        if has_launch_log and not any(self.backend.ledger[name] for name in _PRODUCTS):
            raise RanElsewhere("the device's driver launched no product")
        offloaded = trace.offloaded
        if not has_launch_log:  # the profiler counts the work of such a driver as the host's
            offloaded = offloaded or host_calls_inside(lambda: load.run(1), self.device.type)
        if offloaded:
            raise RanElsewhere(f"{', '.join(sorted(offloaded))} ran on the host")


class PjrtDevice:
    """The device of a target. Raises `RanElsewhere` if PJRT returns one of another kind."""

    COPY_ADDS = 1  # else XLA returns the same array
    REFUSALS: tuple[type[Exception], ...] = ()

    def __init__(self, target: str) -> None:
        asked = Target.parse(target)
        platform = TPUBackend(asked).platform
        self.is_on_host = platform == "cpu"
        self.jax: Any = importlib.import_module("jax")
        self.jax.config.update("jax_platforms", platform)
        self.device: Any = self.jax.devices()[asked.index or 0]
        if self.device.platform != platform:
            raise RanElsewhere(f"PJRT returned a {self.device.platform} device instead of {platform}")
        self.memory_bytes: int | None = (self.device.memory_stats() or {}).get("bytes_limit")
        jnp = self.jax.numpy
        wider = {jnp.dtype("int8"): jnp.int32}
        self._product = self.jax.jit(
            lambda left, right: jnp.matmul(
                left, right, precision="highest", preferred_element_type=wider.get(left.dtype)
            )
        )
        self._copied = self.jax.jit(lambda source: source + self.COPY_ADDS)

    def identity(self) -> dict[str, Any]:
        """Return PJRT's own name of the device, and JAX's version; an emulated TPU is named as such."""
        name = NOT_A_TPU if self.is_on_host else str(self.device.device_kind)
        return {"name": name, "index": self.device.id, "jax": self.jax.__version__}

    def prepared(self, precision: str) -> str:
        """Return why there are no products in this precision; empty if there are."""
        return "" if precision in _OF_XLA else f"tpu doesn't support {precision}"

    def put(self, array: npt.NDArray[Any], precision: str = "") -> Any:
        """Copy an array into the device's memory, in a precision or as it is."""
        return self.jax.device_put(self.jax.numpy.asarray(array).astype(precision or array.dtype), self.device)

    def multiply(self, left: Any, right: Any, out: Any = None) -> Any:
        """Return the product, in an array of its own."""
        return self._product(left, right)

    def copy(self, source: Any, out: Any) -> Any:
        """Return the array with `COPY_ADDS` added to each element, in an array of its own."""
        return self._copied(source)

    def wide(self, array: Any) -> Any:
        """Return the array in float32, on the device."""
        return array.astype("float32")

    def host(self, array: Any) -> npt.NDArray[Any]:
        """Return the array in float64, on the host."""
        return np.asarray(array).astype(np.float64)

    def wait(self, result: Any) -> None:
        """Wait until a result is there."""
        result.block_until_ready()

    def prove(self, load: Any) -> None:
        """Raise `RanElsewhere` if a result isn't on the device."""
        places = load.result.devices()
        if places != {self.device}:
            raise RanElsewhere(f"a result is on {', '.join(map(str, places))} instead of {self.device}")
