"""Products and copies on a PJRT device through JAX: the load of target `tpu`, in the Python of its environment.

The factors and what they are held against are those of `products.py`.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hardware.backends.tpu import NOT_A_TPU, TPUBackend
from hardware.target import Target

from .execution_proof import RanElsewhere
from .products import SIZES, Factors, WrongResult, held_against

if TYPE_CHECKING:
    import numpy.typing as npt

PRECISIONS = ("float32", "bfloat16", "int8")
"""What XLA multiplies; float32 in full, as `precision="highest"` asks for."""

_COPY_BYTES = 2**28


class PjrtDevice:
    """The device that a target means, and no other. Raises `RanElsewhere` where PJRT gives one of another kind."""

    def __init__(self, target: str) -> None:
        asked = Target.parse(target)
        self.platform = TPUBackend(asked).platform
        self.jax = importlib.import_module("jax")
        self.jax.config.update("jax_platforms", self.platform)
        self.device = self.jax.devices()[asked.index or 0]
        if self.device.platform != self.platform:
            raise RanElsewhere(f"PJRT gives {self.device.platform} where {self.platform} was asked for")

    @property
    def name(self) -> str:
        """PJRT's own name of the device; what stands in for one is called so."""
        return NOT_A_TPU if self.platform == "cpu" else str(self.device.device_kind)

    @property
    def memory_bytes(self) -> int | None:
        """What a program may use of its memory, where PJRT tells."""
        told = self.device.memory_stats() or {}
        return told.get("bytes_limit")

    def put(self, array: npt.NDArray[Any], dtype: Any) -> Any:
        """An array in the device's memory."""
        return self.jax.device_put(self.jax.numpy.asarray(array).astype(dtype), self.device)

    def prove(self, result: Any) -> None:
        """Raises `RanElsewhere` where a result doesn't lie on the device."""
        if result.devices() != {self.device}:
            raise RanElsewhere(f"a product lies on {', '.join(map(str, result.devices()))}, not on {self.device}")


class JaxProducts:
    """Square matrices of one width, and their product over and over, as `Products` has them for torch."""

    def __init__(self, on: PjrtDevice, precision: str, size: int) -> None:
        jnp = on.jax.numpy
        self.precision, self.size = precision, size
        self.factors = Factors(size)
        self._jnp = jnp
        self.dtype = jnp.dtype(precision)
        gives = jnp.int32 if precision == "int8" else self.dtype
        self.left, self.right = (on.put(one, self.dtype) for one in (self.factors.left, self.factors.right))
        self._multiply = on.jax.jit(
            lambda left, right: jnp.matmul(left, right, precision="highest", preferred_element_type=gives)
        )
        exactly = on.jax.jit(lambda left, right: jnp.matmul(left, right, precision="highest"))
        wide = (one.astype(jnp.float32) for one in (self.left, self.right))
        self._exact = exactly(*wide)
        self.product = self._multiply(self.left, self.right)
        on.prove(self.product)

    def run(self, times: int) -> None:
        """Compute the product so often; the device may still be at it afterwards."""
        for _ in range(times):
            self.product = self._multiply(self.left, self.right)

    def wait(self) -> None:
        """Until the last product is there."""
        self.product.block_until_ready()

    def forget(self) -> None:
        """Spoil the product, so that one that isn't computed again is seen."""
        self.product = self.product * 0 - 1

    def check(self) -> None:
        """Hold the last product against the exact one, on the device. Raises `WrongResult`."""
        error = self._jnp.abs(self.product.astype(self._jnp.float32) - self._exact)
        allowed = 0.0
        if self.precision == "bfloat16":
            unit = float(self._jnp.finfo(self.dtype).eps)
            typical = self._jnp.sqrt(self._jnp.mean(self._jnp.square(self._exact)))
            allowed = 4 * unit * (self._jnp.abs(self._exact) + typical)
        worst = float((error - allowed).max())
        if not worst <= 0:
            raise WrongResult(f"a product in {self.precision} is off by {worst:g} more than it may be")

    def verify(self) -> None:
        """Hold the exact product against the factors, on the host. Raises `WrongResult`."""
        held_against(self.factors, lambda start, stop: np.asarray(self._exact[start:stop]), "float32")


class JaxCopy:
    """An array in the device's memory, written anew with each of its elements plus one."""

    def __init__(self, on: PjrtDevice, array_bytes: int) -> None:
        count = array_bytes // 4
        self.array_bytes = count * 4
        self.source = on.put(np.arange(count, dtype=np.int32), np.int32)
        self._write = on.jax.jit(lambda source: source + 1)
        self.result = self._write(self.source)
        on.prove(self.result)

    def run(self, times: int) -> None:
        """Write so often; the device may still be at it afterwards."""
        for _ in range(times):
            self.result = self._write(self.source)

    def wait(self) -> None:
        """Until the last write is done."""
        self.result.block_until_ready()

    def forget(self) -> None:
        """Spoil the result, so that one that isn't written again is seen."""
        self.result = self.result * 0 - 1

    def check(self) -> None:
        """Hold the result against what was to be written. Raises `WrongResult`."""
        wrong = int((self.result != self.source + 1).sum())
        if wrong:
            raise WrongResult(f"a copy in the device's memory has {wrong} wrong elements")


def suitable_products(
    on: PjrtDevice, precision: str, *, heard: Callable[..., None], limit_s: float
) -> tuple[JaxProducts, float]:
    """Products of the largest width whose one product takes less than `limit_s`, and the seconds that it takes."""
    chosen: tuple[JaxProducts, float] | None = None
    for size in SIZES:
        if chosen is not None and (chosen[1] > limit_s / 2 or (on.memory_bytes or 2**34) < 32 * 4 * size * size):
            break
        heard(size=size)
        made = JaxProducts(on, precision, size)
        seconds = _least(made.run, made.wait)
        if chosen is not None and seconds > 2 * limit_s:
            break
        chosen = made, seconds
    assert chosen is not None
    return chosen


def copy_on(on: PjrtDevice) -> tuple[JaxCopy, float]:
    """A copy of up to 256 MiB, and the seconds that one takes."""
    made = JaxCopy(on, min(_COPY_BYTES, (on.memory_bytes or 2**30) // 16))
    return made, _least(made.run, made.wait)


def _least(run: Callable[[int], None], wait: Callable[[], None]) -> float:
    """The least of three times: on a busy machine the others hold waiting."""
    times = []
    for _ in range(3):
        wait()
        started = time.perf_counter()
        run(1)
        wait()
        times.append(time.perf_counter() - started)
    return min(times)
