"""Target `simulated`: a torch device made of the host's kernels, for testing everything except numerics.

Its tensors are on `simulated:0` (`privateuse1.py`), so that mixed devices are refused and work left on the host is
detected. Every operator goes through a driver with a launch log. `HWCOMPAT_SIMULATED_FAULT=kind[:operator]` injects a
fault of a kind of `FAULT_KINDS`; with `kind@seed`, a seed chooses the operator. The proof compares the requested
operators with the launch log, as for a real device.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UsageError, did_you_mean, echo
from ..evidence.versions import FAULT_VARIABLE
from ..inventory.target_status import TargetStatus
from ..privateuse1 import install
from ._launch_log import LaunchLogBackend, LaunchLogRunnable
from ._torch import TorchBackend
from ._trace import PARAMETER_OPERATORS
from .base import DeviceInfo, ModelInput

if TYPE_CHECKING:
    from ..evidence.record import CheckLine
    from ..inventory.hardware_info import HardwareInfo

_WRONG_IF: Mapping[str, str] = {
    "strided": "a tensor isn't contiguous",
    "large": "a tensor has more than 4,096 elements",
    "later": "the call before had other shapes",
    "half": "a tensor is bfloat16 or float16",
    "flaky": "it is every third call",
    "rare": "it is every fiftieth call",
    "tired": "it is after the hundredth call",
    "first": "it is the first call with these shapes",
    "single": "a tensor's first axis has length 1",
    "many": "a tensor has an axis of 32 or more",
    "ids": "an integer is beyond 32767",
}
"""Kinds of faults that make results wrong in some calls only, and in which."""
_ROUNDED = ("swallow", "flush", "tf32", "saturate", "tail")
FAULT_KINDS = ("wrong", "nan", "hang", "crash", "oom", "host", *_ROUNDED, *_WRONG_IF)
"""`swallow` returns 0 for NaN, `flush` returns 0 for subnormal numbers, `tf32` rounds results to 10 bits, `saturate`
keeps them between -127 and 127, and `tail` loses what is beyond the last whole tile of 16 columns."""
_LARGE = 4096

_FAULT = re.compile(r"(?P<kind>[a-z][a-z0-9]*)(?::(?P<operator>[a-z0-9_.]+)|@(?P<seed>\d+))?")
_SEEDED = (
    "aten.addmm",
    "aten.mm",
    "aten.bmm",
    "aten.embedding",
    "aten.native_layer_norm",
    "aten.convolution",
)


@dataclass(frozen=True, kw_only=True)
class SimulatedFault:
    """A fault of the simulated device, in one operator, or in any with parameters if `operator` is empty."""

    kind: str
    operator: str = ""

    @classmethod
    def parse(cls, text: str) -> SimulatedFault:
        """Return the fault that `kind[:operator]` or `kind@seed` names. Raises `UsageError`."""
        match = _FAULT.fullmatch(text)
        if match is None or match["kind"] not in FAULT_KINDS:
            raise UsageError(
                f"the simulated device has no fault {echo(text)}",
                fix=f"{did_you_mean(text.partition(':')[0], FAULT_KINDS)} Known: {', '.join(FAULT_KINDS)}.".strip(),
            )
        operator = match["operator"] or ""
        if match["seed"]:
            operator = random.Random(int(match["seed"])).choice(_SEEDED)
        return cls(kind=match["kind"], operator=operator)

    @classmethod
    def asked(cls) -> SimulatedFault | None:
        """Return the fault that the environment asks for, if any. Raises `UsageError` for an unknown one."""
        text = os.environ.get(FAULT_VARIABLE, "")
        return cls.parse(text) if text else None

    def why_no_effect(self, lines: Iterable[CheckLine]) -> str:
        """Return why the fault affected no operator of these results; an empty text if it did."""
        own = [line for line in lines if line.requested_target == SimulatedBackend.BACKEND_NAME]
        if any(one.outcome.is_failure or any(map(self.hits, (*one.native_ops, *one.offloaded_ops))) for one in own):
            return ""
        why = "no cell of this run launched that operator" if own else "no cell of this run is on simulated"
        return f"{FAULT_VARIABLE}={self} had no effect: {why}. Unset it, or correct it."

    def hits(self, operator: str) -> bool:
        """Return whether the fault applies to `operator` (`aten.mm`)."""
        return operator == self.operator if self.operator else operator in PARAMETER_OPERATORS

    def __str__(self) -> str:
        return f"{self.kind}:{self.operator}" if self.operator else self.kind


class SimulatedDriver:
    """Driver of the device: it runs each operator with the host's kernel and logs the launch."""

    def __init__(self, fault: SimulatedFault | None) -> None:
        self.fault = fault
        self.ledger: Counter[str] = Counter()
        self._calls = 0
        self._shapes: list[tuple[int, ...]] | None = None
        self._seen: set[str] = set()

    def has_kernel(self, name: str) -> bool:
        """Return whether an operator is one of torch's. Operators of a vendor or a model have at most a kernel for
        the host, which another device would refuse."""
        return name.startswith("aten::")

    def launch(self, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        name = "aten." + operator._schema.name.removeprefix("aten::")
        fault = self.fault if self.fault is not None and self.fault.hits(name) else None
        if fault is not None and fault.kind in ("hang", "crash", "oom"):
            _stop(fault.kind)
        kind = self._kind_of(fault.kind, args, kwargs) if fault is not None else ""
        output = _computed(operator, name, args, kwargs)
        if kind == "host":
            return output  # computed, but never launched on the device: the launch log doesn't hold it
        self.ledger[name] += 1
        return _spoil(output, kind) if kind else output

    def _kind_of(self, kind: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Return the fault of this call, empty if a fault of some calls leaves it alone."""
        import torch
        from torch.utils._pytree import tree_leaves

        if kind not in _WRONG_IF:
            return kind
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        shapes, before = [tuple(one.shape) for one in tensors], self._shapes
        self._calls, self._shapes = self._calls + 1, shapes
        is_first = str(shapes) not in self._seen
        self._seen.add(str(shapes))
        applies: Mapping[str, Callable[[], bool]] = {
            "strided": lambda: any(not one.is_contiguous() for one in tensors),
            "large": lambda: any(one.numel() > _LARGE for one in tensors),
            "later": lambda: before not in (None, shapes),
            "half": lambda: any(one.dtype in (torch.float16, torch.bfloat16) for one in tensors),
            "flaky": lambda: self._calls % 3 == 0,
            "rare": lambda: self._calls % 50 == 0,
            "tired": lambda: self._calls > 100,
            "first": lambda: is_first,
            "single": lambda: any(one.dim() > 1 and one.shape[0] == 1 for one in tensors),
            "many": lambda: any(size >= 32 for shape in shapes for size in shape),
            "ids": lambda: any(one.dtype == torch.int64 and bool((one > 32767).any()) for one in tensors),
        }
        return "wrong" if applies[kind]() else ""


_MARKING = {"aten._conj": lambda one: one.conj_physical(), "aten._neg_view": lambda one: one.neg()}


def _computed(operator: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return an operator's result from the host's kernel, also for dtypes that only kernels of accelerators accept:
    modeling code counts integers there (grouped experts of transformers).

    Conjugation and negation are applied in memory. torch would only mark the tensor and resolve the mark above the
    point where tensors of a Python device are unwrapped, so that no kernel would see it.
    """
    if name == "aten.histc" and not args[0].is_floating_point():
        return operator(args[0].double(), *args[1:], **kwargs).to(args[0].dtype)
    if name in _MARKING:
        return _MARKING[name](args[0])
    return operator(*args, **kwargs)


def _stop(kind: str) -> None:
    import torch

    if kind == "crash":
        os.abort()
    if kind == "oom":
        raise torch.OutOfMemoryError("simulated: out of device memory")
    while True:
        time.sleep(1)


def _to_tf32(output: Any) -> Any:
    """Return float32 numbers rounded to 10 bits after the first."""
    import torch

    fraction, exponent = torch.frexp(output)
    rounded = torch.ldexp(torch.round(fraction * 2**11) / 2**11, exponent)
    return torch.where(output.isfinite(), rounded, output)


def _spoil(output: Any, kind: str) -> Any:
    import torch

    if isinstance(output, tuple | list) and output:
        return type(output)([_spoil(output[0], kind), *output[1:]])
    if not isinstance(output, torch.Tensor) or not output.is_floating_point():
        return output
    if kind == "wrong":
        return output * 1.01
    if kind == "swallow":
        return torch.where(output.isnan(), 0.0, output)
    if kind == "tf32":
        return _to_tf32(output)
    if kind == "saturate":
        return output.clamp(-127, 127)
    if kind == "tail":
        whole = output.shape[-1] // 16 * 16 if output.dim() else 0
        return output.index_fill(-1, torch.arange(whole, output.shape[-1]), 0.0) if whole else output
    if kind == "flush":
        return torch.where(output.abs() < torch.finfo(output.dtype).smallest_normal, 0.0, output)
    # Separate memory in which no two elements overlap, whatever the strides of the output are.
    spoiled = output.clone(memory_format=torch.contiguous_format)
    if spoiled.numel():
        # The whole last row, so that it reaches reductions over some of the columns only.
        (spoiled[-1] if spoiled.dim() > 1 else spoiled).fill_(float("nan"))
    return spoiled


class SimulatedRunnable(LaunchLogRunnable):
    """A module on the simulated device."""

    backend: SimulatedBackend

    def __init__(self, backend: Any, model_input: ModelInput, example: Any, precision: str) -> None:
        super().__init__(backend, model_input, example, precision)
        self.conditions = {**self.conditions, "device": "simulated"}
        if backend.driver.fault:
            self.conditions["fault"] = str(backend.driver.fault)


class SimulatedBackend(LaunchLogBackend):
    """A torch device made in Python from the host's kernels. Passing here proves the plumbing, not a device."""

    BACKEND_NAME = "simulated"
    DEVICE_TYPE = "simulated"
    SIMULATED: ClassVar[bool] = True
    INDEXED = False
    EXPIRES_ON: ClassVar[tuple[str, ...]] = (*TorchBackend.EXPIRES_ON, "simulated_fault")
    READS = ("exported",)  # TorchScript moves no weights to a device that is made in Python
    UNSEEN = "physical hardware: this device is simulated with host kernels"
    RUNNABLE = SimulatedRunnable

    @classmethod
    def expected(cls, inventory: HardwareInfo) -> TargetStatus:
        return TargetStatus(
            target=cls.BACKEND_NAME,
            expected=inventory.torch.version is not None,
            reason=inventory.torch.reason or "simulated: tests the tool itself, not numerics or speed",
        )

    def _setup_environment(self) -> None:
        self.driver = SimulatedDriver(SimulatedFault.asked())

    @property
    def ledger(self) -> Counter[str]:
        return self.driver.ledger

    def _register(self) -> None:
        install(self.DEVICE_TYPE, self.driver)

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        return self.device_info("simulated:0", "simulated device (host kernels)")
