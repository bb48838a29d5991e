"""What torch's profiler recorded on an H100 (torch 2.11), and which of it counts as work of the host."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hardware.backends import _trace

RECORDED = json.loads((Path(__file__).parents[1] / "fixtures" / "torch" / "h100-events.json").read_text())
HOST_INTEGERS, HOST_FLOATS = [[[3], "cpu", "int64"]], [[[3], "cpu", "float32"]]
ON_DEVICE, DEVICE_INTEGERS = [[[3], "cuda", "float32"]], [[[3], "cuda", "int64"]]


def event(name: str, tensors: Any = (), children: Any = ()) -> Any:
    """One record, as the profiler's event tree gives it."""

    def dtype(of: str) -> Any:
        return SimpleNamespace(is_floating_point=of.startswith("float"), is_complex=of.startswith("complex"))

    inputs = [
        SimpleNamespace(sizes=sizes, device=SimpleNamespace(type=device), dtype=dtype(of))
        for sizes, device, of in tensors
    ]
    children = [event(**child) if isinstance(child, dict) else child for child in children]
    return SimpleNamespace(name=name, children=children, extra_fields=SimpleNamespace(inputs=inputs))


def leaving(*events: Any) -> list[str]:
    return [name for one in events for name in _trace._left_device(one, "cuda")]


def test_what_cuda_does_by_itself_is_no_work_of_the_host() -> None:
    names = [name for name in RECORDED if name != "recorded_on"]
    assert names
    assert [name for name in names if leaving(*(event(**one) for one in RECORDED[name]))] == []
    steered = event(**RECORDED["repeat"][0])
    assert leaving(event("aten::tile", ON_DEVICE, [steered])) == []


def test_an_operator_may_be_steered_by_whole_numbers_and_may_not_compute_on_the_host() -> None:
    to_host = event("aten::copy_", HOST_INTEGERS + DEVICE_INTEGERS)
    steered = event("aten::_grouped_mm", ON_DEVICE, [event("aten::to", DEVICE_INTEGERS, [to_host])])
    assert leaving(steered) == []
    for name, tensors in (
        ("aten::mm", HOST_FLOATS),
        ("aten::mm", [[[3], "cpu", "complex64"]]),
        ("aten::copy_", HOST_FLOATS + ON_DEVICE),
        ("aten::copy_", DEVICE_INTEGERS + HOST_INTEGERS),
        ("aten::_copy_from_and_resize", HOST_INTEGERS + ON_DEVICE),
        ("aten::arange", HOST_INTEGERS + DEVICE_INTEGERS),
    ):
        assert leaving(event("aten::repeat", ON_DEVICE, [event(name, tensors)])) == ["aten::repeat"], (name, tensors)


def test_an_operator_that_computes_on_the_host_is_found_whatever_its_dtype() -> None:
    for name in ("aten::cumsum", "vendor::linear"):
        for dtype in ("float32", "int8", "int64", "bool", "complex64"):
            there = event("aten::copy_", [[[3], "cpu", dtype], [[3], "cuda", dtype]])
            computes = event("aten::add", [[[3], "cpu", dtype]])
            assert leaving(event(name, [[[3], "cuda", dtype]], [there, computes])) == [name], dtype


def test_the_inner_operator_is_named_and_a_copy_only_if_it_goes_by_the_host() -> None:
    inner = event("aten::gelu", ON_DEVICE, [event("aten::gelu", HOST_FLOATS)])
    assert leaving(event("aten::linear", ON_DEVICE, [inner])) == ["aten::gelu"]
    both = HOST_FLOATS + ON_DEVICE
    assert leaving(event("aten::copy_", both, [event("aten::mul", both)])) == []
    by_host = [event("aten::copy_", both), event("aten::copy_", ON_DEVICE + HOST_FLOATS)]
    assert leaving(event("aten::copy_", ON_DEVICE + ON_DEVICE, by_host)) == ["aten::copy_"]
