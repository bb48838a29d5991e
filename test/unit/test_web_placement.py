"""Where the nodes of a model in a browser were, by the runtime's log: read in the page, counted there and here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from in_node import asked, needs_node

from hardware.backends._web_placement import (
    MEMCPY_OPERATORS,
    REARRANGING_OPERATORS,
    WHOLE,
    Incomplete,
    placement,
)
from hardware.workers.onnx_worker import placed_by

pytestmark = needs_node
GPU, NN = "WebGpuExecutionProvider", "WebNNExecutionProvider"
STAMP = "2026-11-23 08:02:39.512000 [V:onnxruntime:, session_state.cc:1385 VerifyEachNodeIsAssignedToAnEp] "
OTHER = "2026-11-23 08:02:39.512000 [I:onnxruntime:, graph.cc:5610 CleanUnusedInitializersAndNodeArgs] "
HELPER = "2026-11-23 08:02:39.512000 [V:onnxruntime:, helper.cc:216 GetSupportedNodes] "
NODES = {"product": "onnx.MatMul", "sum": "onnx.Add", "part (1)": f"onnx.Slice{WHOLE}", "turn": "onnx.Transpose"}


def some(provider: str, count: int) -> str:
    return f"{STAMP} Node(s) placed on [{provider}]. Number of nodes: {count}"


def every(provider: str, count: int) -> str:
    return f"{STAMP} All nodes placed on [{provider}]. Number of nodes: {count}"


def nodes(*lines: str) -> list[str]:
    return [f"{STAMP}  {line}" for line in lines]


def fused(*names: str, stated: int | None = None) -> list[str]:
    lines = [
        f"{HELPER}Operator type: [{NODES.get(name, 'onnx.Conv').removeprefix('onnx.').removesuffix(WHOLE)}] "
        f"index: [{place}] name: [{name}] supported: [1]"
        for place, name in enumerate(names)
    ]
    total = len(names) if stated is None else stated
    return [
        *lines,
        f"{HELPER}Operator type: [Softmax] index: [9] name: [no] supported: [0]",
        f"\x1b[0;93m{OTHER}{NN}::GetCapability, number of partitions supported by WebNN: 1 number of nodes in the "
        f"graph: 4 number of nodes supported by WebNN: {total}\x1b[m",
    ]


def both(lines: Sequence[str], target: str = GPU) -> tuple[dict[str, int], dict[str, int]] | str:
    """Native and host operators, or what is incomplete, by the page's word and by ours: they are the same."""
    rules = {**{"provider": target, "copies": MEMCPY_OPERATORS, "rearranging": REARRANGING_OPERATORS, "whole": WHOLE}}
    call = "({ lines, nodes, rules }) => { const told = placed(lines); return [told, counted(told, nodes, rules)]; }"
    told, page = asked("placement.mjs", call, {"lines": list(lines), "nodes": NODES, "rules": rules})
    own: Any
    try:
        found = placement(told, NODES, target)
        own = {"native": found.native, "host": found.host}
    except Incomplete as error:
        own = {"incomplete": str(error)}
    assert page == own
    return str(own["incomplete"]) if "incomplete" in own else (dict(own["native"]), dict(own["host"]))


