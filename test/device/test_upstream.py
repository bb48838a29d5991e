"""transformers' own tests on the simulated device: what they come to, where they ran, and what becomes of it."""

from __future__ import annotations

import pytest
from command_line import CommandLine, Ran
from upstream_checkout import make_checkout

from hardware.evidence.record import Outcome

CLASS = "BertModelTest"
WRONG = {"HWCOMPAT_SIMULATED_FAULT": "wrong:aten.mm"}


@pytest.fixture(scope="module")
def ran(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run whose device multiplies wrongly and in which a test dies."""
    folder = tmp_path_factory.mktemp("upstream")
    words = ("--upstream", make_checkout(folder / "checkout"), "--model", "bert", "--device", "simulated")
    return command_line.run(folder, *words, env={"UPSTREAM_TEST_DIES": "1", **WRONG})


def outcomes(ran: Ran) -> dict[str, Outcome]:
    return {line.check_name.removeprefix(f"{CLASS}::"): line.outcome for line in ran.evidence.other_checks}


@pytest.mark.extended
def test_each_test_has_its_outcome_and_none_is_ours(ran):
    assert outcomes(ran) == {
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
        "test_zz_last": Outcome.PASSED,
    }
    assert (ran.evidence.checks, ran.evidence.runs, ran.code) == ((), (), 1)
    assert ran.network == []


@pytest.mark.nightly
def test_lines_say_where_it_ran_why_not_and_whose_it_is(ran):
    evidence = ran.evidence
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
    out = ran.out
    assert "bert on simulated: 4 passed, 2 failed, 1 crashed, 3 skipped, 1 not_run (1 needs_network)" in out
    assert f"failed  {CLASS}::test_subtests: AssertionError: 2 not less than 2" in out
