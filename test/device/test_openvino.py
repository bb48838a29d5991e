"""OpenVINO's own records: which device, which precision, and what happens with devices that aren't there."""

from __future__ import annotations

import numpy as np
import pytest
from command_line import CommandLine, Ran

from hardware.backends.base import ModelInput
from hardware.backends.factory import get_backend
from hardware.evidence.record import Outcome
from hardware.operators import Call, OperatorTest, Tensor
from hardware.operators.tried_call import REMOVED
from hardware.testing.measurement import NotApplicable
from hardware.testing.seeded_weights import fill

pytestmark = pytest.mark.slow

CPU = "bert/fill-mask/openvino/float32"
ABSENT = ("NPU", "GPU")
CHOICE = "AUTO"
WRONG_HINT = """
import hardware.backends._openvino_runnable as backend

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


def test_proof_comes_from_the_runtime(three_targets: Ran) -> None:
    for model in ("bert/fill-mask", "vit/image-classification"):
        line = three_targets.lines(f"{model}/openvino/float32")["runs_natively"]
        assert (line.outcome, line.actual_dtype) == (Outcome.PASSED, "float32")
        assert any(name.startswith("openvino.") for name in line.native_ops)
        assert not line.offloaded_ops
        parity = three_targets.lines(f"{model}/openvino/float32")["matches_reference"]
        assert parity.conditions["export"] in ("optimum-intel", "convert_model")
        assert line.unseen


@pytest.mark.nightly
def test_another_precision_than_asked_for_is_seen_and_is_no_parity_in_float32(hinted: Ran) -> None:
    proof, parity = (hinted.lines(CPU)[name] for name in ("runs_natively", "matches_reference"))
    if proof.actual_dtype == "float32":
        pytest.skip("this processor doesn't compute in bfloat16")
    assert proof.actual_dtype == "bfloat16"
    assert proof.outcome is parity.outcome is Outcome.FAILED
    assert parity.error_type in ("numerical_mismatch", "conversion_wrong")
    assert hinted.verdict(CPU) not in ("high", "medium")


def test_a_device_that_openvino_does_not_see_is_substituted(hinted: Ran) -> None:
    for device in ABSENT:
        if _has(device):
            pytest.skip(f"OpenVINO sees a {device} here")
        lines = hinted.lines(_cell(device))
        assert {line.outcome for line in lines.values()} == {Outcome.PASSED_ON_FALLBACK, Outcome.SKIPPED}
        for line in lines.values():
            assert line.actual_target == "cpu"
            assert f"OpenVINO sees no {device}" in line.substitution_reason
        assert hinted.verdict(_cell(device)) == "unknown"
        assert f"openvino:{device} isn't available on this machine" in hinted.err
    assert hinted.code == 1


def test_a_choice_between_devices_runs_and_says_on_which(hinted: Ran) -> None:
    if _has("GPU") or _has("NPU"):
        pytest.skip("OpenVINO may choose another device here")
    lines = hinted.lines(_cell(CHOICE))
    assert {line.outcome for line in lines.values()} == {Outcome.PASSED}
    for name in ("matches_reference", "runs_natively"):
        assert lines[name].actual_target == f"openvino:{CHOICE}"
        assert lines[name].conditions["executed_on"] == "CPU"
    assert str(lines["runs_natively"].accelerator).startswith("AUTO:CPU, ")
    assert hinted.verdict(_cell(CHOICE)) == "medium"


def test_nothing_is_sent_by_the_runtime_or_its_tools(hinted: Ran) -> None:
    assert hinted.network == []


@pytest.fixture(scope="module")
def traced(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Models that the exporter doesn't know, can't export, or refuses in this version of transformers."""
    folder = tmp_path_factory.mktemp("traced")
    models = [word for name in ("detr", "speecht5", "marian") for word in ("--model", name)]
    return command_line.run(folder, *models, "--device", "openvino", "--run")


