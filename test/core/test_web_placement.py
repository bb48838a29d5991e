"""Where the nodes of a model's file ran, counted from what ONNX Runtime reported of them."""

from __future__ import annotations

from typing import Any

import pytest

from hardware.backends._web_placement import WHOLE, Incomplete, placement
from hardware.workers.onnx_worker import placed_by

GPU, NN, HOST = "WebGpuExecutionProvider", "WebNNExecutionProvider", "CPUExecutionProvider"
NODES = {"product": "onnx.MatMul", "sum": "onnx.Add", "part": f"onnx.Slice{WHOLE}", "turn": "onnx.Transpose"}
EVERY = {"onnx.MatMul": 1, "onnx.Add": 1, f"onnx.Slice{WHOLE}": 1, "onnx.Transpose": 1}
SLICE = {f"onnx.Slice{WHOLE}": 1}
REST = {name: count for name, count in EVERY.items() if name not in SLICE}
ON_GPU = ("MatMul product", "Add sum", "Transpose turn", "MemcpyToHost Memcpy")


def named(*nodes: str) -> list[list[str]]:
    return [node.split() for node in nodes]


def listed(*nodes: str, stated: int | None = None) -> dict[str, Any]:
    return {"stated": len(nodes) if stated is None else stated, "all": False, "listed": named(*nodes)}


def every(count: int) -> dict[str, Any]:
    return {"stated": count, "all": True, "listed": []}


def counted(
    providers: dict[str, dict[str, Any]], taken: tuple[str, ...] = (), stated: int | None = None, target: str = GPU
) -> Any:
    """The operators on the target and on the host, or the reason why the report is incomplete."""
    told = {"providers": providers, "taken": listed(*taken, stated=stated)}
    try:
        found = placement(told, NODES, target)
    except Incomplete as error:
        return str(error)
    return found.native, found.host


def test_nodes_are_counted_where_the_report_lists_them() -> None:
    assert counted({GPU: every(4)}) == (EVERY, {})
    assert counted({GPU: every(9)}) == (EVERY, {}), "layouts that the runtime changed are nodes of its own"
    assert counted({HOST: every(4)}) == ({}, EVERY)
    assert counted({HOST: listed("Slice part"), GPU: listed(*ON_GPU)}) == (REST, SLICE)
    replaced = listed("MatMul product_token_1", "Add sum", "Transpose Transpose_token_0")
    assert counted({HOST: listed("Slice part"), GPU: replaced}) == (REST, SLICE), "another node of the same operator"


def test_a_file_of_constants_alone_needs_no_record() -> None:
    found = placement({"providers": {}, "taken": listed()}, {}, GPU)
    assert (found.native, found.host) == ({}, {})


def test_an_incomplete_report_proves_nothing() -> None:
    incomplete = {
        "doesn't show where": counted({}),
        "lists 1 of 3 nodes of CPU": counted({GPU: listed(*ON_GPU), "CPU": listed("Slice part", stated=3)}),
        "where Slice (part) ran": counted({GPU: listed(*ON_GPU)}),
        "reports all nodes, but other providers": counted({GPU: every(4), HOST: listed("Slice part")}),
        "where MatMul (product) ran": counted({GPU: every(2)}),
        "where Add (sum) ran": counted({NN: every(1)}, ("MatMul product", "Slice part"), target=NN),
        "lists 2 of 3 fused nodes": counted({NN: every(1)}, ("MatMul product", "Add sum"), 3, target=NN),
    }
    for reason, found in incomplete.items():
        assert isinstance(found, str), found
        assert reason in found


def test_fused_nodes_count_where_the_provider_says_that_it_takes_them() -> None:
    all_of_it = ("MatMul product", "Add sum", "Slice part", "Transpose turn")
    assert counted({NN: every(1)}, all_of_it, target=NN) == (EVERY, {})
    lists = {NN: listed(f"WEBNN_7_1 {NN}_WEBNN_7_1_0", "MemcpyFromHost Memcpy"), HOST: listed("Slice part")}
    assert counted(lists, ("MatMul product", "Add sum", "Transpose turn"), target=NN) == (REST, SLICE)
    assert counted(lists, all_of_it, target=NN) == (REST, SLICE), "a node that another provider ran isn't its own"


def test_the_profile_of_a_run_places_nodes_without_a_browser() -> None:
    def event(name: str, operator: str, provider: str) -> dict[str, Any]:
        return {"cat": "Node", "name": f"{name}_kernel_time", "args": {"op_name": operator, "provider": provider}}

    ran = [event("product", "MatMul", GPU), event("sum", "Add", GPU), event("turn", "Transpose", GPU)]
    record = [{"cat": "Session", "name": "model_run"}, *ran, event("part", "Slice", HOST)]
    found = placement(placed_by(record), NODES, GPU)
    assert (found.native, found.host) == (REST, SLICE)
    with pytest.raises(Incomplete, match=r"where Slice \(part\) ran"):
        placement(placed_by(ran), NODES, GPU)
