"""Pages made from evidence: which lines count, what is kept, and how a failure is named."""

from __future__ import annotations

from pathlib import Path

from evidence_lines import check_line, planned_cell, run_line, write_lines

from benchmarks.evidence_table import gathered, keep
from benchmarks.target_table import page, wordings
from hardware.evidence.record import CheckLine, Outcome, Stage
from hardware.evidence.shipped_evidence import last_checks
from hardware.target import Target

OPENVINO = wordings()["openvino"]
BERT, ON_CPU = "bert/fill-mask/openvino/float32", "bert/fill-mask/cpu/float32"
CHECKS = ("builds", "matches_reference", "runs_natively")
VERSIONS = {"openvino": "1", "optimum-intel": "1", "torch": "1", "transformers": "1", "hwcompat": "1"}
RUN = run_line(*(planned_cell(one, CHECKS, verdict={"cell": one}) for one in (BERT, ON_CPU)), versions=VERSIONS)


def check(name: str, outcome: Outcome = Outcome.PASSED, /, **facts: object) -> CheckLine:
    known = {"cell_id": BERT, "actual_dtype": "float32", "conditions": {"export": "optimum-intel"}, "tolerance": 2e-5}
    known |= {"traceback": "long", "max_rel_error": 1e-6 if name == "matches_reference" else None}
    known |= {"native_ops": {"openvino.MatMul": 1}} if name == "runs_natively" else {}
    return check_line(name, outcome, **{**known, **facts})


def test_the_last_whole_run_of_a_cell_counts() -> None:
    lines = [check(name) for name in CHECKS]
    lines += [check("builds", Outcome.FAILED, run_id="two", started_at="2026-01-02T00:00:00Z")]
    lines += [check(name, cell_id=ON_CPU) for name in CHECKS]
    lines += [check("builds", Outcome.NOT_RUN, cell_id="gpt2/text-generation/openvino/float32")]
    found = last_checks(lines, Target(name="openvino"))
    assert list(found) == [BERT]
    assert {line.run_id for line in found[BERT].values()} == {"r1"}


def test_kept_evidence_gives_the_same_page_bytes_and_plan(tmp_path: Path) -> None:
    lines = [check(name, cell_id=cell) for cell in (BERT, ON_CPU) for name in CHECKS]
    write_lines(tmp_path / "evidence" / "r1-1.jsonl", RUN, *lines)
    found = gathered([tmp_path / "evidence"])
    files = [tmp_path / f"{name}.jsonl.gz" for name in ("openvino", "cpu", "again")]
    for name, file in zip(("openvino", "cpu"), files, strict=False):
        keep(found, Target(name=name), file)
    again = gathered(files[:2])
    keep(again, Target(name="openvino"), files[2])
    assert files[0].read_bytes() == files[2].read_bytes()
    assert {line.traceback for line in again.checks} == {""}
    assert page(OPENVINO, found.runs, found.checks) == page(OPENVINO, again.runs, again.checks)
    (run,) = again.runs
    assert sorted(map(repr, run.plan)) == sorted(map(repr, RUN.plan))


def test_a_page_gives_the_way_of_export_and_the_reason_of_a_failure() -> None:
    text = page(OPENVINO, [RUN], [check(name) for name in CHECKS])
    assert "1 of 1 cells pass every check" in text
    assert "| bert | fill-mask | 3 | 1.0e-06 | 1, optimum-intel |" in text
    message = "no; convert_model: no conversion rule for aten::diff"
    facts = {"error_type": "unknown", "error_message": message, "stage": Stage.EXPORT}
    failed = check("matches_reference", Outcome.FAILED, **facts)
    text = page(OPENVINO, [RUN], [failed, check("runs_natively")])
    assert "| bert | fill-mask | 1 of 2 | no conversion rule for aten::diff |" in text
