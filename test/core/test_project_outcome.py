"""A run judged by a project: the lock is exact, and an accepted failure hides nothing else and ends once it can."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from generators.project.project_finding import ProjectFindingKind, ProjectOutcome
from generators.project.project_outcome import CellRun, judge_project
from generators.project.project_plan import levels_to_lock, update_expected, with_expected
from generators.project.project_reader import parse_project, read_project
from hardware.errors import OutputError, UsageError
from hardware.evidence.record import EDITED, CheckLine, Outcome
from reports.reason_text import reason_text

CELL = "bert/fill-mask/simulated/float32"
OTHER = "vit/image-classification/cpu/float32"
TODAY = date(2026, 11, 21)
HEAD = 'schema_version = 1\n[[model]]\nname = "bert"\n'
LOCK = f'{HEAD}[expected]\n"{CELL}" = "high"\n'
CHECKS = ("builds", "matches_reference", "backward")
MOVED = Reason.of("versions_moved", moved=("torch 1",))


def entry(check: str = "matches_reference", error_type: str = "numerical_mismatch") -> str:
    lines = ["[[accepted_failure]]", f'cell = "{CELL}"']
    lines += [f'{name} = "{value}"' for name, value in (("check", check), ("error_type", error_type)) if value]
    lines += ['reason = "a broken kernel"', 'link = "https://example.org/issues/1"', "until = 2026-12-31"]
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
    return line(check, Outcome.FAILED, error_type=error_type, **{"error_message": "off by 0.3", **changes})


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


def test_a_worse_level_breaks_the_build_and_names_cell_check_and_cause():
    met = judged(LOCK, run("high"))
    assert (met.exit_code, met.summary) == (0, "1 met")
    outcome = judged(LOCK, run("unsupported", wrong()))
    finding = only(outcome, ProjectFindingKind.WORSE)
    assert outcome.exit_code == 1
    assert (finding.cell, finding.checks) == (CELL, ("matches_reference",))
    for text in ("expected high, measured unsupported", "matches_reference failed", "off by 0.3"):
        assert text in finding.message


def test_a_better_level_breaks_it_too_with_the_line_to_change_and_a_failure_that_is_expected_does_not():
    outcome = judged(LOCK.replace('"high"', '"low"'), run("high"))
    assert outcome.exit_code == 1
    assert f'line 5 of hwcompat.toml to "{CELL}" = "high"' in only(outcome, ProjectFindingKind.BETTER).fix
    for level in ("low", "unsupported"):
        outcome = judged(LOCK.replace('"high"', f'"{level}"'), run(level, wrong("backward")))
        assert (outcome.exit_code, outcome.summary) == (0, "1 met")
    accepted = LOCK.replace('"high"', '"unsupported"') + entry(check="backward")
    outcome = judged(accepted, run("low", wrong("backward")))
    assert outcome.exit_code == 1
    assert only(outcome, ProjectFindingKind.BETTER)


def test_expected_and_not_run_is_not_met_unless_the_command_line_left_it_out():
    outcome = judged(LOCK)
    assert outcome.exit_code == 1
    assert "was not run" in only(outcome, ProjectFindingKind.NOT_MET).message
    outcome = judged(LOCK, left_out={CELL: "--select"})
    assert outcome.exit_code == 0
    assert "--select excluded it" in only(outcome, ProjectFindingKind.LEFT_OUT).message
    absent = run("unknown", missing="this torch is built without CUDA")
    assert "built without CUDA" in only(judged(LOCK, absent), ProjectFindingKind.NOT_MET).message


def test_only_what_was_measured_now_meets_the_lock():
    for level, basis in (("unknown", "measured"), ("high", "expired"), ("high", "predicted")):
        verdict = Verdict(cell=CELL, level=Level(level), basis=Basis(basis), reasons=(MOVED,), evidence_ids=("a",))
        outcome = judged(LOCK, CellRun(verdict=verdict, lines=run("high").lines))
        assert outcome.exit_code == 1
        assert "measured with torch 1" in only(outcome, ProjectFindingKind.NOT_MET).message


def test_what_an_earlier_run_measured_does_not_meet_the_lock():
    ids = tuple(f"run0/{CELL}/{name}" for name in CHECKS)
    earlier = Verdict(cell=CELL, level=Level.HIGH, basis=Basis.MEASURED, evidence_ids=ids)
    for outcome, changes in (
        (Outcome.NOT_RUN, {"error_type": "not_reached"}),
        (Outcome.PASSED_ON_FALLBACK, {"substitution_reason": "no device"}),
        (Outcome.FAILED, {"substitution_reason": "no device"}),
    ):
        found = CellRun(verdict=earlier, lines=tuple(line(check, outcome, **changes) for check in CHECKS))
        assert only(judged(LOCK, found), ProjectFindingKind.NOT_MET)
        assert levels_to_lock({CELL: found}, {}) == {}


def test_a_cell_that_is_not_in_the_lock_is_noted_and_its_failure_breaks_the_build():
    good = judged(LOCK, run("high"), run("high", cell=OTHER))
    assert good.exit_code == 0
    assert only(good, ProjectFindingKind.NOT_LOCKED).cell == OTHER
    bad = judged(LOCK, run("high"), run("unsupported", wrong(cell=OTHER), cell=OTHER))
    assert bad.exit_code == 1
    assert only(bad, ProjectFindingKind.FAILED).cell == OTHER
    assert judged(HEAD, run("unknown", missing="no driver")).exit_code == 1


def test_the_project_decides_what_a_failure_means_and_nothing_else():
    good, bad = judged(LOCK, run("high")), judged(LOCK, run("low"))
    assert [good.over(job) for job in (0, 1, 5)] == [0, 0, 5]
    assert [bad.over(job) for job in (0, 5)] == [1, 1]


# Accepted failures


def test_an_accepted_failure_is_green_and_reported_and_changes_no_verdict():
    one = run("unsupported", wrong())
    outcome = judged(LOCK + entry(), one)
    finding = only(outcome, ProjectFindingKind.ACCEPTED)
    assert outcome.exit_code == 0
    for text in ("2026-12-31", "a broken kernel", "https://example.org/issues/1", "off by 0.3"):
        assert text in finding.message
    assert list(outcome.accepted) == [f"run1/{CELL}/matches_reference"]
    assert "doesn't apply" in only(outcome, ProjectFindingKind.MET).message
    assert one.verdict.level is Level.UNSUPPORTED


def test_it_hides_no_other_failure():
    crashed = line("matches_reference", Outcome.CRASHED)
    for other in (wrong("backward"), wrong(error_type="non_finite"), crashed):
        lines = (other,) if other.check_name == "matches_reference" else (wrong(), other)
        outcome = judged(LOCK + entry(), run("unsupported", *lines))
        assert outcome.exit_code == 1
        assert other.check_name in only(outcome, ProjectFindingKind.WORSE).message
        assert other.evidence_id not in outcome.accepted


def test_it_accepts_one_error_type_in_whatever_check():
    outcome = judged(LOCK + entry(check=""), run("unsupported", wrong(), wrong("backward")))
    assert outcome.exit_code == 0
    assert len(outcome.accepted) == 2


def test_it_accepts_changed_numbers_of_an_upgrade_only_by_their_hash():
    changed, now = "upgrade_changed_numbers", {"error_message": "off by 0.3; the new numbers are 0123456789ab"}
    held = entry(error_type=changed) + 'numbers = ["0123456789ab"]\n'
    same, other = wrong(error_type=changed, **now), wrong(error_type=changed, error_message="are 0123456789ac")
    assert judged(LOCK + held, run("unsupported", same)).exit_code == 0
    assert judged(LOCK + held, run("unsupported", other)).exit_code == 1
    assert judged(LOCK + entry(error_type=""), run("unsupported", same)).exit_code == 1


def test_it_holds_up_to_and_with_its_day():
    failing = run("unsupported", wrong())
    assert judged(LOCK + entry(), failing, today=date(2026, 12, 31)).exit_code == 0
    after = judged(LOCK + entry(), failing, today=date(2027, 1, 1))
    assert after.exit_code == 1
    assert "accepted only until 2026-12-31" in only(after, ProjectFindingKind.RAN_OUT).message
    assert not after.accepted


@pytest.mark.parametrize("today", [TODAY, date(2030, 1, 1)])
def test_when_it_passes_the_build_breaks_with_the_lines_to_remove(today):
    outcome = judged(LOCK + entry(), run("high"), today=today)
    finding = only(outcome, ProjectFindingKind.PASSES_NOW)
    assert outcome.exit_code == 1
    assert "lines 6-12 of hwcompat.toml" in finding.fix
    assert finding.quote == entry().rstrip("\n")
    assert judged(LOCK, run("high")).exit_code == 0


def test_what_shows_nothing_neither_keeps_nor_ends_it():
    absent = {"substitution_reason": "no driver"}
    for one in (
        line("matches_reference", Outcome.SKIPPED),
        line("matches_reference", Outcome.AMBIGUOUS),
        line("matches_reference", Outcome.NOT_RUN, error_type="deselected"),
        line("matches_reference", Outcome.PASSED_ON_FALLBACK, **absent),
        line("matches_reference", Outcome.FAILED, error_type="numerical_mismatch", **absent),
        line("matches_reference", conditions={EDITED: "by hand"}),
    ):
        outcome = judged(HEAD + entry(), run("unknown", one))
        assert outcome.exit_code == 1
        assert not outcome.of_kind(ProjectFindingKind.ACCEPTED, ProjectFindingKind.PASSES_NOW)
        assert outcome.of_kind(ProjectFindingKind.NOT_SHOWN, ProjectFindingKind.FAILED)


def test_a_cell_that_was_not_run_leaves_it_unshown_unless_the_command_line_left_it_out():
    outcome = judged(HEAD + entry())
    assert only(outcome, ProjectFindingKind.NOT_SHOWN).fix
    assert outcome.exit_code == 1
    assert judged(HEAD + entry(), left_out={CELL: "--skip"}).exit_code == 0


def test_a_breakdown_that_is_accepted_takes_along_what_it_kept_from_running_and_only_that():
    crash = line("matches_reference", Outcome.CRASHED, error_type="crashed")
    after = line("backward", Outcome.NOT_RUN, error_type="not_reached")
    text = LOCK + entry(error_type="crash")
    outcome = judged(text, run("unsupported", crash, after))
    assert outcome.exit_code == 0
    assert "1 later check(s) did not run" in only(outcome, ProjectFindingKind.ACCEPTED).message
    lost = line("backward", Outcome.NOT_RUN, error_type="device_lost")
    assert judged(text, run("unsupported", crash, lost)).exit_code == 1


# Writing the lock

CUDA = "bert/fill-mask/cuda/float32"
PATH = Path("hwcompat.toml")
FILE = f"""\
# ours
schema_version = 1

