"""Results of other projects' tests are shown beside verdicts; they make no level, no pass and no coverage."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from evidence_lines import BERT, check_line, planned_cell, run_line, write_lines
from whole_runs import write_run

from generators.compatibility.imported import disagreements, reference_tests, with_reference_tests
from generators.compatibility.judge import judge
from generators.compatibility.matrix import current_matrix
from generators.compatibility.required_checks import required_checks
from generators.compatibility.verdict import Basis, Level, Verdict
from generators.compatibility.verdict_cache import judged_of
from hardware.cell import Cell
from hardware.detection import HardwareInfo, detect
from hardware.errors import BrokenInput
from hardware.evidence.latest import read_latest
from hardware.evidence.merge import merge_evidence
from hardware.evidence.record import EndLine, Origin, Outcome, from_dict, to_dict
from hardware.evidence.store import Evidence, read_folder
from hardware.evidence.versions import versions_of
from hardware.values import data_file
from reports.finding import SCHEMA
from reports.formats import report_text
from reports.reason_text import reason_text
from reports.reporter import HardwareCompatibilityReporter

THEIRS = "bert/upstream-tests/cpu/float32"
RUN = "20261122T120000Z-00000{}"
PASS, FAIL, SKIP, OFFLINE = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED, Outcome.NOT_RUN
MIXED = {"A::one": PASS, "A::two": FAIL, "A::three": SKIP, "A::four": OFFLINE}


@pytest.fixture(scope="module")
def here() -> HardwareInfo:
    return detect()


def theirs(
    folder: Path, outcomes: dict[str, Outcome], number: int = 2, *, cell: str = THEIRS, **versions: str
) -> Evidence:
    """Write a run of transformers' own tests; return all evidence of the folder."""
    at = {"run_id": RUN.format(number), "started_at": f"2026-11-22T12:00:0{number}+00:00"}
    of_others = {"origin": Origin.TRANSFORMERS, **at}
    run = run_line(planned_cell(cell, tuple(outcomes)), versions={**versions_of(detect()), **versions}, **of_others)
    known = {"cell_id": cell, "conditions": {"tests of": "transformers 5.5.4"}, "native_ops": {"aten.addmm": 3}}
    lines = [
        check_line(
            name,
            outcome,
            error_type="needs_network" if outcome is OFFLINE else "",
            error_message="" if outcome is PASS else f"AssertionError: {name}",
            **known,
            **of_others,
        )
        for name, outcome in outcomes.items()
    ]
    end = EndLine(run_id=at["run_id"], ended_at=at["started_at"], reason="done", counts={})
    write_lines(folder / f"{at['run_id']}-1.jsonl", run, *lines, end)
    return read_folder(folder)


def ours(folder: Path) -> None:
    """Write a run of our own suite that passed."""
    write_run(folder, BERT, run_id=RUN.format(1))


# Evidence


def test_lines_without_an_origin_are_our_own_and_an_unknown_one_is_broken(tmp_path):
    ours(tmp_path)
    (line, *_) = read_folder(tmp_path).checks
    plain = to_dict(line)
    assert plain.pop("origin") == "hwcompat"
    assert from_dict(plain) == line
    with pytest.raises(BrokenInput, match="pytorch"):
        from_dict({**plain, "origin": "pytorch"})


def test_results_of_others_are_apart_also_after_a_merge(tmp_path):
    evidence = theirs(tmp_path / "lab", MIXED)
    assert (evidence.runs, evidence.checks, evidence.broken) == ((), (), ())
    assert len(evidence.other_runs) == 1
    assert {line.check_name for line in evidence.other_checks} == set(MIXED)
    assert read_latest(evidence, details=True).unfinished == ()
    merge_evidence(tmp_path / "lab", tmp_path / "home")
    merged = read_folder(tmp_path / "home")
    assert (merged.checks, len(merged.other_checks)) == ((), 4)


def test_a_line_of_another_origin_in_a_run_of_others_is_not_ours(tmp_path):
    theirs(tmp_path, {"builds": PASS})
    (path,) = tmp_path.glob("*.jsonl")
    run, line, end = path.read_text().splitlines()
    for changes in ({"cell_id": BERT}, {}):
        forged = json.dumps({**json.loads(line), "origin": "hwcompat", **changes})
        path.write_text("\n".join([run, forged, end]) + "\n")
        assert read_folder(tmp_path).checks == ()
    with pytest.raises(BrokenInput, match="a different origin than its run"):
        merge_evidence(tmp_path, tmp_path / "home")


# Levels


