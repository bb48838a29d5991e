"""OpenVINO's own records: which device, which precision, and what happens with devices that aren't there."""

from __future__ import annotations

import pytest
from command_line import CommandLine, Ran

from hardware.evidence.record import Outcome

pytestmark = pytest.mark.slow

CPU = "bert/fill-mask/openvino/float32"
ABSENT = ("NPU", "GPU")
CHOICE = "AUTO"
WRONG_HINT = """
import hardware.backends.openvino as backend

backend.OPENVINO_OPTIONS = {**backend.OPENVINO_OPTIONS, "float32": {"INFERENCE_PRECISION_HINT": "bf16"}}

"""


def _cell(device: str) -> str:
    return f"bert/fill-mask/openvino:{device}/float32"


@pytest.fixture(scope="module")
def hinted(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory, three_targets: Ran) -> Ran:
    """bert with a precision hint that contradicts the cell, on two devices that aren't here, and on a choice."""
    folder = tmp_path_factory.mktemp("hinted")
    name = "test_bert_fill_mask_openvino_float32.py"
    text = (three_targets.suites / name).read_text(encoding="utf-8")
    (folder / "suites").mkdir()
    head, separator, rest = text.partition("CELL = ")
    (folder / "suites" / name).write_text(head + WRONG_HINT + separator + rest, encoding="utf-8")
    devices = [word for device in (*ABSENT, CHOICE) for word in ("--device", f"openvino:{device}")]
    return command_line.run(folder, "--model", "bert", "--device", "openvino", *devices, "--run")


def _has(device: str) -> bool:
    import openvino

    return any(name.split(".")[0] == device for name in openvino.Core().available_devices)


@pytest.mark.parametrize("model", ["bert/fill-mask", "vit/image-classification"])
def test_proof_comes_from_the_runtime(three_targets: Ran, model: str) -> None:
    line = three_targets.lines(f"{model}/openvino/float32")["runs_natively"]
    assert line.outcome is Outcome.PASSED
    assert line.actual_dtype == "float32"
    assert any(name.startswith("openvino.") for name in line.native_ops)
    assert not line.offloaded_ops
    parity = three_targets.lines(f"{model}/openvino/float32")["matches_reference"]
    assert parity.conditions["export"] in ("optimum-intel", "convert_model")
    assert line.unseen


def test_another_precision_than_asked_for_is_seen(hinted: Ran) -> None:
    line = hinted.lines(CPU)["runs_natively"]
    if line.actual_dtype == "float32":
        pytest.skip("this processor doesn't compute in bfloat16")
    assert line.actual_dtype == "bfloat16"
    assert line.outcome is Outcome.FAILED
    assert hinted.verdict(CPU) not in ("high", "medium")


def test_another_precision_is_no_parity_in_float32(hinted: Ran) -> None:
    line = hinted.lines(CPU)["matches_reference"]
    if line.actual_dtype == "float32":
        pytest.skip("this processor doesn't compute in bfloat16")
    assert line.outcome is Outcome.FAILED
    assert line.error_type in ("numerical_mismatch", "conversion_wrong")


@pytest.mark.parametrize("device", ABSENT)
def test_a_device_that_openvino_does_not_see_is_substituted(hinted: Ran, device: str) -> None:
    if _has(device):
        pytest.skip(f"OpenVINO sees a {device} here")
    lines = hinted.lines(_cell(device))
    assert {line.outcome for line in lines.values()} == {Outcome.PASSED_ON_FALLBACK, Outcome.SKIPPED}
    for line in lines.values():
        assert line.actual_target == "cpu"
        assert f"OpenVINO sees no {device}" in line.substitution_reason
    assert hinted.verdict(_cell(device)) == "unknown"
    assert f"openvino:{device} was asked for and isn't here" in hinted.err
    assert hinted.code == 1


def test_a_choice_between_devices_is_substituted_and_never_taken_for_the_processor(hinted: Ran) -> None:
    lines = hinted.lines(_cell(CHOICE))
    assert {line.outcome for line in lines.values()} == {Outcome.PASSED_ON_FALLBACK, Outcome.SKIPPED}
    for line in lines.values():
        assert line.actual_target == "cpu"
        assert "is a choice between devices" in line.substitution_reason
    assert hinted.verdict(_cell(CHOICE)) == "unknown"


def test_nothing_is_sent_by_the_runtime_or_its_tools(hinted: Ran) -> None:
    assert hinted.network == ""
