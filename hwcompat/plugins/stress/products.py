"""Matrix products as a load, in one precision on one torch device, whose results are checked.

The matrices hold small whole numbers, so that float32, TF32 and int8 give the exact product in whatever order they
add: it is held against the factors on the host by Freivalds' method (R. Freivalds, "Probabilistic machines can use
less running time", 1977), without a tolerance. Half precisions are held against that product within their rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

PRECISIONS = ("float32", "tf32", "bfloat16", "float16", "int8")
EXACT = ("float32", "tf32", "int8")

_LARGEST_ENTRY = 3
SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
_ROWS = 1024
_VECTORS = 4
_FLOAT32_ERROR = 1e-5
"""Relative to the largest element of a product of 256 normal numbers: float32 gives 1e-6, TF32 and bfloat16 3e-4 and
more."""


class WrongResult(Exception):
    """The device computed something else than the product."""


class Factors:
    """Two square matrices of small whole numbers, and the vectors that their product is asked with."""

    def __init__(self, size: int) -> None:
        import numpy as np

        generator = np.random.Generator(np.random.Philox(size))
        self.left, self.right = (
            generator.integers(-_LARGEST_ENTRY, _LARGEST_ENTRY + 1, (size, size), dtype=np.int8) for _ in range(2)
        )
        self.signs = generator.choice([-1.0, 1.0], (size, _VECTORS))


def held_against(factors: Factors, rows_of: Callable[[int, int], npt.NDArray[Any]], name: str) -> None:
    """Hold a product, given by its rows from one number to another, against its factors. Raises `WrongResult`."""
    import numpy as np

    wanted = _times(factors.left, _times(factors.right, factors.signs))
    for start in range(0, len(wanted), _ROWS):
        rows = rows_of(start, start + _ROWS).astype(np.float64)
        with np.errstate(all="ignore"):
            residual = np.abs(rows @ factors.signs - wanted[start : start + _ROWS]).max()
        if residual != 0:  # NaN too
            raise WrongResult(f"the product in {name} isn't that of its factors (residual {residual:g})")


class Products:
    """Square matrices of one width on a device, and their product over and over."""

    def __init__(self, torch: Any, device: torch.device, precision: str, size: int) -> None:
        self.torch = torch
        self.device = device
        self.precision = precision
        self.size = size
        self.factors = Factors(size)
        self.dtype = torch.int8 if precision == "int8" else _dtype(precision)
        self.left, self.right = (
            torch.as_tensor(one).to(self.dtype).to(device) for one in (self.factors.left, self.factors.right)
        )
        self.product: Any = self._multiply()
        self._exact = self.product if precision in EXACT else self._exactly()

    def _multiply(self) -> Any:
        return self.torch._int_mm(self.left, self.right) if self.precision == "int8" else self.left @ self.right

    def _exactly(self) -> Any:
        """The product in float32, which is exact here and verified below."""
        return self.left.float() @ self.right.float()

    def run(self, times: int) -> None:
        """Compute the product so often; the device may still be at it afterwards."""
        if self.device.type == "simulated":  # its driver has no kernels that write into a tensor that is given
            for _ in range(times):
                self.product = self._multiply()
            return
        multiply = self.torch._int_mm if self.precision == "int8" else self.torch.mm
        for _ in range(times):
            multiply(self.left, self.right, out=self.product)

    def forget(self) -> None:
        """Spoil the product, so that one that isn't computed again is seen."""
        self.product = self.product * 0 - 1

    def check(self) -> None:
        """Hold the last product against the exact one, on the device. Raises `WrongResult`."""
        if self.product is self._exact:
            return
        exact = self._exact.float()
        error = (self.product.float() - exact).abs()
        if self.precision in EXACT:
            worst = float(error.max().cpu())
            if worst != 0:  # NaN too
                raise WrongResult(f"a product in {self.precision} is off by {worst:g}; it must be exact")
            return
        unit = float(self.torch.finfo(self.dtype).eps)
        typical = float(exact.square().mean().sqrt().cpu())
        worst = float((error - 4 * unit * (exact.abs() + typical)).max().cpu())
        if not worst <= 0:
            raise WrongResult(f"a product in {self.precision} is off by more than its rounding, by {worst:g}")

    def verify(self) -> None:
        """Hold the exact product against the factors, on the host. Raises `WrongResult`."""
        name = self.precision if self.precision in EXACT else "float32"
        held_against(self.factors, lambda start, stop: self._exact[start:stop].cpu().double().numpy(), name)

    def keep_exact(self) -> None:
        """Have a product of its own to compare with: from here on `run` writes elsewhere."""
        if self.product is self._exact:
            self.product = self._exact.clone()


def _dtype(precision: str) -> Any:
    from hardware.model.calls import torch_dtype

    return torch_dtype(precision)


def _times(matrix: npt.NDArray[Any], vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A matrix of small whole numbers with float64 vectors, exactly, without a float64 copy of the whole matrix."""
    import numpy as np

    return np.concatenate(
        [matrix[start : start + _ROWS].astype(np.float64) @ vectors for start in range(0, len(matrix), _ROWS)]
    )


def precision_error(torch: Any, device: torch.device) -> float:
    """The largest error of a float32 product of normal numbers on the device, relative to its largest element."""
    import numpy as np

    generator = np.random.Generator(np.random.Philox(0))
    left, right = (generator.standard_normal((256, 256)).astype(np.float32) for _ in range(2))
    got = (torch.as_tensor(left).to(device) @ torch.as_tensor(right).to(device)).cpu().numpy()
    exact = left.astype(np.float64) @ right.astype(np.float64)
    return float(np.abs(got - exact).max() / np.abs(exact).max())


def is_full_float32(error: float) -> bool:
    """Whether such an error is that of float32 arithmetic."""
    return error <= _FLOAT32_ERROR


def suitable(
    torch: Any,
    device: torch.device,
    precision: str,
    *,
    wait: Callable[[], None],
    heard: Callable[[int], None],
    limit_s: float,
    memory_bytes: int | None,
) -> tuple[Products, float]:
    """Products of the largest width whose one product takes less than `limit_s`, and the seconds that it takes.

    `heard` is told each width before it is tried.
    """
    heard(SIZES[0])
    chosen, seconds = _timed(Products(torch, device, precision, SIZES[0]), wait)
    for size in SIZES[1:]:
        if seconds > limit_s / 2 or (memory_bytes or 2**34) < 32 * 4 * size * size:
            break
        heard(size)
        wider, longer = _timed(Products(torch, device, precision, size), wait)
        if longer > 2 * limit_s:
            break
        chosen, seconds = wider, longer
    return chosen, seconds


def _timed(products: Products, wait: Callable[[], None]) -> tuple[Products, float]:
    """The least of three times: on a busy machine the others hold waiting."""
    times = []
    for _ in range(3):
        wait()
        started = time.perf_counter()
        products.run(1)
        wait()
        times.append(time.perf_counter() - started)
    return products, min(times)
