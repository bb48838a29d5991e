"""Recorded failures become graded findings, one for each root cause."""

from __future__ import annotations

from dataclasses import replace

from evidence_lines import check_line

from hardware.evidence.record import EDITED, CheckLine, Outcome, Stage
from reports.diagnose import diagnose, identify
from reports.finding import Finding, Severity

CUDA = "bert/fill-mask/cuda/float32"


def line(cell: str = CUDA, **changes: object) -> CheckLine:
    values = {"cell_id": cell, "check_name": "matches_reference", "outcome": Outcome.FAILED, "error_type": "unknown"}
    return check_line(**{**values, **changes})


def only(*lines: CheckLine, **known: object) -> Finding:
    """Return the one finding of these results."""
    (finding,) = diagnose(lines, **known)
    return finding


PASSED = line(outcome=Outcome.PASSED, error_type="")


def test_what_was_recorded_goes_before_the_words_of_a_message():
    found = identify("AssertionError: assert 0.3 <= 1e-05, CUDA out of memory. Tried to", recorded="silent_offload")
    assert (found.error_type, found.confidence) == ("silent_offload", "high")
    log = "terminate called after throwing an instance of 'std::bad_alloc'"
    for recorded in ("crash", "crashed"):  # as it is recorded now, and in older files
        assert identify("ended by SIGABRT", recorded=recorded, log=log).error_type == "out_of_memory"
    for outcome, error_type, severity in (
        (Outcome.TIMEOUT, "timeout", Severity.ERROR),
        (Outcome.OUT_OF_MEMORY, "out_of_memory", Severity.ERROR),
        (Outcome.CRASHED, "crash", Severity.CRITICAL),
        (Outcome.AMBIGUOUS, "ambiguous", Severity.WARNING),
    ):
        finding = only(line(outcome=outcome, error_type=""))
        assert (finding.error_type, finding.severity) == (error_type, severity)


def test_the_precision_of_products_explains_errors_within_its_tolerance():
    wrong = {"error_type": "numerical_mismatch", "tolerance": 2e-5, "conditions": {"products": "tf32"}}
    errors = {"matches_reference": 4e-3, "save_reload": 1e-3, "backward": 0.5}
    found = only(*(line(check_name=name, max_rel_error=error, **wrong) for name, error in errors.items()))
    assert "float32 products are computed in tf32 there, which explains 2 of 3 failures" in found.message
    alone = line(max_rel_error=0.5, **wrong)
    exact = line(max_rel_error=4e-3, **{**wrong, "conditions": {"products": "float32"}})
    assert not [one for one in (alone, exact) if "products" in only(one).message]


def test_wrong_results_of_a_cell_are_one_finding_with_the_figures():
    wrong = {"error_type": "numerical_mismatch", "tolerance": 1e-5}
    errors = {"matches_reference": 0.02, "save_reload": 0.5, "backward": 0.1}
    checks = [line(check_name=name, max_rel_error=error, **wrong) for name, error in errors.items()]
    finding = only(PASSED, *checks)
    assert (finding.error_type, finding.severity) == ("numerical_mismatch", Severity.ERROR)
    assert "0.5" in finding.message
    assert "1e-05" in finding.message
    assert len(finding.evidence_ids) == 3
    assert finding.cells == (CUDA,)
    infinite = line(error_type="non_finite", max_rel_error=float("inf"), tolerance=1e-5)
    assert only(checks[2], infinite).error_type == "non_finite"
    message = "AssertionError: assert 42 == 41\n +  where 42 = gradient_count()"
    within = line(max_rel_error=1e-6, error_message=message, **wrong)
    assert only(within).message == "the results are wrong: AssertionError: assert 42 == 41"


def test_a_missing_module_is_one_finding_over_models_and_targets():
    message = "ModuleNotFoundError: No module named 'flash_attn'"
    checks = [
        line(cell, check_name=check, error_type="missing_dependency", error_message=message, stage=Stage.IMPORT)
        for cell in (CUDA, "gpt2/text-generation/cpu/float32")
        for check in ("builds", "matches_reference")
    ]
    finding = only(*checks)
    assert (len(finding.cells), finding.hardware_type, finding.model_name) == (2, "any", None)
    assert "flash_attn" in finding.message
    assert any("sdpa" in text for text in finding.recommendations)
    other = replace(checks[0], error_message="ModuleNotFoundError: No module named 'openvino'")
    assert len(diagnose([checks[0], other])) == 2


