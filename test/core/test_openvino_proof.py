"""Target openvino: the proof says which nodes and products ran on the device that was asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import openvino
import pytest
import torch

from hardware.backends._openvino_runnable import OpenVINORunnable
from hardware.backends.factory import get_backend

RAN = {"openvino.FullyConnected": 1}


def compiled_on(devices: list[str], cache: str = "f32", **more: str) -> Any:
    """What OpenVINO reports of a compiled model of one node, with `more` facts about the node."""
    texts = {"layerType": "FullyConnected", "runtimePrecision": "f32", **more}
    facts = {name: SimpleNamespace(astype=lambda _, text=text: text) for name, text in texts.items()}
    graph = SimpleNamespace(get_ordered_ops=lambda: [SimpleNamespace(get_rt_info=lambda: facts)])
    told = {"EXECUTION_DEVICES": devices, "KV_CACHE_PRECISION": SimpleNamespace(get_type_name=lambda: cache)}
    return SimpleNamespace(get_property=told.get, get_runtime_model=lambda: graph)


class Request:
    """Takes the place of OpenVINO's own request."""

    def infer(self) -> Any:
        return {}

    def start_async(self) -> None:
        pass


@pytest.fixture(autouse=True)
def requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvino, "InferRequest", Request)


class Opened:
    """An opened export whose pass asks for an inference, or doesn't, and takes some products with torch."""

    def __init__(self, compiled: Any, products: int = 0, asks: bool = True, generates: bool = False) -> None:
        self.compiled, self.products, self.asks, self.generates = [compiled], products, asks, generates

    def takes(self, inputs: Any) -> bool:
        return True

    def __call__(self, inputs: Any) -> Any:
        if self.asks:
            Request().infer()
        for _ in range(self.products):
            torch.ones(2, 2) @ torch.ones(2, 2)
        return {}

    def generate(self, inputs: Any, *, steps: int) -> None:
        for _ in range(steps if self.asks else 1):
            Request().infer()


def runnable_of(opened: Opened, target: str = "openvino") -> Any:
    runnable: Any = object.__new__(OpenVINORunnable)
    runnable.backend, runnable.precision, runnable.example = get_backend(target), "float32", {}
    runnable.exported, runnable.model_input = SimpleNamespace(static=False), SimpleNamespace(model=None)
    runnable.opened, runnable._by_shape = opened, {}
    runnable.can = frozenset({"generate"} if opened.generates else ())
    return runnable


def test_nodes_on_another_device_than_asked_and_products_of_torch_are_offloaded() -> None:
    for target, used, native in (
        ("openvino", ["CPU"], True),
        ("openvino:NPU", ["CPU"], False),
        ("openvino:NPU", ["NPU", "CPU"], False),
        ("openvino:NPU", [], False),
    ):
        proof = runnable_of(Opened(compiled_on(used)), target).execution()
        assert (proof.native, proof.offloaded) == ((RAN, {}) if native else ({}, RAN)), (target, used)
        assert proof.dtype == "float32"
    assert runnable_of(Opened(compiled_on(["CPU"]), products=3)).execution().offloaded == {"aten.mm": 3}
    kept = runnable_of(Opened(compiled_on(["CPU"], cache="u8"), generates=True))
    assert kept.execution().dtype == "float32, its cache in u8"


def test_weights_of_fewer_bits_are_no_computation_in_them() -> None:
    for stated, kernel, computed in (
        ("f16", "brgconv_avx512_1x1_f32", "float32"),
        ("i8", "brgemm_avx2_f32", "float32"),
        ("f16", "brgconv_avx512_f16", "float16"),
        ("f16", "unknown", "float16"),
    ):
        compiled = compiled_on(["CPU"], runtimePrecision=stated, primitiveType=kernel)
        assert runnable_of(Opened(compiled)).execution().dtype == computed, (stated, kernel)


@pytest.mark.parametrize("generates", [False, True])
def test_graphs_that_are_never_run_prove_nothing(generates: bool) -> None:
    runnable = runnable_of(Opened(compiled_on(["CPU"]), asks=False, generates=generates))
    proof = runnable.execution()
    assert (proof.native, proof.offloaded) == ({}, RAN)
    assert runnable.watched({})[1] == RAN
    runnable.opened.asks = True
    assert runnable.execution().native == RAN
    assert runnable.watched({})[1] == {}


def test_openvino_reports_what_its_device_computes_in() -> None:
    capable = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    properties = get_backend("openvino").get_device_info().properties
    assert properties["bf16"] is ("BF16" in capable)
    assert properties["capabilities"] == ", ".join(sorted(capable))
    assert properties["architecture"]
