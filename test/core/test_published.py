"""Results that others published become evidence: each format, whole files only, and verdicts that never hide ours."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from evidence_folders import an_end
from evidence_lines import check_line, planned_cell, run_line, write_lines
from front_doors import invoke

from generators.compatibility.import_published import import_published
from generators.compatibility.imported import contradicted, imported_verdicts
from generators.compatibility.judge import published_or
from generators.compatibility.matrix import beside_published
from generators.compatibility.published_rows import (
    SHIPPED,
    Given,
    lines_of,
    shipped_rows,
    shipped_verdicts,
    source_of,
    type_of,
)
from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.basic_detection import inventory_here
from hardware.errors import BrokenInput, NothingMatched, UsageError
from hardware.evidence.compacted import compact
from hardware.evidence.latest import read_latest
from hardware.evidence.merge import merge_evidence
from hardware.evidence.published import IMPORTERS, Importer, Row, read_rows
from hardware.evidence.record import Origin, Outcome
from hardware.evidence.store import read_folder
from reports.model_check import check_model
from reports.reason_text import reason_text, texts

PERF = """
precisions:
  w8a16:
    components:
      Bert-Base:
        performance_metrics:
          Snapdragon X Elite CRD:
            qnn_dlc: {job_status: Passed, primary_compute_unit: NPU, inference_time_milliseconds: 2.5,
              layer_counts: {total: 9, npu: 9}, tool_versions: {qairt: 2.50.0}}
            onnx: {job_status: Passed, primary_compute_unit: NPU, layer_counts: {total: 9, npu: 8, cpu: 1}}
            tflite: {job_status: Passed, primary_compute_unit: GPU, layer_counts: {total: 9, gpu: 9}}
          Samsung Galaxy S24:
            qnn_dlc: {job_status: Failed}
            genie: {llm_metrics: [{context_length: 4096, tokens_per_second: 9.5}]}
"""
MANIFEST = "id: bert\ndisabled_paths:\n  float:\n    onnx: {scorecard_failure: 'Failing jobs: j1'}\n"
MANIFEST += "    tflite: {issue: 'https://example.org/1'}\n"
ACCURACY = "model_id,precision,runtime,Torch Accuracy,Device Accuracy,chipset,metric_threshold,metric_name\n"
ACCURACY += "bert,float,qnn_dlc,58.0,57.2,x-elite,10.0,Top-1\nbert,float,onnx,58.0,1.6,x-elite,10.0,Top-1\n"
TT = """
test_config:
  bert/masked_lm/pytorch-Base-single_device-inference:
    status: EXPECTED_PASSING
    arch_overrides:
      p150: {status: KNOWN_FAILURE_XFAIL, bringup_status: INCORRECT_RESULT, reason: PCC 0.8}
  bert/masked_lm/pytorch-Large-single_device-inference:
    supported_archs: [n300]
    status: expected_passing
    assert_pcc: false
