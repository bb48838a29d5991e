"""`--refresh`: options, cells that can't run here, durations, and the command that runs what expired."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from expired_folder import BERT, GPT2, OLD, ON_CUDA, VIT, Folder, bare_machine, ids

from generators.compatibility.required_checks import required_checks
from generators.compatibility.verdict import Reason
from hardware.cell import Cell, model_of_weights
from hardware.command_line import INTERRUPTED
from hardware.detection import HardwareInfo
from hardware.errors import BackendUnavailable, NothingMatched
from hardware.evidence.record import Outcome
from hwcompat.plugins.study import refresh_command
from hwcompat.plugins.study.refresh_command import refresh_table
from reports import run_command

NO_BYTES = "e3b0c44298fc1c14"
"""SHA-256 of an empty file of weights."""


@pytest.fixture(scope="module")
def here() -> HardwareInfo:
    return bare_machine()


@pytest.fixture
def folder(tmp_path: Path, here: HardwareInfo) -> Folder:
    return Folder(tmp_path / "evidence", here)


# What is taken up


def test_options_choose_as_they_do_in_a_run(folder):
    folder.write("r1", BERT, GPT2, VIT, ON_CUDA, versions=OLD)
    for options, kept in (
        ({"models": ("-", "vit")}, [GPT2, VIT]),
        ({"architectures": ("vision",)}, [VIT]),
        ({"tasks": ("fill-mask",)}, [BERT, ON_CUDA]),
        ({"devices": ("auto",), "skip": ("*/cpu/*",)}, [ON_CUDA]),
        ({"precisions": ("float32",), "select": ("vit/*",)}, [VIT]),
    ):
        assert ids(folder.plan(**options)) == kept, options
    for options in ({"models": ("t5",)}, {"devices": ("mps",)}, {"precisions": ("int8",)}, {"select": ("t5/*",)}):
        with pytest.raises(NothingMatched):  # never measured, so that it can't be measured again
            folder.plan(**options)


def test_what_was_measured_again_here_without_an_answer_is_not_tried_for_ever(folder):
    folder.write("r1", BERT, versions=OLD, machine="elsewhere")
    folder.write("r2", BERT, outcome=Outcome.AMBIGUOUS)
    plan = folder.plan()
    assert ids(plan) == [BERT]
    assert Reason.of("settled_by", run="r2") in plan.left[BERT]


# What can't run here


def test_a_cell_that_cannot_run_here_is_left_with_the_reason(folder):
    own_code = "shutil-rmtree/module-forward/cpu/float32"
    generate = "python run_test_generation.py"
    folder.write("r1", ON_CUDA, "bert/fill-mask/mychip/float32", "bort/fill-mask/cpu/float32", versions=OLD)
    for run_id, cell, subject, command in (
        ("r2", "mine/fill-mask/cpu/float32", "checkpoint", f"{generate} --config hwcompat.toml --run"),
        ("r3", "other/fill-mask/cpu/float32", "checkpoint", "python -m pytest suites"),
        ("r4", own_code, "config", "hwcompat run --model shutil:rmtree"),
    ):
        folder.write(run_id, cell, versions=OLD, subject=subject, command=command)
    left = {cell.split("/")[0] if "/cpu/" in cell else cell.split("/")[2]: why for cell, why in folder.left().items()}
    assert left.keys() == {"cuda", "mychip", "bort", "mine", "other", "shutil-rmtree"}
    assert left["cuda"].startswith("cuda isn't available here: torch 2.13.0+cpu is built for cpu")
    assert left["mychip"] == "no backend for mychip is installed"
    assert "no installed library has the model type bort" in left["bort"]
    assert "project file; pass that file with --config" in left["mine"]
    assert "the command of its run doesn't name it: python -m pytest suites" in left["other"]
    assert "code named only in evidence isn't run" in left["shutil-rmtree"]
    assert not folder.plan(models=("shutil:rmtree",)).left


def test_a_checkpoint_is_found_by_the_command_of_its_run_or_by_a_name_given_now(folder, tmp_path):
    path = tmp_path / "my-checkpoint"
    cell = f"{model_of_weights('my-checkpoint', NO_BYTES)}/fill-mask/cpu/float32"
    command = f"python run_test_generation.py --model={path} --model bert --device cpu --run -- --model x"
    folder.write("r1", cell, versions=OLD, subject="checkpoint", command=command)  # as earlier scripts recorded it
    assert "which doesn't exist here" in folder.left()[cell]
    path.mkdir()
    (path / "config.json").write_text('{"model_type": "bert"}')
    (path / "model.safetensors").write_bytes(b"")
    folder.write("r2", cell, versions=OLD, subject="checkpoint", command="hwcompat run 'broken")
    assert not folder.plan().left  # an older run names it
    (tmp_path / "moved").mkdir()
    moved = path.rename(tmp_path / "moved" / "my-checkpoint")
    assert folder.plan().left
    assert not folder.plan(models=(str(moved),)).left


# The time


def test_the_time_is_that_of_the_checks_and_of_what_the_run_took_beside_them(folder):
    folder.write("r1", BERT, GPT2, versions=OLD, jobs=2)
    found = {one.cell.id: one.duration for one in folder.plan(jobs=1).cells}
    checks = {id_: len(required_checks(Cell.parse(id_))) for id_ in (BERT, GPT2)}
    assert {id_: duration.checks_s for id_, duration in found.items()} == checks
    # 50 s between the first check and the end, in two children; the startup before it took 10 s.
    beside = (50 * 2 - sum(checks.values())) / 2
    assert {duration.overhead_s for duration in found.values()} == {beside}
    assert {duration.told_by for duration in found.values()} == {"r1"}
    one_by_one = 10 + sum(checks.values()) + 2 * beside
    assert folder.plan(jobs=1).total.seconds == one_by_one
    assert folder.plan(jobs=2).total.seconds == 10 + max(checks.values()) + beside
    # This machine's times come before those of another.
    folder.write("r2", BERT, versions=OLD, machine="elsewhere")
    assert folder.plan(models=("bert",)).cells[0].duration.told_by == "r1"


def test_a_device_of_its_own_runs_one_suite_at_a_time(folder):
    cells = ("bert/fill-mask/simulated/float32", "gpt2/text-generation/simulated/float32")
    folder.write("r1", *cells, versions=OLD)
    assert folder.plan(jobs=2).total == replace(folder.plan(jobs=1).total, jobs=2)


def test_what_no_run_tells_is_unknown_and_is_not_in_the_sum(folder):
    folder.write("r1", BERT, versions=OLD, ended=False)
    plan = folder.plan()
    assert plan.cells[0].duration.seconds is None
    assert (plan.total.seconds, plan.total.unknown) == (None, 1)
    assert "unknown" in refresh_table(plan, 100)
    folder.write("r2", GPT2, versions=OLD)
    plan = folder.plan()
    assert (plan.total.unknown, len(plan.runnable)) == (0, 2)  # the overhead is that of another run
    folder.write("r3", VIT, versions=OLD, checks={VIT: 0})
    assert folder.plan().total.unknown == 1


# The command


@pytest.fixture
def ran(folder, monkeypatch) -> list[str]:
    """Runs are whole evidence of now, written at once; the cells that were run."""
    cells: list[str] = []

    def run(_asked, written, *_others) -> int:
        cells.extend(one.planned.cell.id for one in written)
        folder.write("r9", *cells)
        return 0

    monkeypatch.setattr(run_command, "run_suites", run)
    monkeypatch.setattr(refresh_command, "detect", lambda: folder.here)
    return cells


def test_the_rest_is_measured_again_and_what_stays_is_said(folder, ran, capsys):
    folder.write("r1", BERT, GPT2, ON_CUDA, versions=OLD)
    assert refresh_command.refresh(folder.asked(select=("bert/*",)), "command") == 0
    assert ran == [BERT]
    said = capsys.readouterr()
    assert "Refreshed   1 of 2 expired cell(s)" in said.out
    assert f"Expired     {ON_CUDA}: cuda isn't available here" in said.out
    assert refresh_command.refresh(folder.asked(models=("bert",), allow_fallback=True, dry_run=True), "command") == 0
    assert ran == [BERT]


def test_a_model_that_was_named_and_stays_expired_is_no_success(folder, ran):
    folder.write("r1", BERT, ON_CUDA, versions=OLD)
    assert refresh_command.refresh(folder.asked(models=("bert",)), "command") == 1
    assert ran == [BERT]


def test_nothing_expired_is_success_and_an_interruption_is_none(folder, ran, monkeypatch, capsys):
    folder.write("r1", BERT)
    assert refresh_command.refresh(folder.asked(), "command") == 0
    assert "Nothing has expired: 1 measured cell(s) are valid." in capsys.readouterr().out
    assert ran == []
    folder.write("r2", GPT2, versions=OLD)
    monkeypatch.setattr(run_command, "run_suites", lambda *_: INTERRUPTED)
    assert refresh_command.refresh(folder.asked(), "command") == INTERRUPTED
    assert "Refreshed" not in capsys.readouterr().out


def test_where_nothing_can_run_that_is_an_error(folder, ran):
    folder.write("r1", ON_CUDA, versions=OLD)
    with pytest.raises(NothingMatched, match="can be measured again here"):
        refresh_command.refresh(folder.asked(), "command")
    with pytest.raises(BackendUnavailable, match="cuda isn't available here"):
        refresh_command.refresh(folder.asked(devices=("cuda",)), "command")
    assert ran == []


def test_a_projects_tolerance_that_changed_is_measured_again_under_it(folder, ran, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder.write("r1", BERT, GPT2)
    (tmp_path / "hwcompat.toml").write_text(
        'schema_version = 1\n[[model]]\nname = "bert"\ntargets = ["cpu"]\n'
        '[[tolerance]]\ncells = "bert/*"\nlimit = 5e-8\nreason = "strict"\n'
    )
    asked = folder.asked(config=tmp_path / "hwcompat.toml", dims="tiny", allow_tiny=False, update_expected=False)
    assert refresh_command.refresh(asked, "command") == 0
    assert ran == [BERT]