def test_checks_not_reached_belong_to_the_crash_before_them():
    crash = line(outcome=Outcome.CRASHED, error_type="crashed", error_message="ended by SIGSEGV", actual_target=None)
    not_reached = {"outcome": Outcome.NOT_RUN, "error_type": "not_reached", "error_message": "ended by SIGSEGV"}
    finding = only(*(line(check_name=name, **not_reached) for name in ("save_reload", "backward")), crash)
    assert (finding.error_type, finding.severity) == ("crash", Severity.CRITICAL)
    assert len(finding.evidence_ids) == 3
    assert "SIGSEGV" in finding.message
    alone = only(line(outcome=Outcome.NOT_RUN, error_type="not_reached"))
    assert (alone.error_type, alone.severity) == ("not_reached", Severity.WARNING)
    cut = line(outcome=Outcome.NOT_RUN, error_type="interrupted", error_message="the run was interrupted")
    assert only(cut).message == "the run was interrupted"


def test_run_on_another_target_warns_about_the_one_that_was_requested():
    reason = "torch is built for CUDA, but no CUDA device can be used (run nvidia-smi for details)"
    fallback = line(
        outcome=Outcome.PASSED_ON_FALLBACK, error_type="", actual_target="cpu", substitution_reason=reason
    )
    parity = replace(fallback, check_name="matches_recorded", outcome=Outcome.SKIPPED, error_type="same_device")
    finding = only(fallback, parity)
    assert (finding.error_type, finding.hardware_type) == ("device_absent", "cuda")
    assert finding.severity is Severity.WARNING
    assert reason in finding.message
    failed = line(actual_target="cpu", substitution_reason="no GPU", error_message="RuntimeError: boom")
    assert "boom" in only(failed).message


def test_edited_suite_is_a_finding_with_the_command_that_makes_it_again():
    edited = {"conditions": {EDITED: "by hand"}}
    checks = [replace(PASSED, check_name=name, **edited) for name in ("builds", "backward")]
    finding = only(*checks)
    assert (finding.error_type, finding.severity) == ("suite_edited", Severity.ERROR)
    assert finding.checks == ("builds", "backward")
    assert "--model bert --task fill-mask --device cuda --force`" in finding.recommendations[0]
    assert "another file in the same folder" in finding.recommendations[1]
    failed = line(error_message="RuntimeError: boom", **edited)
    assert {one.error_type for one in diagnose([*checks, failed])} == {"unknown", "suite_edited"}


def test_stage_and_traceback_are_shown_only_if_they_help():
    early = line(error_message="RuntimeError: boom", stage=Stage.LOAD)
    assert only(early).message.endswith("(stage: load): RuntimeError: boom")
    assert "stage" not in only(replace(early, stage=Stage.RUN)).message
    absent = replace(early, outcome=Outcome.PASSED_ON_FALLBACK, error_type="", substitution_reason="needs macOS")
    assert "stage" not in only(absent).message
    log = (
        'ing.py", line 878, in pytest_runtest_call\n    yield\n'
        '  File "/x/site-packages/pluggy/_execution.py", line 167, in _multicall\n    teardown.throw(exception)\n'
        '  File "/x/site-packages/_pytest/python.py", line 187, in pytest_pyfunc_call\n    result = testfunction()\n'
        "             ^^^^^^^^^^^^\n"
        '  File "/x/suites/test_bert.py", line 3, in test_builds\n    assert boom()\nRuntimeError: boom\n'
    )
    assert (
        only(line(error_message="RuntimeError: boom", traceback=log)).traceback.splitlines()
        == (log.splitlines()[-3:])
    )
    refusal = "Unsupported: it doesn't compute in int4"
    finding = only(line(error_message=refusal, error_type="unsupported_dtype", traceback=log))
    assert finding.traceback == ""
    assert "Unsupported" not in finding.message


def test_passes_and_checks_that_do_not_apply_are_no_findings():
    skipped = line(outcome=Outcome.SKIPPED, error_type="not_applicable", error_message="cannot save")
    assert diagnose([PASSED, skipped]) == []


