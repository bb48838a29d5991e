"""The reporter's front door: products on stdout, everything else on stderr, and exit codes that can be relied on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from front_doors import reporter as door

from generators.compatibility.memory_fit import MemoryAnatomy, MemoryEstimate, MemoryRequest
from generators.recipes.memory_answer import MemoryAnswer
from hardware.cell import model_of_weights
from hardware.checkpoint_config import hash_of_config
from hardware.detection import detect
from hardware.evidence.record import EDITED, CheckLine, EndLine, Outcome, PlannedCell, RunLine
from hardware.evidence.versions import versions_of
from hardware.evidence.writer import EvidenceWriter
from hardware.testing.checkpoints import weights_hash
from reports.finding import SCHEMA
from reports.formats import FORMATS
from reports.saved_reports import schema_of

CHECKS = (
    "builds",
    "matches_reference",
    "matches_recorded",
    "honours_mask",
    "save_reload",
    "backward",
    "runs_natively",
)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("reports.memory_check.memory_answer", lambda *_: one_gigabyte())


def one_gigabyte() -> MemoryAnswer:
    """What is said of a model's memory, without the child that would run it: 1 GB of weights in half precision."""
    request = MemoryRequest(mode="inference", precision="bfloat16", batch=1, context=512)
    nothing = dict.fromkeys(("gradients", "optimiser", "inputs", "cache", "activations", "workspace"), 0)
    anatomy = MemoryAnatomy(parameters=5 * 10**8, linear=4 * 10**8, largest=10**7, block=10**7, beside=10**8)
    estimate = MemoryEstimate(request=request, weights=10**9, **nothing)
    return MemoryAnswer(estimates=(estimate,), anatomy=anatomy, notes=())


def record(
    folder: Path, target: str = "cpu", broken: str = "", of_all: dict[str, object] | None = None, **changes: object
) -> None:
    """Evidence of one whole run of bert, in which the check `broken` failed; `of_all` is so in every line."""
    cell = f"{(of_all or {}).get('model', 'bert')}/fill-mask/{target}/float32"
    subject = str((of_all or {}).get("subject", "tiny"))
    writer = EvidenceWriter(folder, "r1")
    versions = versions_of(detect())
    plan = (PlannedCell(cell_id=cell, checks=CHECKS, suite="s.py", suite_hash="h", subject=subject),)
    writer.write(
        RunLine(
            run_id="r1",
            started_at="2026-01-01T00:00:00",
            command="",
            machine="",
            inventory={},
            versions=versions,
            plan=plan,
        )
    )
    for check in CHECKS:
        failed = {"outcome": Outcome.FAILED, **changes} if check == broken else {"outcome": Outcome.PASSED}
        values = {
            "run_id": "r1",
            "cell_id": cell,
            "check_name": check,
            "subject": "tiny",
            "requested_target": target,
            "actual_target": target,
            "precision": "float32",
            "actual_dtype": "float32",
            "max_rel_error": 1e-6,
            "tolerance": 2e-5,
            "native_ops": {"aten.mm": 1} if check == "runs_natively" else {},
            "model": "bert",
            "task": "fill-mask",
            "suite_hash": "h",
            "started_at": "2026-01-01T00:00:01",
            "duration_s": 0.1,
            "accelerator": "a device",
        }
        writer.write(CheckLine(**{**values, **failed, **(of_all or {})}))
    writer.write(EndLine(run_id="r1", ended_at="2026-01-01T00:00:02", reason="finished", counts={}))
    writer.close()


def test_without_an_action_it_is_a_usage_error_with_an_example(capsys):
    assert door.main([]) == 4
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: nothing was asked for")
    assert "python hardware_compatibility_reporter.py --collect-all" in shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--matrx"],
        ["--collect-all", "--format", "pdf"],
        ["--collect-all", "--fail-on", "never"],
        ["--matrix", "--device", "cpu"],
        ["--matrix", "--format", "junit"],
        ["--collect-all", "--evidence", "no-such-folder"],
        ["--check-model", "brt"],
        ["--check-model", "bert", "--device", "cdua"],
        ["--check-model", "bert\x1b[31m"],
    ],
)
def test_wrong_usage_is_one_line_on_stderr_and_exit_code_4(arguments, capsys):
    assert door.main(arguments) == 4
    shown = capsys.readouterr()
    assert shown.out == ""
    assert [text for text in shown.err.splitlines() if text.startswith("error: ")]
    assert "Traceback" not in shown.err
    assert "\x1b" not in shown.err


