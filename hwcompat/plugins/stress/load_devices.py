"""What a load computes on: a device that torch reaches, or one of PJRT's that JAX does in an environment of its own.

Both prove that they computed: a load that the host carries out says nothing of the device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from hardware.backends.tpu import NOT_A_TPU, TPUBackend
from hardware.errors import BackendUnavailable
from hardware.target import Target

if TYPE_CHECKING:
    import numpy.typing as npt

_PRODUCTS = ("aten.mm", "aten._int_mm", "aten.addmm")
_OF_XLA = ("float32", "bfloat16", "int8")
"""What XLA multiplies; float32 in full, as `precision="highest"` asks for."""


class RanElsewhere(Exception):
    """The host, or another device, carried out what the device was asked for."""


class TorchDevice:
    """A device of torch's. Raises `BackendUnavailable` where it isn't here."""

    COPY_ADDS = 0
    REFUSALS = (RuntimeError, NotImplementedError, TypeError, AttributeError)
    """What torch raises for products that a device hasn't."""

    def __init__(self, target: str) -> None:
        import torch

        from hardware.backends.factory import get_backend

        backend: Any = get_backend(target)
        if reason := backend.unavailable():
            raise BackendUnavailable(reason)
        self.backend = backend
        self.torch: Any = torch
        self.device = self.backend.torch_device()
        module: Any = getattr(torch, self.device.type, None)
        if self.device.index is not None and hasattr(module, "set_device"):
            module.set_device(self.device)  # what waits for a device waits for the one that is set
        self.info = self.backend.get_device_info()
        self.memory_bytes: int | None = self.info.total_memory_bytes
        self.is_on_host = self.device.type == "cpu"
        self._set_arithmetic("float32")

    def told(self) -> dict[str, Any]:
        """Its name and version, and what tells it among those that its driver lists."""
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
        """Set the arithmetic of products up; returns why there are none in this precision, empty where there are."""
        if precision not in (*self.backend.PRECISIONS, "int8"):
            return f"{self.backend.BACKEND_NAME} has no {precision}"
        self._set_arithmetic(precision)
        return ""

    def _set_arithmetic(self, precision: str) -> None:
        """float32 in full, TF32 where it was asked for, and sums of half precisions in float32."""
        if self.device.type == "cuda":
            matmul = self.torch.backends.cuda.matmul
            matmul.allow_tf32 = precision == "tf32"
            matmul.allow_fp16_reduced_precision_reduction = False
            matmul.allow_bf16_reduced_precision_reduction = False

    def put(self, array: npt.NDArray[Any], precision: str = "") -> Any:
        """An array in the device's memory, in a precision or as it is."""
        from hardware.model.calls import torch_dtype

        tensor = self.torch.as_tensor(array)
        dtype = tensor.dtype if precision in ("", "int8") else torch_dtype(precision)
        return tensor.to(dtype).to(self.device)

    def multiply(self, left: Any, right: Any, out: Any = None) -> Any:
        """The product; where it may be, it is written into `out`."""
        multiply = self.torch._int_mm if left.dtype == self.torch.int8 else self.torch.mm
        if out is None or self.device.type == "simulated":  # its driver has no kernels that write into a tensor
            return multiply(left, right)
        return multiply(left, right, out=out)

    def copy(self, source: Any, out: Any) -> Any:
        """The array, written into `out`."""
        return out.copy_(source)

    def wide(self, array: Any) -> Any:
        """The array in float32, on the device."""
        return array.float()

    def host(self, array: Any) -> npt.NDArray[Any]:
        """The array in float64, on the host."""
        found: npt.NDArray[Any] = array.cpu().double().numpy()
        return found

    def wait(self, result: Any) -> None:
        """Until all is done."""
        self.backend.synchronize()

    def prove(self, load: Any) -> None:
        """Run once under the tracers of `hardware/backends`. Raises `RanElsewhere` where the host took part.

        A dispatch trace, and the profiler's records of what kernels did inside themselves, or the driver's own ledger
        where the device has one.
        """
        from hardware.backends._launch_log import LaunchLogBackend
        from hardware.backends._trace import host_calls_inside, operator_trace

        if self.is_on_host:
            return
        trace = operator_trace(self.device.type)
        has_ledger = isinstance(self.backend, LaunchLogBackend)
        if has_ledger:
            self.backend.ledger.clear()
        with trace:
            load.run(1)
        if has_ledger and not any(self.backend.ledger[name] for name in _PRODUCTS):
            raise RanElsewhere("the device's driver launched no product")
        offloaded = trace.offloaded
        if not has_ledger:  # the profiler takes what such a driver does for the host's work
            offloaded = offloaded or host_calls_inside(lambda: load.run(1), self.device.type)
        if offloaded:
            raise RanElsewhere(f"{', '.join(sorted(offloaded))} ran on the host")


class PjrtDevice:
    """The device that a target means, and no other. Raises `RanElsewhere` where PJRT gives one of another kind."""

    COPY_ADDS = 1  # else XLA hands the same array back
    REFUSALS: tuple[type[Exception], ...] = ()

    def __init__(self, target: str) -> None:
        asked = Target.parse(target)
        platform = TPUBackend(asked).platform
        self.is_on_host = platform == "cpu"
        self.jax: Any = importlib.import_module("jax")
        self.jax.config.update("jax_platforms", platform)
        self.device: Any = self.jax.devices()[asked.index or 0]
        if self.device.platform != platform:
            raise RanElsewhere(f"PJRT gives {self.device.platform} where {platform} was asked for")
        self.memory_bytes: int | None = (self.device.memory_stats() or {}).get("bytes_limit")
        jnp = self.jax.numpy
        wider = {jnp.dtype("int8"): jnp.int32}
        self._product = self.jax.jit(
            lambda left, right: jnp.matmul(
                left, right, precision="highest", preferred_element_type=wider.get(left.dtype)
            )
        )
        self._copied = self.jax.jit(lambda source: source + self.COPY_ADDS)

    def told(self) -> dict[str, Any]:
        """PJRT's own name of the device, and JAX's version; what stands in for a TPU is called so."""
        name = NOT_A_TPU if self.is_on_host else str(self.device.device_kind)
        return {"name": name, "index": self.device.id, "jax": self.jax.__version__}

    def prepared(self, precision: str) -> str:
        """Why there are no products in this precision; empty where there are."""
        return "" if precision in _OF_XLA else f"tpu has no {precision}"

    def put(self, array: npt.NDArray[Any], precision: str = "") -> Any:
        """An array in the device's memory, in a precision or as it is."""
        return self.jax.device_put(self.jax.numpy.asarray(array).astype(precision or array.dtype), self.device)

    def multiply(self, left: Any, right: Any, out: Any = None) -> Any:
        """The product, in an array of its own."""
        return self._product(left, right)

    def copy(self, source: Any, out: Any) -> Any:
        """The array with `COPY_ADDS` added to each element, in an array of its own."""
        return self._copied(source)

    def wide(self, array: Any) -> Any:
        """The array in float32, on the device."""
        return array.astype("float32")

    def host(self, array: Any) -> npt.NDArray[Any]:
        """The array in float64, on the host."""
        return np.asarray(array).astype(np.float64)

    def wait(self, result: Any) -> None:
        """Until a result is there."""
        result.block_until_ready()

    def prove(self, load: Any) -> None:
        """Raises `RanElsewhere` where a result doesn't lie on the device."""
        places = load.result.devices()
        if places != {self.device}:
            raise RanElsewhere(f"a result lies on {', '.join(map(str, places))}, not on {self.device}")
