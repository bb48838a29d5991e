"""Stored predictions are scored against what their own runs measured."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from evidence_lines import MEASURED, check_line, planned_cell, run_line, write_lines
from front_doors import invoke

from generators.compatibility.prediction_scores import (
    Scored,
    Scores,
    always_yes,
    by_family,
    by_rule,
    held_out,
    is_held_out,
    score,
    tally,
)
from generators.compatibility.required_checks import required_checks
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Basis, Level, Verdict
from generators.models.model_libraries import known_types
from hardware.cell import Cell
from hardware.evidence.record import CheckLine, Outcome, RunLine
from hardware.evidence.revisions import CHECK, PREFIX
from hardware.evidence.store import Evidence
from hardware.testing.checks import call_checks, comparing_checks
from hwcompat.plugins.study.calibration import Calibration, calibration_text

WORKS, FAILS = "bert/fill-mask/cpu/float32", "nystromformer/fill-mask/cpu/float32"


def stored(cell: str, level: Level, **more: object) -> dict[str, object]:
    made = {"basis": Basis.PREDICTED, "rule_ids": ("torch_cpu.float32",), **more}
    return Verdict(cell=cell, level=level, **made).to_dict()


def run_of(
    cells: dict[str, dict[str, object]], run_id: str = "20260101T000000Z-aaaaaa", when: str = "2026-01-01"
) -> RunLine:
    plan = [planned_cell(cell, required_checks(Cell.parse(cell)), verdict=verdict) for cell, verdict in cells.items()]
    versions = {"torch": "2.13.0", "transformers": "5.5.4", "hwcompat": "0.1.0+x", "python": "3.11.7"}
    return run_line(*plan, run_id=run_id, started_at=f"{when}T00:00:00+00:00", versions=versions)


def lines_of(run: RunLine, *failing: str) -> tuple[CheckLine, ...]:
    """Return passes of all planned checks; `honours_mask` fails in the `failing` cells."""
    found = []
    for cell, check in ((one.cell_id, check) for one in run.plan for check in one.checks):
        fails = cell in failing and check == "honours_mask"
        facts = dict(MEASURED) if check in comparing_checks() or check == "runs_natively" else {}
        if fails:
            facts |= {"outcome": Outcome.FAILED, "max_rel_error": 0.5}
        where = {"run_id": run.run_id, "started_at": run.started_at, "cell_id": cell}
        found.append(check_line(check, **{"actual_dtype": "float32", **where, **facts}))
    return tuple(found)


def scores(*runs: tuple[RunLine, tuple[CheckLine, ...]]) -> Scores:
    lines = tuple(line for _, lines in runs for line in lines)
    return score(Evidence(runs=tuple(run for run, _ in runs), checks=lines, ends=(), broken=()))


def test_the_hash_of_its_name_holds_out_about_a_third_of_all_types():
    assert held_out() == {name for name in known_types() if is_held_out(name)}
    assert 0.28 < len(held_out()) / len(known_types()) < 0.38


def test_a_prediction_is_compared_with_its_own_run():
    run = run_of({WORKS: stored(WORKS, Level.HIGH), FAILS: stored(FAILS, Level.HIGH)})
    found = scores((run, lines_of(run, FAILS)))
    results = {one.cell.id: (one.said, one.works, one.measured.level) for one in found.cells}
    assert results == {WORKS: (True, True, Level.HIGH), FAILS: (True, False, Level.UNSUPPORTED)}
    assert all(one.held_out is is_held_out(one.cell.model) for one in found.cells)
    assert by_rule(found.cells)[0].wrong == (FAILS,)


def test_a_later_run_replaces_an_earlier_one_with_its_own_prediction():
    first = run_of({FAILS: stored(FAILS, Level.HIGH)})
    second = run_of({FAILS: stored(FAILS, Level.UNSUPPORTED)}, "20260201T000000Z-bbbbbb", "2026-02-01")
    found = Calibration(scores=scores((second, lines_of(second, FAILS)), (first, lines_of(first, FAILS))))
    (only,) = found.scores.cells
    assert (only.said, only.run_id) == (False, second.run_id)
    assert [(one.run_id, one.said) for one in found.scores.first] == [(first.run_id, True)]
    half = is_held_out("nystromformer")
    assert found.as_first_predicted(held_out=half).false_supported == 1
    assert dict(found.half(held_out=half))["… by the first prediction"].agreement == 0.0
    assert "predicted and measured more than once" in calibration_text(found, "markdown")


def test_only_predictions_of_tiny_models_that_their_runs_settle_are_scored():
    measured = stored(WORKS, Level.HIGH, basis=Basis.MEASURED, rule_ids=(), evidence_ids=("x",))
    with_evidence = stored(WORKS, Level.HIGH, evidence_ids=("x",))
    for verdict in (measured, with_evidence, stored(FAILS, Level.HIGH), None):
        run = run_of({WORKS: verdict})
        found = scores((run, lines_of(run)))
        assert (found.cells, found.without_prediction) == ((), 1), verdict
    run = run_of({WORKS: stored(WORKS, Level.HIGH)})
    lines = lines_of(run)
    assert scores((run, lines)).cells
    own = replace(run, plan=tuple(replace(planned, subject="config") for planned in run.plan))
    assert scores((own, tuple(replace(line, subject="config") for line in lines))).cells == ()
    for unsettled in (
        tuple(line for line in lines if line.check_name != "matches_reference"),
        tuple(replace(line, actual_target="simulated") for line in lines),
        tuple(replace(line, suite_hash="1" * 64) for line in lines),
        (),
    ):
        found = scores((run, unsettled))
        assert (found.cells, found.unsettled) == ((), 1)


def test_a_run_from_before_a_check_of_calls_is_scored_without_it():
    run = run_of({WORKS: stored(WORKS, Level.HIGH)})
    before = [name for name in run.plan[0].checks if name not in call_checks()]
    assert len(before) < len(run.plan[0].checks)
    earlier = replace(run, plan=(replace(run.plan[0], checks=tuple(before)),))
    assert [one.works for one in scores((earlier, lines_of(earlier))).cells] == [True]
    with_them = {f"{PREFIX}{CHECK}{name}": "1" for name in call_checks()}
    today = replace(earlier, versions={**run.versions, **with_them})
    assert scores((today, lines_of(today))).cells == (), "the run's code had the checks, and its plan lacks them"


def test_figures_of_a_small_table():
    right = [(True, True)] * 6 + [(False, False)] * 3
    found = tally([*right, (True, False), *[(False, True)] * 2, (None, True), (None, False)])
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


def test_baselines_know_nothing_or_the_family_alone():
    seen = [scored("a", "audio", said=True, works=False), scored("b", "audio", said=True, works=False)]
    guess = by_family([*seen, scored("c", "vision", said=True, works=True)])
    assert not guess(scored("d", "audio", said=True, works=True))
    assert guess(scored("d", "vision", said=True, works=False))
    assert guess(scored("d", "other", said=True, works=False))
    assert always_yes(seen[0])


def test_a_rule_that_is_wrong_too_often_is_named():
    cells = [scored(f"m{i}", "audio", said=True, works=i > 1) for i in range(20)]
    report = Calibration(scores=replace(scores(), cells=tuple(cells)))
    assert [one.rule_id for one in report.poor] == ["a.rule"]
    assert "over 5%" in calibration_text(report, "markdown")
    few = Calibration(scores=replace(report.scores, cells=tuple(cells[1:])))
    assert few.poor == ()


def test_no_shipped_rule_names_a_model_type():
    assert [rule.id for rule in load_rules().rules if "model_type" in rule.when] == []


def test_the_command_prints_the_score_and_accepted_failures_that_pass(tmp_path: Path):
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    run = run_of({WORKS: stored(WORKS, Level.HIGH), FAILS: stored(FAILS, Level.HIGH)}, when=today)
    write_lines(tmp_path / "evidence/e.jsonl", run, *lines_of(run, FAILS))
    project = tmp_path / "hwcompat.toml"
    project.write_text(
        'schema_version = 1\n\n[[model]]\nname = "bert"\ntargets = ["cpu"]\n\n[[accepted_failure]]\n'
        f'cell = "{WORKS}"\ncheck = "backward"\nreason = "it used to"\nlink = "https://example.org/1"\n'
        "until = 2099-01-01\n",
        encoding="utf-8",
    )

    def calibrate(*arguments: str, folder: str = "evidence") -> str:
        done = invoke("calibration", "--evidence", tmp_path / folder, *arguments)
        return done.out or done.err

    assert f'"wrong": [\n    {{\n      "cell": "{FAILS}"' in calibrate("--format", "json")
    accepted = calibrate("--config", str(project), "--format", "markdown")
    assert f"the accepted failure, backward of {WORKS}, passes now" in accepted
    assert "'csv' is not one of" in calibrate("--config", str(project), "--format", "csv")
    (tmp_path / "empty").mkdir()
    assert "no prediction can be scored" in calibrate(folder="empty")
