"""Failures in a pasted text become findings, and lines that aren't understood are listed."""

from __future__ import annotations

import json
from dataclasses import asdict

import jsonschema
from evidence_lines import check_line
from front_doors import invoke

from hardware.evidence.record import Outcome
from reports.diagnose_command import SCHEMA, diagnosis_blocks, diagnosis_object
from reports.diagnose_text import diagnose_text, versions_in
from reports.document import document

CHAIN = """2026-01-01 INFO loading
Traceback (most recent call last):
  File "/v/huggingface_hub/utils/_http.py", line 1, in f
    r.raise_for_status()
requests.exceptions.HTTPError: 404 Client Error: Not Found for url: https://example.org

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/v/torch/nn/modules/module.py", line 9, in forward
    return f(x)
           ^^^^
NotImplementedError: The operator 'aten::_fft_r2c' is not currently implemented for the MPS device.
"""
RANKS = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/v/train.py", line 5, in <module>
[rank0]:     loss.backward()
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
[rank1]: Traceback (most recent call last):
[rank1]:   File "/v/train.py", line 5, in <module>
[rank1]:     loss.backward()
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB.
"""
PYTEST = """E       RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)

x.py:3: RuntimeError
=========================== short test summary info ============================
FAILED test/x.py::test_a - RuntimeError: level_zero backend failed with er...
FAILED test/x.py::test_b - WeirdError: nobody <script>knows</script>
"""


def diagnosed(text: str):
    return diagnose_text(text, source="t.log", timestamp="2026-01-01")


def kinds(text: str) -> list[tuple[str, str]]:
    return [(one.error_type, one.hardware_type) for one in diagnosed(text).findings]


def test_failures_of_a_text_are_found_once_each_with_the_target_that_it_names():
    for text, expected in (
        (CHAIN, [("unsupported_operator", "mps")]),
        (RANKS, [("out_of_memory", "cuda")]),
        (PYTEST, [("device_lost", "xpu"), ("unknown", "xpu")]),
        (CHAIN + RANKS, [("unsupported_operator", "mps"), ("out_of_memory", "cuda")]),
        (RANKS + "\nSegmentation fault (core dumped)\n", [("out_of_memory", "cuda"), ("crash", "cuda")]),
        ("12 things failed\nE   OSError: odd\nE2\n" + RANKS, [("out_of_memory", "cuda"), ("unknown", "cuda")]),
        ("all is well\n", []),
        ("12 tests failed in a way that nobody knows\n", [("unknown", "any")]),
        ("ok\nSegmentation fault (core dumped)\n", [("crash", "any")]),
        ("{rank 3} Segmentation fault (core dumped)\n", [("crash", "any")]),
        ('{"kind": "check", "cell_id": 1} Segmentation fault\n', [("crash", "any")]),
        ("KeyError: 'x' is not a failure of a device\nSegmentation fault\n", [("crash", "any")]),
        ("\x1b[31mRuntimeError: No HIP GPUs are available\x1b[0m\n", [("device_absent", "rocm")]),
    ):
        assert kinds(text) == expected, text
    (finding,) = diagnosed(RANKS).findings
    assert "(line 4, 2 times in total): torch.OutOfMemoryError: CUDA out of memory" in finding.message
    assert finding.evidence_ids == ("t.log:4", "t.log:8")


def test_lines_that_are_not_understood_are_listed_as_text():
    found = diagnosed(PYTEST)
    assert [one.split(": ")[:2] for one in found.not_understood] == [["t.log:6", "WeirdError"]]
    (unknown,) = [one for one in found.findings if one.error_type == "unknown"]
    assert unknown.confidence == "low"
    assert "<script>" not in document(diagnosis_blocks(found), "markdown")


def test_versions_that_a_text_tells_make_a_known_fault_of_it():
    text = "x requires torch==9.9\nPyTorch version: 2.2.2+cpu\nnumpy==2.0.1\nRuntimeError: Numpy is not available\n"
    assert versions_in(text) == {"torch": "2.2.2+cpu", "numpy": "2.0.1"}
    assert kinds(text) == [("upstream_bug", "any")]
    assert kinds(text.replace("2.2.2", "2.4.0")) == [("version_conflict", "any")]


def test_pasted_lines_of_evidence_are_findings_of_their_cells():
    failed = check_line("builds", Outcome.CRASHED, error_type="crashed", error_message="ended by SIGSEGV")
    (finding,) = diagnosed(json.dumps(asdict(failed)) + "\n{broken\n").findings
    assert (finding.error_type, finding.cells) == ("crash", (failed.cell_id,))


def test_json_is_as_its_schema_says():
    found = diagnosed(CHAIN + PYTEST)
    data = diagnosis_object(found, "2026-01-01")
    jsonschema.validate(data, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert sum(data["error_counts"].values()) == len(data["errors"]) == 3
    report = json.loads(SCHEMA.with_name("report.json").read_text(encoding="utf-8"))
    for one in data["errors"]:
        jsonschema.validate(one, {**report["$defs"]["finding"], "$defs": report["$defs"]})


def test_long_and_broken_texts_end():
    deep = "Traceback (most recent call last):\n" + "  File x\n" * 20_000
    many = "".join(f"Traceback (most recent call last):\n  f\nValueError: {'x' * (i % 50)}\n" for i in range(1_500))
    assert len(kinds(deep)) == 1, "no message, so that the words decide"
    assert len(set(kinds(many))) == 1
    assert kinds("{" * 100_000 + "\n") == []
    (found,) = diagnosed("x" * 1_000_000 + " RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB").findings
    assert found.error_type == "out_of_memory"
    assert found.message.endswith("Tried to allocate 2.00 GiB")


def test_the_command_reads_a_file_and_returns_the_requested_exit_code(tmp_path):
    log = tmp_path / "trace.log"
    log.write_text(RANKS, encoding="utf-16")  # as PowerShell writes it
    done = invoke("diagnose", log)
    assert done.code == 1
    assert done.out.startswith("Diagnosis of trace.log\n===")
    assert invoke("diagnose", log, "--format", "markdown").out.startswith("# Diagnosis of trace.log\n")
    done = invoke("diagnose", log, "--fail-on", "critical", "--format", "json")
    assert done.code == 0
    assert done.document["errors"][0]["error_type"] == "out_of_memory"
    assert invoke("diagnose", log, "--format", "markdown", "--output-dir", tmp_path / "out").code == 1
    assert (tmp_path / "out" / "diagnosis.md").is_file()
    log.write_text("RuntimeError: No CUDA GPUs are available, asked with hf_abcdefghijklmnopqrstuvwxyz012345\n")
    done = invoke("diagnose", log)
    assert done.code == 0
    assert "hf_abcdef" not in done.out


def test_the_command_refuses_what_it_cannot_read_with_what_to_do(tmp_path):
    empty = tmp_path / "empty.log"
    empty.write_text(" \n")
    for words, message in (
        ("no/such.log", "can't be read"),
        (".", "is a folder"),
        (str(empty), "is empty"),
        (f"{empty} --format html", "'html' is not one of 'text', 'markdown', 'json'"),
        (f"{empty} --matrix", "No such option '--matrix'"),
    ):
        done = invoke("diagnose", *words.split())
        assert done.code == 4
        assert message in done.err


def test_operator_that_one_target_lacks_names_those_that_have_it():
    (finding,) = diagnosed(CHAIN).findings
    (advice,) = [text for text in finding.recommendations if text.startswith("Use other hardware")]
    assert "aten._fft_r2c is supported on cpu, cuda" in advice
    assert "mps" not in advice