ALL = ({"onnx.MatMul": 1, "onnx.Add": 1, f"onnx.Slice{WHOLE}": 1, "onnx.Transpose": 1}, {})
SLICE_ON_HOST = ({"onnx.MatMul": 1, "onnx.Add": 1, "onnx.Transpose": 1}, {f"onnx.Slice{WHOLE}": 1})
ON_GPU = nodes("MatMul (product)", "Add (sum)", "Transpose (turn)", "MemcpyToHost (Memcpy)")
ON_HOST = nodes("Slice (part (1))")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        pytest.param([every(GPU, 4)], ALL, id="all on the target"),
        pytest.param([every(GPU, 9)], ALL, id="all on the target, with layouts that the runtime changed"),
        pytest.param([every("CPUExecutionProvider", 4)], ALL[::-1], id="all on the host"),
        pytest.param([some("CPU", 1), *ON_HOST, some(GPU, 4), *ON_GPU], SLICE_ON_HOST, id="on both"),
        pytest.param(
            ["\n".join([f"\x1b[0;93m{some(GPU, 4)}", *ON_GPU]), "\n".join([some("CPU", 1), "  Slice (part (1))"])],
            SLICE_ON_HOST,
            id="a message for each list",
        ),
        pytest.param(
            [
                some(GPU, 4),
                ON_GPU[0],
                "Shader compiled",
                f"{OTHER} Gone (away)",
                *ON_GPU[1:],
                some("CPU", 1),
                *ON_HOST,
            ],
            SLICE_ON_HOST,
            id="stray lines inside a list",
        ),
        pytest.param(
            [some(GPU, 4), *ON_GPU, some("CPU", 1), *ON_HOST, f"{STAMP}  Softmax (no node of ours)"],
            SLICE_ON_HOST,
            id="a line behind a list that has all its nodes",
        ),
        pytest.param(
            [
                *(some("CPU", 1), *ON_HOST, some(GPU, 4)),
                *nodes(
                    "MatMul (product_token_1)", "Add (sum)", "Transpose (Transpose_token_0)", "MemcpyToHost (Memcpy)"
                ),
            ],
            SLICE_ON_HOST,
            id="a node in another's place, and another Transpose",
        ),
    ],
)
def test_nodes_are_where_the_log_lists_them(lines: list[str], found: Any) -> None:
    assert both(lines) == found


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        pytest.param(["Shader compiled", f"{OTHER} Initializing session."], "doesn't tell where", id="nothing"),
        pytest.param(
            [some(GPU, 3), *ON_GPU[:3], some("CPU", 3), *ON_HOST, "stray"],
            "lists 1 of 3 nodes of CPU",
            id="a list cut off",
        ),
        pytest.param([some(GPU, 4), *ON_GPU], "no place for Slice (part (1))", id="a list that is missing"),
        pytest.param([every(GPU, 4), some("CPU", 1), *ON_HOST], "has all nodes, and others", id="two stories"),
        pytest.param(
            [every(GPU, 2)], "no place for MatMul (product)", id="fewer than the file has, and nothing fused"
        ),
    ],
)
def test_a_log_that_lost_something_proves_nothing(lines: list[str], reason: str) -> None:
    found = both(lines)
    assert isinstance(found, str)
    assert reason in found


def test_what_is_fused_counts_where_the_provider_says_that_it_takes_it() -> None:
    assert both([*fused(*NODES), every(NN, 1)], NN) == ALL
    lists = [
        some(NN, 2),
        *nodes(f"WEBNN_7_1 ({NN}_WEBNN_7_1_0)", "MemcpyFromHost (Memcpy)"),
        some("CPU", 1),
        *ON_HOST,
    ]
    assert both([*fused("product", "sum", "turn"), *lists], NN) == SLICE_ON_HOST
    assert both([*fused(*NODES), *lists], NN) == SLICE_ON_HOST, "what it could take, and another has, isn't its own"


@pytest.mark.parametrize(
    ("taken", "reason"),
    [
        (fused("product", "turn", "part (1)"), "no place for Add (sum)"),
        (fused("product", "turn", stated=3), "lists 2 of 3 nodes that are fused"),
        ([], "no place for MatMul (product)"),
    ],
)
def test_what_is_fused_and_not_told_of_proves_nothing(taken: list[str], reason: str) -> None:
    found = both([*taken, every(NN, 1)], NN)
    assert isinstance(found, str)
    assert reason in found


def test_without_a_browser_the_record_of_a_run_tells() -> None:
    def event(name: str, operator: str, provider: str) -> dict[str, Any]:
        return {"cat": "Node", "name": f"{name}_kernel_time", "args": {"op_name": operator, "provider": provider}}

    ran = [event("product", "MatMul", GPU), event("sum", "Add", GPU), event("turn", "Transpose", GPU)]
    record = [{"cat": "Session", "name": "model_run"}, *ran, event("part (1)", "Slice", "CPUExecutionProvider")]
    found = placement(placed_by(record), NODES, GPU)
    assert (found.native, found.host) == SLICE_ON_HOST
    with pytest.raises(Incomplete, match=r"no place for Slice \(part \(1\)\)"):
        placement(placed_by(ran), NODES, GPU)
