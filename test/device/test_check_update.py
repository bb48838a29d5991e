"""Suites that are kept: what regenerating would change is said first, and a person's edits are never lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import REPOSITORY, CommandLine, Ran

pytestmark = pytest.mark.slow

NAMES = {
    "bert": "test_bert_fill_mask_cpu_float32.py",
    "vit": "test_vit_image_classification_cpu_float32.py",
    "gpt2": "test_gpt2_text_generation_cpu_float32.py",
}


@pytest.fixture(scope="module")
def made(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = [word for model in NAMES for word in ("--model", model)]
    ran = command_line.run(tmp_path_factory.mktemp("first"), *models, "--device", "cpu")
    assert ran.code == 0, ran.err
    return ran.suites


@pytest.fixture
def suites(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "suites")


def _states(ran: Ran) -> dict[str, str]:
    return {line.split()[1]: line.split()[0] for line in ran.out.splitlines()}


def _edit(suites: Path) -> str:
    path = suites / NAMES["vit"]
    text = path.read_text(encoding="utf-8").replace("PARAMETERS = ", "PARAMETERS = 1 + ")
    path.write_text(text, encoding="utf-8")
    return text


def _orphan(suites: Path) -> str:
    text = (suites / NAMES["gpt2"]).read_text(encoding="utf-8").replace('CELL = "gpt2/', 'CELL = "gptzwei/')
    (suites / NAMES["gpt2"]).write_text(text, encoding="utf-8")
    return text


def _templates(folder: Path) -> Path:
    folder.mkdir()
    text = (REPOSITORY / "templates" / "suite.py.j2").read_text(encoding="utf-8")
    (folder / "suite.py.j2").write_text(text + "\n# a house rule\n", encoding="utf-8")
    return folder


def test_every_state_is_told_and_nothing_is_touched(suites: Path, command_line: CommandLine, tmp_path: Path) -> None:
    ran = command_line.run(tmp_path / "check", "--check", suites)
    assert ran.code == 0
    assert _states(ran) == dict.fromkeys(NAMES.values(), "current")
    _edit(suites)
    _orphan(suites)
    before = {path.name: path.read_bytes() for path in suites.iterdir()}
    templates = _templates(tmp_path / "templates")
    ran = command_line.run(tmp_path / "check", "--check", suites, "--template-dir", templates)
    assert ran.code == 1
    assert _states(ran) == {NAMES["bert"]: "changed", NAMES["vit"]: "edited", NAMES["gpt2"]: "orphan"}
    assert "gptzwei" in ran.out  # why it is an orphan
    assert {path.name: path.read_bytes() for path in suites.iterdir()} == before


def test_update_writes_what_changed_and_spares_what_a_person_wrote(
    suites: Path, command_line: CommandLine, tmp_path: Path
) -> None:
    edited, orphan = _edit(suites), _orphan(suites)
    (suites / "test_of_my_own.py").write_text("def test_mine():\n    pass\n", encoding="utf-8")
    templates = _templates(tmp_path / "templates")
    ran = command_line.run(tmp_path / "update", "--update", suites, "--template-dir", templates)
    assert ran.code == 1  # something is left that a person has to look at
    assert "# a house rule" in (suites / NAMES["bert"]).read_text(encoding="utf-8")
    assert (suites / NAMES["vit"]).read_text(encoding="utf-8") == edited
    assert (suites / NAMES["gpt2"]).read_text(encoding="utf-8") == orphan
    assert (suites / "test_of_my_own.py").exists()


def test_an_edit_is_spared_and_overwritten_only_by_force(
    suites: Path, command_line: CommandLine, tmp_path: Path
) -> None:
    generated = (suites / NAMES["vit"]).read_text(encoding="utf-8")
    edited = _edit(suites)
    ran = command_line.run(tmp_path / "again", "--model", "vit", "--device", "cpu", "--output-dir", suites)
    assert ran.code == 0
    assert "was edited by hand and is left alone" in ran.err
    assert (suites / NAMES["vit"]).read_text(encoding="utf-8") == edited
    assert command_line.run(tmp_path / "force", "--update", suites, "--force").code == 0
    assert (suites / NAMES["vit"]).read_text(encoding="utf-8") == generated


def test_a_folder_without_suites_is_an_error(command_line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ran = command_line.run(tmp_path / "check", "--check", tmp_path / "empty")
    assert ran.code == 5
    assert "has no suites" in ran.error
    absent = command_line.run(tmp_path / "absent", "--check", tmp_path / "nothing")
    assert absent.code == 4
    assert "isn't a folder of suites" in absent.error