"""
HF = {
    "failed": {"PyTorch": {"unclassified": 0, "single": 1, "multi": 0}},
    "errors": 0,
    "success": 90,
    "skipped": 12,
    "time_spent": [61.2],
    "error": False,
    "failures": {"single": [{"line": "tests/models/bert/test_x.py::t", "trace": "(line 9)  AssertionError: close"}]},
    "job_link": {"single": "https://example.org/1", "multi": "https://example.org/2"},
    "captured_info": {},
}
TPU = {**HF, "failed": {"PyTorch": {"unclassified": 0, "single": 0, "multi": 0}}, "failures": {}, "job_link": {}}
MLPERF = {
    **{"ID": "5.1-0001", "Submitter": "me", "Category": "closed", "Suite": "datacenter", "System": "Box (2x H100)"},
    **{"Platform": "S", "UsedModel": "bert-99", "Model": "bert-99", "Scenario": "Offline", "Accuracy": "F1: 90.9"},
    **{"Processor": "AMD EPYC 9575F", "Accelerator": "NVIDIA H100-SXM-80GB", "a#": 2, "Software": "TensorRT 10"},
    **{"version": "v5.1", "inferred": 0, "has_power": False, "weight_data_types": "fp8"},
    **{"Performance_Result": 9.0, "Performance_Units": "Samples/s"},
}
PARTS = "{'clip1': 'fp32', 'unet': 'fp8'}"
OPS = '"backend_name","op_name","op_params","test_mode","supported","error_message","backend_reg_name"\n'
OPS += '"CUDA0","ABS","type=f16,ne=[1]","support","1","yes","CUDA"\n'
OPS += '"CUDA0","ABS","type=f16,ne=[2]","support","0","no","CUDA"\n'
CTRF = {
    "tool": {"name": "pytest"},
    "summary": {},
    "tests": [{"name": "test_fwd[bert-cuda-fp16]", "status": "failed"}],
}
JUNIT = """<testsuites><testsuite name="ours"><properties><property name="device" value="Radeon 780M"/></properties>
<testcase name="test_fwd[bert-rocm-bfloat16]"/>
<testcase name="test_fwd[gpt2-rocm]"><failure message="NaN"/></testcase>
<testcase name="test_fwd[t5-rocm]"><error message="ModuleNotFoundError: x"/></testcase></testsuite></testsuites>"""
HEAD = "source\tmodel\tmodel_type\tconfidence\ttarget\truntime\tprecision\tmode\toutcome\tdetail\n"
TABLE = HEAD + "a/b:c\tbert\tbert\t\tqnn:S24\tonnx\tw8a8\tinference\tpass\t\n"
DYNAMO = "name,accuracy,graph_breaks\nBertForMaskedLM,pass,0\n\nAlbertForMaskedLM,fail_accuracy,0\n"

FORMATS = {
    "table t/a.tsv": (TABLE, "qnn/int8 S24 onnx pass"),
    "aihub bert/perf.yaml": (
        PERF,
        "qnn/int8 Snapdragon X Elite CRD qnn_dlc pass|qnn/int8 Snapdragon X Elite CRD onnx pass_partial|qnn/int8 "
        "Snapdragon X Elite CRD tflite pass_on_host|qnn/int8 Samsung Galaxy S24 qnn_dlc fail|qnn/int8 Samsung Galaxy "
        "S24 genie metrics_only",
    ),
    "aihub bert/manifest.yaml": (MANIFEST, "qnn/float32 None onnx fail|qnn/float32 None tflite excluded"),
    "aihub s/accuracy.csv": (ACCURACY, "qnn/float32 x-elite qnn_dlc pass|qnn/float32 x-elite onnx wrong_numbers"),
    "torch_xpu .github/ci_expected_accuracy/lts/inductor_huggingface_inference.csv": (
        "name,float32,amp_bf16\n# https://github.com/intel/torch-xpu-ops/issues/1\nBertForMaskedLM,pass,fail_to_run\n",
        "xpu/float32 None torch-inductor-lts pass|xpu/bfloat16 None torch-inductor-lts fail",
    ),
    "tt_xla torch/test_config_inference_single_device.yaml": (
        TT,
        "tt/bfloat16 n150 tt-xla-torch pass|tt/bfloat16 p150 tt-xla-torch wrong_numbers|"
        "tt/bfloat16 n300 tt-xla-torch ran_numbers_not_checked",
    ),
    "openvino_hub hf_transformers_models": (
        "# a comment\ngoogle-bert/bert-base-uncased,bert\nx/bert,bert,xfail,Unsupported op\n",
        "openvino/float32 None openvino.convert_model pass|openvino/float32 None openvino.convert_model fail",
    ),
    "openvino_hub supported_models.csv": (
        "Model,Category,Framework,Precision,AI PC CPU,AI PC GPU,AI PC NPU\n"
        "bert-base-NER,Natural Language Processing,pytorch,intel-optimum default,,+,\n",
        "openvino/float32 Intel Core Ultra optimum-intel untested|openvino:GPU/float32 Intel Core Ultra "
        "optimum-intel ran_numbers_not_checked|openvino:NPU/float32 Intel Core Ultra optimum-intel untested",
    ),
    "openvino_hub supported_models_263.csv": (
        "Category,Topology,Source Framework,Precision,Inferred With,CPU,NPU,Last Verified\n"
        "Large Language Model,Bert,pytorch,INT4-MIXED,torch.compile,passed,,OpenVINO 2026.2\n",
        "openvino/int4 Intel Core Ultra torch.compile ran_numbers_not_checked|"
        "openvino:NPU/int4 Intel Core Ultra torch.compile untested",
    ),
    "vllm_tpu support_matrices/release/v6e/vllm/model_support_matrix.csv": (
        "Model,Type,UnitTest,Accuracy/Correctness,Benchmark\n"
        "google/bert,Text,✅ Passing,not enough HBM,❓ Untested\n",
        "tpu/bfloat16 v6e vllm-vllm pass|tpu/bfloat16 v6e vllm-vllm does_not_fit|tpu/bfloat16 v6e vllm-vllm untested",
    ),
    "optimum_habana tests/baselines/bert.json": (
        json.dumps({"gaudi2": {"squad": {"eval_f1": 9}}, "note": {}}),
        "hpu/bfloat16 gaudi2 optimum-habana pass",
    ),
    "optimum_habana fixture/tests/test_x.json": (
        json.dumps({"tests/test_x.py::test_y[google/bert-fp8]": {"gaudi3": {"output": "x"}}}),
        "hpu/float8 gaudi3 optimum-habana pass",
    ),
    "dynamo rocm/inductor_huggingface_inference.csv": (
        DYNAMO,
        "rocm/bfloat16 None torch-inductor pass|rocm/bfloat16 None torch-inductor wrong_numbers",
    ),
    "dynamo dynamic_cpu_inductor_huggingface_inference.csv": (
        DYNAMO,
        "cpu/float32 None torch-dynamic_inductor pass|cpu/float32 None torch-dynamic_inductor wrong_numbers",
    ),
    "dynamo cuda/aot_eager_torchbench_training.csv": (
        DYNAMO,
        "cuda/float16 None torch-aot_eager pass|cuda/float16 None torch-aot_eager wrong_numbers",
    ),
    "hf_ci 2026-11-01/amd-mi325/model_results.json": (
        json.dumps({"models_bert": HF}),
        "rocm/float32 MI325 eager some_tests_failed|rocm/float32 MI325 eager pass",
    ),
    "hf_ci tpu/model_results.json": (
        json.dumps({"models_bert": TPU, "models_albert": {**TPU, "errors": 2}}),
        "tpu/float32 None eager pass|tpu/float32 None eager some_tests_failed",
    ),
    "mlperf closed/summary_results.json": (
        json.dumps(
            [
                MLPERF,
                {**MLPERF, "Accelerator": "", "weight_data_types": "INT8"},
                {**MLPERF, "Accelerator": "Tesla T4", "weight_data_types": PARTS},
                {**MLPERF, "inferred": 1},
            ]
        ),
        "cuda/float8 NVIDIA H100-SXM-80GB TensorRT 10 pass|cpu/int8 AMD EPYC 9575F TensorRT 10 pass|"
        "cuda/float32 Tesla T4 TensorRT 10 precision_not_stated",
    ),
    "llama_cpp docs/ops/CUDA.csv": (OPS, "cuda/float16 CUDA0 ggml some_tests_failed"),
    "ctrf_json report.json": (json.dumps({"reportFormat": "CTRF", "results": CTRF}), "cuda/float16 None None fail"),
    "junit_xml report.xml": (JUNIT, "rocm/bfloat16 Radeon 780M None pass|rocm/float32 Radeon 780M None fail"),
}


SHOWN = ("route", "result")


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_becomes_cells(name: str, tmp_path: Path) -> None:
    format, _, file = name.partition(" ")
    text, expected = FORMATS[name]
    rows = read_rows(IMPORTERS.load(format), put(tmp_path, file, text))
    lines = lines_of(rows, "run", "2026-11-28").lines
    said = [(line.cell_id.split("/", 2)[2], line.accelerator, *map(line.conditions.get, SHOWN)) for line in lines]
    assert "|".join(" ".join(map(str, one)) for one in said) == expected
    assert {line.model.partition(".")[0] for line in lines} <= {"bert", "albert", "gpt2", "ggml"}
    assert all(line.conditions["file"] and line.origin is Origin.IMPORTED for line in lines)


def test_every_importer_is_tested_here_and_there_are_more_than_ten() -> None:
    assert {name.partition(" ")[0] for name in FORMATS} == set(IMPORTERS.names())
    assert len(IMPORTERS.names()) > 10


BROKEN = {
    "table a.tsv": (HEAD + "a\tb\n", "line 2 has 2 values, not 10"),
    "aihub bert/perf.yaml": (PERF + "  - x", "can't be imported"),
    "torch_xpu a.csv": ("name,float32\nx,pass\n", "its name isn't like"),
    "tt_xla test_config_x.yaml": (TT.replace("expected_passing", "great"), "it isn't a test configuration"),
    "openvino_hub hf_transformers_models": ("bert,bert,maybe,x\n", "line 1 isn't name,type"),
    "openvino_hub t.csv": ("Topology,Precision,CPU\nbert,FP32,maybe\n", "'maybe' is neither empty nor one of"),
    "vllm_tpu model_support_matrix.csv": ("Model\nx\n", "no column 'UnitTest'"),
    "optimum_habana a.json": ("[1]", "it isn't an object of results"),
    "dynamo inductor_timm_training.csv": ("name,accuracy\nx\n", "line 2 has 1 values"),
    "hf_ci model_results.json": ('{"models_bert": {}}', "KeyError"),
    "mlperf summary_results.json": ('{"a": ', "can't be imported"),
    "llama_cpp CUDA.csv": ("", "no column"),
    "ctrf_json r.json": ('{"results": {"tests": [{}]}}', "can't be imported"),
    "junit_xml r.xml": ('<!DOCTYPE x [<!ENTITY a "b">]><testsuites/>', "it declares a document type"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_whole_with_one_error(name: str, tmp_path: Path) -> None:
    format, _, file = name.partition(" ")
    text, why = BROKEN[name]
    path = put(tmp_path / "in", file, text)
    done = invoke("evidence", "import", format, path, "--evidence", tmp_path / "evidence")
    assert (done.code, done.out) == (4, "")
    assert why in done.err
    assert done.err.count("error:") == 1
    assert not list(tmp_path.glob("evidence/*"))


def test_a_baseline_of_a_training_decides_nothing(tmp_path: Path) -> None:
    text = json.dumps({"gaudi2": {"squad": {"eval_f1": 9, "train_runtime": 5}, "x": {}}})
    (row,) = read_rows(IMPORTERS.load("optimum_habana"), put(tmp_path, "bert.json", text))
    (line,) = lines_of([row], "run", "2026-11-28").lines
    assert line.conditions["undecided"] == "it is about training"


def test_what_a_test_report_says_about_its_machine_is_not_written(tmp_path: Path) -> None:
    report = put(tmp_path, "report.xml", JUNIT.replace('message="NaN"', 'message="NaN in /home/ann/run.py"'))
    invoke("evidence", "import", "junit_xml", report, "--evidence", tmp_path / "e")
    (written,) = (path.read_text() for path in (tmp_path / "e").glob("*.jsonl"))
    assert "NaN in /home/<user>/run.py" in written


def test_all_shipped_rows_are_imported_and_read_again(tmp_path: Path) -> None:
    done = invoke("evidence", "import", "table", SHIPPED, "--evidence", tmp_path / "a", "--published", "2026-11-01")
    rows = shipped_rows()
    harness = lines_of(rows, "x", "").harness
    assert f"{len(rows) - harness} of {len(rows)} results imported, of 139 model types" in done.out
    assert f"{harness} are dropped: their set-up" in done.err
    lines = read_latest(tmp_path / "a").imported
    kept = Counter(line.conditions["file"] for line in lines)
    sources = Counter(row.source for row in rows if "sam/pytorch" not in row.model)
    assert all(kept[source] >= number for source, number in sources.items())
    assert kept.total() + harness == len(rows) == 6015
    assert {line.conditions["published"] for line in lines} == {"2026-11-01"}
    assert {line.conditions["license"] for line in lines} == {"Apache-2.0", "BSD-3-Clause", "MIT"}
    assert any(line.conditions.get("version") == "0.65.0" for line in lines)
    assert SHIPPED.stat().st_size < 150 * 1024
    notice = SHIPPED.with_name("published_notice.txt").read_text()
    assert [row.source for row in rows if source_of(row.source).get("url", "?") not in notice] == []


def test_names_without_a_type_and_set_up_faults_are_counted_and_uncertain_ones_decide_nothing() -> None:
    def row(model: str, **more: str) -> Row:
        return Row(**{"source": "x/y:z", "model": model, "target": "cuda", "outcome": "pass", **more})

    rows = [
        row("no-such-thing"),
        row("bert", outcome="fail", detail="OSError: We couldn't connect to x"),
        row("bert"),
    ]
    mapped = lines_of([*rows, row("x/bert-large"), row("bert", mode="training")], "r", "")
    assert (mapped.unmapped, mapped.harness) == ({"no-such-thing": 1}, 1)
    assert [line.conditions.get("undecided", "") for line in mapped.lines] == [
        "",
        "the type was guessed from the name",
        "it is about training",
    ]
    assert [*imported_verdicts(mapped.lines)] == ["bert/fill-mask/cuda/float32"]
    assert imported_verdicts(mapped.lines[1:]) == {}
    with pytest.raises(BrokenInput, match="'great' is an unknown outcome"):
        lines_of([row("bert", outcome="great")], "r", "")
    with pytest.raises(UsageError, match="names no target"):
        lines_of([row("bert", target="")], "r", "")
    assert lines_of([row("bert", target="")], "r", "", Given(target="xpu")).lines[0].requested_target == "xpu"


def test_every_uncertain_name_of_the_shipped_rows_was_checked_by_hand() -> None:
    found = {row.model: type_of(row) for row in shipped_rows() if row.confidence}
    assert len(found) > 150
    assert {name for name, one in found.items() if one and "not checked" in one.undecided} == set()
    assert found["GPT2ForSequenceClassification"].model_type == "gpt2"
    assert found["THUDM/glm-4v-9b"].undecided
    assert type_of(next(row for row in shipped_rows() if row.model == "cvt/CVT")).undecided.startswith("Cross-View")
    assert source_of("pypi:qai-hub-models==0.65.0:x")["publishes"] == "successes"


def test_a_file_whose_outcomes_flipped_is_refused_and_a_newer_one_replaces_the_older(tmp_path: Path) -> None:
    def table(outcomes: str) -> Path:
        words = {"p": "pass", "f": "fail"}
        rows = (
            f"a/b@1234567:c\tbert\tbert\t\tqnn:S{n}\tonnx\tw8a8\tinference\t{words[one]}\t\n"
            for n, one in enumerate(outcomes)
        )
        return put(tmp_path, "t.tsv", HEAD + "".join(rows))

    folder = tmp_path / "evidence"
    import_published("table", table("pppppppppppp"), folder, Given(), "x")
    import_published("table", table("pppppppppppf"), folder, Given(), "x")
    (verdict,) = imported_verdicts(read_latest(folder).imported).values()
    assert (verdict.level, len(verdict.evidence_ids)) == (Level.LOW, 12)
    with pytest.raises(BrokenInput, match="11 of 12 outcomes flipped"):
        import_published("table", table("ffffffffffff"), folder, Given(), "x")
    assert len([*folder.glob("*.jsonl")]) == 2
    assert [one.state for one in merge_evidence(folder, tmp_path / "other")] == ["taken", "taken"]
    unknown = put(tmp_path, "u.tsv", TABLE.replace("\tbert\tbert\t", "\tzzz\t\t"))
    with pytest.raises(NothingMatched, match="1 name no known model"):
        import_published("table", unknown, folder, Given(), "x")


def test_a_device_counts_by_its_best_route_and_devices_that_differ_make_the_level_low() -> None:
    def level(*results: str) -> Level:
        rows = []
        for result in results:
            device, route, outcome = result.split()
            rows.append(Row(source="a/b:c", model="bert", target="qnn", device=device, route=route, outcome=outcome))
        return next(iter(imported_verdicts(lines_of(rows, "r", "").lines).values())).level

    assert level("A x pass", "A y fail") is Level.MEDIUM
    assert level("A x pass", "B x fail") is Level.LOW
    assert level("A x fail", "B x wrong_numbers") is Level.UNSUPPORTED
    assert level("A x pass_partial") is Level.LOW
    assert level("A x pass", "A x does_not_fit", "A x untested") is Level.MEDIUM


def test_an_own_result_keeps_its_level_and_names_the_imported_one_that_contradicts_it() -> None:
    rows = [
        Row(
            source="pypi:qai-hub-models==0.65.0:x",
            model="bert",
            target="qnn",
            device="S24",
            route="qnn_dlc",
            precision="float",
            outcome="pass",
        )
    ]
    ((cell, other),) = imported_verdicts(lines_of(rows, "r", "").lines).items()
    assert texts(other.reasons) == ("works on S24 (qnn-dlc, float; AI Hub 0.65.0)",)
    own = Verdict(cell=cell, level=Level.UNSUPPORTED, basis=Basis.MEASURED, evidence_ids=("r/c/x",))
    found = contradicted(own, other)
    assert (found.level, found.basis, found.evidence_ids) == (own.level, own.basis, own.evidence_ids)
    assert reason_text(found.reasons[-1]) == (
        "contradicts what others measured: works on S24 (qnn-dlc, float; AI Hub 0.65.0)"
    )
    assert contradicted(replace(own, level=Level.HIGH), other).reasons == ()
    assert contradicted(own, replace(other, basis=Basis.PREDICTED)) is own


def test_results_that_no_table_published_count_as_before() -> None:
    line = check_line("builds", Outcome.PASSED, origin=Origin.IMPORTED, conditions={"source": "a lab"})
    (verdict,) = imported_verdicts([line, replace(line, check_name="b", outcome=Outcome.SKIPPED)]).values()
    assert (verdict.level, texts(verdict.reasons)) == (Level.MEDIUM, ("measured by a lab",))


def test_a_plugin_adds_a_format(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    row = Row(source="me/mine:a", model="bert", target="cuda", outcome="pass")
    mine = Importer(about="my format", rows=lambda path: [row] if path.read_text() == "x" else [])
    monkeypatch.setattr(
        IMPORTERS, "added", lambda: {"mine": type("E", (), {"load": lambda self: mine, "value": "m:M"})()}
    )
    done = invoke("evidence", "import", "mine", put(tmp_path, "a", "x"), "--evidence", tmp_path / "e")
    assert "1 of 1 results imported, of 1 model types" in done.out
    assert "my format was expected" in invoke("evidence", "import", "mine", put(tmp_path, "b", "y")).err


def test_a_packed_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardware.evidence.published._LARGEST", 1000)
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(HEAD.encode() + b"x" * 5000))
    with pytest.raises(BrokenInput, match="it is larger than"):
        read_rows(IMPORTERS.load("table"), path)


def test_shipped_results_of_one_type_agree_with_those_of_all() -> None:
    assert shipped_verdicts("albert") == {
        cell: one for cell, one in shipped_verdicts().items() if cell.startswith("albert/")
    }


def test_earlier_results_of_an_emulator_are_of_its_own_target_and_never_replace_those_of_a_device(
    tmp_path: Path,
) -> None:
    device, emulator = "albert/fill-mask/qnn/float32", "albert/fill-mask/qnn:emulator/float32"
    checks = ("builds", "matches_reference")
    plan = planned_cell(device, checks, verdict={"cell": device, "level": "medium"})
    names = {"accelerator": "HTP emulator of QNN 2.51.0 (soc_model 60, htp_arch 73) on x86_64"}
    lines = (check_line(checks[0], cell_id=device, **names), check_line(checks[1], Outcome.CRASHED, cell_id=device))
    real = check_line("builds", cell_id=device, run_id="r2", accelerator="Hexagon NPU (HTP), QNN 2.51.0")
    write_lines(tmp_path / "r1-1.jsonl", run_line(plan), *lines, an_end("r1"))
    for _ in ("raw", "compacted"):
        found, whole = read_latest(tmp_path, details=True), read_folder(tmp_path)
        assert {(one.cell_id, one.requested_target, one.actual_target) for one in (*found.checks, *whole.checks)} == {
            (emulator, "qnn:emulator", "qnn:emulator")
        }
        assert [one.cell_id for one in whole.runs[0].plan] == [emulator]
        assert found.predictions == {emulator: {"cell": emulator, "level": "medium"}}
        asked = ("--model", "albert", "--evidence", str(tmp_path), "--format", "json")
        row = invoke("matrix", *asked).document["models"]["albert/fill-mask/float32"]["compatibility"]
        said = {name: (row[name]["level"], row[name]["basis"]) for name in ("qnn", "qnn:emulator")}
        assert said == {"qnn": ("medium", "imported"), "qnn:emulator": ("unsupported", "expired")}
        assert compact(tmp_path).files in (0, 1)
    write_lines(tmp_path / "r2-1.jsonl", run_line(planned_cell(device, ("builds",)), run_id="r2"), real)
    assert {one.cell_id: one.run_id for one in read_latest(tmp_path).checks} == {emulator: "r1", device: "r2"}


def test_the_matrix_and_explain_show_what_others_measured_and_own_levels_stay(tmp_path: Path) -> None:
    cell = "albert/fill-mask/qnn/float32"
    published = shipped_verdicts("albert")[cell]
    assert (published.level, published.basis) == (Level.MEDIUM, Basis.IMPORTED)
    asked = ("--model", "albert", "--targets", "qnn,xpu,tt", "--precision", "bfloat16", "--format", "json")
    row = invoke("matrix", *asked).document["models"]["albert/fill-mask/bfloat16"]["compatibility"]
    assert {target: (one["level"], one["basis"]) for target, one in row.items()} == {
        "qnn": ("unknown", "predicted"),
        "xpu": ("medium", "imported"),
        "tt": ("medium", "imported"),
    }
    explained = invoke("explain", cell).out
    assert "Imported medium (imported)" in " ".join(explained.split())
    assert "(qnn-dlc, float; AI Hub 0.65.0)" in " ".join(explained.split())
    assert "works on n150, p150 (tt-xla-" in " ".join(invoke("explain", "albert/fill-mask/tt/bfloat16").out.split())
    answer = check_model("albert", "qnn", read_latest(tmp_path), inventory_here())
    assert (answer.measured.level, answer.measured.basis) == (Level.MEDIUM, Basis.IMPORTED)
    assert "AI Hub 0.65.0" in answer.cause
    assert answer.change.startswith("measure it ")
    assert "nothing was planned" not in answer.text
    predicted = Verdict(cell=cell, level=Level.UNSUPPORTED, basis=Basis.PREDICTED, rule_ids=("rule",))
    assert published_or(predicted) == published
    elsewhere = replace(predicted, cell=cell.replace("albert", "none"))
    assert published_or(elsewhere) is elsewhere
    for basis in (Basis.MEASURED, Basis.EXPIRED):
        own = Verdict(cell=cell, level=Level.UNSUPPORTED, basis=basis, evidence_ids=("r/c/x",))
        beside = beside_published(own, published, None)
        assert (beside.level, beside.basis, beside.reasons[-1].code) == (own.level, basis, "contradicted")
    unknown = Verdict(cell=cell, level=Level.UNKNOWN, basis=Basis.MEASURED)
    assert beside_published(unknown, published, None).basis is Basis.IMPORTED
    flaky = replace(unknown, reasons=(Reason.of("flaky", runs=("r",)),))
    assert beside_published(flaky, published, None) is flaky


def test_predictions_are_scored_against_others_results_and_successes_by_recall_alone(tmp_path: Path) -> None:
    (tmp_path / "evidence").mkdir()
    where = ("--evidence", tmp_path / "evidence")
    scores = invoke("calibration", "--external", "--format", "json", *where).document["scores"]
    shown = {(one["target"], one["only_successes"]): one for one in scores}
    successes, openvino = shown["qnn", True], shown["openvino", False]
    assert [name for name in ("agreement", "balanced", "false_works", "always_works") if successes[name]] == []
    assert 0 < successes["recall"] <= 1
    assert openvino["cells"] > 80
    assert 0 < openvino["balanced"] < openvino["recall"]
    assert 0.7 < openvino["always_works"] < 0.9
    failing = {one["cell"] for one in openvino["wrong"] if not one["works"]}
    assert "canine/text-classification/openvino/float32" in failing
    page = invoke("calibration", "--external", "--format", "markdown", *where).out
    assert page.startswith("# What others measured\n\nOf ")
    assert all(word in page for word in ("Survivorship: ", "| always works", "| by family", "(AI Hub 0.65.0)\\*"))
    text = invoke("calibration", "--external", *where).out
    assert "Predicted to work, but fails there (16)" in text
    assert "agrees with" in text.partition("Memory")[2]


def test_others_results_that_were_imported_are_scored_too(tmp_path: Path) -> None:
    put(tmp_path, "rocm/inductor_huggingface_inference.csv", DYNAMO)
    invoke("evidence", "import", "dynamo", tmp_path / "rocm", "--evidence", tmp_path / "evidence")
    asked = ("calibration", "--external", "--format", "json", "--evidence", tmp_path / "evidence")
    (rocm,) = [one for one in invoke(*asked).document["scores"] if one["target"] == "rocm"]
    assert (rocm["source"], rocm["cells"], rocm["always_works"]) == ("pytorch/pytorch", 2, 0.5)