@pytest.mark.extended
def test_a_model_that_the_exporter_does_not_know_is_traced_and_evidence_says_so(traced: Ran) -> None:
    lines = traced.lines("detr/object-detection/openvino/float32")
    assert {line.outcome for line in lines.values()} == {Outcome.PASSED}
    conditions = lines["matches_reference"].conditions
    assert conditions["export"] == "convert_model"
    assert "optimum-intel: " in conditions["why_not_exporter"]
    assert "shapes" not in conditions
    decoder = traced.lines("speecht5/automatic-speech-recognition/openvino/float32")
    for check in ("generates_like_reference", "cache_matches", "save_reload"):
        assert (decoder[check].outcome, decoder[check].conditions["export"]) == (Outcome.PASSED, "convert_model")
    assert not decoder["runs_natively"].offloaded_ops
    assert "around the graph" in decoder["runs_natively"].unseen


@pytest.mark.nightly
def test_an_exporter_beyond_its_limit_gives_right_numbers_under_a_condition(traced: Ran) -> None:
    cell = "marian/text2text-generation/openvino/float32"
    lines = traced.lines(cell)
    assert {line.outcome for line in lines.values()} == {Outcome.PASSED}
    if "exporter_limit" not in lines["matches_reference"].conditions:
        pytest.skip("this exporter allows the installed transformers")
    assert traced.verdict(cell) == "medium"


@pytest.mark.extended
def test_the_proof_sees_every_graph_of_a_split_model() -> None:
    import transformers

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "vocab_size": 64}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0))
    tokens = np.arange(2, 18).reshape(2, 8)
    inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "decoder_input_ids": tokens}
    subject = ModelInput(
        model=fill(model, gain=0.5), task="text2text-generation", identity="split", generates="seq2seq"
    )
    with get_backend("openvino") as backend:
        runnable = backend.load(subject, inputs, "float32")
        files = list(runnable.exported.folder.glob("*.xml"))
        assert len(runnable.opened.compiled) == len(files) > 1
        assert not runnable.execution().offloaded


def test_a_copy_leaves_nothing_to_run() -> None:
    call = Call("default", (Tensor("float32", (2, 3)),))
    with OperatorTest("aten.clone/operator/openvino/float32") as case:
        assert case.call_error(call) == 0
        with pytest.raises(NotApplicable, match=REMOVED):
            case.executions([call])
    with OperatorTest("aten.exp/operator/openvino/float32") as case:
        assert case.call_error(call) < case.tolerance
        assert case.executions([call]).native


def test_an_export_that_masks_all_is_right_again_when_it_is_kept() -> None:
    call = Call("default", (Tensor("float32", (2, 3)), "-inf"))
    for _ in range(2):
        with OperatorTest("aten.full_like/operator/openvino/float32") as case:
            assert case.call_error(call) == 0


def test_int8_weights_are_in_the_graphs_and_products_in_float32() -> None:
    import openvino
    import transformers

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = fill(transformers.BertForMaskedLM(transformers.BertConfig(**sizes, vocab_size=64)), gain=0.5)
    tokens = np.arange(2, 18).reshape(2, 8)
    inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
    subject = ModelInput(model=model, task="fill-mask", identity="int8")
    with get_backend("openvino") as backend:
        runs = {name: backend.load(subject, inputs, name) for name in ("float32", "int8")}
        outputs = {name: runnable(**inputs)["logits"] for name, runnable in runs.items()}
        proof = runs["int8"].execution()
        graph = openvino.Core().read_model(next(runs["int8"].exported.folder.glob("*.xml")))
    constants = [node for node in graph.get_ops() if node.get_type_name() == "Constant"]
    assert "u8" in {node.get_element_type().get_type_name() for node in constants}
    assert proof.dtype == "float32"
    difference = np.abs(outputs["int8"] - outputs["float32"]).max() / outputs["float32"].std()
    assert 1e-4 < difference < 0.2
