"""Target openvino: the device that is asked for, and a proof that says what really ran where."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from hardware.backends._openvino_model import open_model
from hardware.backends._openvino_runnable import OpenVINORunnable
from hardware.backends.base import ModelSubject, Unsupported
from hardware.backends.factory import (
    get_backend,
)
from hardware.evidence.record import Stage
from hardware.export import Exported


@pytest.fixture
def openvino_devices(monkeypatch):
    """An OpenVINO that sees a processor and two GPUs."""
    core = SimpleNamespace(available_devices=["CPU", "GPU.0", "GPU.1"])
    monkeypatch.setitem(sys.modules, "openvino", SimpleNamespace(Core=lambda: core))


@pytest.mark.parametrize(
    ("choice", "device"),
    [("AUTO", "AUTO:CPU,GPU.0,GPU.1"), ("HETERO", "HETERO:CPU,GPU.0,GPU.1"), ("BATCH", "BATCH:CPU")],
)
def test_a_choice_is_between_all_devices_that_are_there(openvino_devices, choice, device):
    backend = get_backend(f"openvino:{choice}")
    assert backend.unavailable() == ""
    assert backend.device == device
    assert backend.is_asked_device("GPU.1")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("openvino", ""),
        ("openvino:GPU", ""),
        ("openvino:GPU.1", ""),
        ("openvino:GPU.2", "OpenVINO sees no GPU.2; it sees CPU, GPU.0, GPU.1"),
        ("openvino:NPU", "OpenVINO sees no NPU; it sees CPU, GPU.0, GPU.1"),
    ],
)
def test_openvino_is_where_the_runtime_sees_the_device(openvino_devices, text, reason):
    assert get_backend(text).unavailable() == reason


def compiled_on(devices, layer="FullyConnected", precision="f32"):
    """What OpenVINO tells of a compiled model of one node."""
    facts = {"layerType": SimpleNamespace(astype=lambda _: layer)}
    facts["runtimePrecision"] = SimpleNamespace(astype=lambda _: precision)
    node = SimpleNamespace(get_rt_info=lambda: facts)
    graph = SimpleNamespace(get_ordered_ops=lambda: [node])
    told = {"EXECUTION_DEVICES": devices, "KV_CACHE_PRECISION": SimpleNamespace(get_type_name=lambda: precision)}
    return SimpleNamespace(get_property=told.get, get_runtime_model=lambda: graph)


class Request:
    """What stands for OpenVINO's own request."""

    def infer(self):
        return {}

    def start_async(self):
        pass


@pytest.fixture(autouse=True)
def requests(request, monkeypatch):
    if "openvino_devices" not in request.fixturenames:
        import openvino

        monkeypatch.setattr(openvino, "InferRequest", Request)


class Opened:
    """An opened export whose one pass asks for an inference, or doesn't, and multiplies with torch as often as
    `products` says."""

    def __init__(self, compiled, products=0, asks=True, generates=False):
        self.compiled, self.products, self.asks, self.generates = compiled, products, asks, generates

    def takes(self, inputs):
        return True

    def __call__(self, inputs):
        import torch

        if self.asks:
            Request().infer()
        for _ in range(self.products):
            torch.ones(2, 2) @ torch.ones(2, 2)
        return {}

    def generate(self, inputs, *, steps):
        for _ in range(steps if self.asks else 1):
            Request().infer()


def test_products_that_torch_computes_beside_openvinos_graphs_count_as_offloaded():
    runnable = object.__new__(OpenVINORunnable)
    runnable.backend, runnable.precision = get_backend("openvino"), "float32"
    runnable.exported, runnable.example = SimpleNamespace(static=False), {}
    runnable.opened, runnable.can, runnable._by_shape = Opened([compiled_on(["CPU"])], products=3), frozenset(), {}
    assert runnable.execution().offloaded == {"aten.mm": 3}


