"""The process that loads one device: `python -m hwcompat.plugins.stress.child` with a task as JSON on standard input.

It says what it does as a JSON object a line on standard output; what libraries print goes to standard error.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hardware.backends.tpu import TPUBackend

from .execution_proof import RanElsewhere, prove_placement
from .memory import KERNELS, Stream, stream_bytes, suitable_copy
from .products import PRECISIONS, WrongResult, is_full_float32, precision_error, suitable
from .result import FLOPS_OF_PRODUCT

WARM_UP, SUSTAINED, SHORT = "warm-up", "sustained", "short"
RAM = "ram"
PJRT = TPUBackend.BACKEND_NAME
"""The target that JAX reaches, in an environment of its own."""

_SLICES = 40
_LONGEST_SLICE_S, _LONGEST_CALL_S = 0.5, 0.15
_SHORT_SHARE = 6


@dataclass(frozen=True, kw_only=True)
class StressTask:
    """What a child is to do: warm up and sustain one load for so many seconds each, then each other precision or
    kernel for a sixth of `duration_s`. `precisions` are asked for in this order; the first that works is sustained.
    """

    target: str
    warmup_s: float
    duration_s: float
    precisions: tuple[str, ...] = PRECISIONS

    def to_json(self) -> str:
        """As `from_json` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> StressTask:
        """The task that `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "precisions": tuple(values["precisions"])})

    @property
    def short_s(self) -> float:
        """Seconds for each precision or kernel that isn't sustained."""
        return self.duration_s / _SHORT_SHARE


class Speaker:
    """Says events as lines, on a stream that nothing else writes to."""

    def __init__(self, descriptor: int) -> None:
        self._stream = os.fdopen(descriptor, "w", encoding="utf-8", buffering=1)

    def say(self, event: str, **values: Any) -> None:
        """One event, with the moment at which it was said."""
        print(json.dumps({"event": event, "at": time.time(), **values}), file=self._stream, flush=True)


@dataclass(frozen=True, kw_only=True)
class Load:
    """One kind of work: what a call of it counts (operations or bytes), and how it is run and checked."""

    name: str
    work: float
    unit: str
    seconds: float
    run: Callable[[int], None]
    wait: Callable[[], None]
    forget: Callable[[], None]
    check: Callable[[], None]


def sustain(load: Load, phase: str, duration_s: float, say: Callable[..., None]) -> Mapping[str, float]:
    """Run a load for so long, in slices that are timed each and checked each. Raises `WrongResult`."""
    length = min(_LONGEST_SLICE_S, max(duration_s / _SLICES, load.seconds))
    calls = max(1, round(length / max(load.seconds, 1e-7)))
    total_calls, total_s, computed_s = 0, 0.0, 0.0
    over = time.perf_counter() + duration_s
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


def stress_ram(task: StressTask, say: Callable[..., None]) -> None:
    """STREAM's kernels in main memory, triad sustained."""
    import torch

    from hardware.system.cpu import read_cpu
    from hardware.system.memory import free_bytes

    say("device", name="main memory", torch=torch.__version__)
    caches = read_cpu().caches
    last = max((one.level for one in caches), default=0)
    cache_bytes = sum(one.size_bytes * one.instances for one in caches if one.level == last)
    array_bytes, remark = stream_bytes(cache_bytes, free_bytes())
    stream = Stream(torch, array_bytes)
    for number, kernel in enumerate(KERNELS):
        stream.run(kernel, 1)
        started = time.perf_counter()
        stream.run(kernel, 1)
        seconds = time.perf_counter() - started
        load = Load(
            name=kernel,
            work=KERNELS[kernel] * stream.array_bytes,
            unit="bytes",
            seconds=seconds,
            run=lambda times, kernel=kernel: stream.run(kernel, times),  # type: ignore[misc]
            wait=lambda: None,
            forget=stream.forget,
            check=stream.check,
        )
        done = _measured(load, task, say, sustained=number == 0)
        say("bandwidth", kernel=kernel, array_bytes=stream.array_bytes, work=load.work, remark=remark, **done)


def _measured(load: Load, task: StressTask, say: Callable[..., None], *, sustained: bool) -> Mapping[str, float]:
    if not sustained:
        say("phase", phase=SHORT, load=load.name, unit=load.unit)
        return sustain(load, SHORT, task.short_s, say)
    if task.warmup_s > 0:
        say("phase", phase=WARM_UP, load=load.name, unit=load.unit)
        sustain(load, WARM_UP, task.warmup_s, say)
    say("phase", phase=SUSTAINED, load=load.name, unit=load.unit)
    return sustain(load, SUSTAINED, task.duration_s, say)


def stress_device(task: StressTask, say: Callable[..., None]) -> None:
    """Products in each precision on a torch device, the first sustained, then a copy in its memory."""
    import torch

    from hardware.backends.factory import get_backend

    backend: Any = get_backend(task.target)
    if reason := backend.unavailable():
        say("failed", message=reason)
        return
    device = backend.torch_device()
    module: Any = getattr(torch, device.type, None)
    if device.index is not None and hasattr(module, "set_device"):
        module.set_device(device)  # what waits for a device waits for the one that is set
    info = backend.get_device_info()
    say("device", name=info.device_name, index=device.index or 0, torch=torch.__version__, **_identity(torch, device))
    memory = info.total_memory_bytes
    _full_float32(torch, device)
    sustained = False
    for precision in task.precisions:
        if precision not in (*backend.PRECISIONS, "int8"):
            say("rate", precision=precision, reason=f"{backend.BACKEND_NAME} has no {precision}")
            continue
        done = _stress_precision(task, torch, backend, device, memory, precision, say, sustained=not sustained)
        sustained = sustained or done
    limit = min(_LONGEST_CALL_S, max(task.short_s, 0.01))
    if device.type == "cpu":
        return  # target ram measures its memory
    copy, seconds = suitable_copy(torch, device, wait=backend.synchronize, limit_s=limit, memory_bytes=memory)
    load = _load_of("copy", 2 * copy.array_bytes, "bytes", seconds, copy, backend.synchronize)
    done_copy = _measured(load, task, say, sustained=False)
    say("bandwidth", kernel="copy", array_bytes=copy.array_bytes, work=load.work, remark="", **done_copy)


