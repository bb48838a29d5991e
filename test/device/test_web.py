"""Targets `webgpu` and `webnn`: models in real browsers, and pages that hang, break or are left alone.

Every test here needs what `make setup-web` makes, and is skipped by name where it isn't there.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from command_line import CommandLine, Ran
from small_network import INPUTS, small_network, wanted

from hardware.backends import _native_webgpu, _web
from hardware.backends._web_placement import WHOLE
from hardware.backends.base import Unsupported
from hardware.backends.factory import get_backend
from hardware.evidence.record import Outcome
from hardware.export.onnx_export import missing_packages
from hardware.known_answer import agrees


def on(target: str) -> Any:
    """A parameter that is skipped by name where its target isn't here."""
    reason = get_backend(target).missing() or missing_packages()
    return pytest.param(target, marks=pytest.mark.skipif(bool(reason), reason=f"{target} isn't here: {reason}"))


TARGETS = [on("webgpu"), on("webnn")]
KINDS = [*TARGETS, on("webnn:gpu"), on("webgpu:native")]
pytestmark = pytest.mark.slow

BERT = "bert/fill-mask/{}/float32"
GONE_S = 20
LAYERS = 2
"""Of a tiny gpt2, each with one softmax."""


@pytest.fixture(scope="module")
def ran(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """bert as a user would run it, in those browsers that are here and without one."""
    here = [str(one.values[0]) for one in KINDS if not one.marks[0].args[0]]
    targets = [word for target in here for word in ("--device", target)]
    return command_line.run(tmp_path_factory.mktemp("web"), "--model", "bert", *targets, "--run")


@pytest.mark.parametrize("target", KINDS)
def test_every_check_passes_in_a_browser(target: str, ran: Ran) -> None:
    cell = BERT.format(target)
    assert set(ran.outcomes(cell).values()) == {Outcome.PASSED}, ran.err
    proof = ran.lines(cell)["runs_natively"]
    assert proof.native_ops["onnx.MatMul"] > 0
    assert all(name.endswith(WHOLE) for name in proof.offloaded_ops)
    assert ran.verdict(cell) == "medium"


@pytest.mark.parametrize("target", TARGETS[:1])
def test_evidence_says_which_browser_and_that_its_adapter_is_software(target: str, ran: Ran) -> None:
    line = ran.lines(BERT.format(target))["matches_reference"]
    versions = ran.run_line.versions
    assert versions["onnxruntime-web (webgpu)"] in line.conditions["runtime"]
    assert versions["chromium (webgpu)"].partition("-")[0] in line.conditions["runtime"]
    if not get_backend("webgpu").is_software:
        pytest.skip("a GPU is here")
    assert "software" in line.accelerator
    assert "not a GPU" in line.conditions["stands_in"]


@pytest.mark.nightly
@pytest.mark.parametrize("target", TARGETS)
def test_a_decoder_decodes_with_its_cache(command_line: CommandLine, tmp_path: Path, target: str) -> None:
    done = command_line.run(tmp_path, "--model", "gpt2", "--device", target, "--run")
    outcomes = done.outcomes(f"gpt2/text-generation/{target}/float32")
    assert outcomes["generates_like_reference"] is outcomes["cache_matches"] is Outcome.PASSED, done.err
    proof = done.lines(f"gpt2/text-generation/{target}/float32")["runs_natively"]
    assert proof.outcome is Outcome.PASSED, proof.error_message
    assert proof.native_ops["onnx.Softmax"] == 3 * LAYERS, "of the forward pass, of the prompt's graph, of a token's"


@pytest.mark.parametrize("target", KINDS[3:])
def test_without_an_adapter_the_native_provider_is_not_replaced_by_the_host(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime would open such a session on the CPU, after a printed line."""
    monkeypatch.setattr(_native_webgpu, "has_own_device", lambda: True)
    monkeypatch.setenv("VK_ICD_FILENAMES", os.devnull)
    with get_backend(target) as backend, pytest.raises(Unsupported, match="ONNX Runtime doesn't run"):
        backend.load(small_network(), INPUTS, "float32")


@pytest.mark.parametrize("target", KINDS[3:])
def test_float16_without_a_browser_is_decided_by_the_session(target: str) -> None:
    """Nothing tells what the adapter has before it is asked; SwiftShader has no float16."""
    with get_backend(target) as backend:
        if not backend.is_software:
            assert backend.load(small_network(), INPUTS, "float16").actual_dtype == "float16"
            return
        with pytest.raises(Unsupported, match="requires f16") as caught:
            backend.load(small_network(), INPUTS, "float16")
    assert caught.value.error_type == "unsupported_dtype"


@pytest.mark.parametrize("target", KINDS[2:3])
def test_a_context_of_another_kind_is_requested_and_no_more(target: str, ran: Ran) -> None:
    line = ran.lines(BERT.format(target))["matches_reference"]
    assert "doesn't tell what executed" in line.conditions["requested"]
    assert "requested" not in ran.lines(BERT.format("webnn"))["matches_reference"].conditions


@pytest.fixture(params=TARGETS)
def backend(request: pytest.FixtureRequest) -> Iterator[Any]:
    with get_backend(request.param) as found:
        yield found


def browsers(backend: Any) -> set[int]:
    """Process ids of what a backend's worker started."""
    worker = backend._worker.pid
    return {one.pid for one in psutil.Process(worker).children(recursive=True) if one.is_running()}


def test_the_known_answer_comes_from_the_browser(backend: Any) -> None:
    assert agrees(backend.known_answer())


def test_each_model_has_a_browser_of_its_own(backend: Any) -> None:
    first = small_network("first")
    runnable = backend.load(first, INPUTS, "float32")
    before = browsers(backend)
    got = runnable(**INPUTS)["output"]
    assert np.abs(got - wanted(first)).max() < 1e-5
    assert browsers(backend) == before, "the same model goes on in its browser"
    backend.load(small_network("second"), INPUTS, "float32")
    assert not browsers(backend) & before
    assert not [pid for pid in before if psutil.pid_exists(pid) and _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("target", [on("webnn")])
def test_float16_that_a_browser_computes_in_float32_is_called_so(target: str) -> None:
    with get_backend(target) as backend:
        assert backend.computed_in("float16") == "float32"
        assert backend.computed_in("float64") == "float64"


def test_a_page_that_hangs_is_ended_and_the_next_model_runs(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(_web, "PASS_LIMIT_S", 0.001)
        with pytest.raises(Unsupported) as caught:
            backend.load(small_network("hangs"), INPUTS, "float32")
    assert caught.value.error_type == "timeout"
    made = small_network("runs")
    got = backend.load(made, INPUTS, "float32")(**INPUTS)["output"]
    assert np.abs(got - wanted(made)).max() < 1e-5


def test_a_file_that_no_browser_reads_breaks_nothing_for_the_next(backend: Any, tmp_path: Path) -> None:
    broken = tmp_path / "model.onnx"
    broken.write_bytes(b"no model")
    with pytest.raises(Unsupported) as caught:
        backend.compute(broken, INPUTS, weights="broken")
    assert "ONNX Runtime Web doesn't run the model" in str(caught.value)
    assert agrees(backend.known_answer())


@pytest.mark.parametrize("target", TARGETS[1:])
def test_what_runs_on_the_host_is_no_pass_of_the_target(target: str) -> None:
    """WebNN has no atan: the runtime gives it to WebAssembly without a word."""
    with get_backend(target) as backend:
        execution = backend.load(small_network(special=torch.atan), INPUTS, "float32").execution()
    assert execution.beyond_allowed == {"onnx.Atan": 1}
    assert execution.native


@pytest.mark.skipif(os.name != "posix", reason="processes end otherwise there")
def test_no_browser_is_left_behind_by_a_worker_that_was_killed(backend: Any) -> None:
    backend.load(small_network(), INPUTS, "float32")
    left = browsers(backend)
    assert left
    os.kill(backend._worker.pid, signal.SIGKILL)
    ends = time.monotonic() + GONE_S
    while any(_runs(pid) for pid in left) and time.monotonic() < ends:
        time.sleep(0.2)
    assert not [pid for pid in left if _runs(pid)]
