"""A device that is told to break: each fault shows as what it is, and never as a pass."""

from __future__ import annotations

import json
from functools import partial

import pytest
from command_line import CommandLine, Ran, together

from hardware.evidence.record import Outcome, Stage

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

BERT = "bert/fill-mask/simulated/float32"
VIT = "vit/image-classification/simulated/float32"
ONE, TWO = ("--model", "bert"), ("--model", "bert", "--model", "vit")

# By name: the models, the fault, the deadline in seconds. The probe of a device multiplies two matrices, so that a
# broken normalization leaves it answering, and a break of everything with parameters does not.
FAULTS = {
    "wrong": (ONE, "wrong", 300),
    "nan": (ONE, "nan:aten.addmm", 300),
    "oom": (ONE, "oom", 300),
    "host": (ONE, "host", 300),
    "hang": (ONE, "hang:aten.native_layer_norm", 6),
    "crash": (TWO, "crash:aten.native_layer_norm", 300),
    "lost": (TWO, "crash", 300),
}
EXPECTED = {
    "wrong": (Outcome.FAILED, Stage.COMPARE, "numerical_mismatch"),
    "nan": (Outcome.FAILED, Stage.COMPARE, "non_finite"),
    "oom": (Outcome.OUT_OF_MEMORY, Stage.RUN, "out_of_memory"),
    "hang": (Outcome.TIMEOUT, Stage.RUN, "timeout"),
    "crash": (Outcome.CRASHED, Stage.RUN, "crash"),
    "lost": (Outcome.CRASHED, Stage.RUN, "crash"),
}


@pytest.fixture(scope="module")
def faulty(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    how = ("--device", "simulated", "--run", "--timeout")
    jobs = {}
    for name, (models, fault, timeout) in FAULTS.items():
        words, env = (*models, *how, str(timeout)), {"HWCOMPAT_SIMULATED_FAULT": fault}
        jobs[name] = partial(command_line.run, tmp_path_factory.mktemp(name), *words, env=env)
    return together(jobs)


def test_each_fault_is_a_failure_of_the_whole_command_with_a_line_for_every_check(faulty: dict[str, Ran]) -> None:
    for fault, ran in faulty.items():
        assert (fault, ran.code) == (fault, 1), ran.err
        assert "Traceback" not in ran.err
        assert [end.reason for end in ran.evidence.ends] == ["finished"] * len(ran.evidence.runs)
        assert ran.verdict(BERT) in ("unsupported", "low", "unknown"), fault
        for planned in (one for run in ran.evidence.runs for one in run.plan):
            assert set(ran.lines(planned.cell_id)) == set(planned.checks), fault


def test_an_unknown_fault_is_refused_before_anything_runs(command_line: CommandLine, tmp_path) -> None:
    ran = command_line.run(tmp_path, *ONE, "--device", "simulated", "--run", env={"HWCOMPAT_SIMULATED_FAULT": "wrog"})
    assert ran.code == 4
    assert "Did you mean 'wrong'" in ran.err
    assert not (tmp_path / "evidence").exists()


def test_outcome_stage_and_error_type(faulty: dict[str, Ran]) -> None:
    for fault, expected in EXPECTED.items():
        line = faulty[fault].lines(BERT)["matches_reference"]
        assert (fault, line.outcome, line.stage, line.error_type) == (fault, *expected)
        assert line.actual_target == "simulated"
        assert line.error_message
    for fault in ("wrong", "nan", "oom"):
        outcomes = faulty[fault].outcomes(BERT)
        for check in ("matches_reference", "matches_recorded", "honours_mask", "save_reload", "backward"):
            assert outcomes[check].is_failure, (fault, check)
    line = faulty["wrong"].lines(BERT)["matches_reference"]
    assert line.max_rel_error > 100 * line.tolerance  # type: ignore[operator]


def test_what_fails_runs_on_the_cpu_too_and_passes_so_that_the_device_is_at_fault(faulty: dict[str, Ran]) -> None:
    ran = faulty["wrong"]
    _, reference = ran.evidence.runs
    (on_cpu,) = [planned.cell_id for planned in reference.plan]
    assert on_cpu == "bert/fill-mask/cpu/float32"
    assert set(ran.outcomes(on_cpu).values()) == {Outcome.PASSED}
    (path,) = ran.reports.rglob("*.json")
    (verdict,) = json.loads(path.read_text(encoding="utf-8"))["verdicts"]
    assert (verdict["cell"], verdict["fault"]) == (BERT, "device")


def test_operators_on_the_host_are_named(faulty: dict[str, Ran]) -> None:
    line = faulty["host"].lines(BERT)["runs_natively"]
    assert (line.outcome, line.error_type) == (Outcome.FAILED, "silent_offload")
    assert {"aten.addmm", "aten.embedding"} <= set(line.offloaded_ops)
    right = faulty["host"].lines(BERT)["matches_reference"]
    assert (right.outcome, right.error_type) == (Outcome.FAILED, "silent_offload")
    assert right.max_rel_error is not None
    assert right.max_rel_error < 2e-5
    assert "aten.addmm" in right.error_message
    assert faulty["host"].verdict(BERT) == "low"


def test_a_hang_is_ended_and_says_where(faulty: dict[str, Ran]) -> None:
    line = faulty["hang"].lines(BERT)["matches_reference"]
    assert "6 s" in line.error_message
    assert "simulated.py" in line.traceback  # the stack at the moment when it was ended


def test_after_a_breakdown_the_rest_is_not_run_and_a_lost_device_gets_nothing_more(faulty: dict[str, Ran]) -> None:
    for fault in ("hang", "crash", "lost"):
        outcomes = faulty[fault].outcomes(BERT)
        assert list(outcomes.values()).count(Outcome.NOT_RUN) == len(outcomes) - 2
        assert outcomes["builds"] is Outcome.PASSED  # what was measured before stays
        lines = faulty[fault].lines(BERT).values()
        assert all(line.error_message for line in lines if line.outcome is Outcome.NOT_RUN)
    still_answers = faulty["crash"].outcomes(VIT)
    assert still_answers["builds"] is Outcome.PASSED
    assert still_answers["matches_reference"] is Outcome.CRASHED
    lost = faulty["lost"].lines(VIT).values()
    assert {(line.outcome, line.error_type) for line in lost} == {(Outcome.NOT_RUN, "device_lost")}
    assert faulty["lost"].verdict(VIT) == "unknown"