def test_a_finding_has_the_time_of_its_first_failure_and_an_id_without_figures():
    checks = [line(check_name=name, started_at=f"2026-01-0{day}", error_message="x") for name, day in ("b2", "a1")]
    assert diagnose(checks) == diagnose(checks)
    assert only(*checks).timestamp == "2026-01-01"
    messages = ("failed at 0x7f00aa after 3 s", "failed at 0x1234bc after 17 s")
    first, second = (only(line(error_message=f"RuntimeError: {message}")) for message in messages)
    assert first.id == second.id


def test_operators_on_the_host_are_one_finding_that_names_them():
    offloaded = {"matches_reference": {"aten.mm": 1}, "runs_natively": {"aten.mm": 1, "aten.cos": 2}}
    checks = [
        line(error_type="silent_offload", check_name=name, offloaded_ops=ops) for name, ops in offloaded.items()
    ]
    assert only(*checks).message.endswith("on the host: aten.cos, aten.mm")
    message = "Unsupported: QNN doesn't run the model: it leaves NonZero (1), ScatterND (1), {} to the host; [ONNX]"
    rest = {"llava": "Transpose (1)", "paligemma": "Reshape (4), Transpose (3)", "aria": "Slice (1)"}
    refused = {"error_type": "unsupported_operator"}
    finding = only(
        *(
            line(f"{model}/text-generation/qnn/float32", error_message=message.format(more), **refused)
            for model, more in rest.items()
        )
    )
    assert len(finding.cells) == 3
    assert "(onnx.NonZero)" in finding.message


def test_copies_to_the_host_are_one_cause_only_among_models_of_one_architecture():
    def found(name: str) -> int:
        message = f"correct, but not computed on simulated alone: {name} ran on the host"
        known = {"error_type": "silent_offload", "error_message": message, "offloaded_ops": {name: 1}}
        models = (("a", "diffusion"), ("b", "diffusion"), ("c", "decoder"))
        cells = [{"model": model, "architecture": kind, "cell_id": f"{model}/x"} for model, kind in models]
        return len(diagnose([check_line("x", Outcome.FAILED, **known, **cell) for cell in cells]))

    assert (found("aten._to_copy"), found("aten.cumsum")) == (2, 1)


def with_versions(check: CheckLine, versions: dict[str, str], rules: tuple[str, ...] = ()) -> Finding:
    """Return the finding, given the versions of its run and the rules behind the prediction of its cell."""
    (finding,) = diagnose([check], {check.run_id: versions}, {check.cell_id: {"rule_ids": list(rules)}})
    return finding


def test_a_known_fault_of_others_is_not_blamed_on_the_device():
    wrong = line(check_name="honours_mask", error_type="numerical_mismatch", max_rel_error=1.5, tolerance=2e-5)
    known = with_versions(wrong, {}, ("code.padding_heard",))
    assert (only(wrong).error_type, known.error_type) == ("numerical_mismatch", "upstream_bug")
    assert "padding" in known.message
    failed = line(error_type="export_failed", error_message="Unsupported: as it is: RuntimeError: unordered_map::at")
    for version, error_type in (
        ("2.13.0+cpu", "upstream_bug"),
        ("2.1.0", "export_failed"),
        ("", "export_failed"),
    ):
        finding = with_versions(failed, {"torch": version} if version else {})
        assert finding.error_type == error_type
        linked = any("github.com/pytorch/pytorch/issues/172880" in text for text in finding.recommendations)
        assert linked == (error_type == "upstream_bug")
    by_numbers = line(
        "bert/fill-mask/mps/float16", error_type="numerical_mismatch", max_rel_error=1.5, tolerance=2e-5
    )
    finding = with_versions(by_numbers, {"torch": "2.10.0"})
    assert finding.error_type == "numerical_mismatch"  # it is named, and numbers alone don't prove it
    assert "issues/174861" in finding.recommendations[0]


def test_advice_to_find_whose_fault_it_is_is_left_out_once_that_is_known():
    wrong = line(error_type="numerical_mismatch")
    (asked,), (known,) = diagnose([wrong]), diagnose([wrong], faults={CUDA})
    (left_out,) = set(asked.recommendations) - set(known.recommendations)
    assert "Run the same cell on cpu" in left_out
    of_half = only(replace(wrong, precision="float16"))
    (advice,) = set(of_half.recommendations) - set(asked.recommendations)
    assert "Run it in float32" in advice
