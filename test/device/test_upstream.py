"""transformers' own tests on the simulated device: what they come to, where they ran, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandLine, Ran, together
from upstream_checkout import CONFTEST, make_checkout

from hardware.evidence.record import Outcome

CLASS = "BertModelTest"
WRONG = {"HWCOMPAT_SIMULATED_FAULT": "wrong:aten.mm"}

ELSEWHERE = """
import transformers.testing_utils

transformers.testing_utils.torch_device = "cpu"
"""


def asked(command_line: CommandLine, folder: Path, checkout: Path, *more: str, **env: str) -> Ran:
    words = ("--upstream", checkout, "--model", "bert", "--device", "simulated", *more)
    return command_line.run(folder, *words, env=env)


@pytest.fixture(scope="module")
def ran(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """One run whose device multiplies wrongly and in which a test dies, and one on another device."""
    folder = tmp_path_factory.mktemp("upstream")
    real = make_checkout(folder / "real")
    moved = make_checkout(folder / "moved", conftest=CONFTEST + ELSEWHERE)
    return together(
        {
            "dies": lambda: asked(command_line, folder / "dies", real, UPSTREAM_TEST_DIES="1", **WRONG),
            "elsewhere": lambda: asked(command_line, folder / "elsewhere", moved, "--", "-k", "zz"),
        }
    )


def outcomes(ran: Ran) -> dict[str, Outcome]:
    return {line.check_name.removeprefix(f"{CLASS}::"): line.outcome for line in ran.evidence.other_checks}


def test_each_test_has_its_outcome_and_none_is_ours(ran):
    got = ran["dies"]
    assert outcomes(got) == {
        "test_model": Outcome.PASSED,
        "test_gain": Outcome.FAILED,  # the device multiplies wrongly
        "test_needs_accelerator": Outcome.PASSED,
        "test_needs_two": Outcome.SKIPPED,
        "test_skipped": Outcome.SKIPPED,
        "test_slow": Outcome.SKIPPED,
        "test_from_hub": Outcome.NOT_RUN,
        "test_subtests": Outcome.FAILED,
        "test_reads_fixture": Outcome.PASSED,
        "test_dies": Outcome.CRASHED,
        "test_hangs": Outcome.PASSED,
        "test_zz_last": Outcome.PASSED,
    }
    assert (got.evidence.checks, got.evidence.runs, got.code) == ((), (), 1)
    assert got.network == []


def test_lines_say_where_it_ran_why_not_and_whose_it_is(ran):
    evidence = ran["dies"].evidence
    lines = {line.check_name.removeprefix(f"{CLASS}::"): line for line in evidence.other_checks}
    assert (lines["test_model"].actual_target, lines["test_model"].requested_target) == ("simulated", "simulated")
    assert lines["test_model"].conditions["torch_device"] == "simulated"
    assert "don't prove that it computed" in lines["test_model"].unseen
    assert lines["test_from_hub"].error_type == "needs_network"
    assert lines["test_skipped"].error_message == "BERT has no such head"
    assert lines["test_skipped"].actual_target is None
    assert "SIGABRT" in lines["test_dies"].error_message
    assert {line.origin for line in evidence.other_checks} == {"transformers"}
    (run,) = evidence.other_runs
    assert [planned.cell_id for planned in run.plan] == ["bert/upstream-tests/simulated/float32"]


def test_the_counts_and_the_failures_are_printed(ran):
    out = ran["dies"].out
    assert "bert on simulated: 5 passed, 2 failed, 1 crashed, 3 skipped, 1 not_run (1 needs_network)" in out
    assert f"failed  {CLASS}::test_subtests: AssertionError: 2 not less than 2" in out


def test_tests_that_ran_on_another_device_leave_nothing(ran):
    got = ran["elsewhere"]
    assert got.code == 1
    assert "ran on cpu, not on simulated" in got.error
    assert list((got.folder / "evidence").glob("*")) == []
    assert "passed" not in got.out
