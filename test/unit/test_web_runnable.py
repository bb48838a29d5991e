"""A model in a browser: which operators may run on the host, and what the proof of its passes covers."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hardware.backends import _web_runnable
from hardware.backends._web import WebBackend
from hardware.backends._web_placement import WHOLE
from hardware.backends._web_runnable import WebRunnable
from hardware.backends.base import STEPS, Unsupported

onnx = pytest.importorskip("onnx")

OWN, HOST = "OwnExecutionProvider", "CPUExecutionProvider"
ALL = [["Cast", "cast"], ["Shape", "shape"], ["ArgMax", "choose"], ["MatMul", "product"]]


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


def told(nodes: dict[str, list[list[str]]]) -> dict[str, Any]:
    """The report of a runtime that lists all of these."""
    providers = {name: {"stated": len(one), "all": False, "listed": one} for name, one in nodes.items()}
    return {"placed": {"providers": providers, "taken": {"stated": 0, "listed": []}}}


def runnable_of(proofs: dict[str, dict[str, Any]], files: dict[str, Path]) -> Any:
    """A runnable whose backend answers with these proofs, by file."""
    made: Any = object.__new__(WebRunnable)
    by_file = {files[name]: proof for name, proof in proofs.items()}
    made.model_input, made.folder, made.example = SimpleNamespace(identity="x", model=torch.nn.Module()), Path(), {}
    made.backend = SimpleNamespace(
        separates_models=True,
        PROVIDER=OWN,
        FIXED_SHAPES=False,
        HOST_ALLOWED=WebBackend.HOST_ALLOWED,
        device="here",
        described={},
        computed_in=lambda dtype: dtype,
        run_file=lambda file, *_, **__: ({}, by_file[file]),
        compute=lambda file, *_, **__: ({}, {**by_file[file], "said": []}),
    )
    made.graphs = {name: file for name, file in files.items() if name != "forward"}
    made.decoded, made.proofs, made.actual_dtype, made.unseen = {}, {}, "float32", "a kernel"
    made.files, made.of_numbers = {(): files["forward"]}, False
    return made


def test_the_host_may_run_only_nodes_of_the_file_that_read_no_floating_point_number(file: Path) -> None:
    place = runnable_of({}, {"forward": file})._placed
    on_host = [*ALL[:3], ["MemcpyToHost", "x"]]
    found = place(file, told({OWN: ALL[3:], HOST: on_host}))
    assert found.native == {"onnx.MatMul": 1}
    assert set(found.host) - WebBackend.HOST_ALLOWED == {"onnx.ArgMax"}, "it reads activations"
    found = place(file, told({OWN: ALL, HOST: [["Cast", "InsertedPrecisionFreeCast"]]}))
    assert set(found.host) - WebBackend.HOST_ALLOWED == {"onnx.Cast"}, "the runtime's own node"
    for nodes, reason in (
        ({}, "doesn't show where"),
        ({HOST: ALL[:2], OWN: ALL[3:]}, r"incomplete: it doesn't show where ArgMax \(choose\) ran"),
    ):
        with pytest.raises(Unsupported, match=reason) as caught:
            place(file, told(nodes))
        assert caught.value.error_type == "unknown"


def test_decoding_that_leaves_products_to_the_host_is_refused_and_kept_in_the_proof(file: Path) -> None:
    step = Path(shutil.copy(file, file.with_name("step.onnx")))
    proofs = {"forward": told({OWN: ALL}), "step": told({HOST: ALL[3:], OWN: ALL[:3]})}
    runnable = runnable_of(proofs, {"forward": file, "step": step})
    with pytest.raises(Unsupported, match=r"decoding leaves onnx\.MatMul to the host") as caught:
        runnable._graph("step", {"values": 0, "mask": 0})
    assert caught.value.error_type == "silent_offload"
    found = runnable.execution()
    assert found.beyond_allowed == {"onnx.MatMul": 1}
    assert found.native["onnx.MatMul"] == 1


def test_the_proof_is_of_the_forward_pass_and_of_decoding(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step, half = file.with_name("step.onnx"), onnx.load(str(file))
    for one in (*half.graph.input, *half.graph.output):
        if one.name != "mask":
            one.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    half.graph.node[0].attribute[0].i = onnx.TensorProto.FLOAT16
    onnx.save(half, str(step))
    proofs = {"forward": told({OWN: ALL}), "step": told({HOST: ALL[1:2], OWN: [ALL[0], *ALL[2:]]})}
    runnable = runnable_of(proofs, {"forward": file, "step": step})
    asked: list[int] = []

    def decode(_: Any, graphs: Any, __: Any, *, steps: int) -> None:
        asked.append(steps)
        graphs["step"]({"values": 0, "mask": 0})

    monkeypatch.setattr(_web_runnable, "decode", decode)
    found = runnable.execution()
    assert asked == [STEPS], "nothing was decoded before"
    assert found.native["onnx.MatMul"] == 2
    assert found.offloaded == {f"onnx.Shape{WHOLE}": 1}
    assert (found.dtype, found.unseen) == ("float16", "a kernel"), "the coarsest dtype of all files"
    runnable.execution()
    assert asked == [STEPS], "a decoded graph isn't decoded again"

    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("no such graph")

    runnable = runnable_of({"forward": told({OWN: ALL})}, {"forward": file, "step": file.with_name("gone.onnx")})
    runnable.generate = fail
    assert runnable.execution().unseen == "a kernel; decoding, raising ValueError"


def test_a_pass_on_another_adapter_than_described_proves_nothing(file: Path) -> None:
    swift = {"vendor": "google", "architecture": "swiftshader", "device": "", "description": "", "fallback": True}
    runnable = runnable_of({}, {"forward": file})
    runnable.backend.described = {"adapter": {**swift, "features": []}}
    report = {**told({OWN: ALL}), "adapter": swift}
    assert runnable._placed(file, report).native["onnx.MatMul"] == 1
    other = {"vendor": "nvidia", "architecture": "ampere", "fallback": False}
    runnable.backend.described = {"adapter": {**swift, **other}}
    reason = r"ran on google swiftshader \(software\), but nvidia ampere was described"
    with pytest.raises(Unsupported, match=reason):
        runnable._placed(file, report)
