"""Workers: processes of another Python that are asked several times, fail by name, and are ended by their own id."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hardware.backends.base import Unsupported
from hardware.backends.factory import get_backend
from hardware.evidence.record import Outcome, Stage
from hardware.testing.measurement import Measurement
from hardware.testing.pytest_plugin import classify_error
from hardware.workers import Worker, WorkerDied, WorkerError, WorkerTimeout, environment_of, environment_versions
from hardware.workers.worker import SCRIPTS

OURS = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    do, arguments = request["do"], request["arguments"]
    if do == "hang":
        time.sleep(600)
    if do == "die":
        os.kill(os.getpid(), 11)
    if do == "run out":
        print("terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 6)
    if do == "fail":
        print("[E: libSomething.so: cannot open", file=sys.stderr, flush=True)
        answer = {"error": {"type": "ZeroDivisionError", "message": "division by zero"}}
    else:
        answer = {"result": {"pid": os.getpid(), "modules": [name for name in sys.modules if name == "hardware"]}}
    print(json.dumps({"id": request["id"], **answer}), flush=True)
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    script = tmp_path / "script.py"
    script.write_text(OURS, encoding="utf-8")
    with Worker(Path(sys.executable), timeout_s=30, script=script) as worker:
        yield worker


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def test_one_process_answers_several_calls(worker: Worker) -> None:
    assert worker.pid is None, "nothing is started before the first call"
    first, second = worker.call("say"), worker.call("say")
    assert first["pid"] == second["pid"] == worker.pid
    assert first["modules"] == []


def test_an_error_comes_back_with_its_type_and_message_and_the_worker_lives_on(worker: Worker) -> None:
    before = worker.call("say")["pid"]
    with pytest.raises(WorkerError, match="division by zero") as caught:
        worker.call("fail")
    assert caught.value.error_type == "ZeroDivisionError"
    assert "libSomething.so" in caught.value.log
    assert worker.call("say")["pid"] == before


def test_a_call_that_hangs_ends_its_process_and_the_next_starts_anew(worker: Worker) -> None:
    before = int(worker.call("say")["pid"])
    with pytest.raises(WorkerTimeout, match=r"hang took longer than 0\.5 s"):
        worker.call("hang", timeout_s=0.5)
    assert not _is_alive(before)
    assert worker.call("say")["pid"] != before


def test_a_process_that_dies_is_told_with_its_signal(worker: Worker) -> None:
    with pytest.raises(WorkerDied, match=r"during die \(signal 11\)"):
        worker.call("die")
    assert worker.call("say")["pid"]


@pytest.mark.parametrize(
    ("do", "outcome"),
    [("hang", Outcome.TIMEOUT), ("die", Outcome.CRASHED), ("run out", Outcome.OUT_OF_MEMORY)],
)
def test_a_breakdown_of_a_worker_is_the_outcome_that_a_child_s_would_be(
    worker: Worker, do: str, outcome: Outcome
) -> None:
    backend: Any = get_backend("qnn")
    backend._worker = worker
    worker.timeout_s = 0.5 if do == "hang" else worker.timeout_s
    with pytest.raises(Unsupported) as caught:
        backend.call(do, stage=Stage.RUN)
    found = classify_error(caught.value, "builds", Measurement())
    assert found == (outcome, caught.value.error_type)
    assert found[0].is_failure


def test_what_a_runtime_refuses_is_no_breakdown() -> None:
    refused = Unsupported("no kernel", error_type="unsupported_operator")
    assert classify_error(refused, "builds", Measurement()) == (Outcome.FAILED, "unsupported_operator")
    full = Unsupported("memory access past its end", error_type="out_of_memory")
    assert classify_error(full, "builds", Measurement()) == (Outcome.OUT_OF_MEMORY, "out_of_memory")


def test_closing_ends_the_process(worker: Worker) -> None:
    pid = int(worker.call("say")["pid"])
    worker.close()
    for _ in range(100):
        if not _is_alive(pid):
            break
        time.sleep(0.02)
    assert not _is_alive(pid)


@pytest.mark.parametrize("name", ["onnx_worker", "web_worker", "browsers", "serving"])
def test_what_runs_in_a_worker_imports_nothing_of_ours(name: str) -> None:
    text = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines()]
    assert not [line for line in lines if line.startswith(("from .", "import hardware", "from hardware"))]


def test_our_script_tells_of_a_module_that_is_missing() -> None:
    script = SCRIPTS / "onnx_worker.py"
    with Worker(Path(sys.executable), timeout_s=60, script=script) as worker, pytest.raises(WorkerError) as caught:
        worker.call("describe", module="no_such_provider")
    assert caught.value.error_type == "ModuleNotFoundError"
    assert "no_such_provider" in caught.value.message


def test_a_missing_environment_is_told_with_the_command_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HWCOMPAT_QNN_PYTHON", "nowhere/bin/python")
    monkeypatch.setenv("HWCOMPAT_XLA_PYTHON", "nowhere/bin/python")
    monkeypatch.setenv("HWCOMPAT_WEB_PYTHON", "nowhere/bin/python")
    found = environment_of("qnn")
    assert found.python is None
    assert found.reason == "HWCOMPAT_QNN_PYTHON names no Python (make setup-qnn)"
    assert environment_versions() == {}
    assert get_backend("qnn").unavailable() == found.reason
    assert get_backend("qnn").device_count == 0


def test_an_environment_without_the_package_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setenv("HWCOMPAT_QNN_PYTHON", str(python))
    assert environment_of("qnn").python is None
    assert "onnxruntime-qnn isn't in its environment (make setup-qnn)" in environment_of("qnn").reason


def test_versions_are_read_without_starting_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    for name, version in (("onnxruntime_qnn", "2.7.0"), ("onnxruntime", "1.31.1")):
        folder = tmp_path / "lib" / "python3.11" / "site-packages" / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        (folder / "METADATA").write_text(metadata, encoding="utf-8")
    monkeypatch.setenv("HWCOMPAT_QNN_PYTHON", str(python))
    monkeypatch.setenv("HWCOMPAT_XLA_PYTHON", str(tmp_path / "nowhere"))
    monkeypatch.setenv("HWCOMPAT_WEB_PYTHON", str(tmp_path / "nowhere"))
    assert environment_of("qnn").python == python
    assert environment_versions() == {"onnxruntime-qnn": "2.7.0", "onnxruntime (qnn)": "1.31.1"}


@pytest.mark.parametrize("path", ["x" * 5000, "a/" * 3000, "~nobody/python", "/dev/zero"], ids=len)
def test_a_path_that_no_file_can_have_names_no_python(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("HWCOMPAT_QNN_PYTHON", path)
    assert environment_of("qnn").reason == "HWCOMPAT_QNN_PYTHON names no Python (make setup-qnn)"


@pytest.mark.parametrize(
    ("machine", "kinds", "name"),
    [
        ("x86_64", ["CPU"], "htp (emulator)"),
        ("AMD64", [], "htp (emulator)"),
        ("x86_64", ["CPU", "NPU"], "htp"),
        ("aarch64", ["CPU"], "htp"),
        ("ARM64", ["CPU"], "htp"),
    ],
)
def test_an_emulator_is_called_one_and_an_npu_is_not(machine: str, kinds: list[str], name: str) -> None:
    backend: Any = get_backend("qnn")
    versions = {"qnn": "2.40", "onnxruntime": "1.31", "onnxruntime_qnn": "2.7"}
    backend.described = {**versions, "machine": machine, "devices": [{"kind": kind} for kind in kinds]}
    assert backend.device == name
    assert ("emulator" in backend.facts()) is ("emulator" in name)
    assert ("emulator" in backend.get_device_info().device_name.lower()) is ("emulator" in name)
