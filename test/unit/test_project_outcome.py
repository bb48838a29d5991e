"""A run judged by a project: the lock is exact, an accepted failure hides nothing else, and goes when it can."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from generators.project.lock import levels_to_lock
from generators.project.project_finding import ProjectFindingKind, ProjectOutcome
from generators.project.project_outcome import CellRun, judge_project
from generators.project.project_reader import parse_project
from hardware.evidence.record import EDITED, CheckLine, Outcome
from reports.reason_text import reason_text

CELL = "bert/fill-mask/simulated/float32"
OTHER = "vit/image-classification/cpu/float32"
TODAY = date(2026, 11, 21)
HEAD = 'schema_version = 1\n[[model]]\nname = "bert"\n'
LOCK = f'{HEAD}[expected]\n"{CELL}" = "high"\n'
CHECKS = ("builds", "matches_reference", "backward")
MOVED = Reason.of("versions_moved", moved=("torch 1",))


def entry(
    check: str = "matches_reference",
    error_type: str = "numerical_mismatch",
    until: str = "2026-12-31",
    cell: str = CELL,
) -> str:
    lines = [
        "[[accepted_failure]]",
        f'cell = "{cell}"',
        *([f'check = "{check}"'] if check else []),
        *([f'error_type = "{error_type}"'] if error_type else []),
        'reason = "a broken kernel"',
        'link = "https://example.org/issues/1"',
        f"until = {until}",
    ]
    return "\n".join(lines) + "\n"


def line(check: str, outcome: Outcome = Outcome.PASSED, cell: str = CELL, **changes: object) -> CheckLine:
    values = {
        "run_id": "run1",
        "cell_id": cell,
        "check_name": check,
        "outcome": outcome,
        "subject": "tiny",
        "requested_target": "simulated",
        "actual_target": "simulated",
        "precision": "float32",
        "model": "bert",
        "task": "fill-mask",
        "suite_hash": "abc",
        "started_at": "2026-01-01T00:00:00Z",
        "duration_s": 0.1,
        **changes,
    }
    return CheckLine(**values)


def wrong(check: str = "matches_reference", error_type: str = "numerical_mismatch", **changes: object) -> CheckLine:
    return line(check, Outcome.FAILED, error_type=error_type, error_message="off by 0.3", **changes)


def run(level: str = "high", *different: CheckLine, cell: str = CELL, missing: str = "") -> CellRun:
    """A run of all checks that passed, but for the lines that are different."""
    found = {check: line(check, cell=cell) for check in CHECKS} | {one.check_name: one for one in different}
    lines = tuple(found.values())
    ids = tuple(one.evidence_id for one in lines)
    messages = [one.error_message for one in different] or ["all passed"]
    verdict = Verdict(
        cell=cell,
        level=Level(level),
        basis=Basis.MEASURED,
        reasons=tuple(Reason.of("text", text=one) for one in messages),
        evidence_ids=ids,
    )
    return CellRun(verdict=verdict, lines=lines, missing=missing)


def judged(text: str, *runs: CellRun, today: date = TODAY, **given: object) -> ProjectOutcome:
    project = parse_project(text, Path("hwcompat.toml"))
    return judge_project(project, {one.verdict.cell: one for one in runs}, today, words=reason_text, **given)


def only(outcome: ProjectOutcome, kind: ProjectFindingKind):
    (finding,) = outcome.of_kind(kind)
    return finding


# The lock


def test_the_level_that_was_expected_is_green():
    outcome = judged(LOCK, run("high"))
    assert (outcome.exit_code, outcome.summary) == (0, "1 met")


def test_a_worse_level_breaks_the_build_and_names_cell_check_and_cause():
    outcome = judged(LOCK, run("unsupported", wrong()))
    finding = only(outcome, ProjectFindingKind.WORSE)
    assert outcome.exit_code == 1
    assert finding.cell == CELL
    assert "expected high, measured unsupported" in finding.message
    assert "matches_reference failed" in finding.message
    assert "off by 0.3" in finding.message
    assert finding.checks == ("matches_reference",)


def test_a_better_level_breaks_it_too_with_the_line_to_change():
    outcome = judged(LOCK.replace('"high"', '"low"'), run("high"))
    finding = only(outcome, ProjectFindingKind.BETTER)
    assert outcome.exit_code == 1
    assert f'line 5 of hwcompat.toml to "{CELL}" = "high"' in finding.fix


@pytest.mark.parametrize("level", ["low", "unsupported"])
def test_what_is_expected_not_to_work_may_fail(level):
    outcome = judged(LOCK.replace('"high"', f'"{level}"'), run(level, wrong("backward")))
    assert (outcome.exit_code, outcome.summary) == (0, "1 met")


def test_expected_and_not_run_is_not_met():
    outcome = judged(LOCK)
    assert outcome.exit_code == 1
    assert "was not run" in only(outcome, ProjectFindingKind.NOT_MET).message


def test_expected_and_left_out_by_the_command_line_is_said_and_not_judged():
    outcome = judged(LOCK, left_out={CELL: "--select"})
    assert outcome.exit_code == 0
    assert "--select left it out" in only(outcome, ProjectFindingKind.LEFT_OUT).message


@pytest.mark.parametrize(("level", "basis"), [("unknown", "measured"), ("high", "expired"), ("high", "predicted")])
def test_only_what_was_measured_now_meets_the_lock(level, basis):
    one = run("high")
    verdict = Verdict(cell=CELL, level=Level(level), basis=Basis(basis), reasons=(MOVED,), evidence_ids=("a",))
    outcome = judged(LOCK, CellRun(verdict=verdict, lines=one.lines))
    assert outcome.exit_code == 1
    assert "measured with torch 1" in only(outcome, ProjectFindingKind.NOT_MET).message


def test_a_device_that_was_not_there_is_not_met_with_the_reason():
    one = run("unknown", missing="this torch is built without CUDA")
    assert "built without CUDA" in only(judged(LOCK, one), ProjectFindingKind.NOT_MET).message


def test_a_cell_that_is_not_in_the_lock_is_noted_and_its_failure_breaks_the_build():
    good = judged(LOCK, run("high"), run("high", cell=OTHER))
    assert good.exit_code == 0
    assert only(good, ProjectFindingKind.NOT_LOCKED).cell == OTHER
    bad = judged(LOCK, run("high"), run("unsupported", wrong(cell=OTHER), cell=OTHER))
    assert bad.exit_code == 1
    assert only(bad, ProjectFindingKind.FAILED).cell == OTHER
    absent = judged(HEAD, run("unknown", missing="no driver"))
    assert absent.exit_code == 1


# Accepted failures


def test_an_accepted_failure_is_green_and_said_and_changes_no_verdict():
    one = run("unsupported", wrong())
    outcome = judged(LOCK + entry(), one)
    finding = only(outcome, ProjectFindingKind.ACCEPTED)
    assert outcome.exit_code == 0
    for text in ("2026-12-31", "a broken kernel", "https://example.org/issues/1", "off by 0.3"):
        assert text in finding.message
    assert list(outcome.accepted) == [f"run1/{CELL}/matches_reference"]
    assert "rests" in only(outcome, ProjectFindingKind.MET).message
    assert one.verdict.level is Level.UNSUPPORTED


@pytest.mark.parametrize(
    "other", [wrong("backward"), wrong(error_type="non_finite"), line("matches_reference", Outcome.CRASHED)]
)
def test_it_hides_no_other_failure(other):
    lines = (other,) if other.check_name == "matches_reference" else (wrong(), other)
    outcome = judged(LOCK + entry(), run("unsupported", *lines))
    assert outcome.exit_code == 1
    assert other.check_name in only(outcome, ProjectFindingKind.WORSE).message
    assert other.evidence_id not in outcome.accepted


def test_it_accepts_one_error_type_in_whatever_check():
    outcome = judged(LOCK + entry(check=""), run("unsupported", wrong(), wrong("backward")))
    assert outcome.exit_code == 0
    assert len(outcome.accepted) == 2


@pytest.mark.parametrize(("today", "code"), [(date(2026, 12, 31), 0), (date(2027, 1, 1), 1)])
def test_it_holds_up_to_and_with_its_day(today, code):
    outcome = judged(LOCK + entry(), run("unsupported", wrong()), today=today)
    assert outcome.exit_code == code
    if code:
        assert "accepted until 2026-12-31, which has passed" in only(outcome, ProjectFindingKind.RAN_OUT).message
        assert not outcome.accepted


@pytest.mark.parametrize("today", [TODAY, date(2030, 1, 1)])
def test_when_it_passes_the_build_breaks_with_the_lines_to_remove(today):
    outcome = judged(LOCK + entry(), run("high"), today=today)
    finding = only(outcome, ProjectFindingKind.PASSES_NOW)
    assert outcome.exit_code == 1
    assert "lines 6-12 of hwcompat.toml" in finding.fix
    assert finding.quote == entry().rstrip("\n")
    assert judged(LOCK, run("high")).exit_code == 0


@pytest.mark.parametrize(
    "one",
    [
        line("matches_reference", Outcome.SKIPPED),
        line("matches_reference", Outcome.AMBIGUOUS),
        line("matches_reference", Outcome.NOT_RUN, error_type="deselected"),
        line("matches_reference", Outcome.PASSED_ON_FALLBACK, substitution_reason="no driver"),
        line("matches_reference", Outcome.FAILED, error_type="numerical_mismatch", substitution_reason="no driver"),
        line("matches_reference", conditions={EDITED: "by hand"}),
    ],
)
def test_what_shows_nothing_neither_keeps_nor_ends_it(one):
    outcome = judged(HEAD + entry(), run("unknown", one))
    assert outcome.exit_code == 1
    assert not outcome.of_kind(ProjectFindingKind.ACCEPTED, ProjectFindingKind.PASSES_NOW)
    assert outcome.of_kind(ProjectFindingKind.NOT_SHOWN, ProjectFindingKind.FAILED)


def test_a_cell_that_was_not_run_leaves_it_unshown_unless_the_command_line_left_it_out():
    assert only(judged(HEAD + entry()), ProjectFindingKind.NOT_SHOWN).fix
    assert judged(HEAD + entry()).exit_code == 1
    assert judged(HEAD + entry(), left_out={CELL: "--skip"}).exit_code == 0


def test_a_breakdown_that_is_accepted_takes_along_what_it_kept_from_running_and_only_that():
    crash = line("matches_reference", Outcome.CRASHED, error_type="crashed")
    after = line("backward", Outcome.NOT_RUN, error_type="not_reached")
    text = LOCK + entry(error_type="crash")
    outcome = judged(text, run("unsupported", crash, after))
    assert outcome.exit_code == 0
    assert "1 check(s) after it could not run" in only(outcome, ProjectFindingKind.ACCEPTED).message
    lost = line("backward", Outcome.NOT_RUN, error_type="device_lost")
    assert judged(text, run("unsupported", crash, lost)).exit_code == 1


def test_an_accepted_failure_does_not_make_a_better_level_right():
    outcome = judged(LOCK.replace('"high"', '"unsupported"') + entry(check="backward"), run("low", wrong("backward")))
    assert outcome.exit_code == 1
    assert only(outcome, ProjectFindingKind.BETTER)


@pytest.mark.parametrize(
    ("broken", "job", "code"), [(False, 0, 0), (False, 1, 0), (False, 5, 5), (True, 0, 1), (True, 5, 1)]
)
def test_the_project_decides_what_a_failure_means_and_nothing_else(broken, job, code):
    outcome = judged(LOCK, run("low" if broken else "high"))
    assert outcome.over(job) == code


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": Outcome.NOT_RUN, "error_type": "not_reached"},
        {"outcome": Outcome.PASSED_ON_FALLBACK, "substitution_reason": "no device"},
        {"outcome": Outcome.FAILED, "substitution_reason": "no device"},
    ],
)
def test_what_an_earlier_run_measured_doesn_t_meet_the_lock(changes):
    outcome = changes.pop("outcome")
    lines = tuple(line(check, outcome, **changes) for check in CHECKS)
    earlier = Verdict(
        cell=CELL,
        level=Level.HIGH,
        basis=Basis.MEASURED,
        evidence_ids=tuple(f"run0/{CELL}/{name}" for name in CHECKS),
    )
    found = CellRun(verdict=earlier, lines=lines)
    assert only(judged(LOCK, found), ProjectFindingKind.NOT_MET)
    assert levels_to_lock({CELL: found}, {}) == {}
