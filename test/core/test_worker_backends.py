"""Targets that compute in a worker, without its process: exchanged arrays, errors, devices, and expected targets."""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardware.backends import _native_webgpu
from hardware.backends.base import ModelInput, Unsupported
from hardware.backends.factory import backend_class, get_backend
from hardware.errors import BackendUnavailable
from hardware.evidence.record import Outcome, Stage
from hardware.testing.measurement import Measurement
from hardware.testing.pytest_plugin import classify_error
from hardware.workers import Browser, Environment, WorkerDied, WorkerError, WorkerTimeout, onnx_worker

ADAPTER = {"vendor": "nvidia", "architecture": "ampere", "device": "", "description": "", "fallback": False}
DESCRIBED: dict[str, dict[str, Any]] = {
    "qnn": {"qnn": "2.40", "onnxruntime": "1.31", "onnxruntime_qnn": "2.7", "machine": "x86_64", "devices": []},
    "tpu": {"jax": "0.9", "torchax": "0.1", "flags": "", "machine": "x", "memory": 2**34, "torch": "", "devices": []},
    "webgpu": {"onnxruntime_web": "1.30", "browser": "150.0", "adapter": {**ADAPTER, "features": []}},
    "webnn": {
        "onnxruntime_web": "1.30",
        "browser": "150.0",
        "contexts": {kind: {"accelerated": kind != "cpu", "operators": 9} for kind in ("cpu", "npu")},
    },
    "webgpu:native": {"onnxruntime": "1.31"},
}


class FakeWorker:
    """Answers calls as a worker's process would: with `results`, or with an error; outputs go to their files."""

    def __init__(self, results: dict[str, Any] | None = None, error: Exception | None = None) -> None:
        self.results, self.error, self.calls, self.closed = results or {}, error, [], False

    def call(self, do: str, **arguments: Any) -> dict[str, Any]:
        with np.load(arguments["inputs"]) if "inputs" in arguments else open(os.devnull) as file:
            given = {name: file[name] for name in file.files} if "inputs" in arguments else {}
        self.calls.append((do, {**arguments, "given": given}))
        if self.error is not None and do != "placement":
            raise self.error
        if "outputs" in arguments:
            np.savez(arguments["outputs"], **self.results)
            Path(arguments["execution"]).write_text(json.dumps({"place": "here"}), encoding="utf-8")
        return self.results

    def close(self) -> None:
        self.closed = True


