"""What others' tests show stands beside our verdicts: it makes no level, no pass and no coverage, and is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from generators.compatibility.imported import disagreements, second_opinions, with_opinions
from generators.compatibility.judge import judge, required_checks
from generators.compatibility.matrix import current_matrix
from generators.compatibility.verdict import Basis, Level, Verdict
from generators.compatibility.verdict_cache import judged_of
from hardware.cell import Cell
from hardware.detection import HardwareInfo, detect
from hardware.errors import BrokenInput
from hardware.evidence.latest import read_latest
from hardware.evidence.merge import merge_evidence
from hardware.evidence.record import CheckLine, EndLine, Origin, Outcome, PlannedCell, RunLine, from_dict, to_dict
from hardware.evidence.store import Evidence, read_folder
from hardware.evidence.versions import versions_of
from hardware.evidence.writer import EvidenceWriter
from reports.finding import SCHEMA
from reports.formats import report_text
from reports.reason_text import reason_text
from reports.reporter import HardwareCompatibilityReporter
from reports.saved_reports import schema_of

OURS = Cell.parse("bert/fill-mask/cpu/float32")
THEIRS = Cell.parse("bert/upstream-tests/cpu/float32")
RUN = "20261122T120000Z-00000{}"
PASS, FAIL, SKIP, OFFLINE = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED, Outcome.NOT_RUN


@pytest.fixture(scope="module")
def here() -> HardwareInfo:
    return detect()


def write(
    folder: Path,
    here: HardwareInfo,
    cell: Cell,
    outcomes: dict[str, Outcome],
    *,
    origin: Origin,
    number: int,
    planned: Sequence[str] | None = None,
    **changes: object,
) -> None:
    """A whole run: each check's outcome, as a runner would have written it."""
    writer = EvidenceWriter(folder, RUN.format(number))
    started = f"2026-11-22T12:00:0{number}+00:00"
    plan = PlannedCell(
        cell_id=cell.id, checks=tuple(planned or outcomes), suite="test_x.py", suite_hash="h", subject="tiny"
    )
    versions = {**versions_of(here), **changes.pop("versions", {})}
    writer.write(
        RunLine(
            run_id=writer.run_id,
            started_at=started,
            command="c",
            machine="m",
            inventory={},
            versions=versions,
            plan=(plan,),
            origin=origin,
        )
    )
    for name, outcome in outcomes.items():
        known = {"max_rel_error": 1e-7, "tolerance": 1e-5} if origin is Origin.HWCOMPAT else {}
        values = {
            "run_id": writer.run_id,
            "cell_id": cell.id,
            "check_name": name,
            "outcome": outcome,
            "subject": "tiny",
            "requested_target": "cpu",
            "actual_target": "cpu",
            "precision": "float32",
            "model": "bert",
            "task": cell.task,
            "suite_hash": "h",
            "started_at": started,
            "duration_s": 0.1,
            "accelerator": "a CPU",
            "actual_dtype": "float32",
            "native_ops": {"aten.addmm": 3},
            "conditions": {"tests of": "transformers 5.5.4"},
            "error_type": "needs_network" if outcome is OFFLINE else "",
            "error_message": "" if outcome is PASS else f"AssertionError: {name}",
            "origin": origin,
            **known,
        }
        writer.write(CheckLine(**{**values, **changes}))
    writer.write(EndLine(run_id=writer.run_id, ended_at=started, reason="done", counts={}))
    writer.close()


def theirs(
    folder: Path, here: HardwareInfo, outcomes: dict[str, Outcome], number: int = 2, **changes: object
) -> Evidence:
    write(folder, here, THEIRS, outcomes, origin=Origin.TRANSFORMERS, number=number, **changes)
    return read_folder(folder)


def ours(folder: Path, here: HardwareInfo) -> None:
    checks = required_checks(OURS)
    write(folder, here, OURS, dict.fromkeys(checks, PASS), origin=Origin.HWCOMPAT, number=1, planned=checks)


MIXED = {"A::one": PASS, "A::two": FAIL, "A::three": SKIP, "A::four": OFFLINE}


# Evidence