def test_no_evidence_is_a_report_that_says_so(capsys):
    assert door.main(["--collect-all"]) == 0
    shown = capsys.readouterr()
    assert "Nothing was measured" in shown.out
    assert "there is no evidence in" in shown.err


def test_default_folder_of_evidence_is_found(capsys):
    record(Path("hwcompat-out") / "evidence")
    assert door.main(["--collect-all"]) == 0
    assert "7 passed" in capsys.readouterr().out


def test_failed_check_is_exit_code_1_and_fail_on_moves_the_limit(capsys):
    record(Path("e"), broken="matches_reference", error_type="numerical_mismatch", max_rel_error=0.5, tolerance=1e-5)
    arguments = ["--collect-all", "--evidence", "e"]
    assert door.main(arguments) == 1
    assert door.main([*arguments, "--fail-on", "critical"]) == 0
    record(Path("w"), broken="matches_reference", outcome=Outcome.AMBIGUOUS, error_type="ambiguous")
    assert door.main(["--collect-all", "--evidence", "w"]) == 0
    assert door.main(["--collect-all", "--evidence", "w", "--fail-on", "warning"]) == 1
    capsys.readouterr()


def test_first_line_for_a_model_says_verdict_cause_and_change(capsys):
    record(Path("e"), broken="matches_reference", error_type="numerical_mismatch", max_rel_error=0.5, tolerance=1e-5)
    assert door.main(["--check-model", "bert", "--device", "cpu", "--evidence", "e"]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("bert/fill-mask/cpu/float32: unsupported (measured). Cause: ")
    assert "error 0.5 of the output's scale" in first
    assert "Change: Look at the model's own code" in first


def test_model_that_passed_is_clean(capsys):
    record(Path("e"))
    assert door.main(["--check-model", "bert", "--device", "cpu", "--evidence", "e"]) == 0
    assert ": high (measured). Cause: all 7 planned checks passed" in capsys.readouterr().out.splitlines()[0]


def test_model_without_evidence_is_unknown_with_the_command_that_measures_it(capsys):
    assert door.main(["--check-model", "bert", "--device", "cpu"]) == 0
    shown = capsys.readouterr().out.splitlines()[0]
    assert shown.startswith("bert/fill-mask/cpu/float32: unknown. Cause: nothing was measured.")
    assert shown.endswith("python run_test_generation.py --model bert --device cpu --run")
    assert door.main(["--check-model", "bert", "--device", "cpu", "--fail-on", "warning"]) == 1


@pytest.mark.parametrize(
    ("name", "cause", "change"),
    [
        ("superglue", "superglue has no suite: no tiny model of it is known", "--model FOLDER, with a checkpoint of"),
        ("gemma3n", "gemma3n has no suite: a package is missing, timm:", "Change: install timm, then run"),
    ],
)
def test_model_that_has_no_suite_says_why_and_advises_what_can_work(capsys, name, cause, change):
    assert door.main(["--check-model", name, "--device", "cpu"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert f"Cause: {cause}" in first
    assert change in first
    assert "run_test_generation" not in first


def test_model_that_does_not_fit_says_what_is_missing_and_the_smallest_change(capsys):
    assert door.main(["--check-model", "bert", "--device", "cpu", "--memory", "0.8GB", "--memory", "80GB"]) == 0
    shown = capsys.readouterr().out
    assert "memory on a device of 0.8GB: does not fit: 953.7 MiB needed, 762.9 MiB there, 190.7 MiB missing." in shown
    assert "Smallest change: quantise the weights of linear layers to int8" in shown
    assert "memory on a device of 80GB: fits: 953.7 MiB needed" in shown
    door.main(["--check-model", "bert", "--device", "cpu", "--memory", "0.8GB", "--format", "json"])
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, schema_of(SCHEMA))
    answer = report["model_checks"][0]["memory"]
    assert [one["fits"] for one in answer["devices"]] == [True, False]
    assert answer["devices"][1]["change"]["kind"] == "int8"
    door.main(["--check-model", "bert", "--device", "cpu", "--without-memory"])
    assert "memory" not in capsys.readouterr().out


def check_model(capsys, device: str, *more: str) -> list[str]:
    door.main(["--check-model", "bert", "--device", device, *more])
    return capsys.readouterr().out.splitlines()


def test_edited_suite_is_cause_and_change_even_where_a_check_failed(capsys):
    record(Path("e"), broken="builds", error_message="boom", of_all={"conditions": {EDITED: "by hand"}})
    first = check_model(capsys, "cpu", "--evidence", "e")[0]
    assert first.startswith("bert/fill-mask/cpu/float32: unknown. Cause: the suite was edited by hand")
    assert "--device cpu --force --run" in first


def test_change_for_an_absent_device_is_not_the_command_that_just_said_so(capsys):
    first = check_model(capsys, "rocm")[0]
    assert "Cause: nothing was measured, and the device is not here" in first
    assert "run_test_generation" not in first


def test_change_after_a_run_on_another_target_is_what_the_finding_recommends(capsys):
    reason = "this torch is built without CUDA"
    away = {"requested_target": "cuda", "actual_target": "cpu", "substitution_reason": reason}
    record(Path("e"), "cuda", of_all={**away, "outcome": Outcome.PASSED_ON_FALLBACK})
    first = check_model(capsys, "cuda", "--evidence", "e")[0]
    assert f"Cause: the installed library is built for other hardware: {reason}." in first
    assert "Change: Install a torch that is built for CUDA" in first
    assert "matches_reference" not in first


def test_poor_verdict_comes_with_other_hardware_and_similar_models(capsys):
    record(Path("e"), broken="builds", error_type="unknown", error_message="boom")
    lines = check_model(capsys, "cpu", "--evidence", "e")
    assert any(line.strip().startswith("other hardware for bert: cuda (high") for line in lines)
    assert any(line.strip().startswith("a similar model on cpu: ") and "(high" in line for line in lines)
    data = json.loads("".join(check_model(capsys, "cpu", "--evidence", "e", "--format", "json")))
    jsonschema.validate(data, schema_of(SCHEMA))
    assert data["model_checks"][0]["suggestions"]["hardware"][0]["level"] == "high"
    record(Path("g"))
    assert not any("other hardware" in line for line in check_model(capsys, "cpu", "--evidence", "g"))


def test_hardware_alone_says_nothing_of_evidence_and_shows_absent_devices_as_rows(monkeypatch, capsys):
    from reports import reporter
    from reports.stack import StackResult

    absent = StackResult(target="mps", state="absent", reason="needs macOS; this is Linux")
    monkeypatch.setattr(reporter, "run_stack", lambda statuses, **_options: (absent,))
    assert door.main(["--test-hardware"]) == 0
    shown = capsys.readouterr()
    assert "othing was measured" not in shown.out + shown.err
    assert "| mps | absent | - | - | needs macOS; this is Linux |" in shown.out
    assert "###" not in shown.out
    assert door.main(["--test-hardware", "--format", "json"]) == 0
    assert [error["error_type"] for error in json.loads(capsys.readouterr().out)["errors"]] == ["device_absent"]


def test_evidence_from_a_tiny_model_does_not_measure_a_checkpoint(capsys):
    record(Path("e"))
    door.main(["--check-model", "google-bert/bert-base-uncased", "--device", "cpu", "--evidence", "e"])
    assert capsys.readouterr().out.startswith("google-bert--bert-base-uncased/fill-mask/cpu/float32: unknown.")


def test_evidence_of_other_weights_or_another_configuration_does_not_measure_a_folder_of_that_name(
    capsys, monkeypatch
):
    monkeypatch.setattr("reports.model_check.check_checkpoint", lambda _folder: ())  # these aren't real files
    folder, config = Path("mine"), {"model_type": "bert", "architectures": ["BertForMaskedLM"]}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"weights")
    told = {"model_revision": weights_hash(folder), "config_hash": hash_of_config(config)}
    model = model_of_weights("mine", weights_hash(folder))
    record(Path("e"), of_all={"model": model, "subject": "checkpoint", **told})

    def said() -> str:
        door.main(["--check-model", "mine", "--device", "cpu", "--without-memory", "--evidence", "e"])
        return capsys.readouterr().out

    assert said().startswith(f"{model}/fill-mask/cpu/float32: high (measured)")
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 48}), encoding="utf-8")
    assert said().startswith(f"{model}/fill-mask/cpu/float32: unknown.")
    assert "lines of evidence are of another configuration" in said()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"others!")
    other = model_of_weights("mine", weights_hash(folder))
    assert other != model
    assert said().startswith(f"{other}/fill-mask/cpu/float32: unknown. Cause: nothing was measured")
    (folder / "model.safetensors").unlink()
    assert said().startswith("mine/fill-mask/cpu/float32: unknown.")


