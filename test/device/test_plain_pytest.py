"""Suites under plain pytest: they record evidence, and say that only isolation is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import CommandLine, Ran, together
from evidence_lines import BERT_CHECKS

from hardware.evidence.record import Outcome, Stage

pytestmark = pytest.mark.slow

BERT, VIT = "bert/fill-mask/cpu/float32", "vit/image-classification/cpu/float32"


@pytest.fixture(scope="module")
def generated(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("generated")
    return command_line.run(folder, "--model", "bert", "--model", "vit", "--device", "cpu")


@pytest.fixture(scope="module")
def ran(generated: Ran, command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """Plain pytest on a suite and a person's own test, on some checks only, and on a folder that is half broken;
    and our own command with arguments for pytest."""
    own = generated.suites / "test_of_my_own.py"
    own.write_text("def test_mine():\n    pass\n", encoding="utf-8")
    suite = generated.suites / "test_bert_fill_mask_cpu_float32.py"
    ours = ("--model", "bert", "--device", "cpu", "--run", "--")
    folders = {name: tmp_path_factory.mktemp(name) for name in ("whole", "chosen", "broken", "ours", "refused")}
    half_broken = _half_broken(generated, folders["broken"] / "suites")
    return together(
        {
            "whole": lambda: command_line.pytest(folders["whole"], suite, own),
            "chosen": lambda: command_line.pytest(folders["chosen"], suite, "-k", "builds"),
            "broken": lambda: command_line.pytest(folders["broken"], half_broken),
            "ours": lambda: command_line.run(folders["ours"], *ours, "-k", "builds"),
            "refused": lambda: command_line.run(folders["refused"], *ours, "--nonsense"),
        }
    )


def _half_broken(generated: Ran, folder: Path) -> Path:
    """A copy of the suites of which one imports what isn't there, and a file that is no Python."""
    shutil.copytree(generated.suites, folder)
    broken = folder / "test_vit_image_classification_cpu_float32.py"
    broken.write_text("import a_package_that_is_not_there\n" + broken.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "test_no_python.py").write_text("def (:\n", encoding="utf-8")
    return folder


def test_what_was_generated_can_be_run_by_hand(generated: Ran) -> None:
    assert generated.code == 0
    assert f"--output-dir {generated.suites}" in generated.err  # the command that runs these very suites
    assert "hwcompat run --" in generated.err


@pytest.mark.nightly
def test_evidence_of_suites_is_recorded_and_missing_isolation_said(ran: dict[str, Ran]) -> None:
    whole = ran["whole"]
    assert whole.code == 0, whole.out
    assert set(whole.outcomes(BERT).values()) == {Outcome.PASSED}
    assert [planned.cell_id for planned in whole.run_line.plan] == [BERT]
    assert set(whole.outcomes(BERT)) == set(whole.run_line.plan[0].checks)
    (end,) = whole.evidence.ends
    assert (end.reason, end.counts) == ("finished", {"passed": len(whole.outcomes(BERT))})
    assert f"{BERT_CHECKS + 1} passed" in whole.out, "a person's own test runs, and is no evidence"
    assert {line.cell_id for line in whole.evidence.checks} == {BERT}
    assert whole.run_line.isolation.startswith("none")
    assert "plain pytest: a crash would end the session" in whole.out
    assert str(whole.folder / "evidence") in whole.out


def test_what_is_deselected_never_counts_as_passed(ran: dict[str, Ran]) -> None:
    chosen, ours = ran["chosen"], ran["ours"]
    assert (chosen.code, ours.code) == (0, 1)
    assert chosen.outcomes(BERT) == {"builds": Outcome.PASSED}
    assert len(chosen.run_line.plan[0].checks) == BERT_CHECKS  # planned, and without a line: not run
    lines = ours.lines(BERT)
    assert lines.pop("builds").outcome is Outcome.PASSED
    assert {(line.outcome, line.error_type) for line in lines.values()} == {(Outcome.NOT_RUN, "deselected")}
    assert ours.verdict(BERT) == "unknown"


def test_an_argument_that_pytest_refuses_is_no_success(ran: dict[str, Ran]) -> None:
    refused = ran["refused"]
    assert refused.code == 1
    lines = refused.lines(BERT).values()
    assert {(line.outcome, line.error_type) for line in lines} == {(Outcome.NOT_RUN, "not_reached")}
    assert all("--nonsense" in line.error_message for line in lines)


def test_a_suite_that_cannot_be_imported_is_recorded_too(ran: dict[str, Ran]) -> None:
    broken = ran["broken"]
    assert broken.code == 2
    assert "INTERNALERROR" not in broken.out + broken.err
    lines = broken.lines(VIT).values()
    assert len(lines) == len(next(one for one in broken.run_line.plan if one.cell_id == VIT).checks)
    for line in lines:
        assert (line.outcome, line.stage, line.error_type) == (Outcome.FAILED, Stage.IMPORT, "missing_dependency")
        assert "a_package_that_is_not_there" in line.error_message
    assert broken.outcomes(BERT) == {}  # nothing was run, so nothing is said


def test_nothing_is_sent(ran: dict[str, Ran]) -> None:
    assert {name: one.network for name, one in ran.items() if one.network} == {}