def test_lines_without_an_origin_are_our_own_and_an_unknown_one_is_broken(tmp_path, here):
    ours(tmp_path, here)
    (line, *_) = read_folder(tmp_path).checks
    plain = to_dict(line)
    assert plain.pop("origin") == "hwcompat"
    assert from_dict(plain) == line
    with pytest.raises(BrokenInput, match="pytorch"):
        from_dict({**plain, "origin": "pytorch"})


def test_what_others_tests_showed_is_in_no_list_that_verdicts_are_made_of(tmp_path, here):
    evidence = theirs(tmp_path, here, MIXED)
    assert (evidence.runs, evidence.checks, evidence.broken) == ((), (), ())
    assert len(evidence.other_runs) == 1
    assert {line.check_name for line in evidence.other_checks} == set(MIXED)
    assert read_latest(evidence, details=True).unfinished == ()


def test_a_line_that_hides_its_origin_in_a_run_of_others_is_not_ours(tmp_path, here):
    theirs(tmp_path, here, {"builds": PASS})
    (path,) = tmp_path.glob("*.jsonl")
    run, line, end = path.read_text().splitlines()
    forged = json.dumps({**json.loads(line), "origin": "hwcompat", "cell_id": OURS.id})
    path.write_text("\n".join([run, forged, end]) + "\n")
    assert read_folder(tmp_path).checks == ()
    forged = json.dumps({**json.loads(line), "origin": "hwcompat"})
    path.write_text("\n".join([run, forged, end]) + "\n")
    with pytest.raises(BrokenInput, match="another origin than its run"):
        merge_evidence(tmp_path, tmp_path / "home")


def test_evidence_of_another_origin_is_carried_home_and_stays_of_it(tmp_path, here):
    theirs(tmp_path / "lab", here, MIXED)
    merge_evidence(tmp_path / "lab", tmp_path / "home")
    merged = read_folder(tmp_path / "home")
    assert (merged.checks, len(merged.other_checks)) == ((), 4)


# Levels


def test_passes_of_others_make_no_level_and_no_row(tmp_path, here):
    forged = dict.fromkeys(required_checks(OURS), PASS)
    write(tmp_path, here, OURS, forged, origin=Origin.TRANSFORMERS, number=2, max_rel_error=1e-9, tolerance=1e-5)
    evidence = read_folder(tmp_path)
    assert judge(read_latest(evidence), here) == ()
    matrix = current_matrix(judged_of(read_latest(evidence), here), here, timestamp="t")
    assert {verdict.basis for row in matrix.rows for verdict in row.verdicts.values()} <= {
        Basis.ASSUMED,
        Basis.PREDICTED,
    }
    assert all(cell.counts.measured == 0 for cells in matrix.families.values() for cell in cells.values())


@pytest.mark.parametrize("theirs_show", [PASS, FAIL, SKIP])
def test_our_level_is_the_same_whatever_others_show(tmp_path, here, theirs_show):
    ours(tmp_path, here)
    (before,) = judge(read_latest(tmp_path), here)
    assert (before.level, before.basis) == (Level.HIGH, Basis.MEASURED)
    (after,) = judge(read_latest(theirs(tmp_path, here, {"A::one": theirs_show})), here)
    assert replace(after, reasons=before.reasons) == before
    assert after.reasons[:-1] == before.reasons


# What is told


def test_counts_stand_in_the_reasons_of_matrix_and_verdict(tmp_path, here):
    ours(tmp_path, here)
    evidence = theirs(tmp_path, here, MIXED)
    said = "upstream's tests: 1 passed, 1 failed, 1 skipped, 1 not run (1 needs_network)"
    (verdict,) = judge(read_latest(evidence), here)
    assert reason_text(verdict.reasons[-1]) == said
    rows = {row.id: row for row in current_matrix(judged_of(read_latest(evidence), here), here, timestamp="t").rows}
    assert rows["bert/fill-mask/float32"].verdicts["cpu"].reasons.count(verdict.reasons[-1]) == 1
    for row, target in (("vit/image-classification/float32", "cpu"), ("bert/fill-mask/float32", "cuda")):
        assert "other_tests" not in {reason.code for reason in rows[row].verdicts[target].reasons}


