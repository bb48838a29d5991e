"""Targets: found by their file's name or an entry point, chosen by what a user writes, and never guessed."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest
from front_doors import invoke

from hardware import registry
from hardware.backends import factory
from hardware.backends._device_info import OWN, settings_for
from hardware.backends.base import BaseBackend, Execution, FileInput, Runnable, Unsupported, coarsest
from hardware.backends.factory import (
    BackendFactory,
    BackendType,
    aliases,
    backend_class,
    built_in_targets,
    detect_best_backend,
    get_backend,
    get_optimizer,
    known_targets,
    list_available_backends,
    resolve_target,
)
from hardware.backends.simulated import FAULT_KINDS, FAULT_VARIABLE, SimulatedFault
from hardware.cell import Cell
from hardware.detection import detect
from hardware.errors import BackendUnavailable, BrokenPlugin, UsageError
from hardware.evidence.versions import relevant_versions, versions_of
from hardware.target import Target


class NoRunnable(Runnable):
    """The least that satisfies the type."""

    def __call__(self, **inputs):
        return {}

    def execution(self):
        return Execution(native={}, offloaded={}, dtype="float32", device="x", unseen="")

    def watched(self, inputs):
        return {}, {}


class PluggedBackend(BaseBackend):
    """The backend of a plugin, whose device is missing unless `reason` is empty."""

    BACKEND_NAME = "plugged"
    reason = "no such device"

    def _check_availability(self):
        return self.reason

    @property
    def device(self):
        return "plugged:0"

    @property
    def device_count(self):
        return 1

    def _get_device_info(self, device_id):
        return self.device_info("plugged:0", "a chip", memory=3 * 2**29)

    def known_answer(self):
        return (0.0, 0.0, 0.0)

    def load(self, subject, example_inputs, precision):
        return NoRunnable()


@pytest.fixture
def plug(monkeypatch):
    """Install a plugin of a name, as its package's entry point would declare it."""

    def install(name="plugged", value=f"{__name__}:PluggedBackend"):
        point = importlib.metadata.EntryPoint(name, value, factory.TARGETS.group)
        monkeypatch.setattr(registry, "entry_points", lambda group: {name: point})

    return install


def test_each_shipped_target_has_a_file_a_type_and_one_class_of_its_name():
    shipped = built_in_targets()
    assert {"cpu", "cuda", "rocm", "mps", "xpu", "openvino", "simulated"} <= set(shipped)
    assert not {"base", "factory", "_torch", "__init__"} & set(shipped)
    assert {one.value for one in BackendType} == {*shipped, "auto"}
    assert set(aliases().values()) <= set(shipped)
    for name in shipped:
        assert name == backend_class(name).BACKEND_NAME
        assert str(get_backend(name).target) == name


def test_what_a_user_writes_is_resolved():
    resolved = {
        "cpu": "cpu",
        " CPU ": "cpu",
        "cuda:1": "cuda:1",
        "nvidia": "cuda",
        "GPU": "cuda",
        "nvidia:1": "cuda:1",
        "amd": "rocm",
        "intel": "xpu",
        "apple": "mps",
        "OpenVINO:NPU": "openvino:NPU",
        "openvino:gpu.1": "openvino:GPU.1",
        "openvino:auto": "openvino:AUTO",
        "Chrome": "webgpu",
        "browser:native": "webgpu:native",
        "TPU:XLA-CPU": "tpu:xla-cpu",
    }
    assert {text: str(resolve_target(text)) for text in resolved} == resolved
    assert BackendFactory.create("NVIDIA").BACKEND_NAME == "cuda"
    assert BackendFactory.create(BackendType.INTEL).BACKEND_NAME == "xpu"
    assert BackendFactory.create(BackendType.TPU).BACKEND_NAME == "tpu"
    assert BackendType.GOOGLE is BackendType.TPU


def test_what_names_no_target_is_an_error_that_offers_the_right_one():
    wrong = {
        "cdua": "Did you mean 'cuda'?",
        "opnvino": "'openvino'",
        "nvdia": "'nvidia'",
        "autoo": "'auto'",
        "cpu:3": "cpu doesn't take an index",
        "simulated:0": "simulated doesn't take an index",
        "cuda:x": "cuda has no variant 'x'. Known: cuda, or with an index: cuda:0.",
        "cpu:x": "Known: cpu.",
        "openvino:XYZ": "Known: openvino, openvino:CPU, openvino:GPU, openvino:NPU, openvino:AUTO",
        "openvino:NPUU": "Did you mean 'npu'?",
        "tpu:cpu": "tpu has no variant 'cpu'",
        "tpu:0": "tpu doesn't take an index",
        **dict.fromkeys(
            ["", "base", "factory", "_torch", "../cpu", "cpu/../cuda", "hardware", "cuda\0"], "Known: cpu"
        ),
    }
    for text, says in wrong.items():
        with pytest.raises(UsageError, match="unknown device") as caught:
            resolve_target(text)
        assert says in str(caught.value), text
        assert caught.value.exit_code == 4
    for text in (":", "cuda:", "cuda:-1", "cuda:1:2", "openvino: NPU"):
        with pytest.raises(UsageError):
            resolve_target(text)
    for call in (BackendFactory.create, BackendFactory.is_available, get_backend, get_optimizer):
        with pytest.raises(UsageError, match="Did you mean 'cuda'"):
            call("cudaa")


