"""Target `qnn` or `qnn:emulator`: models on the HTP or its emulator in strict mode, and how QNN ends up elsewhere.

Every test here needs the environment that `make setup-qnn` makes, and is skipped by name where it isn't there.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import CommandLine, Ran
from small_network import INPUTS, error_of, small_network, wanted

from hardware.backends import qnn
from hardware.backends.base import Unsupported
from hardware.backends.factory import get_backend
from hardware.evidence.record import Outcome
from hardware.export.onnx_export import missing_packages
from hardware.workers import environment_of

REASON = environment_of("qnn").reason or missing_packages()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(REASON), reason=f"target qnn isn't here: {REASON}")]

TARGET = "qnn" if platform.machine().lower() in ("aarch64", "arm64") else "qnn:emulator"
BERT = f"bert/fill-mask/{TARGET}/float32"
VIT = f"vit/image-classification/{TARGET}/float32"


@pytest.fixture(scope="module")
def ran(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """bert and vit as a user would run them."""
    models = ("--model", "bert", "--model", "vit")
    return command_line.run(tmp_path_factory.mktemp("qnn"), *models, "--device", TARGET, "--run")


def test_every_check_passes_nothing_is_offloaded_and_evidence_names_the_emulator(ran: Ran) -> None:
    assert ran.code == 0, ran.err
    for cell in (BERT, VIT):
        assert set(ran.outcomes(cell).values()) == {Outcome.PASSED}
        proof = ran.lines(cell)["runs_natively"]
        assert proof.native_ops["onnx.MatMul"] > 0
        assert proof.native_ops["onnx.Softmax"] > 0
        assert not proof.offloaded_ops
    line = ran.lines(BERT)["matches_reference"]
    assert (line.actual_dtype, line.conditions["shapes"]) == ("float16", "static")
    saved = ran.lines(BERT)["save_reload"]
    assert saved.outcome is Outcome.PASSED
    assert saved.max_rel_error <= line.max_rel_error  # the largest over more inputs
    for package in ("onnxruntime-qnn", "onnxruntime (qnn)"):
        assert ran.run_line.versions[package] in line.conditions["runtime"]
    if not get_backend(TARGET).emulated:
        pytest.skip("a real HTP is here")
    assert "emulator" in line.accelerator
    assert "not an NPU" in line.conditions["emulator"]
    assert ran.verdict(BERT) == "medium"


@pytest.fixture
def backend() -> Iterator[qnn.QNNBackend]:
    with get_backend(TARGET) as found:
        assert isinstance(found, qnn.QNNBackend)
        yield found


def test_the_known_answer_comes_from_the_target_and_its_arithmetic_is_measured(backend: qnn.QNNBackend) -> None:
    from hardware.known_answer import agrees, expected

    answer = backend.known_answer()
    assert agrees(answer)
    assert answer != expected(), "float16 can't give exactly float64's numbers"
    assert backend.arithmetic() == "float16"


def test_one_worker_serves_all_calls_and_ends_with_the_backend() -> None:
    subject = small_network()
    with get_backend(TARGET) as backend:
        runnable = backend.load(subject, INPUTS, "float32")
        before = backend._worker.pid
        assert error_of(runnable(**INPUTS)["output"], wanted(subject)) < 2e-2
        assert backend._worker.pid == before
        worker = backend._worker
    assert worker.pid is None


def test_the_same_model_in_another_shape_is_exported_anew(backend: qnn.QNNBackend) -> None:
    runnable = backend.load(small_network(), INPUTS, "float32")
    longer = {"values": np.concatenate([INPUTS["values"]] * 2)}
    got = runnable(**longer)["output"]
    assert got.shape == (4, 4)
    assert runnable.conditions["shapes"] == "static"
    assert np.allclose(got[:2], runnable(**INPUTS)["output"], atol=1e-2)


def test_a_context_binary_holds_the_same_numbers(backend: qnn.QNNBackend, tmp_path: Path) -> None:
    import onnx

    runnable = backend.load(small_network(), INPUTS, "float32")
    again = runnable.save_and_reload(tmp_path)
    nodes = onnx.load(str(tmp_path / "context.onnx")).graph.node
    assert [node.op_type for node in nodes] == ["EPContext"]
    assert again.execution().native == {"onnx.com.microsoft.EPContext": 1}
    assert np.array_equal(again(**INPUTS)["output"], runnable(**INPUTS)["output"])


def test_a_quantized_model_computes_in_integers_with_the_loss_that_is_stated(backend: qnn.QNNBackend) -> None:
    from hardware.testing.tolerances import tolerance_for

    subject = small_network()
    want = wanted(subject)
    runnable = backend.load(subject, INPUTS, "int8")
    got = runnable(**INPUTS)["output"]
    assert 0 < error_of(got, want) <= tolerance_for(backend.target, "int8").limit
    assert runnable.actual_dtype == "int8"
    native = runnable.execution().native
    assert native["onnx.com.microsoft.QuantizeLinear"] > 0
    assert native["onnx.com.microsoft.DequantizeLinear"] > 0
    assert not runnable.execution().offloaded


# How QNN ends up elsewhere: each is seen by what a run measures, not by the name of an option


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give QNN these options, and leave the host to it where `strict` is false."""

    def set_to(options: dict[str, str], *, strict: bool = True) -> None:
        monkeypatch.setattr(qnn, "QNN_OPTIONS", options)
        monkeypatch.setattr(qnn, "EMULATED_OPTIONS", {})
        if not strict:
            monkeypatch.setattr(qnn, "STRICT", {})

    return set_to


