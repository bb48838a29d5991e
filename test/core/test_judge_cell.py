"""A pass counts only on the target itself, a failure has its reason, and absence proves nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from judged_cells import CELL, PLAN, VERSIONS, ask, line, passed, with_change

from generators.compatibility.judge import strongest_of
from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.cell import Cell
from hardware.evidence.record import EDITED, CheckLine, Outcome, Stage
from reports.reason_text import texts

CORE = ("builds", "matches_reference", "matches_recorded", "honours_mask")


def mentions(reasons: tuple[Reason, ...], *words: str) -> bool:
    """Whether one reason has all these words."""
    return any(all(word in text for word in words) for text in texts(reasons))


def test_all_passed_on_the_target_is_high_and_names_its_evidence():
    verdict = ask(passed().values())
    assert (verdict.level, verdict.basis) == (Level.HIGH, Basis.MEASURED)
    assert set(verdict.evidence_ids) == {f"run1/{CELL.id}/{check}" for check in PLAN}
    assert "tiny: operators and numerics, not size" in texts(verdict.conditions)
    for name in ("torch.float32", "f32", "float32"):  # as runtimes call it
        assert ask(passed(actual_dtype=name).values()).level is Level.HIGH
    ordinary = {"optimisation": "O0", "attention": "sdpa"}
    assert ask(passed(conditions=ordinary).values()).level is Level.HIGH


def test_no_evidence_and_no_plan_are_unknown():
    of_another = [replace(line(check), cell_id="other/text-generation/cuda/float32") for check in PLAN]
    for verdict in (ask([]), ask(passed().values(), plan=()), ask(of_another)):
        assert verdict.level is Level.UNKNOWN


def test_a_check_without_a_decision_leaves_the_cell_unknown():
    for check in PLAN:
        verdict = ask(one for name, one in passed().items() if name != check)
        assert verdict.level is Level.UNKNOWN, check
        assert f"{check} was not run" in texts(verdict.reasons)
        for outcome in (Outcome.SKIPPED, Outcome.NOT_RUN, Outcome.AMBIGUOUS):
            verdict = with_change(check, outcome, error_message="same device")
            assert verdict.level is Level.UNKNOWN, (check, outcome)
            assert mentions(verdict.reasons, check, "same device")


def test_a_failed_core_check_is_unsupported_and_another_is_low():
    for check in (*CORE, "backward", "cache_matches", "save_reload"):
        level = Level.UNSUPPORTED if check in CORE else Level.LOW
        for outcome in (Outcome.FAILED, Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY):
            verdict = with_change(check, outcome, error_message="no kernel\nfor it", stage=Stage.RUN)
            assert verdict.level is level, (check, outcome)
            assert mentions(verdict.reasons[:1], check, "no kernel for it")
    not_reached = ask([line("builds", Outcome.CRASHED), line("matches_reference", Outcome.NOT_RUN)])
    assert not_reached.level is Level.UNSUPPORTED
    core_not_run = ask([line("builds"), line("backward", Outcome.FAILED)])
    assert core_not_run.level is Level.UNKNOWN
    assert mentions(core_not_run.reasons, "backward failed")


def test_a_reason_has_the_figures_once_and_hostile_text_on_one_short_line():
    wrong = {"max_rel_error": 0.32, "tolerance": 2e-5}
    (first, *_) = texts(with_change("matches_reference", Outcome.FAILED, **wrong).reasons)
    assert "0.32" in first
    assert "tolerance 2e-05)" in first
    message = "off by 3.20e-01 of the output's scale; the tolerance is 2e-05"
    (first, *_) = texts(with_change("matches_reference", Outcome.FAILED, error_message=message, **wrong).reasons)
    assert first.endswith("; the tolerance is 2e-05")
    hostile = with_change("builds", Outcome.FAILED, error_message="\x1b[31mred\n" + "x" * 5000)
    assert not {"\x1b", "\n"} & set(texts(hostile.reasons)[0])
    assert len(texts(hostile.reasons)[0]) < 260


def test_a_check_that_does_not_apply_is_low_outside_the_core():
    assert with_change("generates_like_reference", Outcome.SKIPPED, error_type="not_applicable").level is Level.LOW
    assert with_change("honours_mask", Outcome.SKIPPED, error_type="not_applicable").level is Level.UNKNOWN


def test_operators_on_the_host_lower_the_level():
    nothing = with_change("runs_natively", Outcome.FAILED, native_ops={}, offloaded_ops={"aten.addmm": 3})
    assert nothing.level is Level.UNSUPPORTED
    assert with_change("runs_natively", Outcome.FAILED, offloaded_ops={"aten.sort": 3}).level is Level.LOW
    with_parameters = with_change("runs_natively", offloaded_ops={"aten.native_layer_norm": 1})
    assert with_parameters.level is Level.LOW
    assert mentions(with_parameters.reasons, "native_layer_norm")
    allowed = with_change("runs_natively", offloaded_ops={"aten.cumsum": 1})
    assert allowed.level is Level.MEDIUM
    assert "on the host: aten.cumsum" in texts(allowed.conditions)
    assert with_change("runs_natively", native_ops={}).level is Level.UNKNOWN  # the proof saw no operator
    left = {"error_type": "silent_offload", "offloaded_ops": {"aten.cumsum": 1}, "error_message": "on the host"}
    for_some_inputs = with_change("matches_reference", Outcome.FAILED, **left)
    assert for_some_inputs.level is Level.LOW
    assert mentions(for_some_inputs.reasons, "matches_reference failed: on the host")
    never_ran = with_change("matches_reference", Outcome.FAILED, error_type="silent_offload")
    assert never_ran.level is Level.UNSUPPORTED


def test_a_pass_under_a_condition_is_medium_and_states_it():
    for change, condition in (
        ({"actual_dtype": "bfloat16"}, "computed in bfloat16, not float32"),
        ({"actual_dtype": None}, "no check recorded the precision"),
        ({"conditions": {"shapes": "static"}}, "static shapes"),
        ({"conditions": {"size": "512 tokens"}}, "size: 512 tokens"),
    ):
        verdict = ask(passed(**change).values())
        assert verdict.level is Level.MEDIUM, change
        assert mentions(verdict.conditions, condition)


def test_a_plan_without_a_comparison_or_a_proof_is_not_high():
    lines = passed().values()
    assert ask(lines, plan=("builds", "runs_natively")).level is Level.UNKNOWN
    unproven = ask(lines, plan=("builds", "matches_reference"))
    assert unproven.level is Level.MEDIUM
    assert mentions(unproven.conditions, "runs_natively")
    thin = tuple(check for check in PLAN if check != "honours_mask")
    lines = [line(check) for check in thin]
    assert ask(lines, plan=thin).level is Level.HIGH
    verdict = ask(lines, plan=thin, required=PLAN)
    assert verdict.level is Level.UNKNOWN
    assert "the plan lacks required checks: honours_mask" in texts(verdict.reasons)


def test_what_ran_elsewhere_says_nothing_about_the_target():
    facts = {"actual_target": "cpu", "substitution_reason": "no driver", "accelerator": "a CPU"}
    lines = passed(outcome=Outcome.PASSED_ON_FALLBACK, **facts)
    verdict = ask(lines.values())
    assert verdict.level is Level.UNKNOWN
    assert mentions(verdict.reasons, "on cpu, not on cuda: no driver")
    failed = {**lines, "builds": line("builds", Outcome.FAILED, **facts)}
    assert ask(failed.values()).level is Level.UNKNOWN
    for change in ({"actual_target": "cpu"}, {"actual_target": "not a target"}, {"substitution_reason": "no driver"}):
        assert ask(passed(**change).values()).level is Level.UNKNOWN, change


def test_a_process_that_died_counts_only_if_its_run_was_on_the_target():
    died = line("matches_reference", Outcome.CRASHED, actual_target=None, accelerator=None)
    assert ask([line("builds"), died]).level is Level.UNSUPPORTED
    alone = ask([died])
    assert alone.level is Level.UNKNOWN
    assert mentions(alone.reasons, "crashed")
    elsewhere = line("builds", Outcome.PASSED_ON_FALLBACK, actual_target="cpu")
    assert ask([elsewhere, died]).level is Level.UNKNOWN


def test_a_missing_library_and_a_date_in_the_future_decide_nothing():
    verdict = with_change("builds", Outcome.FAILED, error_type="missing_dependency", error_message="timm")
    assert verdict.level is Level.UNKNOWN
    assert mentions(verdict.reasons, "timm")
    verdict = with_change("matches_reference", started_at="2999-01-01T00:00:00Z")
    assert verdict.level is Level.UNKNOWN
    assert mentions(verdict.reasons, "2999-01-01T00:00:00Z, which is in the future")


@pytest.mark.parametrize("asked", ["checkpoint", "config"])
def test_tiny_evidence_measures_neither_a_checkpoint_nor_a_configuration(asked):
    verdict = ask(passed().values(), weights_asked=asked)
    assert verdict.level is Level.UNKNOWN
    assert mentions(verdict.reasons, f"tiny weights doesn't count for a {asked}")
    real = ask(passed(subject=asked).values(), weights_asked=asked)
    assert real.level is Level.HIGH
    assert not mentions(real.conditions, "tiny")
    assert ask(passed(subject="whatever").values()).level is Level.UNKNOWN


def test_a_target_without_a_variant_takes_any_of_its_devices():
    cell = Cell.parse("gpt2/text-generation/openvino/float32")
    npu = Cell.parse("gpt2/text-generation/openvino:NPU/float32")

    def on(target: str, of: Cell) -> list[CheckLine]:
        changed = {"actual_target": target, "requested_target": str(of.target), "cell_id": of.id}
        return list(passed(**changed).values())

    assert ask(on("openvino:CPU", cell), cell=cell).level is Level.HIGH
    assert ask(on("openvino:CPU", npu), cell=npu).level is Level.UNKNOWN
    assert ask(on("openvino", npu), cell=npu).level is Level.UNKNOWN


def test_the_strongest_verdict_is_the_measured_one_if_it_is_known():
    predicted = Verdict(cell=CELL.id, level=Level.HIGH, basis=Basis.PREDICTED, rule_ids=("a.b",))
    measured = ask([line("builds", Outcome.FAILED)])
    assert strongest_of(measured, predicted) is measured
    unknown = strongest_of(ask([]), predicted)
    assert (unknown.level, unknown.basis) == (Level.HIGH, Basis.PREDICTED)
    assert "nothing was measured" in texts(unknown.reasons)
    with pytest.raises(ValueError, match="different cells"):
        strongest_of(replace(measured, cell="a/b/cpu/float32"), predicted)


def test_a_pass_is_not_believed_against_its_own_numbers():
    for changes in (
        {"max_rel_error": 5.0},
        {"max_rel_error": float("nan")},
        {"max_rel_error": None},
        {"tolerance": None},
        {"max_rel_error": 50.0, "tolerance": 100.0},
        {"tolerance": 1e-3},
    ):
        verdict = with_change("matches_reference", **changes)
        assert verdict.level is Level.UNKNOWN, changes
        assert mentions(verdict.reasons, "tolerance")


def test_a_wider_tolerance_counts_only_if_the_run_names_coarse_functions():
    cell = Cell.parse("gpt2/text-generation/webgpu/float32")
    there = {"cell_id": cell.id, "requested_target": "webgpu", "actual_target": "webgpu", "max_rel_error": 4e-4}

    def verdict(**conditions: str) -> Verdict:
        return ask([line(check, conditions=conditions, tolerance=1e-3, **there) for check in PLAN], cell=cell)

    coarse = verdict(coarse_functions="sin, cos")
    assert coarse.level is Level.HIGH
    assert "less precise functions that the target's standard allows: sin, cos" in texts(coarse.conditions)
    assert verdict().level is Level.UNKNOWN
    assert verdict().basis is not Basis.MEASURED


# Several runs


def test_other_versions_make_evidence_expired():
    lines = passed().values()
    moved = ask(lines, now={**VERSIONS, "torch": "2.14.0"})
    assert (moved.level, moved.basis) == (Level.HIGH, Basis.EXPIRED)
    assert mentions(moved.reasons, "torch 2.13.0, now 2.14.0")
    assert ask(lines, then={}).basis is ask(lines, then={}, now={}).basis is Basis.EXPIRED
    assert ask(lines, suite_hash="another").basis is Basis.EXPIRED
    assert ask(lines, suite_hash="h").basis is Basis.MEASURED
    old = passed(run_id="run2", outcome=Outcome.FAILED)
    verdict = ask([*lines, *old.values()], then={"run1": VERSIONS, "run2": {"torch": "1"}})
    assert (verdict.level, verdict.basis) == (Level.HIGH, Basis.MEASURED)


def test_two_runs_that_disagree_give_the_worst_in_any_order():
    runs = {"run1": passed(), "run2": passed(run_id="run2")}
    runs["run2"]["matches_reference"] = line("matches_reference", Outcome.FAILED, run_id="run2")
    for order in (("run1", "run2"), ("run2", "run1")):
        assert ask([one for name in order for one in runs[name].values()]).level is Level.UNSUPPORTED


def test_accelerators_are_judged_apart_and_the_worst_counts():
    other = passed(run_id="run2", accelerator="L4")
    assert ask([*passed().values(), *other.values()]).level is Level.HIGH
    both = replace(other["builds"], accelerator="H200")
    assert ask([*passed().values(), both]).level is Level.HIGH
    mixed = ask([*(line(check) for check in PLAN if check != "builds"), both])
    assert mixed.level is Level.MEDIUM
    assert "combined from several runs" in texts(mixed.conditions)
    other["backward"] = line("backward", Outcome.FAILED, run_id="run2", accelerator="L4")
    verdict = ask([*passed().values(), *other.values()])
    assert verdict.level is Level.LOW
    assert any(reason.startswith("L4: backward failed") for reason in texts(verdict.reasons))
    assert any(reason.startswith("H200: all") for reason in texts(verdict.reasons))
    halves = [line(check) for check in PLAN[:4]]
    halves += [line(check, run_id="run2", accelerator="L4") for check in PLAN[4:]]
    assert ask(halves).level is Level.UNKNOWN


def test_of_two_lines_of_a_check_in_one_run_the_worse_counts():
    good = list(passed().values())
    for check, changes, level in (
        ("matches_reference", {"outcome": Outcome.FAILED}, Level.UNSUPPORTED),
        ("backward", {"outcome": Outcome.FAILED}, Level.LOW),
        ("backward", {"outcome": Outcome.AMBIGUOUS}, Level.UNKNOWN),
        ("backward", {"outcome": Outcome.SKIPPED, "error_type": "not_applicable"}, Level.LOW),
        ("backward", {"outcome": Outcome.NOT_RUN, "error_type": "not_reached"}, Level.HIGH),
    ):
        second = line(check, **changes)
        for lines in ([second, *good], [*good, second]):
            verdict = ask(lines)
            assert verdict.level is level, changes
            assert len(verdict.evidence_ids) == len(set(verdict.evidence_ids)) == len(PLAN)


def test_an_edited_suite_shows_nothing_and_hides_nothing():
    edited = {"conditions": {EDITED: "by hand"}}
    verdict = ask(passed(**edited).values())
    assert (verdict.level, verdict.evidence_ids) == (Level.UNKNOWN, ())
    assert mentions(verdict.reasons, "edited by hand")
    died = line("matches_reference", Outcome.CRASHED, actual_target=None, accelerator=None, **edited)
    assert ask([line("builds", **edited), died]).level is Level.UNKNOWN
    assert ask([*passed().values(), died]).level is Level.UNKNOWN  # one marked line marks the suite
    on_cpu = Cell.parse("gpt2/text-generation/cpu/float32")
    verdict = ask([replace(died, cell_id=on_cpu.id, requested_target="cpu")], cell=on_cpu)
    assert verdict.level is Level.UNKNOWN
    assert mentions(verdict.reasons, "edited by hand")
    of_another_run = passed(run_id="run2", outcome=Outcome.FAILED, **edited)
    assert ask([*passed().values(), *of_another_run.values()]).level is Level.HIGH