def stress_pjrt(task: StressTask, say: Callable[..., None]) -> None:
    """The same through JAX, on the PJRT device of target `tpu`."""
    from . import jax_load

    on = jax_load.PjrtDevice(task.target)
    say("device", name=on.name, index=on.device.id, jax=on.jax.__version__)
    limit = min(_LONGEST_CALL_S, max(task.short_s, 0.01))
    sustained = False
    for precision in task.precisions:
        if precision not in jax_load.PRECISIONS:
            say("rate", precision=precision, reason=f"tpu has no {precision}")
            continue
        heard = functools.partial(say, "making", load=precision)
        made, seconds = jax_load.suitable_products(on, precision, heard=heard, limit_s=limit)
        made.verify()
        work = float(FLOPS_OF_PRODUCT) * made.size**3
        load = _load_of(precision, work, "operations", seconds, made, made.wait)
        done = _measured(load, task, say, sustained=not sustained)
        made.verify()
        sustained = True
        say("rate", precision=precision, size=made.size, work=work, **done)
    if on.platform == "cpu":
        return  # target ram measures its memory
    copy, seconds = jax_load.copy_on(on)
    load = _load_of("copy", 2 * copy.array_bytes, "bytes", seconds, copy, copy.wait)
    done_copy = _measured(load, task, say, sustained=False)
    say("bandwidth", kernel="copy", array_bytes=copy.array_bytes, work=load.work, remark="", **done_copy)


def _load_of(name: str, work: float, unit: str, seconds: float, made: Any, wait: Callable[[], None]) -> Load:
    return Load(
        name=name,
        work=work,
        unit=unit,
        seconds=seconds,
        run=made.run,
        wait=wait,
        forget=made.forget,
        check=made.check,
    )


def _stress_precision(
    task: StressTask,
    torch: Any,
    backend: Any,
    device: Any,
    memory: int | None,
    precision: str,
    say: Callable[..., None],
    *,
    sustained: bool,
) -> bool:
    """Whether the device has products in this precision; raises `WrongResult` where they are wrong."""
    _set_arithmetic(torch, device, precision)
    limit = min(_LONGEST_CALL_S, max(task.short_s, 0.01))
    try:
        made, seconds = suitable(
            torch,
            device,
            precision,
            wait=backend.synchronize,
            heard=lambda size: say("making", load=precision, size=size),
            limit_s=limit,
            memory_bytes=memory,
        )
    except (RuntimeError, NotImplementedError, TypeError, AttributeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        say("rate", precision=precision, reason=f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")
        return False
    made.verify()
    made.keep_exact()
    prove_placement(backend, made.run, device)
    work = float(FLOPS_OF_PRODUCT) * made.size**3
    load = _load_of(precision, work, "operations", seconds, made, backend.synchronize)
    done = _measured(load, task, say, sustained=sustained)
    made.verify()
    say("rate", precision=precision, size=made.size, work=load.work, **done)
    return True


def _set_arithmetic(torch: Any, device: Any, precision: str) -> None:
    """float32 in full, TF32 where it was asked for, and sums of half precisions in float32."""
    if device.type == "cuda":
        matmul = torch.backends.cuda.matmul
        matmul.allow_tf32 = precision == "tf32"
        matmul.allow_fp16_reduced_precision_reduction = False
        matmul.allow_bf16_reduced_precision_reduction = False


def _full_float32(torch: Any, device: Any) -> None:
    _set_arithmetic(torch, device, "float32")
    error = precision_error(torch, device)
    if not is_full_float32(error):
        raise WrongResult(f"a float32 product has a relative error of {error:.1e}: fewer bits than float32 has")


def _identity(torch: Any, device: Any) -> dict[str, str]:
    """What tells a device of torch's among those that its driver lists."""
    if device.type != "cuda":
        return {}
    found = torch.cuda.get_device_properties(device)
    identity = {"uuid": f"GPU-{found.uuid}"} if getattr(found, "uuid", None) else {}
    if hasattr(found, "pci_bus_id"):
        address = f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
        identity["pci_address"] = address
    return identity


def main(arguments: Sequence[str] = ()) -> int:
    """Read the task, load the device, say how it ended."""
    descriptor = os.dup(1)
    os.dup2(2, 1)
    say = Speaker(descriptor).say
    say("started")
    task = StressTask.from_json(sys.stdin.read())
    try:
        if task.target == RAM:
            stress_ram(task, say)
        elif task.target.partition(":")[0] == PJRT:
            stress_pjrt(task, say)
        else:
            stress_device(task, say)
    except WrongResult as error:
        say("wrong", message=str(error))
        return 1
    except RanElsewhere as error:
        say("elsewhere", message=str(error))
        return 1
    except Exception as error:  # a driver may raise anything; the reason is the answer here
        say("failed", message=f"{type(error).__name__}: {str(error)[:500]}")
        return 1
    say("end")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