def test_a_list_of_devices_is_taken_and_a_mistyped_one_refused_before_anything_is_read():
    read = invoke("generate", "--model", "bert", "--device", "simulated, CPU", "--list")
    assert [name in read.out for name in ("/simulated/", "/cpu/")] == [True, True], read.err
    wrong = invoke("run", "--model", "no-such-model", "--device", "cpu,opnvino")
    assert wrong.code == 4
    assert "unknown device 'opnvino'. Did you mean 'openvino'?" in wrong.err


def test_auto_takes_the_first_target_that_is_here(monkeypatch):
    here: set[str] = set()
    for name in built_in_targets():
        reason = lambda self, name=name: "" if name in here else "missing"  # noqa: E731
        monkeypatch.setattr(backend_class(name), "unavailable", reason)
    here |= {"openvino", "simulated", "webgpu", "qnn"}  # never taken without being named
    for name in ("cpu", "mps", "xpu", "tpu", "rocm", "cuda"):
        here.add(name)
        assert detect_best_backend() == get_backend().BACKEND_NAME == get_backend("AUTO").BACKEND_NAME == name
    assert set(list_available_backends()) == here


def test_a_plugin_is_a_target_like_the_others(plug, monkeypatch):
    plug()
    assert "plugged" in known_targets()
    backend = get_backend("plugged:2")
    assert isinstance(backend, PluggedBackend)
    assert (backend.target.index, backend.is_available, backend.unavailable()) == (2, False, "no such device")
    monkeypatch.setattr(factory, "known_targets", lambda: ("plugged",))
    missing = {"available": False, "class": "PluggedBackend", "reason": "no such device", "devices": []}
    assert BackendFactory.get_all_backend_info() == {"plugged": missing}
    info = backend.get_device_info()
    assert (info.is_available, info.reason, info.device_id, info.total_memory_bytes) == (
        False,
        missing["reason"],
        2,
        None,
    )
    assert list_available_backends() == ()
    monkeypatch.setattr(PluggedBackend, "reason", "")
    (device,) = BackendFactory.get_all_backend_info()["plugged"]["devices"]
    assert (device["device_name"], device["total_memory_bytes"]) == ("a chip", 3 * 2**29)
    assert (device["total_memory_gb"], device["total_memory_mb"]) == (1.5, 1536.0)
    assert list_available_backends() == ("plugged",)
    assert backend.get_device_info().is_available
    assert backend.get_device_info(5).reason == "plugged:5 not found: 1 device(s) found"
    backend.set_device(0)
    assert str(backend.target) == "plugged:0"
    with pytest.raises(BackendUnavailable, match=r"plugged:1 not found.*1 device\(s\) found"):
        backend.set_device(1)
    closed = []
    monkeypatch.setattr(PluggedBackend, "empty_cache", lambda self: closed.append(self))
    with backend as entered:
        assert entered is backend
        assert closed == []
    assert closed == [backend], "it gives back what it took"


def test_a_broken_plugin_is_named_and_none_replaces_a_target_that_ships(plug):
    plug("odd", "pathlib:Path")
    with pytest.raises(BrokenPlugin, match=r"plugin 'odd' \(pathlib:Path\) is not a backend"):
        backend_class("odd")
    plug("acme", "nothing_there.backend:Acme")
    with pytest.raises(BrokenPlugin, match="No module named 'nothing_there'"):
        backend_class("acme")
    plug("cpu")
    assert backend_class("cpu").__module__ == "hwcompat.hardware.backends.cpu"


def test_an_ability_that_a_runnable_lacks_is_not_pretended(tmp_path):
    runnable = NoRunnable()
    assert runnable.can == frozenset()
    calls = {"generate": ({},), "gradients": ({},), "save_and_reload": (tmp_path,)}
    for name, arguments in calls.items():
        with pytest.raises(NotImplementedError):
            getattr(runnable, name)(*arguments, **({"steps": 1} if name == "generate" else {}))


