"""Work whose results are checked: matrix products and copies on a device, STREAM's kernels in main memory.

The matrices hold small whole numbers, so that float32, TF32 and int8 compute the exact product in any order of
additions. The host verifies it without a tolerance by Freivalds' method (R. Freivalds, "Probabilistic machines can
use less running time", 1977). Half precisions are compared with that product within their rounding.

Kernels of main memory and the counting of bytes are those of STREAM (J. D. McCalpin, "Memory Bandwidth and Machine
Balance in Current High Performance Computers", 1995), in float64; arrays are at least four times the caches, as its
rules require.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from .load_devices import PjrtDevice, TorchDevice
    from .tensorflow_device import TensorflowDevice

    LoadDevice = TorchDevice | PjrtDevice | TensorflowDevice

PRECISIONS = ("float32", "tf32", "bfloat16", "float16", "int8")
KERNELS = {"triad": 3, "copy": 2, "scale": 2, "add": 3}
"""The number of arrays that a kernel of STREAM reads or writes; `triad` is the one that is sustained."""

_FLOPS_OF_PRODUCT = 2  # a multiplication and an addition
_ROUNDING = {"bfloat16": 2.0**-7, "float16": 2.0**-10}
"""The distance from 1 to the next number."""

_LARGEST_ENTRY = 3
_SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
_ROWS = 1024
_VECTORS = 4
_FLOAT32_ERROR = 1e-5
"""Relative to the largest element of a product of 256 normal numbers: float32 gives 1e-6, TF32 and bfloat16 3e-4 and
more."""

_LEAST_STREAM_BYTES = 2**27
_CHUNK = 2**20
_COPY_BYTES = tuple(4**power for power in range(11, 16))


class WrongResult(Exception):
    """The device computed wrong numbers."""


class StressLoad(ABC):
    """One kind of work: the amount of a call (`work` in `unit`), and how to run and check it."""

    name: str
    work: float
    unit: str

    @abstractmethod
    def run(self, times: int) -> None:
        """Run it `times` times; the device may still be busy afterwards."""

    @abstractmethod
    def forget(self) -> None:
        """Overwrite the result, so that a skipped computation is detected."""

    @abstractmethod
    def check(self) -> None:
        """Compare the last result with the expected one. Raises `WrongResult`."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until the last result is computed."""


class Products(StressLoad):
    """Repeated products of square matrices of one width on a device."""

    unit = "operations"

    def __init__(self, on: LoadDevice, precision: str, size: int) -> None:
        generator = np.random.Generator(np.random.Philox(size))
        self.factors = [
            generator.integers(-_LARGEST_ENTRY, _LARGEST_ENTRY + 1, (size, size), dtype=np.int8) for _ in range(2)
        ]
        self._signs = generator.choice([-1.0, 1.0], (size, _VECTORS))
        self.on, self.name, self.size = on, precision, size
        self.work = float(_FLOPS_OF_PRODUCT) * size**3
        self._left, self._right = (on.put(one, precision) for one in self.factors)
        self.exact = on.multiply(on.wide(self._left), on.wide(self._right))
        self.result = on.multiply(self._left, self._right)

    def run(self, times: int) -> None:
        for _ in range(times):
            self.result = self.on.multiply(self._left, self._right, self.result)

    def wait(self) -> None:
        self.on.wait(self.result)

    def forget(self) -> None:
        self.result = self.result * 0 - 1

    def check(self) -> None:
        error = abs(self.on.wide(self.result) - self.exact)
        if unit := _ROUNDING.get(self.name):
            error = error - 4 * unit * (abs(self.exact) + (self.exact * self.exact).mean() ** 0.5)
        worst = float(self.on.host(error.max()))
        if not worst <= 0:  # NaN too
            raise WrongResult(f"a product in {self.name} exceeds the tolerance by {worst:g}")

    def verify(self) -> None:
        """Compare the exact product with the factors, on the host. Raises `WrongResult`."""
        left, right = self.factors
        wanted = _times(left, _times(right, self._signs))
        for start in range(0, self.size, _ROWS):
            rows = self.on.host(self.exact[start : start + _ROWS])
            with np.errstate(all="ignore"):
                residual = np.abs(rows @ self._signs - wanted[start : start + _ROWS]).max()
            if residual != 0:  # NaN too
                raise WrongResult(
                    f"a product in {self.name} isn't the product of its factors (residual {residual:g})"
                )


