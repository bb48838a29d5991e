"""Pages made from evidence: which lines count, what is kept, and how a failure is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evidence_table import gathered, keep, one_line
from benchmarks.openvino_table import Row, class_of, page, passing_on_cpu, rows_of
from hardware.cell import Cell
from hardware.evidence.kept_evidence import last_checks
from hardware.evidence.record import CheckLine, Outcome, PlannedCell, RunLine, Stage
from hardware.evidence.writer import EvidenceWriter
from hardware.target import Target

VERSIONS = {"openvino": "1", "optimum-intel": "1", "torch": "1", "transformers": "1", "hwcompat": "1"}
COVERAGE = """# Coverage

### Passed under condition (1)

| types | reason |
|---|---|
| csm, flava | left out |

### Passed

- encoder-only (2): bert, albert

## Excluded
"""


def check(cell: str, name: str, run: str = "one", at: str = "2026-01-01T00:00:00Z", **facts: Any) -> CheckLine:
    parsed = Cell.parse(cell)
    known: dict[str, Any] = {
        "outcome": Outcome.PASSED,
        "actual_target": "openvino",
        "actual_dtype": "float32",
        "conditions": {"export": "optimum-intel"},
        "max_rel_error": 1e-6 if name == "matches_reference" else None,
        "tolerance": 2e-5,
        "native_ops": {"openvino.MatMul": 1} if name == "runs_natively" else {},
        "traceback": "long",
    }
    return CheckLine(
        run_id=run, cell_id=cell, check_name=name, subject="tiny", requested_target=str(parsed.target),
        precision=parsed.precision, model=parsed.model, task=parsed.task, suite_hash="h", started_at=at,
        duration_s=1.0, **(known | facts),
    )  # fmt: skip


def run(name: str = "one") -> RunLine:
    return RunLine(
        run_id=name, started_at="2026-01-01T00:00:00Z", command="c", machine="m", inventory={"a": 1},
        versions=VERSIONS, plan=(),
    )  # fmt: skip


BERT = "bert/fill-mask/openvino/float32"
CHECKS = ("builds", "matches_reference", "runs_natively")


def test_the_last_whole_run_of_a_cell_counts() -> None:
    lines = [check(BERT, name) for name in CHECKS]
    lines += [check(BERT, "builds", "two", "2026-01-02T00:00:00Z", outcome=Outcome.FAILED)]
    lines += [check("bert/fill-mask/cpu/float32", name) for name in CHECKS]
    lines += [check("gpt2/text-generation/openvino/float32", "runs_natively", outcome=Outcome.NOT_RUN)]
    found = last_checks(lines, Target(name="openvino"))
    assert list(found) == [BERT]
    assert {line.run_id for line in found[BERT].values()} == {"one"}


def test_kept_evidence_gives_the_same_page_and_the_same_bytes(tmp_path: Path) -> None:
    writer = EvidenceWriter(tmp_path, "one")
    for line in (run(), *(check(BERT, name) for name in CHECKS)):
        writer.write(line)
    writer.close()
    found = gathered([tmp_path])
    first, second = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    keep(found, Target(name="openvino"), first)
    again = gathered([first])
    keep(again, Target(name="openvino"), second)
    assert first.read_bytes() == second.read_bytes()
    assert {line.traceback for line in again.checks} == {""}
    assert page(found.runs, found.checks, COVERAGE) == page(again.runs, again.checks, COVERAGE)


def test_a_run_on_two_targets_that_is_kept_in_two_files_has_its_whole_plan_again(tmp_path: Path) -> None:
    cells = (BERT, "bert/fill-mask/cpu/float32")
    plan = tuple(
        PlannedCell(cell_id=cell, checks=CHECKS, suite="s.py", suite_hash="0", subject="tiny", verdict={"cell": cell})
        for cell in cells
    )
    writer = EvidenceWriter(tmp_path, "one")
    for line in (replace(run(), plan=plan), *(check(cell, name) for cell in cells for name in CHECKS)):
        writer.write(line)
    writer.close()
    files = [tmp_path / f"{name}.jsonl.gz" for name in ("openvino", "cpu")]
    for name, file in zip(("openvino", "cpu"), files, strict=True):
        keep(gathered([tmp_path]), Target(name=name), file)
    (again,) = gathered(files).runs
    assert {one.cell_id for one in again.plan} == set(cells)
    assert all(one.verdict for one in again.plan)


def test_types_that_pass_on_cpu_are_read_from_the_coverage() -> None:
    assert passing_on_cpu(COVERAGE) == {"csm", "flava", "bert", "albert"}


def test_a_page_counts_of_all_types_that_pass_on_cpu() -> None:
    text = page([run()], [check(BERT, name) for name in CHECKS], COVERAGE)
    assert "**1 of the 4 types that pass on cpu pass here (25 %)**" in text
    assert "Without evidence: albert, csm, flava." in text


def test_a_failing_check_lowers_the_level() -> None:
    lines = [check(BERT, name) for name in CHECKS[:1]]
    lines += [check(BERT, name, outcome=Outcome.FAILED, error_type="numerical_mismatch") for name in CHECKS[1:]]
    (row,) = rows_of([run()], lines)
    assert not row.passes


@pytest.mark.parametrize(
    ("message", "stage", "name", "cause"),
    [
        ("Unsupported: optimum-intel: no; convert_model: no conversion rule for aten::diff", Stage.EXPORT,
         "no conversion rule", "matches_reference: convert_model: no conversion rule for aten::diff"),
        ("off by 1e+00 of the output's scale", Stage.COMPARE, "other numbers than float64",
         "matches_reference: off by 1e+00 of the output's scale"),
        ("strange", Stage.RUN, "unknown", "matches_reference: strange"),
    ],
)  # fmt: skip
def test_a_failure_is_named_by_the_last_way_that_was_tried(message: str, stage: Stage, name: str, cause: str) -> None:
    line = check(
        BERT, "matches_reference", outcome=Outcome.FAILED, error_type="unknown", error_message=message, stage=stage
    )
    (row,) = rows_of([run()], [line, check(BERT, "runs_natively")])
    assert isinstance(row, Row)
    assert class_of(row) == (name, cause, stage)


def test_a_message_is_one_cell_of_a_table() -> None:
    assert one_line("a |\n b") == "a / b"
    assert len(one_line("x" * 300)) == 160
