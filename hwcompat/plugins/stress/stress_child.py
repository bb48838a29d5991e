"""The process that loads one device: `python -m hwcompat.plugins.stress.stress_child` with its options as JSON on
standard input.

It prints events as a JSON object per line on standard output; output of libraries goes to standard error.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hwcompat.hardware.backends.tpu import TPUBackend

from .disk_reads import STORAGE, stress_disk
from .load_devices import PjrtDevice, RanElsewhere, TorchDevice
from .loads import (
    KERNELS,
    PRECISIONS,
    Copy,
    Products,
    Stream,
    StressLoad,
    WrongResult,
    copy_sizes,
    least_seconds,
    product_sizes,
    require_full_float32,
    stream_bytes,
    suitable,
)
from .tensorflow_device import TENSORFLOW, TensorflowDevice

WARM_UP, SUSTAINED, SHORT = "warm-up", "sustained", "short"
RAM = "ram"
PJRT = TPUBackend.BACKEND_NAME
"""The target that JAX loads, in a separate environment."""

_SLICES = 40
_LONGEST_SLICE_S, _LONGEST_CALL_S = 0.5, 0.15
_SHORT_SHARE = 6

TORCH = "torch"

Say = Callable[..., None]
LoadDevice = TorchDevice | PjrtDevice | TensorflowDevice


@dataclass(frozen=True, kw_only=True)
class StressOptions:
    """How to load one device: warm up for `warmup_s`, sustain one load for `duration_s`, then run each other
    precision or kernel for a sixth of `duration_s` (all in seconds). `precisions` are tried in this order; the first
    that works is sustained.

    A disk is written in a temporary file in `folder`, and only read if that is empty. `library` computes, except on
    TPUs, which JAX loads. Samples are taken every
    `interval_s` seconds; a child without output for `silence_s` is killed.
    """

    target: str = ""
    warmup_s: float
    duration_s: float
    interval_s: float = 1.0
    silence_s: float = 120.0
    precisions: tuple[str, ...] = PRECISIONS
    folder: str = ""
    library: str = TORCH


def is_pjrt(target: str) -> bool:
    """Whether a target is loaded through JAX."""
    return target.partition(":")[0] == PJRT


def sustain(load: StressLoad, call_s: float, phase: str, duration_s: float, say: Say) -> dict[str, float]:
    """Run a load whose calls take `call_s` for `duration_s` seconds, in slices that are timed and checked. Raises
    `WrongResult`."""
    length = min(_LONGEST_SLICE_S, max(duration_s / _SLICES, call_s))
    calls = max(1, round(length / max(call_s, 1e-7)))
    total_calls, total_s, computed_s = 0, 0.0, 0.0
    over = time.perf_counter() + duration_s
    say("phase", phase=phase, load=load.name, unit=load.unit)
    while total_calls == 0 or time.perf_counter() < over:
        load.forget()
        load.wait()
        started, busy = time.perf_counter(), time.process_time()
        load.run(calls)
        load.wait()
        seconds = time.perf_counter() - started
        computed_s += time.process_time() - busy
        load.check()
        total_calls += calls
        total_s += seconds
        say("slice", phase=phase, load=load.name, seconds=seconds, work=calls * load.work)
        if seconds > 2 * length and calls > 1:
            calls = max(1, round(calls * length / seconds))
    return {"calls": total_calls, "seconds": total_s, "processor_s": computed_s}


def _run_load(
    load: StressLoad, call_s: float, options: StressOptions, say: Say, *, sustained: bool
) -> dict[str, float]:
    """Run a load, either briefly or sustained after a warm-up; return its work and that of one call."""
    phase, duration_s = (SUSTAINED, options.duration_s) if sustained else (SHORT, options.duration_s / _SHORT_SHARE)
    if sustained and options.warmup_s > 0:
        sustain(load, call_s, WARM_UP, options.warmup_s, say)
    return {"work": load.work, **sustain(load, call_s, phase, duration_s, say)}


def stress_ram(options: StressOptions, say: Say) -> None:
    """Run STREAM's kernels in main memory, triad sustained."""
    import torch

    from hwcompat.hardware.inventory.system.main_memory import free_bytes
    from hwcompat.hardware.inventory.system.processor import read_cpu

    say("device", name="main memory", torch=torch.__version__)
    caches = read_cpu().caches
    last = max((one.level for one in caches), default=0)
    cache_bytes = sum(one.size_bytes * one.instances for one in caches if one.level == last)
    array_bytes, remark = stream_bytes(cache_bytes, free_bytes())
    stream = Stream(array_bytes)
    for number, kernel in enumerate(KERNELS):
        stream.use(kernel)
        done = _run_load(stream, least_seconds(stream), options, say, sustained=number == 0)
        say("bandwidth", kernel=kernel, array_bytes=stream.array_bytes, remark=remark, **done)


def stress_device(options: StressOptions, say: Say) -> None:
    """Run products in each precision on a device, the first sustained, then a copy in its memory."""
    on = _device(options)
    say("device", **on.identity())
    require_full_float32(on)
    limit_s = min(_LONGEST_CALL_S, max(options.duration_s / _SHORT_SHARE, 0.01))
    sustained = True
    for precision in options.precisions:
        made, call_s = None, 0.0
        reason = on.prepared(precision)
        if not reason:
            try:
                make = functools.partial(_products, on, precision, say)
                made, call_s = suitable(make, product_sizes(on.memory_bytes), limit_s)
            except on.REFUSALS as error:
                if type(error).__name__ == "OutOfMemoryError":  # torch's
                    raise
                reason = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        if made is None:
            say("rate", precision=precision, reason=reason)
            continue
        made.verify()
        on.prove(made)
        done = _run_load(made, call_s, options, say, sustained=sustained)
        made.verify()
        sustained = False
        say("rate", precision=precision, size=made.size, **done)
    if on.is_on_host:
        return  # target ram measures its memory
    copy, call_s = suitable(lambda size: Copy(on, size), copy_sizes(on.memory_bytes), limit_s)
    done = _run_load(copy, call_s, options, say, sustained=False)
    say("bandwidth", kernel=copy.name, array_bytes=copy.array_bytes, remark="", **done)


def _run_disk(options: StressOptions, say: Say, load: StressLoad, *, sustained: bool) -> dict[str, float]:
    return _run_load(load, least_seconds(load), options, say, sustained=sustained)


def _device(options: StressOptions) -> LoadDevice:
    if is_pjrt(options.target):
        return PjrtDevice(options.target)
    return (TensorflowDevice if options.library == TENSORFLOW else TorchDevice)(options.target)


def _products(on: LoadDevice, precision: str, say: Say, size: int) -> Products:
    say("making", load=precision, size=size)
    return Products(on, precision, size)


def main() -> int:
    """Read the options, load the device, and print the ending."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)

    def say(event: str, **values: Any) -> None:
        print(json.dumps({"event": event, "at": time.time(), **values}), file=stream, flush=True)

    say("started")
    options = StressOptions(**json.load(sys.stdin))
    try:
        if options.target.partition(":")[0] == STORAGE:
            stress_disk(options.target, options.folder, functools.partial(_run_disk, options, say), say)
        else:
            (stress_ram if options.target == RAM else stress_device)(options, say)
    except WrongResult as error:
        say("wrong", message=str(error))
        return 1
    except RanElsewhere as error:
        say("elsewhere", message=str(error))
        return 1
    except Exception as error:  # a driver may raise anything, which is the reason
        say("failed", message=f"{type(error).__name__}: {str(error)[:500]}")
        return 1
    say("end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