def test_results_of_others_change_no_level_and_are_counted_in_the_reasons(tmp_path, here):
    forged = dict.fromkeys(required_checks(Cell.parse(BERT)), PASS)
    assert judge(read_latest(theirs(tmp_path / "forged", forged, cell=BERT)), here) == ()
    ours(tmp_path)
    (before,) = judge(read_latest(tmp_path), here)
    assert (before.level, before.basis) == (Level.HIGH, Basis.MEASURED)
    for number, outcome in enumerate((PASS, FAIL, SKIP), 2):
        (after,) = judge(read_latest(theirs(tmp_path, {"A::one": outcome}, number)), here)
        assert replace(after, reasons=before.reasons) == before
        assert after.reasons[:-1] == before.reasons
    latest = read_latest(theirs(tmp_path, MIXED, 5))
    (verdict,) = judge(latest, here)
    counts = "upstream's tests: 1 passed, 1 failed, 1 skipped, 1 not run (1 needs_network)"
    assert reason_text(verdict.reasons[-1]) == counts
    matrix = current_matrix(judged_of(latest, here), here, timestamp="t")
    rows = {row.id: row.verdicts for row in matrix.rows}
    assert rows["bert/fill-mask/float32"]["cpu"].reasons.count(verdict.reasons[-1]) == 1
    for row, target in (("vit/image-classification/float32", "cpu"), ("bert/fill-mask/float32", "cuda")):
        assert "other_tests" not in {reason.code for reason in rows[row][target].reasons}
    assert "bert/upstream-tests/float32" not in rows


def test_the_newest_line_of_each_test_counts(tmp_path, here):
    theirs(tmp_path, {"A::one": FAIL, "A::two": FAIL})
    (opinion,) = reference_tests(theirs(tmp_path, {"A::one": PASS}, 3), here)
    assert {line.check_name: line.outcome for line in opinion.lines} == {"A::one": PASS, "A::two": FAIL}


def test_results_with_other_versions_are_marked_and_left_out_if_there_are_newer_ones(tmp_path, here):
    ours(tmp_path)
    evidence = theirs(tmp_path, MIXED, torch="1.0")
    (opinion,) = reference_tests(evidence, here)
    (moved,) = opinion.reason.parameters["moved"]
    assert moved.startswith("torch 1.0, now ")
    assert "with other versions: torch 1.0, now " in reason_text(opinion.reason)
    assert disagreements(judge(read_latest(evidence), here), [opinion]) == ()
    (opinion,) = reference_tests(theirs(tmp_path, {"A::one": PASS}, 3), here)
    assert reason_text(opinion.reason) == "upstream's tests: 1 passed"


def test_only_a_measured_high_can_be_disagreed_with(tmp_path, here):
    opinions = reference_tests(theirs(tmp_path, MIXED), here)
    for level, basis, disagrees in (
        (Level.HIGH, Basis.MEASURED, True),
        (Level.HIGH, Basis.PREDICTED, False),
        (Level.HIGH, Basis.EXPIRED, False),
        (Level.MEDIUM, Basis.MEASURED, False),
    ):
        verdict = Verdict(cell=BERT, level=level, basis=basis, evidence_ids=("x",))
        elsewhere = replace(verdict, cell="bert/fill-mask/simulated/float32")
        cells = [found for _, found in disagreements([verdict, elsewhere], opinions)]
        assert cells == ([(BERT,)] if disagrees else []), (level, basis)
        assert with_reference_tests([elsewhere], opinions) == (elsewhere,)


# Reports


def test_a_disagreement_is_a_warning_that_names_the_tests(tmp_path):
    ours(tmp_path)
    agreeing = HardwareCompatibilityReporter(theirs(tmp_path, {"A::one": PASS, "A::two": SKIP}))
    assert "second_opinion" not in {one.component for one in agreeing.collect_compatibility_test_errors()}
    reporter = HardwareCompatibilityReporter(theirs(tmp_path, MIXED, 3))
    (finding,) = [f for f in reporter.collect_compatibility_test_errors() if f.component == "second_opinion"]
    assert (finding.severity, finding.error_type) == ("warning", "second_opinion_disagrees")
    assert (finding.checks, finding.cells) == (("A::two",), (BERT,))
    assert "A::two" in finding.message
    assert finding.evidence_ids == (f"{RUN.format(3)}/{THEIRS}/A::two",)


def test_reports_show_them_and_do_not_count_them(tmp_path):
    ours(tmp_path)
    reporter = HardwareCompatibilityReporter(theirs(tmp_path, {**MIXED, "A::<b>": FAIL}))
    reporter.collect_compatibility_test_errors()
    report = reporter.report()
    assert report.outcomes == {"passed": len(required_checks(Cell.parse(BERT)))}
    data = json.loads(report_text(report, "json"))
    jsonschema.validate(data, data_file(SCHEMA))
    (opinion,) = data["second_opinions"]
    assert opinion["outcomes"] == {"passed": 1, "failed": 2, "skipped": 1, "not_run": 1}
    assert {one["test"] for one in opinion["failed"]} == {"A::<b>", "A::two"}
    assert all("A::" not in check["check_name"] for check in data["checks"])
    text = report_text(report, "markdown")
    assert "## Reference tests" in text
    assert "| bert | cpu | transformers 5.5.4 | 1 | 2 | 1 | 1 | 1 needs_network |" in text
    page = report_text(report, "html")
    assert 'id="second-opinion"' in page
    assert "A::<b>" not in page
    assert "A::one" not in report_text(report, "junit")
