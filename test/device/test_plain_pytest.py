"""Suites under plain pytest: they record evidence, and say that only isolation is missing."""

from __future__ import annotations

import pytest
from command_line import CommandLine, Ran

from hardware.evidence.record import Outcome, Stage

pytestmark = pytest.mark.slow

BERT, VIT = "bert/fill-mask/cpu/float32", "vit/image-classification/cpu/float32"


@pytest.fixture(scope="module")
def generated(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("generated")
    return command_line.run(folder, "--model", "bert", "--model", "vit", "--device", "cpu")


@pytest.fixture(scope="module")
def whole(generated: Ran, command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """bert under plain pytest, with a person's own test beside it."""
    (generated.suites / "test_of_my_own.py").write_text("def test_mine():\n    pass\n", encoding="utf-8")
    own = generated.suites / "test_of_my_own.py"
    suite = generated.suites / "test_bert_fill_mask_cpu_float32.py"
    return command_line.pytest(tmp_path_factory.mktemp("whole"), suite, own)


def test_what_was_generated_can_be_run_by_hand(generated: Ran) -> None:
    assert generated.code == 0
    assert f"--output-dir {generated.suites}" in generated.err  # the command that runs these very suites
    assert generated.err.strip().endswith("--run")


def test_evidence_is_recorded(whole: Ran) -> None:
    assert whole.code == 0, whole.out
    assert set(whole.outcomes(BERT).values()) == {Outcome.PASSED}
    assert [planned.cell_id for planned in whole.run_line.plan] == [BERT]
    assert set(whole.outcomes(BERT)) == set(whole.run_line.plan[0].checks)
    (end,) = whole.evidence.ends
    assert end.reason == "finished"
    assert end.counts == {"passed": len(whole.outcomes(BERT))}


def test_a_persons_own_test_is_no_evidence(whole: Ran) -> None:
    assert "8 passed" in whole.out
    assert {line.cell_id for line in whole.evidence.checks} == {BERT}


def test_missing_isolation_is_said(whole: Ran) -> None:
    assert whole.run_line.isolation.startswith("none")
    assert "plain pytest: a crash would end the session" in whole.out
    assert str(whole.folder / "evidence") in whole.out


def test_what_is_deselected_never_counts_as_passed(
    generated: Ran, command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    suite = generated.suites / "test_bert_fill_mask_cpu_float32.py"
    ran = command_line.pytest(tmp_path_factory.mktemp("chosen"), suite, "-k", "builds")
    assert ran.code == 0
    assert ran.outcomes(BERT) == {"builds": Outcome.PASSED}
    assert len(ran.run_line.plan[0].checks) == 7  # planned, and without a line: not run


def test_our_own_command_says_what_was_deselected(
    generated: Ran, command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ran = command_line.run(
        tmp_path_factory.mktemp("ours"), "--model", "bert", "--device", "cpu", "--run", "--", "-k", "builds"
    )
    assert ran.code == 0
    lines = ran.lines(BERT)
    assert lines.pop("builds").outcome is Outcome.PASSED
    assert {(line.outcome, line.error_type) for line in lines.values()} == {(Outcome.NOT_RUN, "deselected")}
    assert ran.verdict(BERT) == "unknown"


def test_an_argument_that_pytest_refuses_is_no_success(
    command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ran = command_line.run(
        tmp_path_factory.mktemp("refused"), "--model", "bert", "--device", "cpu", "--run", "--", "--nonsense"
    )
    assert ran.code == 1
    lines = ran.lines(BERT).values()
    assert {(line.outcome, line.error_type) for line in lines} == {(Outcome.NOT_RUN, "not_reached")}
    assert all("--nonsense" in line.error_message for line in lines)


def test_a_suite_that_cannot_be_imported_is_recorded_too(
    command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("unimportable")
    generated = command_line.run(folder, "--model", "bert", "--model", "vit", "--device", "cpu")
    broken = generated.suites / "test_vit_image_classification_cpu_float32.py"
    broken.write_text("import a_package_that_is_not_there\n" + broken.read_text(encoding="utf-8"), encoding="utf-8")
    (generated.suites / "test_no_python.py").write_text("def (:\n", encoding="utf-8")
    ran = command_line.pytest(folder, generated.suites)
    assert ran.code == 2
    assert "INTERNALERROR" not in ran.out + ran.err
    lines = ran.lines(VIT).values()
    assert len(lines) == len(next(one for one in ran.run_line.plan if one.cell_id == VIT).checks)
    for line in lines:
        assert (line.outcome, line.stage, line.error_type) == (Outcome.FAILED, Stage.IMPORT, "missing_dependency")
        assert "a_package_that_is_not_there" in line.error_message
    assert ran.outcomes(BERT) == {}  # planned and not run
