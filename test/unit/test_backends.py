"""Backends are found by their file's name, chosen by what a user writes, and never guessed."""

from __future__ import annotations

import importlib.metadata
import sys
from types import SimpleNamespace

import pytest

from hardware.backends import factory
from hardware.backends._openvino_model import open_model
from hardware.backends.base import BaseBackend, Execution, ModelSubject, Runnable, Unsupported
from hardware.backends.factory import (
    ALIASES,
    backend_class,
    built_in_targets,
    get_backend,
    known_targets,
    resolve_target,
)
from hardware.backends.openvino import OpenVINORunnable
from hardware.errors import BrokenPlugin, UsageError
from hardware.evidence.record import Stage
from hardware.export import Exported
from hardware.target import Target


class NoRunnable(Runnable):
    """The least that satisfies the type."""

    def __call__(self, **inputs):
        return {}

    def execution(self):
        return Execution(native={}, offloaded={}, dtype="float32", device="x", unseen="")


class PluggedBackend(BaseBackend):
    """What a plug-in would bring."""

    BACKEND_NAME = "plugged"

    def _check_availability(self):
        return "no such device"

    @property
    def device(self):
        return "plugged:0"

    @property
    def device_count(self):
        return 0

    def _get_device_info(self, device_id):
        raise NotImplementedError

    def known_answer(self):
        return (0.0, 0.0, 0.0)

    def load(self, subject, example_inputs, precision):
        return NoRunnable()


@pytest.fixture
def plugged(monkeypatch):
    """A plug-in `plugged`, as its package's entry point would declare it."""
    point = importlib.metadata.EntryPoint("plugged", f"{__name__}:PluggedBackend", factory.ENTRY_POINT_GROUP)
    monkeypatch.setattr(factory, "_entry_points", lambda: {"plugged": point})
    return point


def test_the_targets_that_ship_are_there():
    assert {"cpu", "cuda", "rocm", "mps", "xpu", "openvino", "simulated"} <= set(built_in_targets())
    assert not {"base", "factory", "_torch", "__init__"} & set(built_in_targets())


@pytest.mark.parametrize("name", built_in_targets())
def test_a_target_leads_to_the_one_class_of_its_name(name):
    assert name == backend_class(name).BACKEND_NAME
    assert str(get_backend(name).target) == name


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("cpu", "cpu"),
        (" CPU ", "cpu"),
        ("cuda:1", "cuda:1"),
        ("nvidia", "cuda"),
        ("GPU", "cuda"),
        ("nvidia:1", "cuda:1"),
        ("amd", "rocm"),
        ("intel", "xpu"),
        ("apple", "mps"),
        ("OpenVINO:NPU", "openvino:NPU"),
        ("openvino:gpu.1", "openvino:GPU.1"),
        ("openvino:auto", "openvino:AUTO"),
    ],
)
def test_what_a_user_writes_is_resolved(text, target):
    assert str(resolve_target(text)) == target


def test_aliases_name_targets():
    assert set(ALIASES.values()) <= set(built_in_targets())


@pytest.mark.parametrize(
    ("text", "hint"),
    [("cdua", "Did you mean 'cuda'?"), ("opnvino", "'openvino'"), ("nvdia", "'nvidia'"), ("autoo", "'auto'")],
)
def test_a_misspelt_device_is_an_error_that_offers_the_right_one(text, hint):
    with pytest.raises(UsageError, match="unknown device") as caught:
        resolve_target(text)
    assert hint in str(caught.value)
    assert "Known: cpu" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", ":", "base", "factory", "_torch", "../cpu", "cpu/../cuda", "hardware", "cuda\0"]
)
def test_nothing_but_a_target_is_imported(text):
    with pytest.raises(UsageError):
        resolve_target(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cpu:3", "cpu takes no index"),
        ("simulated:0", "simulated takes no index"),
        ("cuda:x", "cuda has no variant 'x'. Known: cuda, and with an index: cuda:0."),
        ("cpu:x", "Known: cpu."),
        ("openvino:XYZ", "Known: openvino, openvino:CPU, openvino:GPU, openvino:NPU, openvino:AUTO"),
        ("openvino:NPUU", "Did you mean 'npu'?"),
    ],
)
def test_a_target_that_cannot_be_is_an_error_that_names_those_that_can(text, says):
    with pytest.raises(UsageError, match="unknown device") as caught:
        resolve_target(text)
    assert says in str(caught.value)
    assert caught.value.exit_code == 4