def backend(name: str, worker: FakeWorker | None = None) -> Any:
    made: Any = get_backend(name)
    made._worker = worker
    made.described = DESCRIBED.get(name, DESCRIBED[made.BACKEND_NAME])
    return made


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every target has an environment, with a browser."""
    python, browser = tmp_path / "env" / "bin" / "python", Browser(name="chromium", path=tmp_path / "chrome")
    found = Environment(target="x", python=python, reason="", versions={"libtpu": "1"}, browser=browser)
    monkeypatch.setattr("hardware.backends._worker_backend.environment_of", lambda target: found)


@pytest.mark.usefixtures("environment")
def test_arrays_go_to_the_worker_and_come_back_with_the_proof() -> None:
    largest = np.finfo(np.float32).min
    results = {"result.x": np.array([1, largest], np.float32), "codes": np.array([3])}
    given = {"x": np.arange(6, dtype=np.float32).reshape(2, 3).T}
    for name in ("webgpu", "webnn", "webgpu:native", "qnn"):
        worker = FakeWorker(results)
        target = backend(name, worker)
        got, proof = target.run_file(Path("model.onnx"), given, weights="bert")
        assert (sorted(got), proof) == (["codes", "x"], {"place": "here"}), name
        (do, arguments), *_ = worker.calls
        assert (do, arguments["weights"], arguments["model"]) == ("run", "bert", str(Path("model.onnx").absolute()))
        np.testing.assert_array_equal(arguments["given"]["x"], given["x"])
        got, _ = target.compute(Path("model.onnx"), given)
        assert (list(got), got["x"].dtype, got["x"].tolist()) == (["x"], np.float64, [1.0, -np.inf]), name
        assert target.reset()
        assert worker.closed
    assert backend("qnn").numbers(np.array([-65504.0, -65503.0])).tolist() == [-np.inf, -65503.0]


@pytest.mark.usefixtures("environment")
def test_an_error_of_a_worker_has_its_type_and_stage() -> None:
    cases = (
        ("qnn", WorkerTimeout("timeout", "run took longer than 1 s"), "timeout"),
        ("qnn", WorkerDied("crash", "the worker ended", "what(): std::bad_alloc"), "out_of_memory"),
        ("tpu", WorkerDied("crash", "the worker ended (signal 11)"), "crash"),
        (
            "qnn",
            WorkerError("Fail", "no kernel", "[E:onnxruntime] first\n[E:onnxruntime] second"),
            "unsupported_operator",
        ),
        ("tpu", WorkerError("NotImplementedError", "torchax has no lowering"), "unsupported_operator"),
        ("tpu", WorkerError("MemoryError", "allocation"), "out_of_memory"),
        ("tpu", WorkerError("ValueError", "odd"), "unknown"),
        ("webgpu", WorkerError("TimeoutError", "run in the page took longer"), "timeout"),
        ("webgpu", WorkerError("PageFailed", "device was lost"), "context_lost"),
    )
    broken = {"timeout": Outcome.TIMEOUT, "crash": Outcome.CRASHED, "out_of_memory": Outcome.OUT_OF_MEMORY}
    for name, error, error_type in cases:
        target = backend(name, FakeWorker({"assigned": {"CPUExecutionProvider": {"Resize": 2}}}, error))
        with pytest.raises(Unsupported) as caught:
            target.ask("run", stage=Stage.COMPILE, model="m.onnx")
        assert (caught.value.error_type, caught.value.stage) == (error_type, Stage.COMPILE), error
        assert error.message in str(caught.value)
        outcome = classify_error(caught.value, "builds", Measurement())[0]
        assert outcome == broken.get(error_type, Outcome.FAILED)
        if error_type == "unsupported_operator" and name == "qnn":
            assert "it leaves Resize (2) to the host; no kernel; first; second" in str(caught.value)


@pytest.mark.usefixtures("environment")
def test_a_runtime_that_starts_says_why_it_has_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardware.export.onnx_export.missing_packages", lambda: "")
    monkeypatch.setattr("hardware.backends.tpu.missing_tpu", lambda versions: "")
    tpu, torch = backend("tpu"), metadata.version("torch")
    here = {**DESCRIBED["tpu"], "devices": [{"platform": "tpu", "name": "TPU_0", "kind": "TPU v5e"}]}
    here["devices"] = [{**here["devices"][0], "coords": [x, y, 0]} for x in (0, 1) for y in (0, 1, 2, 3)]
    tpu.described = {**here, "torch": torch}
    assert (tpu.unavailable(), tpu.device_count, tpu.device) == ("", 1, "TPU_0")
    info = tpu.get_device_info()
    assert (info.vendor, info.total_memory_bytes) == ("google", 2**34)
    assert info.properties == {"version": "v5e", "topology": "2x4x1"}
    tpu.described = {**here, "torch": "1.0"}
    assert tpu.unavailable() == f"its environment has torch 1.0, but programs are exported with torch {torch}"
    host = backend("tpu:xla-cpu")
    host.described = {**here, "torch": torch}
    assert host.unavailable() == "PJRT returned tpu instead of cpu"
    assert {"label": "xla-cpu", "stands_in": "XLA on the host's CPU, not a TPU"}.items() <= host.facts().items()
    assert "stands_in" not in tpu.facts()
    assert backend("qnn").unavailable() == "onnxruntime-qnn lists no device"
    npu = backend("webnn:npu")
    npu.described = {**npu.described, "contexts": {"npu": {"reason": "no NPU"}}}
    assert npu.unavailable() == "no NPU"
    broken = backend("webgpu")
    broken.described = {**broken.described, "reason": "no adapter"}
    assert (broken.unavailable(), broken.device_count) == ("no adapter", 0)


@pytest.mark.usefixtures("environment")
def test_evidence_names_the_adapter_and_what_was_only_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    webgpu, subject = backend("webgpu"), ModelInput(model=None, task="other", identity="x")
    assert (webgpu.device, webgpu.is_software) == ("nvidia ampere", False)
    assert "stands_in" not in webgpu.facts()
    with pytest.raises(Unsupported, match="the adapter has no shader-f16") as caught:
        webgpu.load(subject, {}, "float16")
    assert (caught.value.error_type, caught.value.stage) == ("unsupported_dtype", Stage.LOAD)
    webgpu.described = {**webgpu.described, "adapter": {**ADAPTER, "architecture": "swiftshader", "features": []}}
    assert webgpu.is_software
    assert "stands_in" in webgpu.facts()
    npu, cpu = backend("webnn:npu"), backend("webnn")
    assert (npu.device, cpu.device) == ("npu context, as requested", "cpu context")
    assert (npu.provider()["deviceType"], "requested" in npu.facts(), "requested" in cpu.facts()) == (
        "npu",
        True,
        False,
    )
    assert [one.get_device_info().properties["accelerated"] for one in (npu, cpu)] == [True, False]
    settings = npu.session_settings()
    assert (settings["api"], settings["software"], settings["bundle"]) == ("webnn", False, "ort.all.min.mjs")
    for has_device in (True, False):
        monkeypatch.setattr(_native_webgpu, "has_own_device", lambda has_device=has_device: has_device)
        native = backend("webgpu:native")
        assert native.is_software is not has_device
        assert ("stands_in" in native.facts(), "requested" in native.facts()) == (not has_device, has_device)
    monkeypatch.setattr(
        "hardware.backends._worker_backend.environment_of",
        lambda target: Environment(target="x", python=None, reason="no environment", versions={}),
    )
    for target, call in ((webgpu, "places"), (backend("qnn"), "_worker_here")):
        with pytest.raises(BackendUnavailable, match="no environment"):
            getattr(target, call)()


def test_a_vulkan_device_needs_a_render_node_and_a_loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_native_webgpu, "_DRIVERS", tmp_path)
    monkeypatch.setattr(_native_webgpu.sys, "platform", "linux")
    found = []
    for library in (None, "libvulkan.so.1"):
        monkeypatch.setattr(_native_webgpu, "find_library", lambda name, library=library: library)
        (tmp_path / "renderD128").unlink(missing_ok=True)
        found.append(_native_webgpu.has_own_device())
        (tmp_path / "renderD128").touch()
        found.append(_native_webgpu.has_own_device())
    assert found == [False, False, False, True]


def test_a_target_is_expected_where_its_runtime_is_installed() -> None:
    def status(name: str, packages: dict[str, str], **facts: Any) -> Any:
        host = SimpleNamespace(machine=facts.get("machine", "x86_64"), system=facts.get("system", "Linux"))
        torch = SimpleNamespace(version=facts.get("torch"), reason="" if facts.get("torch") else "no torch")
        vendors = [SimpleNamespace(vendor="Google", reason=facts.get("google", ""))]
        inventory: Any = SimpleNamespace(
            **{"packages": packages, "host": host, "torch": torch, "vendors": vendors, "accelerators": []},
            **{"memory": SimpleNamespace(usable_bytes=8), "cpu": SimpleNamespace(model="a processor")},
        )
        return backend_class(name).expected(inventory)

    web = {"onnxruntime-web (webgpu)": "1.30", "chromium (webgpu)": "150.0"}
    for name, packages, reason in (
        ("openvino", {"openvino": "2026.4"}, "isn't installed"),
        ("qnn", {"onnxruntime-qnn": "2.7"}, "isn't set up: make setup-qnn"),
        ("tpu", {"torchax": "0.1"}, "torchax isn't set up: make setup-xla"),
        ("webgpu", web, "onnxruntime-web isn't set up: make setup-web"),
    ):
        assert status(name, packages, machine="aarch64").expected, name
        assert not status(name, {}).expected
        assert reason in status(name, {}).reason
    assert not status("webgpu", {"onnxruntime-web (webgpu)": "1.30"}).expected
    assert status("qnn", {"onnxruntime-qnn": "2.7"}).reason == "no HTP on x86_64; its emulator is qnn:emulator"
    assert status("qnn", {"onnxruntime-qnn": "2.7"}, machine="aarch64").device_name == "HTP"
    tpu = status("tpu", {"torchax": "0.1"}, google="the bus shows no TPU")
    assert (tpu.expected, tpu.reason.partition(";")[0]) == (False, "the bus shows no TPU")
    for name in ("cpu", "simulated"):
        assert (status(name, {}).expected, status(name, {}, torch="2.13").expected) == (False, True)
    assert status("mps", {}, torch="2.13").reason == "needs macOS; this is Linux"
    assert status("mps", {}, torch="2.13", system="Darwin").expected


def test_the_script_for_onnx_files_opens_a_session_once_and_writes_its_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened: list[dict[str, Any]] = []

    class Session:
        def __init__(self, model: str, options: Any, **facts: Any) -> None:
            self.providers = facts["providers"] or ["QNNExecutionProvider"]
            opened.append({"model": model, "options": vars(options), **facts})

        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"] if "Lost" in self.providers[0] else self.providers

        def get_inputs(self) -> list[Any]:
            return [SimpleNamespace(name="x")]

        def get_outputs(self) -> list[Any]:
            return [SimpleNamespace(name="y")]

        def run(self, names: list[str], given: dict[str, Any]) -> list[Any]:
            return [2 * given["x"]]

        def end_profiling(self) -> str:
            event = {"cat": "Node", "name": "n_kernel_time", "args": {"provider": "Own", "op_name": "Mul"}}
            file = tmp_path / "profile" / "p.json"
            file.parent.mkdir()
            file.write_text(json.dumps([event]), encoding="utf-8")
            return str(file)

    runtime = SimpleNamespace(
        **{"__version__": "1.31", "InferenceSession": Session, "SessionOptions": SimpleNamespace},
        GraphOptimizationLevel=SimpleNamespace(ORT_DISABLE_ALL=0),
        get_available_providers=lambda: ["OwnExecutionProvider"],
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    for name in ("_sessions", "_placed"):
        monkeypatch.setattr(onnx_worker, name, {})
    assert onnx_worker.describe(provider="OwnExecutionProvider") == {"onnxruntime": "1.31", "reason": ""}
    assert onnx_worker.describe(provider="Other")["reason"] == "this onnxruntime has no Other"
    np.savez(tmp_path / "inputs.npz", x=np.arange(3.0), more=np.ones(1))
    files = {name: str(tmp_path / f"{name}.npz") for name in ("inputs", "outputs")}
    settings = {"provider": "OwnExecutionProvider", "optimisation": "ORT_DISABLE_ALL"}
    for _ in range(2):
        proof = onnx_worker.run(model="m", settings=settings, execution=str(tmp_path / "e.json"), **files)
        with np.load(files["outputs"]) as outputs:
            assert outputs["y"].tolist() == [0.0, 2.0, 4.0]
        assert proof["placed"]["providers"] == {"Own": {"stated": 1, "all": False, "listed": [["Mul", "n"]]}}
        assert json.loads((tmp_path / "e.json").read_text(encoding="utf-8")) == proof
    (session,) = opened
    assert (session["providers"], session["enable_fallback"]) == (["OwnExecutionProvider"], 0)
    assert (session["options"]["graph_optimization_level"], session["options"]["enable_profiling"]) == (0, True)
    with pytest.raises(RuntimeError, match="the session only has CPUExecutionProvider"):
        onnx_worker.run(model="m", settings={**settings, "provider": "Lost"}, execution="", **files)
