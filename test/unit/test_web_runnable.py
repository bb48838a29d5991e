"""Where the nodes of a model in a browser were, from the runtime's log: what may be on the host, and what may not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hardware.backends._web import WebBackend
from hardware.backends._web_runnable import WebRunnable
from hardware.backends.base import Unsupported

onnx = pytest.importorskip("onnx")

OWN, HOST = "OwnExecutionProvider", "CPUExecutionProvider"
CHOOSES = "onnx.ArgMax"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Cast (whole numbers to floating-point), Shape, ArgMax and MatMul."""
    helper, kinds = onnx.helper, onnx.TensorProto
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["mask"], ["weights"], name="cast", to=kinds.FLOAT),
            helper.make_node("Shape", ["values"], ["sizes"], name="shape"),
            helper.make_node("ArgMax", ["values"], ["places"], name="choose", axis=1),
            helper.make_node("MatMul", ["values", "weights"], ["result"], name="product"),
        ],
        "graph",
        [
            helper.make_tensor_value_info("values", kinds.FLOAT, [2, 2]),
            helper.make_tensor_value_info("mask", kinds.INT64, [2, 2]),
        ],
        [helper.make_tensor_value_info("result", kinds.FLOAT, [2, 2])],
    )
    made = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(made))
    return made


def placed(file: Path, nodes: dict[str, list[list[str]]]) -> tuple[Any, Any]:
    runnable: Any = object.__new__(WebRunnable)
    runnable.backend = SimpleNamespace(PROVIDER=OWN)
    return runnable._placed(file, {"nodes": nodes})


def test_what_reads_no_floating_point_number_may_be_on_the_host_and_no_more(file: Path):
    on_host = [["Cast", "cast"], ["Shape", "shape"], ["ArgMax", "choose"], ["MemcpyToHost", "x"]]
    native, host = placed(file, {OWN: [["MatMul", "product"]], HOST: on_host})
    assert native == {"onnx.MatMul": 1}
    assert set(host) - WebBackend.HOST_ALLOWED == {CHOOSES}, "it reads activations, though it gives places"


def test_a_node_that_the_runtime_put_in_is_allowed_by_no_name(file: Path):
    _, host = placed(file, {OWN: [["MatMul", "product"]], HOST: [["Cast", "InsertedPrecisionFreeCast"]]})
    assert set(host) - WebBackend.HOST_ALLOWED == {"onnx.Cast"}


def test_all_on_the_host_is_all_on_the_host(file: Path):
    native, host = placed(file, {HOST: [["", ""]] * 4})
    assert not native
    assert host["onnx.MatMul"] == 1


def test_a_log_that_says_nothing_proves_nothing(file: Path):
    with pytest.raises(Unsupported, match="doesn't tell where"):
        placed(file, {})


def test_decoding_that_leaves_products_to_the_host_is_refused(file: Path):
    runnable: Any = object.__new__(WebRunnable)
    proof = {"nodes": {HOST: [["MatMul", "product"]], OWN: [["Cast", "cast"]]}}
    runnable.subject = SimpleNamespace(identity="x")
    runnable.backend = SimpleNamespace(
        PROVIDER=OWN,
        FIXED_SHAPES=False,
        HOST_ALLOWED=WebBackend.HOST_ALLOWED,
        run_file=lambda *_, **__: ({}, proof),
    )
    with pytest.raises(Unsupported, match=r"decoding leaves onnx\.MatMul to the host") as caught:
        runnable._graph(file, {"values": 0, "mask": 0})
    assert caught.value.error_type == "silent_offload"