def test_an_index_beyond_what_is_there_is_a_missing_device():
    assert not get_backend("cuda:99").is_available


@pytest.mark.parametrize("text", ["cuda:", "cuda:-1", "cuda:1:2", "openvino: NPU"])
def test_a_known_name_with_a_broken_rest_is_refused(text):
    with pytest.raises(UsageError):
        resolve_target(text)


def test_a_plug_in_is_a_target_like_the_others(plugged):
    assert "plugged" in known_targets()
    backend = get_backend("plugged:2")
    assert isinstance(backend, PluggedBackend)
    assert backend.target.index == 2
    assert not backend.is_available
    assert backend.unavailable() == "no such device"


def test_a_plug_in_that_is_no_backend_is_named(monkeypatch):
    point = importlib.metadata.EntryPoint("odd", "pathlib:Path", factory.ENTRY_POINT_GROUP)
    monkeypatch.setattr(factory, "_entry_points", lambda: {"odd": point})
    with pytest.raises(BrokenPlugin, match=r"plug-in 'odd' \(pathlib:Path\) is no backend"):
        backend_class("odd")


def test_a_plug_in_that_cannot_be_imported_is_a_broken_plug_in(monkeypatch):
    point = importlib.metadata.EntryPoint("acme", "nothing_there.backend:Acme", factory.ENTRY_POINT_GROUP)
    monkeypatch.setattr(factory, "_entry_points", lambda: {"acme": point})
    with pytest.raises(BrokenPlugin, match="No module named 'nothing_there'"):
        backend_class("acme")


def test_a_plug_in_cannot_take_the_place_of_a_target_that_ships(monkeypatch):
    point = importlib.metadata.EntryPoint("cpu", f"{__name__}:PluggedBackend", factory.ENTRY_POINT_GROUP)
    monkeypatch.setattr(factory, "_entry_points", lambda: {"cpu": point})
    assert backend_class("cpu").__module__ == "hardware.backends.cpu"


def test_a_backend_closes_when_its_block_ends(plugged, monkeypatch):
    closed = []
    monkeypatch.setattr(PluggedBackend, "close", lambda self: closed.append(self))
    with get_backend("plugged") as backend:
        assert closed == []
    assert closed == [backend]


@pytest.mark.parametrize("ability", ["generate", "gradients", "save_and_reload"])
def test_an_ability_that_a_runnable_lacks_is_not_pretended(ability, tmp_path):
    runnable = NoRunnable()
    assert runnable.can == frozenset()
    call = {
        "generate": lambda: runnable.generate({}, steps=1),
        "gradients": lambda: runnable.gradients({}),
        "save_and_reload": lambda: runnable.save_and_reload(tmp_path),
    }
    with pytest.raises(NotImplementedError):
        call[ability]()


def test_only_operators_off_the_allow_list_count_as_beyond_it():
    proof = Execution(
        native={"aten.mm": 2},
        offloaded={"aten.arange": 1, "aten.add": 3},
        dtype="float32",
        device="x",
        unseen="",
        host_allowed=frozenset({"aten.arange"}),
    )
    assert proof.beyond_allowed == {"aten.add": 3}


def test_cpu_and_simulated_are_here_and_an_index_that_is_not_says_so():
    assert get_backend("cpu").is_available
    assert get_backend("simulated").is_available
    assert "isn't there" in get_backend(Target(name="cpu", index=7)).unavailable()


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
    return SimpleNamespace(get_property={"EXECUTION_DEVICES": devices}.get, get_runtime_model=lambda: graph)


class Opened:
    """An opened export whose one pass multiplies with torch as often as `products` says."""

    generates = False

    def __init__(self, compiled, products=0):
        self.compiled, self.products = compiled, products

    def takes(self, inputs):
        return True

    def __call__(self, inputs):
        import torch

        for _ in range(self.products):
            torch.ones(2, 2) @ torch.ones(2, 2)
        return {}


def test_products_that_torch_computes_beside_openvinos_graphs_count_as_offloaded():
    runnable = object.__new__(OpenVINORunnable)
    runnable.backend, runnable.precision = get_backend("openvino"), "float32"
    runnable.exported, runnable.example = SimpleNamespace(static=False), {}
    runnable.opened = Opened([compiled_on(["CPU"])], products=3)
    assert runnable.execution().offloaded == {"aten.mm": 3}


