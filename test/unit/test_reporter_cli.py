"""`hwcompat report`: products on standard output, everything else on standard error, and exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from evidence_lines import BERT, BERT_CHECKS
from front_doors import invoke
from whole_runs import write_run

from generators.compatibility.memory_fit import MemoryAnatomy, MemoryEstimate, MemoryRequest
from generators.recipes.memory_answer import MemoryAnswer
from hardware.cell import model_of_weights
from hardware.checkpoint_config import hash_of_config
from hardware.command_names import command_of
from hardware.evidence.record import EDITED, Outcome
from hardware.testing.checkpoints import weights_hash
from hardware.values import data_file
from reports import reporter as reporter_module
from reports.finding import SCHEMA
from reports.stack import StackResult

WRONG = {"error_type": "numerical_mismatch", "max_rel_error": 0.5, "tolerance": 1e-5}


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("reports.memory_check.memory_answer", lambda *_: one_gigabyte())


def ask(*arguments: str) -> tuple[int, str, str]:
    """Make a report; return the exit code, standard output and standard error."""
    done = invoke("report", *arguments)
    return done.code, done.out, done.err


def check(device: str = "cpu", *more: str, evidence: str = "e", code: int | None = None) -> list[str]:
    """Check bert on a device; return the lines printed."""
    given = ["--evidence", evidence] if Path(evidence).exists() else []
    found, out, _ = ask("--model", "bert", "--device", device, *given, *more)
    assert code in (None, found)
    return out.splitlines()


def one_gigabyte() -> MemoryAnswer:
    """An estimate without the child process that would make it: 1 GB of weights in half precision."""
    request = MemoryRequest(mode="inference", precision="bfloat16", batch=1, context=512)
    nothing = dict.fromkeys(("gradients", "optimiser", "inputs", "cache", "activations", "workspace"), 0)
    anatomy = MemoryAnatomy(parameters=5 * 10**8, linear=4 * 10**8, largest=10**7, block=10**7, beside=10**8)
    estimate = MemoryEstimate(request=request, weights=10**9, **nothing)
    return MemoryAnswer(estimates=(estimate,), anatomy=anatomy, notes=())


def record(folder: str, *broken: str, cell: str = BERT, **changes: object) -> None:
    write_run(Path(folder), cell, *broken, **changes)


def as_report(text: str) -> dict:
    data = json.loads(text)
    jsonschema.validate(data, data_file(SCHEMA))
    return data


# Usage


def test_a_name_that_is_mistyped_gets_a_suggestion():
    for words, meant in (("--model brt", "bert"), ("--model bert --device cdua", "cuda")):
        code, out, err = ask(*words.split())
        assert (code, out, f"'{meant}'" in err) == (4, "", True), err


def test_internal_error_is_exit_code_3_and_its_traceback_only_for_debug(monkeypatch):
    def broken(*_arguments: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("reports.collect_command.collect", broken)
    code, _, err = ask("--matrix")
    assert code == 3
    assert "Traceback" not in err
    assert "boom" in err
    code, _, err = ask("--matrix", "--debug")
    assert code == 3
    assert "Traceback" in err


# Reports


def test_the_default_folder_of_evidence_is_read_and_may_be_missing():
    code, out, err = ask("--collect-all")
    assert code == 0
    assert "Nothing was measured" in out
    assert "there is no evidence in" in err
    record("hwcompat-out/evidence")
    code, out, _ = ask("--collect-all")
    assert code == 0
    assert f"{BERT_CHECKS} passed" in out


def test_failed_check_is_exit_code_1_and_fail_on_moves_the_limit():
    record("e", "matches_reference", **WRONG)
    record("w", "matches_reference", outcome=Outcome.AMBIGUOUS, error_type="ambiguous")
    for folder, limit, wanted in (("e", "", 1), ("e", "critical", 0), ("w", "", 0), ("w", "warning", 1)):
        code, _, _ = ask("--collect-all", "--evidence", folder, *(["--fail-on", limit] if limit else []))
        assert code == wanted, (folder, limit)
    code, out, _ = ask("--collect-all", "--format", "junit", "--evidence", "e")
    root = ElementTree.fromstring(out)
    assert (code, root.get("failures"), root.get("errors")) == (1, "1", "0")


def test_actions_combine_into_one_document_and_files_go_into_the_output_folder():
    record("e")
    actions = ("--collect-all", "--matrix", "--model", "bert", "--device", "cpu", "--evidence", "e")
    code, out, _ = ask(*actions, "--format", "json")
    assert code == 0
    data = json.loads(out)
    assert data["model_checks"][0]["verdict"]["level"] == "high"
    assert data["matrix"]["compatibility"]["embedding"]["cpu"]["counts"]["measured"] == 1
    assert data["outcomes"] == {"passed": BERT_CHECKS}
    assert {line["cell"] for line in data["checks"]} == {verdict["cell"] for verdict in data["verdicts"]}
    code, out, _ = ask("--collect-all", "--matrix", "--output-dir", "out")
    assert (code, out) == (0, "")
    names = {path.name for path in Path("out").iterdir()}
    assert names == {"hardware_compatibility_report.md", "compatibility_matrix.md"}
    code, out, _ = ask("--matrix", "--format", "json")
    assert (code, "compatibility" in json.loads(out)) == (0, True)


def test_hardware_alone_says_nothing_about_evidence_and_shows_each_target(monkeypatch):
    absent = StackResult(target="mps", state="absent", reason="needs macOS; this is Linux")
    monkeypatch.setattr(reporter_module, "run_stack", lambda statuses, **_options: (absent,))
    code, out, err = ask("--test-hardware")
    assert code == 0
    assert "othing was measured" not in out + err
    assert "| mps | absent | - | - | needs macOS; this is Linux |" in out
    assert "###" not in out
    code, out, _ = ask("--test-hardware", "--format", "json")
    assert (code, [error["error_type"] for error in json.loads(out)["errors"]]) == (0, ["device_absent"])
    dead = StackResult(target="cuda", state="failed", reason="ended by SIGSEGV", recorded="crashed")
    monkeypatch.setattr(reporter_module, "run_stack", lambda statuses, **_options: (dead,))
    code, out, _ = ask("--test-hardware")
    assert code == 1
    assert "| cuda | failed | - | - | ended by SIGSEGV |" in out


def test_compacted_evidence_gives_the_same_answer():
    record("e", "backward", error_message="no gradient")
    model = ("--model", "bert", "--device", "cpu", "--evidence", "e")
    code, before, _ = ask(*model)
    assert code == 1
    assert "no gradient" in before
    assert f"1 file(s), {BERT_CHECKS + 2} line(s)" in invoke("evidence", "compact", "--evidence", "e").err
    assert ask(*model)[:2] == (1, before)
    assert {path.suffix for path in Path("e").rglob("*") if path.name != ".lock"} == {"", ".parquet"}


# One model


def test_first_line_for_a_model_has_verdict_cause_and_change():
    record("e", "matches_reference", **WRONG)
    first = check(code=1)[0]
    assert first.startswith(f"{BERT}: unsupported (measured). Cause: ")
    assert "error 0.5 of the output's scale" in first
    assert "Change: Check the model's code" in first
    record("good")
    assert f": high (measured). Cause: all {BERT_CHECKS} planned checks passed" in check(evidence="good", code=0)[0]
    first = check(evidence="", code=0)[0]
    assert first.startswith(f"{BERT}: unknown. Cause: nothing was measured.")
    assert first.endswith(command_of("run", "--model", "bert", "--device", "cpu"))
    check("cpu", "--fail-on", "warning", evidence="", code=1)


def test_the_change_is_what_can_help_here():
    record("edited", "builds", error_message="boom", of_all={"conditions": {EDITED: "by hand"}})
    first = check(evidence="edited")[0]
    assert first.startswith(f"{BERT}: unknown. Cause: the suite was edited by hand")
    assert "--device cpu --force" in first
    first = check("rocm", evidence="")[0]
    assert "Cause: nothing was measured, and the device isn't available" in first
    assert "hwcompat run" not in first
    reason = "this torch is built without CUDA"
    away = {"actual_target": "cpu", "substitution_reason": reason, "outcome": Outcome.PASSED_ON_FALLBACK}
    record("away", cell="bert/fill-mask/cuda/float32", of_all=away)
    first = check("cuda", evidence="away")[0]
    assert f"Cause: the installed library is built for other hardware: {reason}." in first
    assert "Change: Install a torch that is built for CUDA" in first
    assert "matches_reference" not in first
    absent = check("mps", evidence="", code=1 if sys.platform != "darwin" else 0)
    assert "bert/fill-mask/mps/float32: unknown" in absent[0]


def test_model_that_has_no_suite_says_why_and_advises_what_can_work():
    for name, cause, change in (
        ("superglue", "superglue has no suite: no tiny model is known", "--model FOLDER, with a checkpoint of"),
        ("gemma3n", "gemma3n has no suite: a package is missing, timm:", "Change: install timm, then run"),
    ):
        code, out, _ = ask("--model", name, "--device", "cpu")
        first = out.splitlines()[0]
        assert code == 0
        assert f"Cause: {cause}" in first
        assert change in first
        assert "hwcompat run" not in first


def test_model_that_does_not_fit_says_what_is_missing_and_the_smallest_change():
    text = "\n".join(check("cpu", "--memory", "0.8GB", "--memory", "80GB", code=0))
    assert (
        "memory on a device of 0.8GB: doesn't fit: 953.7 MiB needed, 762.9 MiB available, 190.7 MiB missing." in text
    )
    assert "Smallest change: quantize the weights of linear layers to int8" in text
    assert "memory on a device of 80GB: fits: 953.7 MiB needed" in text
    report = as_report("\n".join(check("cpu", "--memory", "0.8GB", "--format", "json")))
    devices = report["model_checks"][0]["memory"]["devices"]
    assert [one["fits"] for one in devices] == [True, False]
    assert devices[1]["change"]["kind"] == "int8"
    assert "memory" not in "\n".join(check("cpu", "--without-memory"))


def test_poor_verdict_comes_with_other_hardware_and_similar_models():
    record("e", "builds", error_type="unknown", error_message="boom")
    lines = check()
    assert any(line.strip().startswith("other hardware for bert: cuda (high") for line in lines)
    assert any(line.strip().startswith("a similar model on cpu: ") and "(high" in line for line in lines)
    data = as_report("\n".join(check("cpu", "--format", "json")))
    assert data["model_checks"][0]["suggestions"]["hardware"][0]["level"] == "high"
    record("good")
    assert not any("other hardware" in line for line in check(evidence="good"))


def test_evidence_of_other_weights_or_another_configuration_does_not_measure_a_folder(monkeypatch):
    monkeypatch.setattr("reports.model_check.check_checkpoint", lambda _folder: ())  # these aren't real files
    folder, config = Path("mine"), {"model_type": "bert", "architectures": ["BertForMaskedLM"]}
    folder.mkdir()

    def files(weights: bytes, **changes: object) -> None:
        (folder / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")
        (folder / "model.safetensors").write_bytes(weights)

    def first(name: str = "mine", evidence: str = "e") -> str:
        return ask("--model", name, "--device", "cpu", "--without-memory", "--evidence", evidence)[1]

    files(b"weights")
    model = model_of_weights("mine", weights_hash(folder))
    known = {"model_revision": weights_hash(folder), "config_hash": hash_of_config(config)}
    cell = f"{model}/fill-mask/cpu/float32"
    record("e", cell=cell, subject="checkpoint", of_all=known)
    assert first().startswith(f"{cell}: high (measured)")
    files(b"weights", num_hidden_layers=48)
    assert first().startswith(f"{cell}: unknown.")
    assert "results in the evidence are from another configuration" in first()
    files(b"others!")
    other = model_of_weights("mine", weights_hash(folder))
    assert other != model
    assert first().startswith(f"{other}/fill-mask/cpu/float32: unknown. Cause: nothing was measured")
    (folder / "model.safetensors").unlink()
    assert first().startswith("mine/fill-mask/cpu/float32: unknown.")
    record("tiny")
    of_hub = first("google-bert/bert-base-uncased", "tiny")
    assert of_hub.startswith("google-bert--bert-base-uncased/fill-mask/cpu/float32: unknown.")
