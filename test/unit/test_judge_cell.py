"""What evidence proves: a pass only on the target itself, a failure with its reason, and nothing from absence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from judged_cells import CELL, PLAN, ask, line, passed, with_change

from generators.compatibility.judge import strongest_of
from generators.compatibility.verdict import Basis, Level, Verdict
from hardware.cell import Cell
from hardware.evidence.record import CheckLine, Outcome, Stage
from reports.reason_text import texts


def test_all_passed_on_the_target_is_high_and_names_its_evidence():
    verdict = ask(passed().values())
    assert (verdict.level, verdict.basis) == (Level.HIGH, Basis.MEASURED)
    assert set(verdict.evidence_ids) == {f"run1/{CELL.id}/{check}" for check in PLAN}
    assert "tiny: operators and numerics, not size" in texts(verdict.conditions)


def test_no_evidence_and_no_plan_are_unknown():
    assert ask([]).level is Level.UNKNOWN
    assert ask(passed().values(), plan=()).level is Level.UNKNOWN
    assert ask([replace(line(check), cell_id="other/text-generation/cuda/float32") for check in PLAN]).level is (
        Level.UNKNOWN
    )


@pytest.mark.parametrize("missing", PLAN)
def test_a_planned_check_without_a_line_leaves_the_cell_unknown(missing):
    verdict = ask(one for name, one in passed().items() if name != missing)
    assert verdict.level is Level.UNKNOWN
    assert f"{missing} was not run" in texts(verdict.reasons)


@pytest.mark.parametrize("check", PLAN)
@pytest.mark.parametrize("outcome", [Outcome.SKIPPED, Outcome.NOT_RUN, Outcome.AMBIGUOUS])
def test_what_was_not_decided_is_never_a_pass(check, outcome):
    verdict = with_change(check, outcome, error_message="same device")
    assert verdict.level is Level.UNKNOWN
    assert any(check in reason and "same device" in reason for reason in texts(verdict.reasons))


@pytest.mark.parametrize("check", ["builds", "matches_reference", "matches_recorded", "honours_mask"])
@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY])
def test_a_core_check_that_does_not_work_is_none_with_the_reason(check, outcome):
    verdict = with_change(check, outcome, error_message="no kernel\nfor it", stage=Stage.RUN)
    assert verdict.level is Level.UNSUPPORTED
    assert any(check in reason and "no kernel for it" in reason for reason in texts(verdict.reasons))


def test_a_core_failure_counts_though_the_rest_was_never_reached():
    verdict = ask([line("builds", Outcome.CRASHED), line("matches_reference", Outcome.NOT_RUN)])
    assert verdict.level is Level.UNSUPPORTED


def test_the_figures_of_a_wrong_number_are_in_the_reason():
    verdict = with_change("matches_reference", Outcome.FAILED, max_rel_error=0.32, tolerance=2e-5)
    assert "(error 0.32, tolerance 2e-05)" in texts(verdict.reasons)[0]
    message = "off by 3.20e-01 of the output's scale; the tolerance is 2e-05"
    verdict = with_change(
        "matches_reference", Outcome.FAILED, max_rel_error=0.32, tolerance=2e-5, error_message=message
    )
    assert texts(verdict.reasons)[0].endswith("; the tolerance is 2e-05"), "each figure is there once"


@pytest.mark.parametrize("check", ["backward", "cache_matches", "save_reload"])
def test_a_failure_outside_the_core_is_low(check):
    verdict = with_change(check, Outcome.FAILED, error_message="wrong")
    assert verdict.level is Level.LOW
    assert check in texts(verdict.reasons)[0]


def test_a_failure_outside_the_core_does_not_hide_that_the_core_was_not_run():
    verdict = ask([line("builds"), line("backward", Outcome.FAILED)])
    assert verdict.level is Level.UNKNOWN
    assert any("backward failed" in reason for reason in texts(verdict.reasons))


def test_what_the_model_cannot_do_there_is_low_not_a_pass():
    verdict = with_change("generates_like_reference", Outcome.SKIPPED, error_type="not_applicable")
    assert verdict.level is Level.LOW
    core = with_change("honours_mask", Outcome.SKIPPED, error_type="not_applicable")
    assert core.level is Level.UNKNOWN


def test_nothing_native_is_none_and_some_native_is_low():
    nothing = with_change("runs_natively", Outcome.FAILED, native_ops={}, offloaded_ops={"aten.addmm": 3})
    assert nothing.level is Level.UNSUPPORTED
    some = with_change("runs_natively", Outcome.FAILED, offloaded_ops={"aten.sort": 3})
    assert some.level is Level.LOW


def test_an_offloaded_operator_with_parameters_is_low_even_where_the_check_passed():
    verdict = with_change("runs_natively", offloaded_ops={"aten.native_layer_norm": 1})
    assert verdict.level is Level.LOW
    assert any("native_layer_norm" in reason for reason in texts(verdict.reasons))


def test_a_pass_that_left_the_device_for_some_inputs_is_low_and_one_that_never_ran_is_none():
    left = {"error_type": "silent_offload", "offloaded_ops": {"aten.cumsum": 1}, "error_message": "on the host"}
    verdict = with_change("matches_reference", Outcome.FAILED, **left)
    assert verdict.level is Level.LOW
    assert any("matches_reference failed: on the host" in reason for reason in texts(verdict.reasons))
    assert with_change("matches_reference", Outcome.FAILED, error_type="silent_offload").level is Level.UNSUPPORTED


def test_what_is_dated_after_now_says_nothing():
    verdict = with_change("matches_reference", started_at="2999-01-01T00:00:00Z")
    assert verdict.level is Level.UNKNOWN
    assert any("2999-01-01T00:00:00Z, which is in the future" in reason for reason in texts(verdict.reasons))


def test_allowed_operators_on_the_host_are_medium_and_named():
    verdict = with_change("runs_natively", offloaded_ops={"aten.cumsum": 1})
    assert verdict.level is Level.MEDIUM
    assert "on the host: aten.cumsum" in texts(verdict.conditions)


def test_a_proof_that_saw_no_operator_proves_nothing():
    assert with_change("runs_natively", native_ops={}).level is Level.UNKNOWN


@pytest.mark.parametrize(
    ("change", "condition"),
    [
        ({"actual_dtype": "bfloat16"}, "computed in bfloat16, not float32"),
        ({"actual_dtype": None}, "no check recorded the precision"),
        ({"conditions": {"shapes": "static"}}, "static shapes"),
        ({"conditions": {"size": "512 tokens"}}, "size: 512 tokens"),
    ],
)
def test_a_pass_under_a_condition_is_medium_and_states_it(change, condition):
    verdict = ask(passed(**change).values())
    assert verdict.level is Level.MEDIUM
    assert any(condition in text for text in texts(verdict.conditions))


@pytest.mark.parametrize("name", ["torch.float32", "f32", "float32"])
def test_a_runtimes_own_name_for_the_precision_is_no_condition(name):
    assert ask(passed(actual_dtype=name).values()).level is Level.HIGH


def test_ordinary_conditions_do_not_lower_the_level():
    verdict = ask(passed(conditions={"optimisation": "O0", "attention": "sdpa"}).values())
    assert verdict.level is Level.HIGH


def test_a_plan_without_a_comparison_or_a_proof_is_not_high():
    lines = passed().values()
    assert ask(lines, plan=("builds", "runs_natively")).level is Level.UNKNOWN
    unproven = ask(lines, plan=("builds", "matches_reference"))
    assert unproven.level is Level.MEDIUM
    assert any("runs_natively" in text for text in texts(unproven.conditions))


def test_a_substituted_run_says_nothing_of_the_target_that_was_asked_for():
    facts = {"actual_target": "cpu", "substitution_reason": "no driver", "accelerator": "a CPU"}
    lines = passed(outcome=Outcome.PASSED_ON_FALLBACK, **facts)
    verdict = ask(lines.values())
    assert verdict.level is Level.UNKNOWN
    assert any("on cpu, not on cuda: no driver" in reason for reason in texts(verdict.reasons))
    failed = {**lines, "builds": line("builds", Outcome.FAILED, **facts)}
    assert ask(failed.values()).level is Level.UNKNOWN


def test_a_pass_elsewhere_counts_nowhere_even_if_it_calls_itself_passed():
    assert ask(passed(actual_target="cpu").values()).level is Level.UNKNOWN
    assert ask(passed(actual_target="not a target").values()).level is Level.UNKNOWN
    assert ask(passed(substitution_reason="no driver").values()).level is Level.UNKNOWN


def test_a_child_that_died_counts_only_if_its_run_was_on_the_target():
    died = line("matches_reference", Outcome.CRASHED, actual_target=None, accelerator=None)
    assert ask([line("builds"), died]).level is Level.UNSUPPORTED
    silent = ask([died])
    assert silent.level is Level.UNKNOWN
    assert any("crashed" in reason for reason in texts(silent.reasons))
    elsewhere = line("builds", Outcome.PASSED_ON_FALLBACK, actual_target="cpu")
    assert ask([elsewhere, died]).level is Level.UNKNOWN


def test_a_missing_library_is_not_the_targets_failure():
    verdict = with_change("builds", Outcome.FAILED, error_type="missing_dependency", error_message="timm")
    assert verdict.level is Level.UNKNOWN
    assert any("timm" in reason for reason in texts(verdict.reasons))


def test_tiny_evidence_never_concludes_a_checkpoint():
    verdict = ask(passed().values(), weights_asked="checkpoint")
    assert verdict.level is Level.UNKNOWN
    assert any("tiny weights says nothing about a checkpoint" in reason for reason in texts(verdict.reasons))
    real = ask(passed(subject="checkpoint").values(), weights_asked="checkpoint")
    assert real.level is Level.HIGH
    assert not any("tiny" in text for text in texts(real.conditions))
    assert ask(passed(subject="whatever").values()).level is Level.UNKNOWN


def test_a_check_that_the_cell_has_to_have_counts_though_nobody_planned_it():
    thin = tuple(check for check in PLAN if check != "honours_mask")
    lines = [line(check) for check in thin]
    assert ask(lines, plan=thin).level is Level.HIGH
    verdict = ask(lines, plan=thin, required=PLAN)
    assert verdict.level is Level.UNKNOWN
    assert "the plan lacks checks that the cell has to have: honours_mask" in texts(verdict.reasons)


def test_untrusted_messages_become_one_short_line():
    verdict = with_change("builds", Outcome.FAILED, error_message="\x1b[31mred\n" + "x" * 5000)
    assert "\x1b" not in texts(verdict.reasons)[0]
    assert "\n" not in texts(verdict.reasons)[0]
    assert len(texts(verdict.reasons)[0]) < 260


def test_a_target_without_a_variant_takes_any_of_its_devices():
    cell = Cell.parse("gpt2/text-generation/openvino/float32")
    npu = Cell.parse("gpt2/text-generation/openvino:NPU/float32")

    def on(target: str, of: Cell) -> list[CheckLine]:
        changed = {"actual_target": target, "requested_target": str(of.target), "cell_id": of.id}
        return list(passed(**changed).values())

    assert ask(on("openvino:CPU", cell), cell=cell).level is Level.HIGH
    assert ask(on("openvino:CPU", npu), cell=npu).level is Level.UNKNOWN
    assert ask(on("openvino", npu), cell=npu).level is Level.UNKNOWN


def test_the_final_answer_is_the_measured_one_where_it_is_known():
    predicted = Verdict(cell=CELL.id, level=Level.HIGH, basis=Basis.PREDICTED, rule_ids=("a.b",))
    measured = ask([line("builds", Outcome.FAILED)])
    assert strongest_of(measured, predicted) is measured
    open_ = strongest_of(ask([]), predicted)
    assert (open_.level, open_.basis) == (Level.HIGH, Basis.PREDICTED)
    assert "nothing was measured" in texts(open_.reasons)
    with pytest.raises(ValueError, match="two cells"):
        strongest_of(replace(measured, cell="a/b/cpu/float32"), predicted)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_rel_error": 5.0},
        {"max_rel_error": float("nan")},
        {"max_rel_error": None},
        {"tolerance": None},
        {"max_rel_error": 50.0, "tolerance": 100.0},
        {"tolerance": 1e-3},
    ],
)
def test_a_pass_is_not_believed_against_its_own_numbers(changes):
    verdict = with_change("matches_reference", **changes)
    assert verdict.level is Level.UNKNOWN
    assert any("tolerance" in reason for reason in texts(verdict.reasons))


def test_a_wider_tolerance_is_todays_only_where_the_run_says_what_is_coarse_and_the_level_says_it_too():
    cell = Cell.parse("gpt2/text-generation/webgpu/float32")
    there = {"cell_id": cell.id, "requested_target": "webgpu", "actual_target": "webgpu", "max_rel_error": 4e-4}
    found = {}
    for name in ("sin, cos", ""):
        conditions = {"coarse_functions": name} if name else {}
        lines = [line(check, conditions=conditions, tolerance=1e-3, **there) for check in PLAN]
        found[name] = ask(lines, cell=cell)
    assert found["sin, cos"].level is Level.HIGH
    assert "as coarse as the target's standard allows: sin, cos" in texts(found["sin, cos"].conditions)
    assert found[""].level is Level.UNKNOWN
    assert found[""].basis is not Basis.MEASURED
