"""Target `tpu` on XLA's CPU client: what it proves, what it refuses, and that nothing of it counts for a TPU.

Every test here needs the environment that `make setup-xla` makes, and is skipped by name where it isn't there.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import REPOSITORY, CommandLine, Ran
from small_network import INPUTS, error_of, small_network, wanted

from hardware.backends.base import ModelInput, Unsupported
from hardware.backends.factory import get_backend
from hardware.backends.tpu import TPUBackend
from hardware.evidence.record import Outcome
from hardware.known_answer import agrees
from hardware.workers import environment_of
from hardware.workers.xla_worker import STABLEHLO

REASON = environment_of("tpu").reason
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(REASON), reason=f"target tpu isn't here: {REASON}")]

BERT = "bert/fill-mask/tpu:xla-cpu/float32"
PLANTED = Path(__file__).parents[2] / "benchmarks" / "fallbacks" / "planting" / "planted_xla_worker.py"


@pytest.fixture(scope="module")
def ran(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """bert as a user would run it."""
    return command_line.run(tmp_path_factory.mktemp("tpu"), "--model", "bert", "--device", "tpu:xla-cpu", "--run")


def test_every_check_passes_and_evidence_says_that_it_is_no_tpu(ran: Ran) -> None:
    assert ran.code == 0, ran.err
    outcomes = ran.outcomes(BERT)
    assert set(outcomes.values()) == {Outcome.PASSED}
    assert {"save_reload", "backward", "runs_natively"} <= set(outcomes)
    assert ran.verdict(BERT) == "medium"
    proof, line = (ran.lines(BERT)[name] for name in ("runs_natively", "matches_reference"))
    assert proof.native_ops["hlo.dot"] > 0
    assert not proof.offloaded_ops
    assert line.actual_target == line.requested_target == "tpu:xla-cpu"
    assert "not a TPU" in line.accelerator
    assert line.conditions["label"] == "xla-cpu"
    assert line.conditions["stands_in"] == "XLA on the host's CPU, not a TPU"
    assert line.conditions["matmul_precision"] == "highest"
    assert line.actual_dtype == "float32"
    assert ran.run_line.versions["torchax"]
    assert ran.run_line.versions["jax (tpu)"]


@pytest.mark.extended
def test_a_decoder_decodes_there(command_line: CommandLine, tmp_path: Path) -> None:
    ran = command_line.run(tmp_path, "--model", "gpt2", "--device", "tpu:xla-cpu", "--run")
    assert ran.code == 0, ran.err
    outcomes = ran.outcomes("gpt2/text-generation/tpu:xla-cpu/float32")
    assert outcomes["generates_like_reference"] == Outcome.PASSED
    assert set(outcomes.values()) == {Outcome.PASSED}


def small(**how: Any) -> ModelInput:
    return small_network(activation="gelu", **how)


@pytest.fixture(scope="module")
def backend() -> Iterator[TPUBackend]:
    with get_backend("tpu:xla-cpu") as found:
        assert isinstance(found, TPUBackend)
        yield found


def test_a_tpu_is_refused_with_what_is_missing_and_the_host_isnt_taken_for_it() -> None:
    with get_backend("tpu") as backend:
        reason = backend.unavailable()
        if not reason:
            pytest.skip("a TPU is here")
        assert "libtpu" in reason or "PJRT offers no tpu" in reason
        assert "tpu:xla-cpu is XLA on the host's CPU, not a TPU" in reason
        with pytest.raises(Unsupported):
            backend.known_answer()


def test_the_known_answer_comes_from_xla(backend: TPUBackend) -> None:
    assert backend.unavailable() == ""
    assert agrees(backend.known_answer())
    assert backend.get_device_info().device_type == "xla-cpu"


def test_an_operator_without_a_lowering_is_refused_by_its_name(backend: TPUBackend) -> None:
    with pytest.raises(Unsupported, match=r"torchax has no lowering for .*special_airy_ai.*\(1\)") as caught:
        backend.load(small(special=torch.special.airy_ai), INPUTS, "float32")
    assert caught.value.error_type == "unsupported_operator"


def test_what_is_saved_is_stablehlo_for_a_tpu_too(backend: TPUBackend, tmp_path: Path) -> None:
    subject = small()
    want = wanted(subject)
    runnable = backend.load(subject, INPUTS, "float32")
    again = runnable.save_and_reload(tmp_path)
    assert b"tpu" in (tmp_path / STABLEHLO).read_bytes()
    assert error_of(again(**INPUTS)["output"], want) < 2e-5
    with pytest.raises(Unsupported):
        again.gradients(INPUTS)
    with pytest.raises(Unsupported):
        again.generate(INPUTS, steps=1)
    again.close()
    runnable.close()


def test_bfloat16_is_computed_from_bfloat16(backend: TPUBackend) -> None:
    subject = small()
    want = wanted(subject)
    runnable = backend.load(subject, INPUTS, "bfloat16")
    assert 1e-4 < error_of(runnable(**INPUTS)["output"], want) < 8e-2
    assert runnable.execution().dtype == runnable.actual_dtype == "bfloat16"
    assert runnable._proofs["forward"]["lowered"] == {"bf16": 2}
    runnable.close()


def test_a_callback_into_torch_is_seen_though_the_numbers_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HWCOMPAT_PLANTED", str(tmp_path / "took_effect"))
    monkeypatch.setattr(TPUBackend, "SCRIPT", PLANTED)
    subject = small()
    want = wanted(subject)
    with get_backend("tpu:xla-cpu") as backend:
        runnable = backend.load(subject, INPUTS, "float32")
        assert error_of(runnable(**INPUTS)["output"], want) < 2e-5
        proof = runnable.execution()
        runnable.close()
    assert (tmp_path / "took_effect").exists()
    assert any("callback" in name for name in proof.beyond_allowed), proof


BROKEN_LOADS = """
import json
from hwcompat.plugins.stress.load_devices import PjrtDevice
from hwcompat.plugins.stress.loads import Copy, Products, WrongResult

