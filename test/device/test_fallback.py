"""A device that was asked for by name and isn't there: the suite runs elsewhere, says so, and counts for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandLine, Ran, together

from hardware.evidence.record import Outcome

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_cuda")]

CELL = "bert/fill-mask/cuda/float32"


@pytest.fixture(scope="module")
def both(without_cuda: None, command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    named = ("--model", "bert", "--device", "cuda", "--run")
    strict, allowed = (tmp_path_factory.mktemp(name) for name in ("strict", "allowed"))
    return together(
        {
            "strict": lambda: command_line.run(strict, *named),
            "allowed": lambda: command_line.run(allowed, *named, "--allow-fallback"),
        }
    )


def test_exit_code_is_1_unless_fallback_is_allowed(both: dict[str, Ran]) -> None:
    assert both["strict"].code == 1
    assert "cuda isn't available on this machine" in both["strict"].error
    assert both["allowed"].code == 0
    assert "note: cuda isn't available on this machine" in both["allowed"].err


def test_no_check_counts_as_passed_and_each_line_says_where_it_ran(both: dict[str, Ran]) -> None:
    for ran in both.values():
        outcomes = ran.outcomes(CELL)
        assert {outcomes.pop(name) for name in ("matches_reference", "runs_natively")} == {Outcome.SKIPPED}
        assert set(outcomes.values()) == {Outcome.PASSED_ON_FALLBACK}
        for line in ran.lines(CELL).values():
            assert (line.requested_target, line.actual_target) == ("cuda", "cpu")
            assert "cuda" in line.substitution_reason.lower()
        line = ran.lines(CELL)["matches_reference"]
        assert line.error_type == "same_device", "agreeing with itself is no agreement"
        assert line.error_message.startswith("same device")
        assert ran.verdict(CELL) == "unknown"


@pytest.mark.nightly
def test_a_target_that_computes_in_another_precision_is_no_silent_offload_of_its_substitute(
    command_line: CommandLine, tmp_path: Path
) -> None:
    cell = "bert/fill-mask/qnn/float32"
    without = {"HWCOMPAT_QNN_PYTHON": str(tmp_path / "none")}
    ran = command_line.run(tmp_path, "--model", "bert", "--device", "qnn", "--run", "--allow-fallback", env=without)
    proof = ran.lines(cell)["runs_natively"]
    assert (proof.outcome, proof.error_type) == (Outcome.SKIPPED, "same_device")
    again = command_line.run(tmp_path, "--refresh", "--dry-run", env=without)
    assert again.code == 5
    assert "no cell was measured yet" in again.error
