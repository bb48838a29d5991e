"""Sealed predictions against what their own runs measured: what counts, what doesn't, and how it is summed up."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from generators.compatibility.judge import required_checks
from generators.compatibility.prediction_scores import (
    Scored,
    always_yes,
    by_family,
    by_rule,
    is_held_out,
    score,
    tally,
)
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Basis, Level, Verdict
from hardware.cell import Cell
from hardware.evidence.record import CheckLine, Outcome, PlannedCell, RunLine, to_dict
from hardware.evidence.store import Evidence
from hardware.testing.checks import comparing_checks
from hwcompat.plugins.study.calibration import Calibration, calibration_text
from run_test_generation import main

WORKS, FAILS = "bert/fill-mask/cpu/float32", "nystromformer/fill-mask/cpu/float32"


def sealed(cell: str, level: Level, **more: object) -> dict[str, object]:
    made = {"basis": Basis.PREDICTED, "rule_ids": ("torch_cpu.float32",), **more}
    return Verdict(cell=cell, level=level, **made).to_dict()


def run_of(
    cells: dict[str, dict[str, object]], run_id: str = "20260101T000000Z-aaaaaa", when: str = "2026-01-01"
) -> RunLine:
    plan = tuple(
        PlannedCell(
            cell_id=cell,
            checks=required_checks(Cell.parse(cell)),
            suite="test_x.py",
            suite_hash="0" * 64,
            subject="tiny",
            verdict=verdict,
        )
        for cell, verdict in cells.items()
    )
    return RunLine(
        run_id=run_id,
        started_at=f"{when}T00:00:00+00:00",
        command="",
        machine="m",
        inventory={},
        versions={"torch": "2.13.0", "transformers": "5.5.4", "hwcompat": "0.1.0+x", "python": "3.11.7"},
        plan=plan,
    )


def lines_of(run: RunLine, failing: tuple[str, ...] = ()) -> tuple[CheckLine, ...]:
    return tuple(_line(run, planned, check, failing) for planned in run.plan for check in planned.checks)


def _line(run: RunLine, planned: PlannedCell, check: str, failing: tuple[str, ...]) -> CheckLine:
    cell = Cell.parse(planned.cell_id)
    fails = planned.cell_id in failing and check == "honours_mask"
    compares = check in comparing_checks()
    return CheckLine(
        run_id=run.run_id,
        cell_id=cell.id,
        check_name=check,
        outcome=Outcome.FAILED if fails else Outcome.PASSED,
        subject="tiny",
        requested_target="cpu",
        actual_target="cpu",
        precision="float32",
        model=cell.model,
        task=cell.task,
        suite_hash=planned.suite_hash,
        started_at=run.started_at,
        duration_s=0.1,
        accelerator="a processor",
        actual_dtype="float32",
        max_rel_error=(0.5 if fails else 1e-6) if compares else None,
        tolerance=2e-5 if compares else None,
        native_ops={"aten.addmm": 1} if check == "runs_natively" else {},
    )


def evidence_of(*runs: tuple[RunLine, tuple[CheckLine, ...]]) -> Evidence:
    return Evidence(
        runs=tuple(run for run, _ in runs),
        checks=tuple(line for _, lines in runs for line in lines),
        ends=(),
        broken=(),
    )


def test_a_prediction_is_held_against_its_own_run():
    run = run_of({WORKS: sealed(WORKS, Level.HIGH), FAILS: sealed(FAILS, Level.HIGH)})
    found = score(evidence_of((run, lines_of(run, failing=(FAILS,)))))
    told = {one.cell.id: (one.said, one.works, one.measured.level) for one in found.cells}
    assert told == {WORKS: (True, True, Level.HIGH), FAILS: (True, False, Level.UNSUPPORTED)}
    assert {one.cell.model: one.held_out for one in found.cells} == {
        name: is_held_out(name) for name in ("bert", "nystromformer")
    }
    assert by_rule(found.cells)[0].wrong == (FAILS,)


def test_a_later_run_replaces_an_earlier_one_with_its_own_prediction():
    first = run_of({FAILS: sealed(FAILS, Level.HIGH)})
    second = run_of({FAILS: sealed(FAILS, Level.UNSUPPORTED)}, "20260201T000000Z-bbbbbb", "2026-02-01")
    lines = (lines_of(first, failing=(FAILS,)), lines_of(second, failing=(FAILS,)))
    (only,) = score(evidence_of((second, lines[1]), (first, lines[0]))).cells
    assert only.said is False
    assert only.run_id == second.run_id
    found = Calibration(scores=score(evidence_of((second, lines[1]), (first, lines[0]))))
    assert [(one.run_id, one.said) for one in found.scores.first] == [(first.run_id, True)]
    half = is_held_out("nystromformer")
    assert found.as_first_predicted(held_out=half).false_supported == 1
    assert dict(found.half(held_out=half))["… as first predicted"].agreement == 0.0
    assert "predicted and settled more than once" in calibration_text(found, "markdown")


def test_what_rests_on_evidence_or_was_not_sealed_is_no_prediction():
    behind = sealed(WORKS, Level.HIGH, basis=Basis.MEASURED, rule_ids=(), evidence_ids=("x",))
    predicted_but_seen = sealed(WORKS, Level.HIGH, evidence_ids=("x",))
    of_another = sealed(FAILS, Level.HIGH)
    for verdict in (behind, predicted_but_seen, of_another, None):
        run = run_of({WORKS: verdict})
        found = score(evidence_of((run, lines_of(run))))
        assert found.cells == ()
        assert found.without_prediction == 1


def test_what_users_bring_is_not_scored():
    run = run_of({WORKS: sealed(WORKS, Level.HIGH)})
    own = replace(run, plan=tuple(replace(planned, subject="config") for planned in run.plan))
    lines = tuple(replace(line, subject="config") for line in lines_of(own))
    assert score(evidence_of((own, lines))).cells == ()
    assert score(evidence_of((run, lines_of(run)))).cells


def test_a_run_that_settles_nothing_scores_nothing():
    run = run_of({WORKS: sealed(WORKS, Level.HIGH)})
    some = tuple(line for line in lines_of(run) if line.check_name != "matches_reference")
    elsewhere = tuple(replace(line, actual_target="simulated") for line in lines_of(run))
    of_another_suite = tuple(replace(line, suite_hash="1" * 64) for line in lines_of(run))
    for lines in (some, elsewhere, of_another_suite, ()):
        found = score(evidence_of((run, lines)))
        assert (found.cells, found.unsettled) == ((), 1)


def test_figures_of_a_small_table():
    pairs = (
        [(True, True)] * 6
        + [(True, False)]
        + [(False, False)] * 3
        + [(False, True)] * 2
        + [(None, True), (None, False)]
    )
    found = tally(pairs)
    assert (found.total, found.answered) == (14, 12)
    assert found.agreement == pytest.approx(9 / 12)
    assert found.balanced_accuracy == pytest.approx((6 / 8 + 3 / 4) / 2)
    assert found.wrongly_supported == pytest.approx(1 / 7)
    assert found.abstentions == pytest.approx(2 / 14)
    assert tally([]).agreement is None


def scored(model: str, family: str, *, said: bool, works: bool) -> Scored:
    cell = Cell.parse(f"{model}/some-task/cpu/float32")
    levels = {True: Level.HIGH, False: Level.UNSUPPORTED}
    made = {"cell": cell.id, "rule_ids": ("a.rule",)}
    return Scored(
        cell=cell,
        family=family,
        held_out=is_held_out(model),
        predicted=Verdict(level=levels[said], basis=Basis.PREDICTED, **made),
        measured=Verdict(level=levels[works], basis=Basis.MEASURED, **made),
        run_id="r",
    )


def test_the_baseline_of_families_knows_families_alone():
    seen = [scored("a", "audio", said=True, works=False), scored("b", "audio", said=True, works=False)]
    guess = by_family([*seen, scored("c", "vision", said=True, works=True)])
    assert not guess(scored("d", "audio", said=True, works=True))
    assert guess(scored("d", "vision", said=True, works=False))
    assert guess(scored("d", "other", said=True, works=False))
    assert always_yes(seen[0])


def test_a_rule_that_is_wrong_too_often_is_named():
    cells = [scored(f"m{i}", "audio", said=True, works=i > 1) for i in range(20)]
    report = Calibration(scores=replace(score(evidence_of()), cells=tuple(cells)))
    assert [one.rule_id for one in report.poor] == ["a.rule"]
    assert "over 5%" in calibration_text(report, "markdown")
    few = Calibration(scores=replace(report.scores, cells=tuple(cells[1:])))
    assert few.poor == ()


def test_no_shipped_rule_names_a_model_type():
    assert [rule.id for rule in load_rules().rules if "model_type" in rule.when] == []


def test_the_command_prints_the_score_and_says_where_there_is_none(tmp_path: Path):
    run = run_of(
        {WORKS: sealed(WORKS, Level.HIGH), FAILS: sealed(FAILS, Level.HIGH)}, when=f"{datetime.now(UTC):%Y-%m-%d}"
    )
    kept = [to_dict(line) for line in (run, *lines_of(run, failing=(FAILS,)))]
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept), encoding="utf-8")
    command = ["--calibration", "--evidence", str(tmp_path), "--format", "json"]
    done = CliRunner().invoke(main, command, standalone_mode=False)
    assert done.exception is None, done.output
    said = json.loads(done.output)
    assert [one["cell"] for one in said["wrong"]] == [FAILS]
    empty = tmp_path / "empty"
    empty.mkdir()
    none = CliRunner().invoke(main, ["--calibration", "--evidence", str(empty)], standalone_mode=False)
    assert "no prediction can be scored" in str(none.exception)


def test_an_accepted_failure_that_passes_is_named_beside_the_score(tmp_path: Path):
    run = run_of({WORKS: sealed(WORKS, Level.HIGH)}, when=f"{datetime.now(UTC):%Y-%m-%d}")
    (tmp_path / "evidence").mkdir()
    kept = [to_dict(line) for line in (run, *lines_of(run))]
    (tmp_path / "evidence" / "e.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept), encoding="utf-8")
    project = tmp_path / "hwcompat.toml"
    project.write_text(
        'schema_version = 1\n\n[[model]]\nname = "bert"\ntargets = ["cpu"]\n\n[[accepted_failure]]\n'
        f'cell = "{WORKS}"\ncheck = "backward"\nreason = "it used to"\nlink = "https://example.org/1"\n'
        "until = 2099-01-01\n",
        encoding="utf-8",
    )
    command = ["--calibration", "--evidence", str(tmp_path / "evidence"), "--config", str(project)]
    done = CliRunner().invoke(main, [*command, "--format", "markdown"], standalone_mode=False)
    assert done.exception is None, done.exception
    assert f"the accepted failure, backward of {WORKS}, passes now" in done.output
    refused = CliRunner().invoke(main, [*command, "--format", "csv"], standalone_mode=False)
    assert "a calibration has no form csv" in str(refused.exception)