def raises(call):
    try:
        call()
    except WrongResult as error:
        return str(error)
    return ""

on = PjrtDevice("tpu:xla-cpu")
said = {}
for precision in ("float32", "bfloat16", "int8"):
    made = Products(on, precision, 128)
    sound = raises(made.check) + raises(made.verify)
    made.forget()
    forgotten = raises(made.check)
    made.run(1)
    sound += raises(made.check)
    made.result = made.result.at[5, 7].add(64)
    said[precision] = [sound, forgotten, raises(made.check)]
made.exact = made.exact.at[3, 3].add(1)
said["reference"] = ["", raises(made.verify), raises(made.verify)]
copy = Copy(on, 4096)
sound = raises(copy.check)
copy.forget()
said["copy"] = [sound, raises(copy.check), raises(copy.check)]
print(json.dumps(said))
"""


def test_a_wrong_product_of_a_load_is_seen() -> None:
    python = environment_of("tpu").python
    done = subprocess.run([str(python), "-c", BROKEN_LOADS], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name, (sound, forgotten, wrong) in json.loads(done.stdout).items():
        assert sound == "", name
        assert forgotten, name
        assert wrong, name


def test_xla_on_the_host_is_loaded_and_named_so(command_line: CommandLine, tmp_path: Path) -> None:
    short = ("--duration", "0.2", "--warmup", "0", "--interval", "0.1", "--precision", "float32", "--format", "json")
    ran = command_line.python(tmp_path, "-m", "hardware", "stress", "tpu:xla-cpu", *short)
    assert ran.code == 0, ran.err
    (found,) = json.loads(ran.out)["results"]
    assert found["ending"] == "measured"
    assert found["device_name"] == "XLA on the host's CPU, not a TPU"
    assert found["tflops"] > 0
    assert found["stability"]["slices"] > 0