[[model]]
name = "bert"

[expected]  # the lock
"{CELL}" = "high"  # since May
'{CUDA}' = 'none'

[[tolerance]]  # after it
cells = "*"
limit = 1e-4
reason = "x"
"""


def test_levels_change_in_their_lines_and_new_cells_come_last():
    change = with_expected(FILE, PATH, {CELL: Level.MEDIUM, CUDA: Level.UNSUPPORTED, OTHER: Level.LOW})
    new = f'"{CELL}" = "medium"  # since May\n\'{CUDA}\' = \'none\'\n"{OTHER}" = "low"\n\n[[tolerance]]'
    assert new in change.text
    assert change.text.replace('"medium"', '"high"').replace(f'"{OTHER}" = "low"\n', "") == FILE
    assert change.changes == (f"{CELL}: high -> medium", f'"{OTHER}" = "low" is new')
    change = with_expected(FILE, PATH, {CELL: Level.HIGH})
    assert (change.text, change.changes) == (FILE, ())


def test_a_file_without_a_lock_gets_one_and_one_that_is_not_written_line_by_line_stays():
    for newline in ("\n", "\r\n"):
        text = f'schema_version = 1{newline}[[model]]{newline}name = "bert"'
        change = with_expected(text, PATH, {CELL: Level.HIGH})
        assert change.text == f'{text}{newline}{newline}[expected]{newline}"{CELL}" = "high"{newline}'
        assert parse_project(change.text, PATH).expected[CELL].level is Level.HIGH
    for lock in ("expected = {%s}", "expected.%s"):
        written = lock % f'"{CELL}" = "high"'
        text = f'schema_version = 1\n{written}\n[[model]]\nname = "bert"\n'
        with pytest.raises(UsageError, match="one cell per line"):
            with_expected(text, PATH, {OTHER: Level.HIGH})


def test_only_what_was_measured_is_locked_and_met_by_the_same_results(tmp_path):
    expired = Verdict(cell=OTHER, level=Level.HIGH, basis=Basis.EXPIRED, evidence_ids=(f"run1/{OTHER}/builds",))
    lines = (line("builds", cell=OTHER),)
    runs = {CELL: run("medium"), CUDA: run("low", cell=CUDA), OTHER: CellRun(verdict=expired, lines=lines)}
    unknown = {CUDA: run("unknown", cell=CUDA)}
    assert levels_to_lock(runs | unknown, {}) == {CELL: Level.MEDIUM}
    path = tmp_path / "hwcompat.toml"
    path.write_text(FILE)
    os.chmod(path, 0o640)
    del runs[OTHER]
    assert judge_project(read_project(path), runs, TODAY, words=reason_text).exit_code == 1
    assert len(update_expected(path, levels_to_lock(runs, {}))) == 2
    assert judge_project(read_project(path), runs, TODAY, words=reason_text).exit_code == 0
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir()] == ["hwcompat.toml"]


def test_a_link_to_the_file_stays_a_link(tmp_path):
    real, link = tmp_path / "real.toml", tmp_path / "hwcompat.toml"
    real.write_text(FILE)
    link.symlink_to(real)
    update_expected(link, {CELL: Level.LOW})
    assert link.is_symlink()
    assert read_project(real).expected[CELL].level is Level.LOW


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error_for_users(tmp_path):
    path = tmp_path / "hwcompat.toml"
    path.write_text(FILE)
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="can't be written"):
        update_expected(path, {CELL: Level.LOW})