def test_a_backend_refuses_what_its_runtime_does_not_support(plug, tmp_path):
    plug()
    backend = get_backend("plugged")
    backend.require("float32")
    for call, error_type in (
        (lambda: backend.require("int4"), "unsupported_dtype"),
        (lambda: backend.load_file(FileInput(file=tmp_path / "net.xyz"), {}, "float32"), "unsupported_format"),
    ):
        with pytest.raises(Unsupported, match="plugged") as caught:
            call()
        assert caught.value.error_type == error_type
    assert not backend.reset()
    model = object()
    for level in (None, "O3"):
        assert backend.prepare_model(model, level) is backend.optimize_for_inference(model) is model
    assert backend.optimize_for_training(model) is model
    assert backend.optimize_for_training(model, 1) == (model, 1)
    result = backend.optimized
    assert (result.success, result.level, result.left_alone) == (False, "O2", True)
    assert result.warnings == ("plugged can't run torch modules directly: load() compiles them",)
    with pytest.raises(UsageError, match=r'NVIDIABackend takes a Target.*get_backend\("cuda"'):
        backend_class("cuda")({})
    assert backend.to_device(backend) is backend
    assert [get_backend(name).device_id for name in ("plugged", "plugged:2")] == [0, 2]


def test_a_proof_counts_what_its_allow_list_lacks_and_the_coarsest_dtype():
    proof = Execution(
        native={"aten.mm": 2},
        offloaded={"aten.arange": 1, "aten.add": 3},
        dtype="float32",
        device="x",
        unseen="",
        host_allowed=frozenset({"aten.arange"}),
    )
    assert proof.beyond_allowed == {"aten.add": 3}
    assert coarsest(["float32", "bfloat16", "float32"]) == "bfloat16"
    assert coarsest(["float32", "int64"]) == "float32"
    assert coarsest(["int64"]) == ""


def test_a_missing_runtime_says_how_to_install_it(monkeypatch):
    for name, package in (("cpu", "torch"), ("openvino", "openvino")):
        monkeypatch.setitem(sys.modules, package, None)
        assert get_backend(name).unavailable() == f"{package} isn't installed (pip install -r requirements.txt)"


def test_settings_have_reasons_and_the_callers_own_take_precedence():
    for name in built_in_targets():
        assert all(value["reason"] for value in settings_for(Target.parse(name)).to_dict().values()), name
    precisions = {"cuda": "bfloat16", "openvino:NPU": "float16", "openvino": "float32"}
    assert {name: settings_for(Target.parse(name)).precision.value for name in precisions} == precisions
    own = get_backend("cpu", config={"threads": 2}).settings
    assert (own.threads.value, own.threads.reason) == (2, OWN)
    assert own.batch_size == settings_for(Target.parse("cpu")).batch_size
    for config, says in (({"thread": 2}, "Did you mean 'threads'"), ({"threads": -1}, "not a valid value")):
        with pytest.raises(UsageError, match=says):
            get_backend("cpu", config=config)
    with pytest.raises(UsageError, match="not a valid value"):
        get_backend("cpu", config={"precision": 3})


def test_faults_of_the_simulated_device_parse_and_print_back():
    for kind in FAULT_KINDS:
        assert [str(SimulatedFault.parse(text)) for text in (kind, f"{kind}:aten.mm")] == [kind, f"{kind}:aten.mm"]
    assert SimulatedFault.parse("wrong@7") == SimulatedFault.parse("wrong@7")
    assert len({SimulatedFault.parse(f"wrong@{seed}").operator for seed in range(30)}) > 3
    fault = SimulatedFault.parse("wrong")
    assert (fault.hits("aten.addmm"), fault.hits("aten.view")) == (True, False)
    one = SimulatedFault.parse("wrong:aten.mm")
    assert (one.hits("aten.mm"), one.hits("aten.addmm")) == (True, False)
    for text in ("", "wrng", "wrong:", "wrong@", "wrong@x", "wrong:aten mm", "crash;ls", "CRASH"):
        with pytest.raises(UsageError, match=r"the simulated device has no fault.*Known: wrong, nan"):
            SimulatedFault.parse(text)


def test_a_fault_is_part_of_what_expires_evidence_and_a_misspelt_one_is_an_error(monkeypatch):
    inventory, cell = detect(), Cell.parse("bert/fill-mask/simulated/float32")
    whole = relevant_versions(cell, versions_of(inventory))
    monkeypatch.setenv(FAULT_VARIABLE, "wrong:aten.mm")
    assert relevant_versions(cell, versions_of(inventory)) != whole
    monkeypatch.setenv(FAULT_VARIABLE, "crsh:aten.mm")
    with pytest.raises(UsageError, match="Did you mean 'crash'"):
        get_backend("simulated")
