"""A device that was asked for by name and isn't there: the suite runs elsewhere, says so, and counts for nothing."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
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
    assert "cuda was asked for and isn't here" in both["strict"].error
    assert both["allowed"].code == 0
    assert "note: cuda was asked for and isn't here" in both["allowed"].err


@pytest.mark.parametrize("how", ["strict", "allowed"])
def test_no_check_counts_as_passed(both: dict[str, Ran], how: str) -> None:
    outcomes = both[how].outcomes(CELL)
    assert {outcomes.pop(name) for name in ("matches_reference", "runs_natively")} == {Outcome.SKIPPED}
    assert set(outcomes.values()) == {Outcome.PASSED_ON_FALLBACK}


@pytest.mark.parametrize("how", ["strict", "allowed"])
def test_each_line_says_where_it_really_ran_and_why(both: dict[str, Ran], how: str) -> None:
    for line in both[how].lines(CELL).values():
        assert (line.requested_target, line.actual_target) == ("cuda", "cpu")
        assert "cuda" in line.substitution_reason.lower()


def test_parity_with_itself_is_no_parity(both: dict[str, Ran]) -> None:
    line = both["strict"].lines(CELL)["matches_reference"]
    assert line.error_type == "same_device"
    assert line.error_message.startswith("same device")


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
    assert "nothing was measured yet" in again.error


@pytest.mark.parametrize("how", ["strict", "allowed"])
def test_verdict_of_the_missing_device_is_unknown(both: dict[str, Ran], how: str) -> None:
    assert both[how].verdict(CELL) == "unknown"


@pytest.mark.parametrize("device", ["cpu:3", "cuda:x", "openvino:XYZ", "simulated:5"])
def test_a_target_that_cannot_be_is_no_missing_device(command_line: CommandLine, tmp_path: Path, device: str) -> None:
    ran = command_line.run(tmp_path, "--model", "bert", "--device", device)
    assert ran.code == 4
    assert f"unknown device '{device}'" in ran.error
    assert "Known: " in ran.error


def test_nothing_counts_for_the_missing_device_in_the_matrix(both: dict[str, Ran], command_line: CommandLine) -> None:
    ran = both["strict"]
    matrix = command_line.run(
        ran.folder / "matrix", "--hardware-compatibility", "--evidence", ran.folder / "evidence", "--format", "json"
    )
    assert matrix.code == 0, matrix.err
    assert '"basis": "measured"' not in matrix.out


def test_junit_calls_them_skipped_with_the_reason(both: dict[str, Ran]) -> None:
    (path,) = both["strict"].reports.rglob("*.xml")
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    assert len(cases) >= len(both["strict"].lines(CELL))
    for case in cases:
        skipped = case.find("skipped")
        assert skipped is not None, case.attrib
        assert "cuda" in f"{skipped.get('message', '')}{skipped.text or ''}".lower()
