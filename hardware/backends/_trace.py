"""Where operators of torch ran: what its dispatcher was asked, what kernels did inside themselves, and which
operators the device has no kernel for.

A dispatch mode sees the outer operator alone. A kernel that copies to the host, computes there and copies back looks
native to it: `at::native::cpu_fallback` does that, and so do the fallbacks of MPS and XPU. The profiler's records
tell every call inside an operator, with the devices of its tensors. Where the fallback isn't told to the profiler,
the dispatcher's table of kernels shows that the device has none.
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
"""Operators that carry weights: what a fault of the simulated device hits, and what the dtype is read off."""

_COMPUTE = PARAMETER_OPERATORS - {"aten.embedding"}

_COPIES = frozenset(
    {
        *("aten::to", "aten::_to_copy", "aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize"),
        *("aten::_to_cpu", "aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::lift_fresh"),
    }
)
"""Operators whose work is to cross devices: the dispatch mode tells of those."""

_MOVES = frozenset(
    {
        *(name.replace("aten::", "aten.") for name in _COPIES),
        *("aten.clone", "aten.detach", "aten.alias", "aten.view", "aten._unsafe_view", "aten.slice", "aten.select"),
        *("aten.unsqueeze", "aten.squeeze", "aten.expand", "aten.transpose", "aten.permute", "aten.t", "aten.split"),
    }
)
"""Operators that compute nothing: copies and views."""

_STEERED = frozenset({"aten::repeat", "aten::_grouped_mm"})
"""Operators that CUDA steers by whole numbers on the host, as dimensions or ends of groups (an H100, torch 2.11)."""

_COMPOSITE = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
_BY_OUT = "CompositeExplicitAutogradNonFunctional"
"""Made of the same operator's form with `out=`, which needs a kernel, where there is such a form."""


def operator_trace(device_type: str) -> Any:
    """A dispatch mode that counts operators by where tensors lay: `.native`, `.offloaded`, `.on_host`, `.dtypes`.

    Offloaded are those that a tensor of another device takes part in, and those that the device has no kernel for; on
    the host are those that compute with the host's floating-point tensors.
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
            """Whether torch is to keep its compiler from compiling this mode, which takes two seconds of imports.
            Nothing is compiled where this mode looks."""
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            output = func(*args, **(kwargs or {}))
            name = "aten." + func._schema.name.removeprefix("aten::")
            tensors = [leaf for leaf in tree_leaves((args, kwargs, output)) if isinstance(leaf, torch.Tensor)]
            if tensors and all(tensor.dim() == 0 and tensor.device.type != device_type for tensor in tensors):
                return output  # single numbers of the host's: nobody's work
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
    """Whether a tensor brings its kernels itself, in Python, where the dispatcher's table doesn't tell of them."""
    import torch

    return type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl


@functools.cache
def has_kernel(operator: Any, device_type: str) -> bool:
    """Whether the dispatcher has a kernel of the device for an operator, or one made of other operators.

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
    """Operators that were given tensors of `device_type` and, inside themselves, worked on tensors of the host.

    Copies that modelling code makes itself don't count here, nor numbers in tensors without dimensions. Source of the
    records: the event tree of torch.profiler (torch 2.1 and later), whose inputs name their device.
    """
    with _profiled(work) as events:
        return Counter(name.replace("::", ".") for event in events for name in _leaving(event, device_type))


def host_calls_elsewhere(work: Callable[[], object], trace: Any) -> Counter[str]:
    """Operators that computed with the host's floating-point tensors in other threads than this one, which `trace`
    doesn't see, while `work` was done here under `trace`."""
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
    """Products that torch takes of the host's tensors while `work` is done, in whichever thread."""
    trace = operator_trace("cpu")
    elsewhere = host_calls_elsewhere(work, trace)
    found = trace.on_host + elsewhere
    return Counter({name: n for name, n in found.items() if name in PARAMETER_OPERATORS})


@contextlib.contextmanager
def _profiled(work: Callable[[], object]) -> Iterator[list[Any]]:
    """The outermost records of what torch did in all threads during `work`. They hold the tensors that they tell of,
    and with these a module can't be moved: nothing is kept of them."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it prints two lines whenever it is used

    from torch._C._profiler import _ExperimentalConfig
    from torch.autograd.profiler import profile  # that of torch.profiler imports torch's compiler: two seconds

    every = _ExperimentalConfig(profile_all_threads=True)
    with profile(record_shapes=True, experimental_config=every) as profiled:
        work()
    events = profiled.kineto_results.experimental_event_tree()
    try:
        yield events
    finally:
        events.clear()
        profiled.kineto_results = None  # they and the profiler point at one another


def _computes_on_host(event: Any) -> bool:
    tensors = list(_tensors(event))
    return (
        _is_operator(event.name)
        and event.name.replace("::", ".") not in _MOVES
        and bool(tensors)
        and all(one.device.type == "cpu" for one in tensors)
        and any(one.sizes and one.dtype.is_floating_point for one in tensors)
    )


def _leaving(event: Any, device_type: str) -> Iterator[str]:
    """The innermost operators at or below an event that took tensors of the device and touched the host's.

    An operator of torch's own has no reason to copy to the host; one of somebody else's may be made of operators, a
    copy among them, and is one of these where the host computes. What a copy is made of is a copy too: CUDA's copies
    of what isn't contiguous call `expand_as` with both tensors. A copy within the device that goes by the host is one
    of these.
    """
    if event.name in _COPIES:
        if any(_goes_by_host(one, device_type) for one in (event, *_below(event, device_type))):
            yield event.name
        return
    deeper = [name for child in event.children for name in _leaving(child, device_type)]
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
    """Whether a record is of an operator (`aten::mm`, `vendor::linear`) that isn't a copy; others are machinery."""
    return "::" in name and name not in _COPIES and not name.startswith(("autograd::", "torch::"))


def _below(event: Any, device_type: str, *, copies: bool = True) -> Iterator[Any]:
    """What was called inside an event, but nothing below what took tensors of the device, which is judged by itself.
    Of what a copy calls, the copies alone; none of them without `copies`."""
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
    """Whether an operator worked on numbers of the host that aren't whole, or brought tensors from there."""
    tensors = [one for one in _tensors(event) if one.sizes]
    hosts = [one for one in tensors if one.device.type == "cpu"]
    floats = any(one.dtype.is_floating_point or one.dtype.is_complex for one in hosts)
    leaves = event.name == "aten::copy_" and tensors[:1] == hosts[:1]
    return floats or (0 < len(hosts) < len(tensors) and not leaves)


def _tensors(event: Any) -> Iterator[Any]:
    """What the record of an event has of its tensor arguments; lists of tensors are taken apart."""
    for one in getattr(event.extra_fields, "inputs", None) or ():
        for part in one if isinstance(one, list | tuple) else (one,):
            if hasattr(part, "device"):
                yield part
