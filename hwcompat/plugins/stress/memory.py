"""Memory traffic as a load: STREAM's four kernels in main memory, a copy in a device's own, both checked.

Kernels and counting of bytes are those of STREAM (J. D. McCalpin, "Memory Bandwidth and Machine Balance in Current
High Performance Computers", 1995), in float64; arrays are at least four times the caches, as its rules ask for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .products import WrongResult

if TYPE_CHECKING:
    import torch

KERNELS = {"triad": 3, "copy": 2, "scale": 2, "add": 3}
"""Arrays that a kernel reads or writes; `triad` is the one that is sustained."""

_LEAST_BYTES = 2**27
_CHUNK = 2**20
_COPY_BYTES = 2**30


class Stream:
    """Three arrays in main memory: a, b and c, of small whole numbers, so that every sum is exact."""

    def __init__(self, torch: Any, array_bytes: int) -> None:
        self.torch = torch
        count = array_bytes // 8
        self.array_bytes = count * 8
        numbers = torch.arange(count, dtype=torch.float64)
        self.b = numbers % 1021
        self.c = numbers % 509
        self.a = torch.zeros(count, dtype=torch.float64)
        self._factor = 3.0
        self._last = ""

    def run(self, kernel: str, times: int) -> None:
        """Run a kernel so often. Every call takes another factor, so that a result that is left over is seen."""
        self._factor = 5.0 if self._factor == 3.0 else 3.0
        self._last = kernel
        torch, factor = self.torch, self._factor
        run: Callable[[], Any] = {
            "copy": lambda: self.a.copy_(self.b),
            "scale": lambda: torch.mul(self.c, factor, out=self.a),
            "add": lambda: torch.add(self.b, self.c, out=self.a),
            "triad": lambda: torch.add(self.b, self.c, alpha=factor, out=self.a),
        }[kernel]
        for _ in range(times):
            run()

    def forget(self) -> None:
        """Spoil the result, so that one that isn't computed again is seen."""
        self.a.fill_(-1.0)

    def check(self) -> None:
        """Hold the last result against NumPy's. Raises `WrongResult`."""
        import numpy as np

        a, b, c = (one.numpy() for one in (self.a, self.b, self.c))
        for start in range(0, len(a), _CHUNK):
            part = slice(start, start + _CHUNK)
            wanted = {
                "copy": lambda part=part: b[part],
                "scale": lambda part=part: self._factor * c[part],
                "add": lambda part=part: b[part] + c[part],
                "triad": lambda part=part: b[part] + self._factor * c[part],
            }[self._last]()
            if not np.array_equal(a[part], wanted):
                raise WrongResult(f"STREAM's {self._last} is wrong between elements {start} and {start + _CHUNK}")


def stream_bytes(cache_bytes: int, available_bytes: int) -> tuple[int, str]:
    """Bytes for each of the three arrays, and a remark where memory doesn't hold as many as STREAM asks for."""
    wanted = max(4 * cache_bytes, _LEAST_BYTES)
    most = available_bytes // 8
    if wanted <= most:
        return wanted, ""
    return most, "the arrays are less than four times the caches: there isn't enough memory"


class DeviceCopy:
    """Two buffers in a device's own memory, copied from one to the other."""

    def __init__(self, torch: Any, device: torch.device, array_bytes: int) -> None:
        self.torch = torch
        count = array_bytes // 4
        self.array_bytes = count * 4
        self.source = torch.arange(count, dtype=torch.int32).to(device)
        self.result = self.source * 0

    def run(self, times: int) -> None:
        """Copy so often; the device may still be at it afterwards."""
        for _ in range(times):
            self.result.copy_(self.source)

    def forget(self) -> None:
        """Spoil the copy, so that one that isn't made again is seen."""
        self.result = self.result * 0 - 1

    def check(self) -> None:
        """Hold the copy against what was copied. Raises `WrongResult`."""
        wrong = int((self.result != self.source).sum().cpu())
        if wrong:
            raise WrongResult(f"a copy in the device's memory has {wrong} wrong elements")


def suitable_copy(
    torch: Any, device: torch.device, *, wait: Callable[[], None], limit_s: float, memory_bytes: int | None
) -> tuple[DeviceCopy, float]:
    """Buffers of up to 1 GiB, fewer where memory or time are short, and the seconds of one copy."""
    most = min(_COPY_BYTES, (memory_bytes or 2**30) // 16)
    size, seconds = 2**22, 0.0
    while True:
        made = DeviceCopy(torch, device, size)
        wait()
        started = time.perf_counter()
        made.run(1)
        wait()
        seconds = time.perf_counter() - started
        if size * 4 > most or seconds * 4 > limit_s:
            return made, seconds
        size *= 4
