"""Remedies: which apply and in which order; what ran under a change measures no cell."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from evidence_lines import check_line, run_line, write_lines

from generators.compatibility.expiry import Expiry
from generators.compatibility.judge import judge, judge_cell
from generators.compatibility.required_checks import required_checks
from generators.compatibility.verdict import Level
from hardware.applied_fix import VARIABLE, AppliedFix
from hardware.backends.factory import known_targets
from hardware.cell import Cell
from hardware.command_names import command_of
from hardware.detection import detect
from hardware.errors import NothingMatched, UsageError
from hardware.evidence.latest import read_latest
from hardware.evidence.record import EndLine, Origin, Outcome
from hardware.evidence.store import read_folder
from hardware.evidence.versions import versions_of
from hardware.evidence.writer import now
from hardware.testing.check_lines import line_for
from hardware.testing.suite_file import SuiteFile
from hwcompat.plugins.triage.remedies import try_remedies
from hwcompat.plugins.triage.remedies.remedy import load_remedies, steps_for
from hwcompat.plugins.triage.remedies.try_remedies import (
    RemedyRun,
    TrialState,
    Workplace,
    child_environment,
    judge_try,
    smallest,
    try_cell,
    verdict_of_run,
    worth_trying,
)
from hwcompat.plugins.triage.remedies_command import (
    asked_cells,
    exit_code,
    remedies_blocks,
    remedies_json,
    write_of,
)
from reports.document import document
from reports.finding import COSTS
from reports.reason_text import texts

HERE = ("cpu", "openvino", "qnn", "simulated")
CELL = Cell.parse("bert/fill-mask/cpu/float32")
CHECKS = tuple(required_checks(CELL))


def failed(cell=CELL, check="matches_reference", error_type="numerical_mismatch", stage="compare"):
    return check_line(check, Outcome.FAILED, cell_id=cell.id, stage=stage, error_type=error_type)


def steps(
    cell_id, check="matches_reference", error_type="numerical_mismatch", stage="compare", here=HERE, **variables
):
    cell = Cell.parse(cell_id)
    line = failed(cell, check, error_type, stage)
    return steps_for(cell, line, error_type, here=here, environment=variables)


def write_run(folder, cell=CELL, outcomes=None, *, changes="", number=1, monkeypatch=None):
    """A whole run of `cell` as children write it: every line through `line_for`."""
    if changes and monkeypatch:
        monkeypatch.setenv(VARIABLE, changes)
    checks = tuple(required_checks(cell))
    suite = SuiteFile(path=Path("test_it.py"), cell=cell, subject="tiny", checks=checks, suite_hash=str(number))
    run_id = f"20261123T00000{number}Z-aaaaaa"
    facts = {
        Outcome.PASSED: {"max_rel_error": 1e-7, "tolerance": 1e-5},
        Outcome.FAILED: {"stage": "compare", "error_type": "numerical_mismatch", "error_message": "off"},
    }
    where = {"actual_target": str(cell.target), "actual_dtype": cell.precision, "accelerator": "it"}
    where["native_ops"] = {"aten.mm": 1}
    origin = Origin.CHANGED if changes else Origin.HWCOMPAT
    run = run_line(suite.planned(), run_id=run_id, started_at=now(), versions=versions_of(detect()), origin=origin)
    lines = []
    for check in checks:
        outcome = (outcomes or {}).get(check, Outcome.PASSED)
        lines.append(line_for(suite, run_id, check, outcome, **where, **facts.get(outcome, {})))
    end = EndLine(run_id=run_id, ended_at=now(), reason="finished", counts={})
    write_lines(folder / f"{run_id}-1.jsonl", run, *lines, end)
    if changes and monkeypatch:
        monkeypatch.delenv(VARIABLE)
    return run_id


def run_in(folder, cell=CELL):
    found = read_folder(folder)
    run = (*found.runs, *found.other_runs)[-1]
    lines = tuple(one for one in (*found.checks, *found.other_checks) if one.run_id == run.run_id)
    return RemedyRun(run=run, plan=run.plan[0], lines=lines)


# The data


def test_every_remedy_can_be_given_and_hides_nothing():
    data = load_remedies()
    for remedy in data.remedies.values():
        assert set(remedy.targets) <= set(known_targets())
        assert AppliedFix.parse(AppliedFix(**remedy.change).text) == AppliedFix(**remedy.change)
        ways = (remedy.change, remedy.environment, remedy.precision, remedy.other_target)
        assert sum(map(bool, ways)) == 1, f"{remedy.id} is one change"
        assert all((remedy.source, *(remedy.cost[name] for name in COSTS)))
        assert 1 <= remedy.size <= 6
        assert "PYTORCH_ENABLE_MPS_FALLBACK" not in remedy.environment  # it would hide what was offloaded
        assert set(remedy.leaves_out) <= {"cache_matches", "backward"}  # never one that decides whether a cell works
    used = {name for one in data.failures for name in (*one.likely, *one.possible)}
    assert used == set(data.remedies)
    assert data.failures[-1].fits(CELL, failed(error_type="never seen"), "never seen", {})


def test_what_is_likely_comes_first_and_the_smallest_of_it():
    for cell, failure, first in (
        ("t5/x/cpu/float32", "generates_like_reference", "cache_off"),
        ("t5/x/qnn/float32", "builds unsupported_operator compile", "other_target:cpu"),
        ("t5/x/openvino/float32", "builds export_failed export", "export_program export_onnx"),
        ("t5/x/openvino/float32", "builds unknown run", "cache_off static_shapes"),
        ("t5/x/cpu/float16", "", "precision_float32 precision_bfloat16"),
        ("t5/x/simulated/float32", "builds silent_offload", "other_target:cpu"),
        ("t5/x/cpu/float32", "builds missing_dependency import", ""),
    ):
        found = steps(cell, *failure.split())
        assert {step.id for step in found[: len(first.split())]} == set(first.split()), (cell, failure)
        for likely in (True, False):
            sizes = [step.remedy.size for step in found if step.likely is likely]
            assert sizes == sorted(sizes)
        assert len({step.id for step in found}) == len(found)
        assert bool(found) is bool(first)


def test_only_what_means_something_on_the_cell_is_offered():
    ids = [step.id for step in steps("t5/x/cpu/float16", error_type="non_finite")]
    assert "precision_float16" not in ids  # it has it
    assert "other_target:cpu" not in ids  # it is it
    assert not any("cuda" in id_ for id_ in ids)  # it isn't here
    assert "tf32_off" not in [step.id for step in steps("t5/x/cpu/float32")]
    assert all(
        step.cell.target.name == "cpu" for step in steps("t5/x/qnn/float32", here=("cpu", "qnn")) if ":" in step.id
    )
    assert "simulated_fault_unset" not in [step.id for step in steps("t5/x/simulated/float32")]
    found = steps("t5/x/simulated/float32", HWCOMPAT_SIMULATED_FAULT="wrong")
    assert found[0].id == "simulated_fault_unset"
    assert found[0].changes.text == "environment=HWCOMPAT_SIMULATED_FAULT unset"


# A changed condition is no measurement


def test_a_run_under_a_change_is_never_a_plain_pass(tmp_path, monkeypatch):
    write_run(tmp_path, outcomes={"matches_reference": Outcome.FAILED}, number=1)
    before = [verdict.level for verdict in judge(read_latest(tmp_path), detect())]
    write_run(tmp_path, changes="attention=eager", number=2, monkeypatch=monkeypatch)

    evidence = read_folder(tmp_path)
    assert {line.origin for line in evidence.other_checks} == {Origin.CHANGED}
    assert {line.run_id for line in read_latest(evidence).checks} == {evidence.runs[0].run_id}
    verdicts = judge(read_latest(evidence), detect())
    assert [verdict.level for verdict in verdicts] == before == [Level.UNSUPPORTED]
    reasons = {reason.code for verdict in verdicts for reason in verdict.reasons}
    assert "other_tests" not in reasons  # nor a second opinion


def judged(step, folder, level, check):
    return judge_try(step, run_in(folder), level, check, evidence="", seconds=1)


def test_lines_under_a_change_make_medium_at_most_and_a_try_needs_them(tmp_path, monkeypatch):
    step = next(one for one in steps(CELL.id, error_type="x") if one.id == "attention_eager")
    write_run(tmp_path / "plain")
    write_run(tmp_path / "changed", changes="attention=eager", monkeypatch=monkeypatch)
    plain, changed = (verdict_of_run(CELL, run_in(tmp_path / name)) for name in ("plain", "changed"))
    assert (plain.level, changed.level) == (Level.HIGH, Level.MEDIUM)
    assert "changed: attention=eager" in texts(changed.conditions)
    lines = run_in(tmp_path / "changed").lines
    direct = judge_cell(CELL, CHECKS, lines, expiry=Expiry(cell=CELL, now={}, then={lines[0].run_id: {}}))
    assert direct.level is Level.MEDIUM
    for name, state in (("plain", TrialState.NOT_RUN), ("changed", TrialState.FIXED)):
        assert judged(step, tmp_path / name, Level.UNSUPPORTED, "matches_reference").state is state


def test_a_check_that_still_fails_is_reported_and_one_that_is_left_out_is_named(tmp_path, monkeypatch):
    step = next(one for one in steps(CELL.id, check="backward") if one.id == "attention_eager")
    outcomes = {"backward": Outcome.FAILED}
    write_run(tmp_path, outcomes=outcomes, changes=step.changes.text, monkeypatch=monkeypatch)
    failing = judged(step, tmp_path, Level.LOW, "backward")
    assert (failing.state, failing.error_type) == (TrialState.FAILS, "numerical_mismatch")
    without = replace(step, remedy=replace(step.remedy, leaves_out=("backward",)))
    skipping = judged(without, tmp_path, Level.LOW, "backward")
    assert skipping.state is TrialState.FIXED
    assert skipping.conditions[-1].startswith("backward was skipped")


def test_a_target_without_the_check_that_failed_is_at_most_better(tmp_path):
    step = next(one for one in steps(CELL.id, check="backward") if one.id == "other_target:openvino")
    write_run(tmp_path, step.cell)
    for check, state, why in (
        ("matches_reference", TrialState.FIXED, ""),
        ("backward", TrialState.BETTER, "backward can't run there"),
    ):
        found = judged(step, tmp_path, Level.LOW, check)
        assert (found.state, found.why) == (state, why)


# Trying


def test_the_users_environment_and_files_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "cache=off")  # left over in a shell: the run without a change has none
    monkeypatch.setenv("HWCOMPAT_SIMULATED_FAULT", "wrong")
    given = child_environment(os.environ, {"HWCOMPAT_SIMULATED_FAULT": "", "NVIDIA_TF32_OVERRIDE": "0"})
    assert given.keys().isdisjoint({VARIABLE, "HWCOMPAT_SIMULATED_FAULT"})
    assert given["NVIDIA_TF32_OVERRIDE"] == "0"

    mine = tmp_path / "mine"
    write_run(mine, outcomes={"backward": Outcome.FAILED})
    before = dict(os.environ), {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()}
    found = tried_with(tmp_path / "tries", mine, monkeypatch, fixed_by="attention=eager")
    assert before == (dict(os.environ), {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()})
    assert [one.state for one in found.tried] == [TrialState.FAILS, TrialState.FIXED]
    assert found.smallest.step.id == "attention_eager"
    assert {Path(one.evidence).parts[-3] for one in found.tried} == {CELL.slug}


def tried_with(folder, evidence, monkeypatch, *, fixed_by):
    """`try_cell` with children that fail without the change `fixed_by`."""

    def child(task, environment, log, limit_s):
        changes = environment.get(VARIABLE, "")
        outcomes = {} if changes == fixed_by else {"matches_recorded": Outcome.FAILED, "backward": Outcome.FAILED}
        cell = Cell.parse(task["cell"])
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv(VARIABLE, raising=False)
            write_run(Path(task["folder"]) / "evidence", cell, outcomes, changes=changes, monkeypatch=patch)
        return ""

    monkeypatch.setattr(try_remedies, "run_child", child)
    return try_cell(CELL, Workplace(folder=folder, evidence=evidence, command=""), here=("cpu", "openvino"))


def test_a_larger_change_is_not_tried_after_a_smaller_one_worked():
    by_id = {step.id: step for step in steps("t5/x/qnn/float32", error_type="unsupported_operator", stage="compile")}

    def came(id_, state):
        return replace(EMPTY, step=by_id[id_], state=state)

    fixed = [came("other_target:cpu", TrialState.FIXED)]
    assert worth_trying(by_id["opset_13"], fixed)
    assert not worth_trying(by_id["other_target:openvino"], fixed)
    both = [*fixed, came("opset_13", TrialState.FIXED), came("attention_eager", TrialState.FAILS)]
    assert smallest(both).step.id == "opset_13"


KILLED = RemedyRun(problem="killed")
LAST = steps(CELL.id, check="backward")[-1]
EMPTY = judge_try(LAST, KILLED, Level.UNSUPPORTED, "matches_reference", evidence="/x/<b>", seconds=1.0)


def test_the_report_fits_the_schema_and_has_no_terminal_commands(tmp_path, monkeypatch):
    assert (EMPTY.state, EMPTY.why) == (TrialState.NOT_RUN, "killed")
    found = tried_with(tmp_path, None, monkeypatch, fixed_by="attention=eager")
    hostile = replace(found, why="\x1b[31m<script>\n", cell=Cell.parse("a@b+c/fill-mask/cpu/float32"))
    page = document(remedies_blocks([found, hostile], "hwcompat-out/remedies/x"), "markdown")
    assert "\x1b" not in page
    assert "<script>" not in page
    assert f"## `{found.cell.id}`" in page
    assert '`model.set_attn_implementation("eager")`' in page
    first, second, *_ = document(remedies_blocks([found], "x"), "text").splitlines()
    assert first == f"{found.cell.id}: fixed by attention_eager, {found.smallest.step.remedy.says}"
    assert second.endswith('Apply     model.set_attn_implementation("eager")')
    assert next(remedies_blocks([found, hostile], "x")) == "2 of 2 cells fixed."
    data = json.loads(remedies_json([found, hostile], "x", now()))
    schema = json.loads(Path("reports/schemas/remedies.json").read_text(encoding="utf-8"))
    jsonschema.validate(data, schema)
    assert data["cells"][0]["tried"][1]["changed"] == "attention=eager"
    other = next(step for step in steps("a@b+c/x/qnn/float32") if step.id == "other_target:cpu")
    command = write_of(replace(EMPTY, step=other))
    assert command == command_of("run", "--model", "a@b+c", "--device", "cpu", "--precision", "float32")


def test_exit_codes_and_the_reason_of_a_cell_without_a_remedy(tmp_path, monkeypatch):
    fixed = tried_with(tmp_path / "1", None, monkeypatch, fixed_by="attention=eager")
    failing = tried_with(tmp_path / "2", None, monkeypatch, fixed_by="nothing")
    nothing = replace(failing, tried=(), reason="its operator has no kernel there at all")
    unknown = replace(nothing, level=Level.UNKNOWN, problem="no such model")
    assert [exit_code(cells) for cells in ([fixed], [fixed, failing], [nothing], [unknown])] == [0, 1, 5, 1]
    assert next(remedies_blocks([nothing], "x")).text == "no fix applies: its operator has no kernel there at all"


def test_a_pattern_means_failing_cells_of_the_evidence_and_what_is_no_cell_is_refused(tmp_path):
    write_run(tmp_path, outcomes={"backward": Outcome.FAILED})
    write_run(tmp_path, Cell.parse("gpt2/text-generation/cpu/float32"), number=2)
    assert [cell.id for cell in asked_cells(["*/cpu/*"], tmp_path)] == [CELL.id]
    with pytest.raises(NothingMatched, match="bert"):
        asked_cells(["*/cuda/*"], tmp_path)
    for name in ("../../x/fill-mask/cpu/float32", "$(id)/x/cpu/float32", "bert/fill-mask/cpu", "brt/x/cpu/float32"):
        with pytest.raises(UsageError, match=re.escape(name[:3])):
            asked_cells([name], None)
