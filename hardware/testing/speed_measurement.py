"""Speed of a cell, measured after its checks: latency by batch, decoding, loading and memory (`run --measure`).

Each series has thirty calls after a warm-up, in three rounds over all series, so that its spread holds what changes
on the machine within seconds; plain torch follows. A module is timed from tensors on its device to tensors there;
other runtimes take arrays and return them, so that copies are part of their time.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends._torch import TorchRunnable
from ..backends.base import STEPS, Runnable
from ..evidence.record import CheckLine, Outcome
from ..model.calls import forward, to_tensors
from ..step_times import SPEED

if TYPE_CHECKING:
    from ..compare import Array
    from ..evidence.writer import EvidenceWriter
    from .model_test import ModelTest

BATCHES = (1, 2, 4, 8)
CALLS, ROUNDS, _WARM_UP = 30, 3, 3
_LONGEST_S = 60.0
"""The time of all calls of a series beyond which it is left out."""


@dataclass(kw_only=True)
class _Series:
    """One series: a call that returns its milliseconds, if it isn't the time of the call itself."""

    call: Callable[[], float | None]
    alive: Callable[[], None]
    taken: list[float] = field(default_factory=list)

    def once(self) -> float:
        """Return the milliseconds of one call."""
        self.alive()
        started = time.perf_counter()
        own = self.call()
        return 1e3 * (time.perf_counter() - started) if own is None else own


def record_speed(
    writer: EvidenceWriter, last: CheckLine, case: object, outcomes: Set[Outcome], on_start: Callable[[str], None]
) -> None:
    """Measure a cell after all of its checks, of which `last` is the last one's line, already written, and write that
    line once more with the speed: of two equal results of a run, the later one is read. No error of it leaves this
    function, so that it can't change what a check gives. `on_start` gets `SPEED` before each call and in the end the
    last check, whose teardown follows."""
    from .model_test import ModelTest

    if Outcome.PASSED not in outcomes or not outcomes <= {Outcome.PASSED, Outcome.SKIPPED}:
        return
    try:
        if not isinstance(case, ModelTest):
            raise TypeError("the last check used no ModelTest")
        speed = speed_of(case, lambda: on_start(SPEED))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also pytest's own and SystemExit
        speed = {"left_out": {"all": _reason(error)}}
    with suppress(Exception):  # a full disk is the next line's matter
        writer.write(replace(last, speed=speed))
    on_start(last.check_name)


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def speed_of(case: ModelTest, alive: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Return what evidence keeps of a cell's speed: milliseconds of each call by series and of steps of loading,
    bytes at the peak, and why a series is missing. `alive` is called before each call, so that the deadline is that
    of one call. Plain torch comes last, so that its copy of the model isn't in the peak."""
    left_out: dict[str, str] = {}
    before = _reset_peaks(case)
    found = _timed(_makers(case), left_out, alive)
    peaks = _peaks(case, before)
    if not (case.runnable.on_host and isinstance(case.runnable, TorchRunnable)):
        found |= _timed([("eager", lambda: _pass(case.eager(), case, 1))], left_out, alive)
    return {
        "ms": found,
        "steps_ms": {name: float(f"{took:.4g}") for name, took in case.step_ms.items()},
        "peak_bytes": peaks,
        **({"left_out": left_out} if left_out else {}),
    }


def _timed(
    makers: Iterable[tuple[str, Callable[[], Callable[[], float | None]]]],
    left_out: dict[str, str],
    alive: Callable[[], None],
) -> dict[str, list[float]]:
    """Return the milliseconds of each call, by series; the models of the series are free afterwards."""
    found: dict[str, _Series] = {}

    def tried(name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # runtimes raise any class; the verdict doesn't depend on it
            found.pop(name, None)
            left_out[name] = _reason(error)

    def warm_up(name: str, make: Callable[[], Callable[[], float | None]]) -> None:
        alive()
        found[name] = one = _Series(call=make(), alive=alive)
        one.once()
        for _ in range(_WARM_UP - 1):
            if CALLS * one.once() > 1e3 * _LONGEST_S:
                raise TimeoutError(f"{CALLS} calls would take more than {_LONGEST_S:.0f} s")

    def go_on(one: _Series) -> None:
        one.once()
        one.taken += [one.once() for _ in range(CALLS // ROUNDS)]

    for name, make in makers:
        tried(name, partial(warm_up, name, make))
    for _ in range(ROUNDS):
        for name, one in tuple(found.items()):
            tried(name, partial(go_on, one))
    return {name: [float(f"{took:.4g}") for took in one.taken] for name, one in found.items()}


def _makers(case: ModelTest) -> Iterator[tuple[str, Callable[[], Callable[[], float | None]]]]:
    """Yield each series of the cell with the function that prepares its call."""
    runnable = case.runnable
    for size in BATCHES:
        yield f"batch {size}", partial(_pass, runnable, case, size)
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
    """Return the first row of inputs `size` times. The number of rows is that of `input_ids`, else of the first input
    with two axes. Inputs with as many rows are repeated, and flattened ones with a multiple, such as patches of
    images; others are the same for any batch.

    Raises `ValueError` for more than one row if no input has rows.
    """
    first = inputs.get("input_ids", next((array for array in inputs.values() if array.ndim > 1), None))
    rows = 0 if first is None or not first.ndim else len(first)
    split = {
        name
        for name, array in inputs.items()
        if rows and array.ndim and (len(array) == rows or (rows > 1 < array.ndim and not len(array) % rows))
    }
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
