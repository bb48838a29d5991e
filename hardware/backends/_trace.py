"""Find operators of torch that ran on the host: in the dispatcher, inside kernels, and by missing kernels.

A dispatch mode sees outer operators only. A kernel that copies to the host, computes there and copies back looks
native to it, as `at::native::cpu_fallback` and the fallbacks of MPS and XPU do. The profiler records every call
inside an operator, with the devices of its tensors. If a fallback isn't recorded, the dispatcher's table of kernels
shows that the device has none.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

PARAMETER_OPERATORS = frozenset(
    {
        "aten.mm",
        "aten.addmm",
        "aten.bmm",
        "aten.baddbmm",
        "aten.matmul",
        "aten.linear",
        "aten.convolution",
        "aten._convolution",
        "aten.embedding",
        "aten.native_layer_norm",
        "aten.native_group_norm",
        "aten.native_batch_norm",
        "aten._native_batch_norm_legit_no_training",
        "aten._fused_rms_norm",
        "aten._scaled_dot_product_flash_attention_for_cpu",
        "aten._scaled_dot_product_efficient_attention",
        "aten._scaled_dot_product_flash_attention",
        "aten._scaled_dot_product_cudnn_attention",
        "aten.mkldnn_linear",
        "aten._addmm_activation",
        "aten._grouped_mm",
    }
)
"""Operators that carry weights: faults of the simulated device apply to them, and the dtype is read from them."""

_COMPUTE = PARAMETER_OPERATORS - {"aten.embedding"}

_COPIES = frozenset(
    {
        *("aten::to", "aten::_to_copy", "aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize"),
        *("aten::_to_cpu", "aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::lift_fresh"),
    }
)
"""Operators that cross devices; the dispatch mode reports them."""

_MOVES = frozenset(
    {
        *(name.replace("aten::", "aten.") for name in _COPIES),
        *("aten.clone", "aten.detach", "aten.alias", "aten.view", "aten._unsafe_view", "aten.slice", "aten.select"),
        *("aten.unsqueeze", "aten.squeeze", "aten.expand", "aten.transpose", "aten.permute", "aten.t", "aten.split"),
    }
)
"""Operators that compute nothing: copies and views."""

_STEERED = frozenset({"aten::repeat", "aten::_grouped_mm"})
"""Operators that CUDA controls by integers on the host, such as dimensions or ends of groups (H100, torch 2.11)."""

_COMPOSITE = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
_BY_OUT = "CompositeExplicitAutogradNonFunctional"
"""Kernel made of the operator's `out=` form, if it has one, which needs a kernel itself."""


def operator_trace(device_type: str) -> Any:
    """Return a dispatch mode that counts operators by the place of their tensors.

    Attributes: `native`; `offloaded`, with a tensor on another device or without a kernel for this one; `on_host`,
    which computed with floating-point tensors of the host; `dtypes` of products.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class OperatorTrace(TorchDispatchMode):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.native: Counter[str] = Counter()
            self.offloaded: Counter[str] = Counter()
            self.on_host: Counter[str] = Counter()
            self.dtypes: Counter[str] = Counter()

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Return False: otherwise torch imports its compiler (2 s), and nothing is compiled under this mode."""
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            output = func(*args, **(kwargs or {}))
            name = "aten." + func._schema.name.removeprefix("aten::")
            tensors = [leaf for leaf in tree_leaves((args, kwargs, output)) if isinstance(leaf, torch.Tensor)]
            if tensors and all(tensor.dim() == 0 and tensor.device.type != device_type for tensor in tensors):
                return output  # single numbers on the host aren't work of the device
            elsewhere = any(tensor.dim() > 0 and tensor.device.type != device_type for tensor in tensors)
            native = not elsewhere and (any(map(_dispatches, tensors)) or has_kernel(func, device_type))
            (self.native if native else self.offloaded)[name] += 1
            if name not in _MOVES and any(map(_is_hosts_number, tree_leaves((args, kwargs)))):
                self.on_host[name] += 1
            if name in _COMPUTE:
                results = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
                self.dtypes[str(results[0].dtype).removeprefix("torch.")] += 1
            return output

    return OperatorTrace()


def _is_hosts_number(value: Any) -> bool:
    import torch

    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "cpu"
        and value.is_floating_point()
        and value.dim() > 0
    )


def _dispatches(tensor: Any) -> bool:
    """Return whether a tensor has its kernels in Python, where the dispatcher's table doesn't list them."""
    import torch

    return type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl


@functools.cache
def has_kernel(operator: Any, device_type: str) -> bool:
    """Return whether the dispatcher has a kernel for the device, or one made of other operators.

    An operator without either ends in a fallback for all operators, or raises.
    """
    import torch

    own = torch._C._dispatch_key_for_device(device_type)
    registered = torch._C._dispatch_has_kernel_for_dispatch_key
    if any(registered(operator.name(), key) for key in (own, *_COMPOSITE)):
        return True
    if not registered(operator.name(), _BY_OUT):
        return False
    forms = [form for form in operator.overloadpacket.overloads() if "out" in form]
    return not forms or any(registered(f"{operator._schema.name}.{form}", own) for form in forms)