def test_a_cache_in_fewer_bits_than_asked_for_is_part_of_the_dtype():
    runnable = object.__new__(OpenVINORunnable)
    runnable.backend, runnable.precision = get_backend("openvino"), "float32"
    runnable.exported, runnable.example = SimpleNamespace(static=False), {}
    compiled = compiled_on(["CPU"])
    told = {"EXECUTION_DEVICES": ["CPU"], "KV_CACHE_PRECISION": SimpleNamespace(get_type_name=lambda: "u8")}
    compiled.get_property = told.get
    runnable.opened = Opened([compiled])
    runnable.opened.generates = True
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
    runnable.opened = Opened([compiled_on(used)])
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


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("cuda", {"compute_capability": "9.0", "bf16": True, "fp8_supported": True, "topology": "reads 0 directly"}),
        ("rocm", {"compute_capability": "gfx942", "bf16": True, "fp8_supported": True}),
        ("xpu", {"driver_version": "1.6", "bf16": True, "topology": "a card of its own"}),
    ],
)
def test_device_info_is_what_torch_tells_of_the_device(monkeypatch, name, extra):
    import torch

    backend = get_backend(f"{name}:1")
    found = SimpleNamespace(
        name="Device",
        total_memory=2**30,
        **{"major": 9, "minor": 0, "multi_processor_count": 132},
        gcnArchName="gfx942:sramecc+:xnack-",
        **{"driver_version": "1.6", "version": "12.0", "has_bfloat16_conversions": True, "is_integrated_gpu": False},
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda _one, _other: True)
    asked = []
    api = getattr(torch, backend.DEVICE_TYPE)
    monkeypatch.setattr(api, "get_device_properties", lambda device: asked.append(str(device)) or found)
    info = backend.get_device_info()
    assert asked == [f"{backend.DEVICE_TYPE}:1"]
    assert (info.backend, info.device_name, info.device_id, info.total_memory_gb) == (name, "Device", 1, 1.0)
    told = info.to_dict() | dict(info.properties)
    assert {field: told[field] for field in extra} == extra


@pytest.mark.parametrize(
    ("name", "facts", "bf16", "fp8"),
    [
        ("cuda", {"major": 7, "minor": 5}, False, False),
        ("cuda", {"major": 8, "minor": 0}, True, False),
        ("cuda", {"major": 8, "minor": 9}, True, True),
        ("rocm", {"gcnArchName": "gfx906"}, False, False),
        ("rocm", {"gcnArchName": "gfx90a"}, True, False),
        ("rocm", {"gcnArchName": "gfx1201"}, True, True),
    ],
)
def test_small_precisions_are_those_of_the_architecture(monkeypatch, name, facts, bf16, fp8):
    import torch

    found = SimpleNamespace(name="Device", total_memory=1, multi_processor_count=1, **facts)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: found)
    properties = get_backend(name).get_device_info().properties
    assert (properties["bf16"], properties["fp8_supported"]) == (bf16, fp8)


def test_openvino_tells_what_its_device_computes_in():
    import openvino

    capable = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    properties = get_backend("openvino").get_device_info().properties
    assert properties["bf16"] is ("BF16" in capable)
    assert properties["capabilities"] == ", ".join(sorted(capable))
    assert properties["architecture"]


@pytest.mark.parametrize("name", ["cuda", "rocm", "xpu", "mps"])
def test_a_closed_model_gives_the_devices_cached_memory_back(monkeypatch, name):
    import torch

    backend = get_backend(name)
    emptied = []
    monkeypatch.setattr(getattr(torch, backend.DEVICE_TYPE), "empty_cache", lambda: emptied.append(name))
    backend.empty_cache()
    assert emptied == [], "nobody has asked for the device yet"
    backend.torch_device()
    backend.empty_cache()
    assert emptied == [name]


@pytest.mark.parametrize(("name", "package"), [("cpu", "torch"), ("openvino", "openvino")])
def test_a_missing_runtime_says_how_to_install_it(monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    assert get_backend(name).unavailable() == f"{package} isn't installed (pip install -r requirements.txt)"


def test_a_torch_without_a_device_gives_the_reason():
    import torch

    if torch.version.cuda or torch.version.hip:
        pytest.skip("this torch is built for a GPU")
    assert get_backend("cuda").unavailable() == "this torch is built without CUDA"
    assert not get_backend("rocm").is_available