def test_device_that_was_named_and_is_not_here_fails(capsys):
    assert door.main(["--check-model", "bert", "--device", "mps"]) == (1 if sys.platform != "darwin" else 0)
    assert "bert/fill-mask/mps/float32: unknown" in capsys.readouterr().out


def test_actions_combine_into_one_json_document(capsys):
    record(Path("e"))
    arguments = ["--collect-all", "--matrix", "--check-model", "bert", "--device", "cpu", "--evidence", "e"]
    assert door.main([*arguments, "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["model_checks"][0]["verdict"]["level"] == "high"
    assert data["matrix"]["compatibility"]["embedding"]["cpu"]["counts"]["measured"] == 1
    assert data["outcomes"] == {"passed": 7}
    assert {line["cell"] for line in data["checks"]} == {verdict["cell"] for verdict in data["verdicts"]}


def test_matrix_alone_is_the_matrix_of_the_published_schema(capsys):
    assert door.main(["--matrix", "--format", "json"]) == 0
    assert "compatibility" in json.loads(capsys.readouterr().out)


def test_junit_of_evidence_can_be_read(capsys):
    record(Path("e"), broken="builds", error_type="unknown", error_message="boom")
    assert door.main(["--collect-all", "--format", "junit", "--evidence", "e"]) == 1
    root = ElementTree.fromstring(capsys.readouterr().out)
    assert (root.get("failures"), root.get("errors")) == ("1", "0")


def test_files_go_into_the_output_folder_and_stdout_stays_empty(capsys):
    assert door.main(["--collect-all", "--matrix", "--output-dir", "out"]) == 0
    assert capsys.readouterr().out == ""
    names = {path.name for path in Path("out").iterdir()}
    assert names == {"hardware_compatibility_report.md", "compatibility_matrix.md"}


def test_hardware_is_tested_and_shown(monkeypatch, capsys):
    from reports import reporter
    from reports.stack import StackResult

    dead = StackResult(target="cuda", state="failed", reason="ended by SIGSEGV", recorded="crashed")
    monkeypatch.setattr(reporter, "run_stack", lambda statuses, **_options: (dead,))
    assert door.main(["--test-hardware"]) == 1
    assert "| cuda | failed | - | - | ended by SIGSEGV |" in capsys.readouterr().out


def test_internal_error_is_exit_code_3_and_its_traceback_only_for_debug(monkeypatch, capsys):
    def broken(*_arguments: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(door, "run", broken)
    assert door.main(["--matrix"]) == 3
    assert "Traceback" not in (shown := capsys.readouterr().err)
    assert "boom" in shown
    assert door.main(["--matrix", "--debug"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_compacted_evidence_says_what_it_said(capsys):
    folder = Path("evidence")
    record(folder, broken="backward", error_message="no gradient")
    asked = ["--check-model", "bert", "--device", "cpu", "--evidence", str(folder)]
    assert door.main(asked) == 1
    before = capsys.readouterr().out
    assert "no gradient" in before
    assert door.main(["--compact", *asked]) == 1
    shown = capsys.readouterr()
    assert shown.out == before
    assert "1 file(s), 9 line(s)" in shown.err
    assert {path.suffix for path in folder.rglob("*") if path.name != ".lock"} == {"", ".parquet"}  # a month's folder
    assert door.main(["--compact", "--evidence", "none"]) == 4


@pytest.mark.parametrize("form", ["text", "pdf"])
def test_a_form_that_a_report_has_not_is_refused_with_those_that_it_has(capsys, form):
    assert door.main(["--collect-all", "--format", form]) == 4
    said = capsys.readouterr().err
    assert f"a report has no form '{form}'" in said
    assert "markdown, json, html, junit, sarif, github or gitlab" in said


def test_the_forms_that_help_lists_are_those_of_each_document(capsys):
    assert door.main(["--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Of a report: {', '.join(FORMATS.names())}." in said
    assert "Of --compare: text, markdown, json." in said
