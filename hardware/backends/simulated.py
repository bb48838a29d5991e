"""Target `simulated`: a device made of the host's kernels, for testing everything but numerics.

Each operator goes through a driver that keeps a ledger of what it launched, and that can be told to break:
`HWCOMPAT_SIMULATED_FAULT=kind[:operator]` with kind wrong, nan, hang, crash, oom or host, or `kind@seed` to let a
seed choose the operator. The proof compares what was asked for with the ledger, as one would with a real device.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UsageError, did_you_mean, echo
from ..evidence.versions import FAULT_VARIABLE
from ._torch import PARAMETER_OPERATORS, TorchRunnable, operator_trace
from .base import BaseBackend, DeviceInfo, Execution, FileSubject, ModelSubject, Runnable
from .cpu import CPUBackend

if TYPE_CHECKING:
    from .base import Inputs

FAULT_KINDS = ("wrong", "nan", "hang", "crash", "oom", "host")

_FAULT = re.compile(r"(?P<kind>[a-z]+)(?::(?P<operator>[a-z0-9_.]+)|@(?P<seed>\d+))?")
_SEEDED = (
    "aten.addmm",
    "aten.mm",
    "aten.bmm",
    "aten.embedding",
    "aten.native_layer_norm",
    "aten.convolution",
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that the simulated device does wrong, in one operator (any with parameters where it is empty)."""

    kind: str
    operator: str = ""

    @classmethod
    def parse(cls, text: str) -> Fault:
        """The fault that `kind[:operator]` or `kind@seed` names. Raises `UsageError`."""
        match = _FAULT.fullmatch(text)
        if match is None or match["kind"] not in FAULT_KINDS:
            raise UsageError(
                f"{echo(text)} is no fault of the simulated device",
                fix=f"{did_you_mean(text.partition(':')[0], FAULT_KINDS)} Known: {', '.join(FAULT_KINDS)}.".strip(),
            )
        operator = match["operator"] or ""
        if match["seed"]:
            operator = random.Random(int(match["seed"])).choice(_SEEDED)
        return cls(kind=match["kind"], operator=operator)

    def hits(self, operator: str) -> bool:
        """Whether `operator` (`aten.mm`) is the one that is broken."""
        return operator == self.operator if self.operator else operator in PARAMETER_OPERATORS

    def __str__(self) -> str:
        return f"{self.kind}:{self.operator}" if self.operator else self.kind


def _driver(ledger: Counter[str], fault: Fault | None) -> Any:
    """A dispatch mode that plays the device's driver: runs each operator, and writes what it launched."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Driver(TorchDispatchMode):  # type: ignore[misc] # torch is Any to mypy
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = "aten." + func._schema.name.removeprefix("aten::")
            broken = fault is not None and fault.hits(name)
            if broken and fault is not None and fault.kind in ("hang", "crash", "oom"):
                _stop(fault.kind)
            output = func(*args, **(kwargs or {}))
            if broken and fault is not None and fault.kind == "host":
                return output  # computed, but never launched on the device: the ledger doesn't know it
            ledger[name] += 1
            return _spoil(output, fault.kind) if broken and fault is not None else output

    return Driver()


def _stop(kind: str) -> None:
    import torch

    if kind == "crash":
        os.abort()
    if kind == "oom":
        raise torch.OutOfMemoryError("simulated: out of device memory")
    while True:
        time.sleep(1)


def _spoil(output: Any, kind: str) -> Any:
    import torch

    if isinstance(output, tuple | list) and output:
        return type(output)([_spoil(output[0], kind), *output[1:]])
    if not isinstance(output, torch.Tensor) or not output.is_floating_point():
        return output
    if kind == "wrong":
        return output * 1.01
    # Memory of its own in which no two elements share a place, whatever the strides of the output were.
    spoiled = output.clone(memory_format=torch.contiguous_format)
    if spoiled.numel():
        # The whole last row, so that it reaches whatever is reduced from some of the columns only.
        (spoiled[-1] if spoiled.dim() > 1 else spoiled).fill_(float("nan"))
    return spoiled


class SimulatedRunnable(TorchRunnable):
    """A module on the simulated device."""

    backend: SimulatedBackend

    def __init__(self, backend: Any, subject: ModelSubject, example: Any, precision: str) -> None:
        super().__init__(backend, subject, example, precision)
        self.conditions = {**self.conditions, "device": "simulated"}
        if backend.fault:
            self.conditions["fault"] = str(backend.fault)

    def execution(self) -> Execution:
        trace = operator_trace("cpu")
        tensors = self._tensors(self.example)
        self.backend.ledger.clear()
        # Entered after the driver, the trace is asked first and sees every operator that was requested.
        with self.backend.running(), trace:
            self._everything(tensors)
        launched = dict(self.backend.ledger)
        requested = trace.native + trace.offloaded
        missing = {n: c - launched.get(n, 0) for n, c in requested.items() if c > launched.get(n, 0)}
        return Execution(
            native=launched,
            offloaded=missing,
            dtype=self._proof(trace).dtype,
            device="simulated:0",
            unseen=self.backend.UNSEEN,
            host_allowed=self.backend.HOST_ALLOWED,
        )


class SimulatedBackend(CPUBackend):
    """Obeys the whole contract with the host's kernels. What passes here proves plumbing, not a device."""

    BACKEND_NAME = "simulated"
    SIMULATED: ClassVar[bool] = True
    SHARED = False  # it stands for a device that isn't
    EXPIRES_ON: ClassVar[tuple[str, ...]] = (*CPUBackend.EXPIRES_ON, "simulated_fault")
    UNSEEN = "everything physical: the device is simulated with the host's kernels"
    RUNNABLE = SimulatedRunnable

    def _setup_environment(self) -> None:
        text = os.environ.get(FAULT_VARIABLE, "")
        self.fault = Fault.parse(text) if text else None
        self.ledger: Counter[str] = Counter()

    def running(self) -> AbstractContextManager[Any]:
        driver: AbstractContextManager[Any] = _driver(self.ledger, self.fault)
        return driver

    def get_device_info(self) -> DeviceInfo:
        return self.device_info("simulated:0", "simulated device (host kernels)")

    def load(self, subject: ModelSubject, example_inputs: Any, precision: str) -> Runnable:
        return super().load(subject, example_inputs, precision)

    def load_file(self, subject: FileSubject, example_inputs: Inputs, precision: str) -> Runnable:
        """The device is torch's: a graph file would run beside it, on the host."""
        return BaseBackend.load_file(self, subject, example_inputs, precision)