def _times(matrix: npt.NDArray[Any], vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Multiply a matrix of small integers with float64 vectors, exactly, without a float64 copy of it all."""
    return np.concatenate(
        [matrix[start : start + _ROWS].astype(np.float64) @ vectors for start in range(0, len(matrix), _ROWS)]
    )


class Copy(StressLoad):
    """Repeated copies of an array in a device's own memory."""

    name, unit = "copy", "bytes"

    def __init__(self, on: LoadDevice, array_bytes: int) -> None:
        count = array_bytes // 4
        self.array_bytes = count * 4
        self.work = 2.0 * self.array_bytes
        self.on = on
        self._source = on.put(np.arange(count, dtype=np.int32))
        self.result = on.copy(self._source, self._source * 0)

    def run(self, times: int) -> None:
        for _ in range(times):
            self.result = self.on.copy(self._source, self.result)

    def wait(self) -> None:
        self.on.wait(self.result)

    def forget(self) -> None:
        self.result = self.result * 0 - 1

    def check(self) -> None:
        wrong = int(self.on.host((self.result != self._source + self.on.COPY_ADDS).sum()))
        if wrong:
            raise WrongResult(f"a copy in the device's memory has {wrong} wrong elements")


class Stream(StressLoad):
    """Three arrays in main memory: a, b and c, of small integers, so that every sum is exact."""

    unit = "bytes"

    def __init__(self, array_bytes: int) -> None:
        import torch

        count = array_bytes // 8
        self.array_bytes = count * 8
        numbers = torch.arange(count, dtype=torch.float64)
        self.a, self.b, self.c = torch.zeros(count, dtype=torch.float64), numbers % 1021, numbers % 509
        self._factor = 3.0
        self.use("triad")

    def use(self, kernel: str) -> None:
        """Select the kernel of the next runs."""
        self.name = kernel
        self.work = float(KERNELS[kernel] * self.array_bytes)

    def run(self, times: int) -> None:
        """Run the kernel `times` times. Every call has another factor, so that an old result is detected."""
        import torch

        self._factor = 5.0 if self._factor == 3.0 else 3.0
        a, b, c, factor = self.a, self.b, self.c, self._factor
        run: Callable[[], Any] = {
            "copy": lambda: a.copy_(b),
            "scale": lambda: torch.mul(c, factor, out=a),
            "add": lambda: torch.add(b, c, out=a),
            "triad": lambda: torch.add(b, c, alpha=factor, out=a),
        }[self.name]
        for _ in range(times):
            run()

    def wait(self) -> None:
        return  # kernels of the processor are synchronous

    def forget(self) -> None:
        self.a.fill_(-1.0)

    def check(self) -> None:
        """Compare the last result with NumPy's. Raises `WrongResult`."""
        for start in range(0, len(self.a), _CHUNK):
            a, b, c = (one[start : start + _CHUNK].numpy() for one in (self.a, self.b, self.c))
            if not np.array_equal(a, self._wanted(b, c)):
                raise WrongResult(f"STREAM's {self.name} is wrong between elements {start} and {start + _CHUNK}")

    def _wanted(self, b: npt.NDArray[Any], c: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.name == "copy":
            return b
        scaled = c if self.name == "add" else self._factor * c
        return scaled if self.name == "scale" else b + scaled


def stream_bytes(cache_bytes: int, available_bytes: int) -> tuple[int, str]:
    """Return bytes for each of the three arrays, and a remark if memory is too small for STREAM's rules."""
    wanted = max(4 * cache_bytes, _LEAST_STREAM_BYTES)
    most = available_bytes // 8
    if wanted <= most:
        return wanted, ""
    return most, "the arrays are less than four times the caches: there isn't enough memory"


def product_sizes(memory_bytes: int | None) -> list[int]:
    """Return widths of matrices that fit into memory with their products; always includes the first."""
    return [one for one in _SIZES if one == _SIZES[0] or 32 * 4 * one * one <= (memory_bytes or 2**34)]


def copy_sizes(memory_bytes: int | None) -> list[int]:
    """Return bytes of arrays of up to 1 GiB and a sixteenth of the memory; always includes the first."""
    return [one for one in _COPY_BYTES if one == _COPY_BYTES[0] or one <= (memory_bytes or 2**30) // 16]


Made = TypeVar("Made", bound=StressLoad)


def suitable(make: Callable[[int], Made], sizes: Iterable[int], limit_s: float) -> tuple[Made, float]:
    """Return the load of the largest size whose call takes less than `limit_s`, and the seconds of a call."""
    chosen: tuple[Made, float] | None = None
    for size in sizes:
        if chosen is not None and chosen[1] > limit_s / 2:
            break
        made = make(size)
        seconds = least_seconds(made)
        if chosen is not None and seconds > 2 * limit_s:
            break
        chosen = made, seconds
    assert chosen is not None
    return chosen


def least_seconds(load: StressLoad) -> float:
    """Return the shortest of three durations of one call: on a busy machine the others include waiting."""
    times = []
    for _ in range(3):
        load.wait()
        started = time.perf_counter()
        load.run(1)
        load.wait()
        times.append(time.perf_counter() - started)
    return min(times)


def require_full_float32(on: LoadDevice) -> None:
    """Compare a float32 product of normal numbers on the device with NumPy's. Raises `WrongResult` if it has fewer
    bits than float32 has."""
    generator = np.random.Generator(np.random.Philox(0))
    left, right = (generator.standard_normal((256, 256)).astype(np.float32) for _ in range(2))
    got = on.host(on.multiply(on.put(left, "float32"), on.put(right, "float32")))
    exact = left.astype(np.float64) @ right.astype(np.float64)
    error = float(np.abs(got - exact).max() / np.abs(exact).max())
    if not error <= _FLOAT32_ERROR:
        raise WrongResult(
            f"a float32 product has a relative error of {error:.1e}: the device computed with fewer bits"
        )
