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
            dtype=SimpleNamespace(is_floating_point=dtype.startswith("float")),
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
        event("aten::copy_", HOST_FLOATS + ON_DEVICE),
        event("aten::copy_", [[[3], "cuda", "int64"], *HOST_INTEGERS]),
        event("aten::_copy_from_and_resize", HOST_INTEGERS + ON_DEVICE),
        event("aten::cumsum", [*HOST_INTEGERS, [[3], "cuda", "int64"]]),
    ],
    ids=["computed", "floats to the host", "whole numbers back", "whole numbers back by resize", "both at once"],
)
def test_a_kernel_that_goes_to_the_host_is_seen(inside: Any) -> None:
    assert leaving(event("aten::cumsum", ON_DEVICE, [inside])) == ["aten::cumsum"]


def test_an_operator_in_an_operator_is_named_and_a_copy_is_not() -> None:
    inner = event("aten::gelu", ON_DEVICE, [event("aten::gelu", HOST_FLOATS)])
    assert leaving(event("aten::linear", ON_DEVICE, [inner])) == ["aten::gelu"]
    assert leaving(event("aten::copy_", HOST_FLOATS + ON_DEVICE, [event("aten::mul", HOST_FLOATS + ON_DEVICE)])) == []
