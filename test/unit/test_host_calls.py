"""What torch's profiler recorded on an H100 (torch 2.11), and what of it counts as work of the host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hardware.backends import _trace

RECORDED = json.loads((Path(__file__).parents[1] / "fixtures" / "torch" / "h100-events.json").read_text())
HOST_INTEGERS, HOST_FLOATS = [[[3], "cpu", "int64"]], [[[3], "cpu", "float32"]]
ON_DEVICE = [[[3], "cuda", "float32"]]


def event(name: str, tensors: Any = (), children: Any = ()) -> Any:
    """One record, as the profiler's event tree gives it."""
    inputs = [
        SimpleNamespace(
            sizes=sizes,
            device=SimpleNamespace(type=device),
            dtype=SimpleNamespace(
                is_floating_point=dtype.startswith("float"), is_complex=dtype.startswith("complex")
            ),
        )
        for sizes, device, dtype in tensors
    ]
    return SimpleNamespace(
        name=name,
        children=[event(**child) if isinstance(child, dict) else child for child in children],
        extra_fields=SimpleNamespace(inputs=inputs),
    )


def leaving(*events: Any) -> list[str]:
    return list(_all_leaving(events))


def _all_leaving(events: Any) -> Iterator[str]:
    for one in events:
        yield from _trace._leaving(one, "cuda")


@pytest.mark.parametrize("recorded", [name for name in RECORDED if name != "recorded_on"])
def test_what_cuda_does_by_itself_is_no_work_of_the_host(recorded: str) -> None:
    assert leaving(*(event(**one) for one in RECORDED[recorded])) == []


def test_whole_numbers_that_steer_an_operator_are_no_work_of_the_host() -> None:
    to_host = event("aten::copy_", [*HOST_INTEGERS, [[3], "cuda", "int64"]])
    product = event("aten::_grouped_mm", ON_DEVICE, [event("aten::to", [[[3], "cuda", "int64"]], [to_host])])
    assert leaving(product) == []


@pytest.mark.parametrize(
    "inside",
    [
        event("aten::mm", HOST_FLOATS),
        event("aten::mm", [[[3], "cpu", "complex64"]]),
        event("aten::copy_", HOST_FLOATS + ON_DEVICE),
        event("aten::copy_", [[[3], "cuda", "int64"], *HOST_INTEGERS]),
        event("aten::_copy_from_and_resize", HOST_INTEGERS + ON_DEVICE),
        event("aten::arange", [*HOST_INTEGERS, [[3], "cuda", "int64"]]),
    ],
    ids=["floats", "complex", "floats to the host", "whole numbers back", "back by resize", "both at once"],
)
def test_an_operator_that_is_steered_on_the_host_may_not_compute_there(inside: Any) -> None:
    assert leaving(event("aten::repeat", ON_DEVICE, [inside])) == ["aten::repeat"]


@pytest.mark.parametrize("dtype", ["float32", "int8", "int64", "bool", "complex64"])
@pytest.mark.parametrize("name", ["aten::cumsum", "vendor::linear"])
def test_an_operator_that_computes_on_the_host_is_seen_whatever_its_numbers_are(name: str, dtype: str) -> None:
    there = event("aten::copy_", [[[3], "cpu", dtype], [[3], "cuda", dtype]])
    computes = event("aten::add", [[[3], "cpu", dtype]])
    assert leaving(event(name, [[[3], "cuda", dtype]], [there, computes])) == [name]


def test_an_operator_in_an_operator_is_named_and_a_copy_is_not() -> None:
    inner = event("aten::gelu", ON_DEVICE, [event("aten::gelu", HOST_FLOATS)])
    assert leaving(event("aten::linear", ON_DEVICE, [inner])) == ["aten::gelu"]
    assert leaving(event("aten::copy_", HOST_FLOATS + ON_DEVICE, [event("aten::mul", HOST_FLOATS + ON_DEVICE)])) == []


def test_what_an_operator_calls_on_the_device_is_judged_by_itself() -> None:
    steered = event(**RECORDED["repeat"][0])
    assert leaving(event("aten::tile", ON_DEVICE, [steered])) == []


def test_a_copy_within_the_device_that_goes_by_the_host_is_named() -> None:
    by_host = [event("aten::copy_", HOST_FLOATS + ON_DEVICE), event("aten::copy_", ON_DEVICE + HOST_FLOATS)]
    assert leaving(event("aten::copy_", ON_DEVICE + ON_DEVICE, by_host)) == ["aten::copy_"]
