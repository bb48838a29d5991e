"""Ways past a suite that reviewers found: each of them ends in something else than green."""

from __future__ import annotations

import shutil

import pytest
from command_line import CommandLine, Ran, together

from hardware.evidence.record import Outcome

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

CUDA = "vit/image-classification/cuda/float32"
CPU = "vit/image-classification/cpu/float32"
BLUNT = "def test_matches_reference(case: ModelTest) -> None:\n    pass\n"


@pytest.fixture(scope="module")
def ran(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory, without_cuda: None) -> dict[str, Ran]:
    folders = {name: tmp_path_factory.mktemp(name) for name in ("made", "nothing", "blunt", "foreign", "stranger")}
    made = command_line.run(folders["made"], "--model", "vit", "--device", "cuda", "--device", "cpu")
    foreign = folders["foreign"] / "suites"
    foreign.mkdir()
    shutil.copy(made.suites / "test_vit_image_classification_cuda_float32.py", foreign)
    (foreign / "conftest.py").write_text("", encoding="utf-8")
    templates = folders["blunt"] / "templates"
    (templates / "checks").mkdir(parents=True)
    (templates / "checks" / "matches_reference.py.j2").write_text(BLUNT, encoding="utf-8")
    stranger = folders["stranger"] / "suites"
    stranger.mkdir()
    text = (made.suites / "test_vit_image_classification_cpu_float32.py").read_text(encoding="utf-8")
    edited = text.replace("def test_builds", "def test_builds_not")
    (stranger / "test_vit_image_classification_cuda_float32.py").write_text(edited, encoding="utf-8")
    vit = ("--model", "vit", "--device", "cpu", "--run")
    return together(
        {
            "nothing": lambda: command_line.run(folders["nothing"], *vit, "--", "-k", "no_such_check"),
            "blunt": lambda: command_line.run(folders["blunt"], *vit, "--template-dir", str(templates)),
            "foreign": lambda: command_line.pytest(folders["foreign"], foreign),
            "stranger": lambda: command_line.run(folders["stranger"], "--model", "vit", "--device", "cuda", "--run"),
        }
    )


@pytest.mark.extended
def test_arguments_for_pytest_that_leave_nothing_end_with_5(ran: dict[str, Ran]) -> None:
    assert ran["nothing"].code == 5
    assert set(ran["nothing"].outcomes(CPU).values()) == {Outcome.NOT_RUN}


def test_a_comparison_that_compares_nothing_is_not_believed(ran: dict[str, Ran]) -> None:
    assert ran["blunt"].outcomes(CPU)["matches_reference"] is Outcome.PASSED
    assert ran["blunt"].verdict(CPU) == "unknown"


def test_a_suite_without_our_plug_in_does_not_run_elsewhere_in_silence(ran: dict[str, Ran]) -> None:
    assert ran["foreign"].code == 1
    assert "the substitution would not be recorded" in ran["foreign"].out
    assert " passed" not in ran["foreign"].out.splitlines()[-1] or " failed" in ran["foreign"].out.splitlines()[-1]


def test_a_suite_of_another_cell_under_this_name_is_refused(ran: dict[str, Ran]) -> None:
    assert ran["stranger"].code == 4
    assert f"isn't the suite of {CUDA}" in ran["stranger"].error