def host_calls_inside(work: Callable[[], object], device_type: str) -> Counter[str]:
    """Return the operators that got tensors of `device_type` and worked on tensors of the host inside themselves.

    Copies made by modeling code and tensors without dimensions don't count. Source of the records: the event tree of
    torch.profiler (torch 2.1 and later), whose inputs name their device.
    """
    with _profiled(work) as events:
        return Counter(name.replace("::", ".") for event in events for name in _left_device(event, device_type))


def host_calls_elsewhere(work: Callable[[], object], trace: Any) -> Counter[str]:
    """Return the operators that computed with floating-point tensors of the host in other threads, which `trace`
    doesn't see, while `work` ran in this thread under `trace`."""
    import torch

    mark = "hwcompat.this_thread"

    def marked() -> None:
        with torch.profiler.record_function(mark):
            pass
        with trace:
            work()

    with _profiled(marked) as events:
        here = {event.start_tid for event in events if event.name == mark}
        there = [event for event in events if event.start_tid not in here]
        calls = [one for event in there for one in (event, *_below(event, ""))]
        return Counter(one.name.replace("::", ".") for one in calls if _computes_on_host(one))


def host_products(work: Callable[[], object]) -> Counter[str]:
    """Return the products of host tensors that torch computes in any thread while `work` runs."""
    trace = operator_trace("cpu")
    elsewhere = host_calls_elsewhere(work, trace)
    found = trace.on_host + elsewhere
    return Counter({name: n for name, n in found.items() if name in PARAMETER_OPERATORS})


@contextlib.contextmanager
def _profiled(work: Callable[[], object]) -> Iterator[list[Any]]:
    """Yield the outermost records of torch in all threads during `work`, and release them afterwards: they hold
    tensors, and a module whose tensors are referenced can't be moved."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise it prints two lines on each use

    from torch._C._profiler import _ExperimentalConfig
    from torch.autograd.profiler import profile  # torch.profiler's own imports the compiler: 2 s

    every = _ExperimentalConfig(profile_all_threads=True)
    with profile(record_shapes=True, experimental_config=every) as profiled:
        work()
    events = profiled.kineto_results.experimental_event_tree()
    try:
        yield events
    finally:
        events.clear()
        profiled.kineto_results = None  # the records and the profiler reference each other


def _computes_on_host(event: Any) -> bool:
    tensors = list(_tensors(event))
    return (
        _is_operator(event.name)
        and event.name.replace("::", ".") not in _MOVES
        and bool(tensors)
        and all(one.device.type == "cpu" for one in tensors)
        and any(one.sizes and one.dtype.is_floating_point for one in tensors)
    )


def _left_device(event: Any, device_type: str) -> Iterator[str]:
    """Yield the innermost operators at or below an event that got tensors of the device and used tensors of the host.

    An operator of torch has no reason to copy to the host; one of a vendor may be made of operators, including a
    copy, and counts if the host computes. Operators inside a copy belong to the copy: CUDA's copies of non-contiguous
    tensors call `expand_as` with both tensors. A copy within the device that goes through the host counts too.
    """
    if event.name in _COPIES:
        if any(_goes_by_host(one, device_type) for one in (event, *_below(event, device_type))):
            yield event.name
        return
    deeper = [name for child in event.children for name in _left_device(child, device_type)]
    if deeper:
        yield from deeper
    elif _takes(event, device_type):
        below = _below(event, device_type, copies=event.name.startswith("aten::"))
        if any(map(_works_or_brings_back if event.name in _STEERED else _touches_host, below)):
            yield event.name


def _takes(event: Any, device_type: str) -> bool:
    return _is_operator(event.name) and any(one.device.type == device_type for one in _tensors(event))


def _goes_by_host(event: Any, device_type: str) -> bool:
    on_device = {one.device.type for one in _tensors(event)} == {device_type}
    return event.name == "aten::copy_" and on_device and any(map(_touches_host, _below(event, device_type)))


def _is_operator(name: str) -> bool:
    """Return whether a record is of an operator (`aten::mm`, `vendor::linear`) that isn't a copy."""
    return "::" in name and name not in _COPIES and not name.startswith(("autograd::", "torch::"))


def _below(event: Any, device_type: str, *, copies: bool = True) -> Iterator[Any]:
    """Yield the calls inside an event, except those inside an operator on device tensors, which is judged separately.
    Inside a copy only copies are yielded; without `copies`, none of them."""
    for child in event.children:
        is_copy = child.name in _COPIES
        if (is_copy and not copies) or (event.name in _COPIES and not is_copy):
            continue
        yield child
        if not _takes(child, device_type):
            yield from _below(child, device_type, copies=copies)


def _touches_host(event: Any) -> bool:
    return any(one.device.type == "cpu" and one.sizes for one in _tensors(event))


def _works_or_brings_back(event: Any) -> bool:
    """Return whether an operator worked on host tensors that aren't integers, or copied tensors from the host."""
    tensors = [one for one in _tensors(event) if one.sizes]
    hosts = [one for one in tensors if one.device.type == "cpu"]
    floats = any(one.dtype.is_floating_point or one.dtype.is_complex for one in hosts)
    leaves = event.name == "aten::copy_" and tensors[:1] == hosts[:1]
    return floats or (0 < len(hosts) < len(tensors) and not leaves)


def _tensors(event: Any) -> Iterator[Any]:
    """Yield the tensors among an event's inputs, also those in lists."""
    for one in getattr(event.extra_fields, "inputs", None) or ():
        for part in one if isinstance(one, list | tuple) else (one,):
            if hasattr(part, "device"):
                yield part