def test_the_newest_line_of_each_test_counts(tmp_path, here):
    theirs(tmp_path, here, {"A::one": FAIL, "A::two": FAIL}, 2)
    (opinion,) = second_opinions(theirs(tmp_path, here, {"A::one": PASS}, 3), here)
    assert {line.check_name: line.outcome for line in opinion.lines} == {"A::one": PASS, "A::two": FAIL}


def test_other_versions_are_said_and_give_no_finding(tmp_path, here):
    ours(tmp_path, here)
    evidence = theirs(tmp_path, here, MIXED, versions={"torch": "1.0"})
    (opinion,) = second_opinions(evidence, here)
    (moved,) = opinion.reason.parameters["moved"]
    assert moved.startswith("torch 1.0, now ")
    assert "with other versions: torch 1.0, now " in reason_text(opinion.reason)
    assert disagreements(judge(read_latest(evidence), here), [opinion]) == ()


def test_older_versions_are_left_out_where_there_is_something_newer(tmp_path, here):
    theirs(tmp_path, here, {"A::one": FAIL, "A::old": FAIL}, 2, versions={"torch": "1.0"})
    (opinion,) = second_opinions(theirs(tmp_path, here, {"A::one": PASS}, 3), here)
    assert reason_text(opinion.reason) == "upstream's tests: 1 passed"


@pytest.mark.parametrize(
    ("level", "basis", "disagrees"),
    [
        (Level.HIGH, Basis.MEASURED, True),
        (Level.HIGH, Basis.PREDICTED, False),
        (Level.HIGH, Basis.EXPIRED, False),
        (Level.MEDIUM, Basis.MEASURED, False),
    ],
)
def test_only_what_we_measured_as_high_can_be_disagreed_with(tmp_path, here, level, basis, disagrees):
    opinions = second_opinions(theirs(tmp_path, here, MIXED), here)
    verdict = Verdict(cell=OURS.id, level=level, basis=basis, evidence_ids=("x",))
    elsewhere = replace(verdict, cell="bert/fill-mask/simulated/float32")
    assert [cells for _, cells in disagreements([verdict, elsewhere], opinions)] == (
        [(OURS.id,)] if disagrees else []
    )
    assert with_opinions([elsewhere], opinions) == (elsewhere,)


def test_the_finding_names_the_tests_and_is_a_warning(tmp_path, here):
    ours(tmp_path, here)
    reporter = HardwareCompatibilityReporter(theirs(tmp_path, here, MIXED))
    (finding,) = [f for f in reporter.collect_compatibility_test_errors() if f.component == "second_opinion"]
    assert (finding.severity, finding.error_type) == ("warning", "second_opinion_disagrees")
    assert (finding.checks, finding.cells) == (("A::two",), (OURS.id,))
    assert "A::two" in finding.message
    assert finding.evidence_ids == (f"{RUN.format(2)}/{THEIRS.id}/A::two",)


def test_where_they_agree_there_is_no_finding(tmp_path, here):
    ours(tmp_path, here)
    reporter = HardwareCompatibilityReporter(theirs(tmp_path, here, {"A::one": PASS, "A::two": SKIP}))
    assert [f for f in reporter.collect_compatibility_test_errors() if f.component == "second_opinion"] == []


def test_reports_show_them_beside_and_count_them_nowhere(tmp_path, here):
    ours(tmp_path, here)
    reporter = HardwareCompatibilityReporter(theirs(tmp_path, here, {**MIXED, "A::<b>": FAIL}))
    reporter.collect_compatibility_test_errors()
    report = reporter.report()
    assert report.outcomes == {"passed": len(required_checks(OURS))}
    data = json.loads(report_text(report, "json"))
    jsonschema.validate(data, schema_of(SCHEMA))
    (opinion,) = data["second_opinions"]
    assert opinion["outcomes"] == {"passed": 1, "failed": 2, "skipped": 1, "not_run": 1}
    assert {one["test"] for one in opinion["failed"]} == {"A::<b>", "A::two"}
    assert all("A::" not in check["check_name"] for check in data["checks"])
    text = report_text(report, "markdown")
    assert "## Second opinion" in text
    assert "| bert | cpu | transformers 5.5.4 | 1 | 2 | 1 | 1 | 1 needs_network |" in text
    page = report_text(report, "html")
    assert 'id="second-opinion"' in page
    assert "A::<b>" not in page
    assert "A::one" not in report_text(report, "junit")
