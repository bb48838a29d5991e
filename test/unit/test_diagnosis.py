"""What went wrong is told from what was recorded, graded, and said once for each root cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hardware.backends.factory import known_targets
from hardware.evidence.record import EDITED, CheckLine, Outcome, Stage
from reports.advice import advised_error_types, diagnostics, recommend, remedies
from reports.diagnose import diagnose, error_types, identify
from reports.finding import COSTS, Severity


def line(cell: str = "bert/fill-mask/cuda/float32", **changes: object) -> CheckLine:
    model, task, target, precision = cell.split("/")
    values = {
        "run_id": "r1",
        "cell_id": cell,
        "check_name": "matches_reference",
        "outcome": Outcome.FAILED,
        "subject": "tiny",
        "requested_target": target,
        "actual_target": target,
        "precision": precision,
        "model": model,
        "task": task,
        "suite_hash": "h",
        "started_at": "2026-01-01T00:00:00+00:00",
        "duration_s": 0.1,
        "error_type": "unknown",
    }
    return CheckLine(**{**values, **changes})


def test_what_the_recorder_knew_is_not_overruled_by_words_in_a_message():
    found = identify("AssertionError: assert 0.3 <= 1e-05, CUDA out of memory. Tried to", recorded="silent_offload")
    assert (found.error_type, found.confidence) == ("silent_offload", "high")


@pytest.mark.parametrize("recorded", ["crash", "crashed"])  # as it is written now, and as older lines have it
def test_log_of_a_dead_process_names_the_cause_behind_the_signal(recorded):
    found = identify(
        "ended by SIGABRT",
        recorded=recorded,
        log="terminate called after throwing an instance of 'std::bad_alloc'",
    )
    assert found.error_type == "out_of_memory"


def test_wrong_results_in_several_checks_of_a_cell_are_one_finding_with_the_figures():
    checks = [
        line(check_name=name, error_type="numerical_mismatch", max_rel_error=error, tolerance=1e-5)
        for name, error in [("matches_reference", 0.02), ("save_reload", 0.5), ("backward", 0.1)]
    ]
    (finding,) = diagnose([line(outcome=Outcome.PASSED, error_type=""), *checks])
    assert finding.error_type == "numerical_mismatch"
    assert finding.severity is Severity.ERROR
    assert "0.5" in finding.message
    assert "1e-05" in finding.message
    assert len(finding.evidence_ids) == 3
    assert finding.cells == ("bert/fill-mask/cuda/float32",)


def test_error_that_is_allowed_is_not_given_as_the_cause():
    message = "AssertionError: assert 42 == 41\n +  where 42 = gradient_count()"
    wrong = line(error_type="numerical_mismatch", max_rel_error=1e-6, tolerance=1e-5, error_message=message)
    assert diagnose([wrong])[0].message == "the results are wrong: AssertionError: assert 42 == 41"


def test_an_interruption_is_stated_once():
    cut = line(outcome=Outcome.NOT_RUN, error_type="interrupted", error_message="the run was interrupted")
    assert diagnose([cut])[0].message == "the run was interrupted"


def test_infinity_beside_wrong_numbers_names_the_one_root_cause():
    nan = line(check_name="matches_reference", error_type="non_finite", max_rel_error=float("inf"), tolerance=1e-5)
    wrong = line(check_name="backward", error_type="numerical_mismatch", max_rel_error=2.0, tolerance=1e-5)
    (finding,) = diagnose([wrong, nan])
    assert finding.error_type == "non_finite"


def test_module_missing_for_several_models_and_targets_is_one_finding():
    message = "ModuleNotFoundError: No module named 'flash_attn'"
    checks = [
        line(cell, check_name=check, error_type="missing_dependency", error_message=message, stage=Stage.IMPORT)
        for cell in ("bert/fill-mask/cuda/float32", "gpt2/text-generation/cpu/float32")
        for check in ("builds", "matches_reference")
    ]
    (finding,) = diagnose(checks)
    assert len(finding.cells) == 2
    assert finding.hardware_type == "any"
    assert finding.model_name is None
    assert "flash_attn" in finding.message
    assert any("sdpa" in text for text in finding.recommendations)


def test_two_missing_modules_are_two_findings():
    checks = [
        line(error_type="missing_dependency", error_message=f"ModuleNotFoundError: No module named '{name}'")
        for name in ("flash_attn", "openvino")
    ]
    assert len(diagnose(checks)) == 2


def test_checks_not_reached_after_a_crash_belong_to_the_crash():
    crash = line(outcome=Outcome.CRASHED, error_type="crashed", error_message="ended by SIGSEGV", actual_target=None)
    after = [
        line(check_name=name, outcome=Outcome.NOT_RUN, error_type="not_reached", error_message="ended by SIGSEGV")
        for name in ("save_reload", "backward")
    ]
    (finding,) = diagnose([*after, crash])
    assert finding.error_type == "crash"
    assert finding.severity is Severity.CRITICAL
    assert len(finding.evidence_ids) == 3
    assert "SIGSEGV" in finding.message


def test_checks_not_reached_without_a_cause_are_a_finding_of_their_own():
    (finding,) = diagnose([line(outcome=Outcome.NOT_RUN, error_type="not_reached")])
    assert (finding.error_type, finding.severity) == ("not_reached", Severity.WARNING)


def test_run_on_another_target_warns_about_the_one_that_was_asked_for():
    reason = "torch is built for CUDA, but no CUDA device can be used (nvidia-smi tells more)"
    fallback = line(
        outcome=Outcome.PASSED_ON_FALLBACK, error_type="", actual_target="cpu", substitution_reason=reason
    )
    parity = replace(fallback, check_name="matches_recorded", outcome=Outcome.SKIPPED, error_type="same_device")
    (finding,) = diagnose([fallback, parity])
    assert (finding.error_type, finding.hardware_type) == ("device_absent", "cuda")
    assert finding.severity is Severity.WARNING
    assert reason in finding.message


@pytest.mark.parametrize(
    ("outcome", "error_type", "severity"),
    [
        (Outcome.TIMEOUT, "timeout", Severity.ERROR),
        (Outcome.OUT_OF_MEMORY, "out_of_memory", Severity.ERROR),
        (Outcome.CRASHED, "crash", Severity.CRITICAL),
        (Outcome.AMBIGUOUS, "ambiguous", Severity.WARNING),
    ],
)
def test_outcome_alone_is_enough_where_no_error_type_was_recorded(outcome, error_type, severity):
    (finding,) = diagnose([line(outcome=outcome, error_type="")])
    assert (finding.error_type, finding.severity) == (error_type, severity)


def test_edited_suite_is_a_finding_with_the_command_that_makes_it_again():
    edited = {"conditions": {EDITED: "by hand"}}
    checks = [
        line(check_name=name, outcome=Outcome.PASSED, error_type="", **edited) for name in ("builds", "backward")
    ]
    (finding,) = diagnose(checks)
    assert (finding.error_type, finding.severity) == ("suite_edited", Severity.ERROR)
    assert finding.checks == ("builds", "backward")
    assert "--model bert --task fill-mask --device cuda --force --run`" in finding.recommendations[0]
    assert "file of your own" in finding.recommendations[1]
    failed = line(error_message="RuntimeError: boom", **edited)
    assert {one.error_type for one in diagnose([*checks, failed])} == {"unknown", "suite_edited"}


def test_stage_is_said_only_where_it_helps():
    early = line(error_message="RuntimeError: boom", stage=Stage.LOAD)
    assert diagnose([early])[0].message.endswith("(stage: load): RuntimeError: boom")
    assert "stage" not in diagnose([replace(early, stage=Stage.RUN)])[0].message
    absent = replace(early, outcome=Outcome.PASSED_ON_FALLBACK, error_type="", substitution_reason="needs macOS")
    assert "stage" not in diagnose([absent])[0].message


def test_failure_on_a_substitute_is_told_by_its_own_message():
    away = line(actual_target="cpu", substitution_reason="no GPU", error_message="RuntimeError: boom")
    assert "boom" in diagnose([away])[0].message


def test_refusal_has_no_traceback_and_an_accident_only_frames_that_matter():
    log = (
        'ing.py", line 878, in pytest_runtest_call\n    yield\n'
        '  File "/x/site-packages/pluggy/_execution.py", line 167, in _multicall\n    teardown.throw(exception)\n'
        '  File "/x/site-packages/_pytest/python.py", line 187, in pytest_pyfunc_call\n    result = testfunction()\n'
        "             ^^^^^^^^^^^^\n"
        '  File "/x/suites/test_bert.py", line 3, in test_builds\n    assert boom()\nRuntimeError: boom\n'
    )
    (finding,) = diagnose([line(error_message="RuntimeError: boom", traceback=log)])
    assert finding.traceback.splitlines() == log.splitlines()[-3:]
    refusal = "Unsupported: it doesn't compute in int4"
    (finding,) = diagnose([line(error_message=refusal, error_type="unsupported_dtype", traceback=log)])
    assert finding.traceback == ""
    assert "Unsupported" not in finding.message


def test_offloaded_operators_are_named():
    (finding,) = diagnose([line(error_type="silent_offload", offloaded_ops={"aten.mm": 2})])
    assert "aten.mm" in finding.message


def test_passes_and_checks_that_do_not_apply_are_no_findings():
    skipped = line(outcome=Outcome.SKIPPED, error_type="not_applicable", error_message="cannot save")
    assert diagnose([line(outcome=Outcome.PASSED, error_type=""), skipped]) == []


def test_diagnosis_is_pure_and_takes_the_time_of_the_first_sighting():
    checks = [
        line(check_name="b", started_at="2026-01-02", error_message="x"),
        line(check_name="a", started_at="2026-01-01", error_message="x"),
    ]
    assert diagnose(checks) == diagnose(checks)
    assert diagnose(checks)[0].timestamp == "2026-01-01"


def test_finding_keeps_its_id_when_only_figures_change():
    first, second = (
        diagnose([line(error_message=f"RuntimeError: failed at 0x{address} after {seconds} s")])[0]
        for address, seconds in (("7f00aa", 3), ("1234bc", 17))
    )
    assert first.id == second.id


def test_every_target_and_error_type_has_advice():
    poor = [
        (target, error_type)
        for target in (*known_targets(), *diagnostics(), "any")
        for error_type in error_types()
        if not all(text.strip() for text in recommend(error_type, target)) or not recommend(error_type, target)
    ]
    assert poor == []
    assert set(advised_error_types()) == set(error_types())
    assert set(known_targets()) <= set(diagnostics())


@pytest.mark.parametrize(
    ("error_type", "target", "said"),
    [
        ("device_absent", "cuda", "nvidia-smi"),
        ("device_absent", "rocm", "rocminfo"),
        ("device_absent", "mps", "torch.backends.mps.is_available()"),
        ("device_absent", "mps", "torch 1.12"),
        ("device_absent", "openvino:NPU", "available_devices"),
        ("device_absent", "qnn", "QNN_SDK_ROOT"),
        ("device_absent", "webnn", "browser"),
        ("memory_pressure", "cuda", "Close other applications that use the GPU"),
        ("memory_pressure", "cuda", "smaller model or a smaller batch"),
        ("memory_pressure", "cuda", "FP16"),
        ("memory_pressure", "cuda", "Split the model across"),
        ("something_new", "cpu", "traceback"),
    ],
)
def test_advice_names_the_vendors_command_and_versions(error_type, target, said):
    assert any(said in text for text in recommend(error_type, target))


def test_costs_are_data_and_stand_in_the_words_too():
    (found,) = [one for one in remedies("out_of_memory", "cuda") if "half precision" in one.do]
    assert "accuracy" in found.cost
    assert found.text.endswith(f"Cost: accuracy ({found.cost['accuracy']}).")
    known = {name for kind in error_types() for one in remedies(kind, "any") for name in one.cost}
    assert known <= set(COSTS)


def test_one_operator_that_breaks_several_models_is_one_finding_that_names_it():
    message = "Unsupported: QNN doesn't run the model: it leaves NonZero (1), ScatterND (1), {} to the host; [ONNX]"
    checks = [
        line(
            f"{model}/text-generation/qnn/float32",
            error_type="unsupported_operator",
            error_message=message.format(rest),
        )
        for model, rest in [
            ("llava", "Transpose (1)"),
            ("paligemma", "Reshape (4), Transpose (3)"),
            ("aria", "Slice (1)"),
        ]
    ]
    (finding,) = diagnose(checks)
    assert len(finding.cells) == 3
    assert "(onnx.NonZero)" in finding.message


def test_what_a_cell_left_to_the_host_is_one_finding_whichever_check_saw_more():
    checks = [
        line(error_type="silent_offload", check_name="matches_reference", offloaded_ops={"aten.mm": 1}),
        line(error_type="silent_offload", check_name="runs_natively", offloaded_ops={"aten.mm": 1, "aten.cos": 2}),
    ]
    (finding,) = diagnose(checks)
    assert finding.message.endswith("on the host: aten.cos, aten.mm")


def known_of(check: CheckLine, *, versions: dict[str, str], rules: tuple[str, ...] = ()) -> tuple[dict, dict]:
    """The versions of its run, and the rules behind the prediction of its cell."""
    return {check.run_id: versions}, {check.cell_id: {"rule_ids": list(rules)}}


def test_fault_that_the_models_own_code_was_known_for_is_not_blamed_on_the_device():
    wrong = line(check_name="honours_mask", error_type="numerical_mismatch", max_rel_error=1.5, tolerance=2e-5)
    (blamed,) = diagnose([wrong])
    (known,) = diagnose([wrong], *known_of(wrong, versions={}, rules=("code.padding_heard",)))
    assert (blamed.error_type, known.error_type) == ("numerical_mismatch", "upstream_bug")
    assert "padding" in known.message


@pytest.mark.parametrize(
    ("version", "error_type"), [("2.13.0+cpu", "upstream_bug"), ("2.1.0", "export_failed"), ("", "export_failed")]
)
def test_known_fault_of_others_counts_for_its_versions_only_and_is_linked(version, error_type):
    failed = line(error_type="export_failed", error_message="Unsupported: as it is: RuntimeError: unordered_map::at")
    (finding,) = diagnose([failed], *known_of(failed, versions={"torch": version} if version else {}))
    assert finding.error_type == error_type
    linked = any("github.com/pytorch/pytorch/issues/172880" in text for text in finding.recommendations)
    assert linked == (error_type == "upstream_bug")


def test_known_fault_that_only_numbers_show_is_named_and_proves_nothing():
    wrong = line("bert/fill-mask/mps/float16", error_type="numerical_mismatch", max_rel_error=1.5, tolerance=2e-5)
    (finding,) = diagnose([wrong], *known_of(wrong, versions={"torch": "2.10.0"}))
    assert finding.error_type == "numerical_mismatch"
    assert "issues/174861" in finding.recommendations[0]


def test_copies_to_the_host_are_one_cause_only_among_models_of_one_architecture():
    def found(name: str) -> int:
        said = f"right, and not computed on simulated alone: {name} ran on the host"
        kept = {"error_type": "silent_offload", "error_message": said, "offloaded_ops": {name: 1}}
        models = (("a", "diffusion"), ("b", "diffusion"), ("c", "decoder"))
        cells = [{"model": model, "architecture": kind, "cell_id": f"{model}/x"} for model, kind in models]
        return len(diagnose([line(**kept, **cell) for cell in cells]))

    assert (found("aten._to_copy"), found("aten.cumsum")) == (2, 1)


@pytest.mark.parametrize("error_type", ["device_absent", "browser_required", "missing_dependency"])
@pytest.mark.parametrize(("target", "command"), [("webgpu", "make setup-web"), ("webnn", "make setup-web")])
def test_what_makes_an_environment_is_the_first_remedy_of_its_target(error_type, target, command):
    assert f"`{command}`" in recommend(error_type, target)[0]


def test_the_runtimes_of_qnn_and_tpu_are_made_first_too():
    assert "`make setup-qnn`" in recommend("device_absent", "qnn")[0]
    assert "`make setup-xla`" in recommend("device_absent", "tpu")[0]