def test_a_backend_that_is_not_there_or_computes_nothing_is_refused(
    backend: qnn.QNNBackend, options: Callable[..., None]
) -> None:
    options({"backend_type": "cpu"})
    with pytest.raises(Unsupported, match=r"to the host.*libQnnCpu"):
        backend.load(small_network(), INPUTS, "float32")
    options({"backend_type": "saver"})
    with pytest.raises(Unsupported, match="computes it wrongly") as caught:
        backend.load(small_network(), INPUTS, "float32")
    assert caught.value.error_type == "numerical_mismatch"


def test_a_provider_that_does_not_start_is_never_replaced_by_the_host(
    backend: qnn.QNNBackend, options: Callable[..., None]
) -> None:
    """ONNX Runtime would make such a session again on the CPU, after a printed line."""
    options({}, strict=False)
    with pytest.raises(Unsupported, match="QNN doesn't run the model"):
        backend.load(small_network(), INPUTS, "float32")


def test_without_strict_mode_the_proof_shows_that_everything_ran_on_the_host(
    backend: qnn.QNNBackend, options: Callable[..., None]
) -> None:
    options({"backend_type": "cpu"}, strict=False)
    runnable = backend.load(small_network(), INPUTS, "float32")
    proof = runnable.execution()
    assert not proof.native
    assert proof.beyond_allowed["onnx.MatMul" if "onnx.MatMul" in proof.offloaded else "onnx.Gemm"] == 2
    assert runnable.actual_dtype == "float32", "the host's arithmetic, and not HTP's"


def test_strict_mode_names_the_operator_that_stands_in_the_way(backend: qnn.QNNBackend) -> None:
    with pytest.raises(Unsupported, match=r"it leaves Erf \(1\) to the host") as caught:
        backend.load(small_network(special=torch.erf), INPUTS, "float32")
    assert caught.value.error_type == "unsupported_operator"


def test_without_strict_mode_a_node_on_the_host_is_beyond_what_is_allowed(
    backend: qnn.QNNBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qnn, "STRICT", {})
    proof = backend.load(small_network(special=torch.erf), INPUTS, "float32").execution()
    assert proof.native
    assert proof.beyond_allowed == {"onnx.Erf": 1}


PLANT = """
import hardware.backends.qnn as backend

backend.QNN_OPTIONS = {options}
backend.STRICT = {strict}

"""


@pytest.mark.extended
def test_a_run_that_ends_up_elsewhere_is_no_pass(command_line: CommandLine, tmp_path: Path, ran: Ran) -> None:
    name = next(one.name for one in ran.suites.glob("test_vit_*"))
    head, separator, rest = (ran.suites / name).read_text(encoding="utf-8").partition("CELL = ")
    ways = (({"backend_type": "cpu"}, {}), ({}, {}), ({"backend_type": "saver"}, dict(qnn.STRICT)))
    for number, (options, strict) in enumerate(ways):
        folder = tmp_path / str(number)
        (folder / "suites").mkdir(parents=True)
        plant = PLANT.format(options=options, strict=strict)
        (folder / "suites" / name).write_text(head + plant + separator + rest, encoding="utf-8")
        planted = command_line.run(folder, "--model", "vit", "--device", TARGET, "--run")
        assert planted.outcomes(VIT)["runs_natively"] is Outcome.FAILED, options
        assert planted.verdict(VIT) not in ("high", "medium"), options
        assert planted.code == 1