@pytest.mark.parametrize("generates", [False, True])
def test_graphs_that_nobody_asks_to_run_prove_nothing(generates):
    runnable = object.__new__(OpenVINORunnable)
    runnable.backend, runnable.precision = get_backend("openvino"), "float32"
    runnable.exported, runnable.example = SimpleNamespace(static=False), {}
    runnable.subject = SimpleNamespace(model=None)
    runnable.opened = Opened([compiled_on(["CPU"])], asks=False, generates=generates)
    runnable.can, runnable._by_shape = frozenset({"generate"} if generates else ()), {}
    proof = runnable.execution()
    assert (proof.native, proof.offloaded) == ({}, {"openvino.FullyConnected": 1})
    assert runnable.watched({})[1] == {"openvino.FullyConnected": 1}
    runnable.opened.asks = True
    assert runnable.execution().native == {"openvino.FullyConnected": 1}
    assert runnable.watched({})[1] == {}


def test_a_cache_in_fewer_bits_than_asked_for_is_part_of_the_dtype():
    runnable = object.__new__(OpenVINORunnable)
    runnable.backend, runnable.precision = get_backend("openvino"), "float32"
    runnable.exported, runnable.example = SimpleNamespace(static=False), {}
    compiled = compiled_on(["CPU"])
    told = {"EXECUTION_DEVICES": ["CPU"], "KV_CACHE_PRECISION": SimpleNamespace(get_type_name=lambda: "u8")}
    compiled.get_property = told.get
    runnable.subject = SimpleNamespace(model=None)
    runnable.opened, runnable.can = Opened([compiled], generates=True), frozenset({"generate"})
    assert runnable.execution().dtype == "float32, its cache in u8"


@pytest.mark.parametrize(
    ("asked", "used", "native"),
    [
        ("openvino", ["CPU"], True),
        ("openvino:NPU", ["NPU"], True),
        ("openvino:GPU", ["GPU.0"], True),
        ("openvino:GPU.1", ["GPU.1"], True),
        ("openvino:GPU.1", ["GPU.0"], False),
        ("openvino:NPU", ["CPU"], False),
        ("openvino:NPU", ["NPU", "CPU"], False),
        ("openvino:NPU", ["(CPU)"], False),
        ("openvino:NPU", [], False),
    ],
)
def test_all_that_openvino_ran_on_another_device_than_asked_counts_as_offloaded(asked, used, native):
    runnable = object.__new__(OpenVINORunnable)
    runnable.backend, runnable.precision = get_backend(asked), "float32"
    runnable.exported, runnable.example = SimpleNamespace(static=False), {}
    runnable.opened, runnable.can = Opened([compiled_on(used)]), frozenset()
    proof = runnable.execution()
    ran = {"openvino.FullyConnected": 1}
    assert (proof.native, proof.offloaded) == ((ran, {}) if native else ({}, ran))
    assert proof.dtype == "float32"


def test_a_model_that_openvino_refuses_failed_at_compiling(monkeypatch, tmp_path):
    def refuse(*_):
        raise RuntimeError("Exception from src/plugins: no kernel")

    core = SimpleNamespace(read_model=lambda file: SimpleNamespace(inputs=[], outputs=[]), compile_model=refuse)
    subject = ModelSubject(model=None, task="fill-mask", identity="0")
    monkeypatch.setitem(sys.modules, "openvino", SimpleNamespace(Core=lambda: core))
    with pytest.raises(Unsupported, match="no kernel") as caught:
        open_model(Exported(folder=tmp_path, method="convert_model"), subject, "NPU", {})
    assert caught.value.stage is Stage.COMPILE


def test_openvino_tells_what_its_device_computes_in():
    import openvino

    capable = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    properties = get_backend("openvino").get_device_info().properties
    assert properties["bf16"] is ("BF16" in capable)
    assert properties["capabilities"] == ", ".join(sorted(capable))
    assert properties["architecture"]
