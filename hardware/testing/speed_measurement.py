"""Speed of a cell, measured after its checks: latency by batch, decoding, loading and memory (`run --measure`).

Each series has thirty calls after a warm-up, in three rounds over all series, so that its spread holds what changes
on the machine within seconds. A module is timed from tensors on its device to tensors there; other runtimes take
arrays and return them, so that copies are part of their time.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends._torch import TorchRunnable
from ..backends.base import STEPS, Runnable
from ..model.calls import forward, to_tensors

if TYPE_CHECKING:
    from ..compare import Array
    from .model_test import ModelTest

BATCHES = (1, 2, 4, 8)
CALLS, ROUNDS, _WARM_UP = 30, 3, 3
_LONGEST_S = 60.0
"""The time of all calls of a series beyond which it is left out, but for the first one."""


@dataclass(kw_only=True)
class _Series:
    """One series: a call that returns its milliseconds, if it isn't the time of the call itself."""

    call: Callable[[], float | None]
    taken: list[float] = field(default_factory=list)

    def once(self) -> float:
        """Return the milliseconds of one call."""
        started = time.perf_counter()
        own = self.call()
        return 1e3 * (time.perf_counter() - started) if own is None else own


def speed_of(case: ModelTest, alive: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Return what evidence keeps of a cell's speed: milliseconds of each call by series and of steps of loading,
    bytes at the peak, and why a series is missing. `alive` is called in between, so that no deadline passes."""
    left_out: dict[str, str] = {}
    before = _reset_peaks(case)
    found: dict[str, _Series] = {}
    for name, make in _makers(case):
        try:
            one = _Series(call=make())
            first = one.once()
            warm = [one.once() for _ in range(_WARM_UP - 1)]
            alive()
            if found and CALLS * min(warm) > 1e3 * _LONGEST_S:
                raise TimeoutError(f"{CALLS} calls would take more than {_LONGEST_S:.0f} s")
        except Exception as error:  # runtimes raise any class; the verdict doesn't depend on it
            left_out[name] = f"{type(error).__name__}: {error}"[:300]
            continue
        if not found:
            case.step_ms.setdefault("first_call", first)
        found[name] = one
    for _ in range(ROUNDS):
        for one in found.values():
            one.once()
            one.taken += [one.once() for _ in range(CALLS // ROUNDS)]
            alive()
    return {
        "ms": {name: [float(f"{took:.4g}") for took in one.taken] for name, one in found.items()},
        "steps_ms": {name: float(f"{took:.4g}") for name, took in case.step_ms.items()},
        "peak_bytes": _peaks(case, before),
        **({"left_out": left_out} if left_out else {}),
    }


def _makers(case: ModelTest) -> Iterator[tuple[str, Callable[[], Callable[[], float | None]]]]:
    """Yield each series with the function that prepares its call."""
    runnable = case.runnable
    for size in BATCHES:
        yield f"batch {size}", partial(_pass, runnable, case, size)
        if size == 1 and not (runnable.on_host and isinstance(runnable, TorchRunnable)):
            yield "eager", lambda: _pass(case.eager(), case, 1)
    if "generate" in runnable.can and case.generates != "none":
        inputs = batch_of(case.inputs, 1)
        yield "first token", lambda: lambda: _nothing(runnable.generate(inputs, steps=1))
        yield "per token", lambda: lambda: _per_token(runnable, inputs)


def _pass(runnable: Runnable, case: ModelTest, size: int) -> Callable[[], None]:
    inputs = batch_of(case.inputs, size)
    runnable.prepare(inputs)
    if not isinstance(runnable, TorchRunnable):
        return lambda: _nothing(runnable(**inputs))
    import torch

    tensors = to_tensors(inputs, runnable.device, runnable.dtype)

    def run() -> None:
        with torch.no_grad():
            forward(runnable.model, tensors)
        runnable.backend.synchronize()

    return run


def _nothing(_result: object) -> None:
    return None


def _per_token(runnable: Runnable, inputs: Mapping[str, Array]) -> float:
    """Return the milliseconds of a token after the first: the first alone is taken off."""
    times = []
    for steps in (1, STEPS):
        started = time.perf_counter()
        runnable.generate(inputs, steps=steps)
        times.append(time.perf_counter() - started)
    return max(0.0, 1e3 * (times[1] - times[0]) / (STEPS - 1))


def batch_of(inputs: Mapping[str, Array], size: int) -> dict[str, Array]:
    """Return the first row of inputs `size` times. An input without an axis for rows is the same for any batch.

    Raises `ValueError` for more than one row if no input has rows.
    """
    rows = next((len(array) for array in inputs.values() if array.ndim), 0)
    split = {name for name, array in inputs.items() if rows and array.ndim and not len(array) % rows}
    if size > 1 and not split:
        raise ValueError("the inputs have no axis for a batch")
    return {
        name: np.concatenate([array[: len(array) // rows]] * size) if name in split else array
        for name, array in inputs.items()
    }


# Memory


def _device_module(case: ModelTest) -> Any:
    """Return torch's module of the case's device if it counts memory, else None."""
    runnable = case.runnable
    if runnable.on_host or not isinstance(runnable, TorchRunnable):
        return None
    import torch

    found = torch.get_device_module(runnable.device)
    return found if hasattr(found, "max_memory_allocated") else None


def _reset_peaks(case: ModelTest) -> bool:
    """Reset the peaks of device and process; return whether that of the process could be (Linux, proc(5))."""
    with suppress(Exception):
        _device_module(case).reset_peak_memory_stats()
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _peaks(case: ModelTest, is_reset: bool) -> dict[str, int]:
    found = {}
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace") if is_reset else ""
    own = re.search(r"VmHWM:\s*(\d+) kB", status)
    if peak := 1024 * int(own[1]) if own else peak_memory():
        found["process"] = peak
    if (module := _device_module(case)) is not None:
        found["device"] = int(module.max_memory_allocated())
    return found


def peak_memory() -> int | None:
    """Return the most memory that this process has held so far, in bytes, imports included."""
    try:
        import resource
    except ImportError:  # only on Unix
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
