"""Suites on disk: a person's edits are never lost, and what regenerating would change is told exactly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from generators.models.recipe import read_recipe
from generators.models.recipe_store import SHIPPED
from generators.suites.render import render
from generators.suites.suite_files import (
    SuiteState,
    compare_folder,
    prepare_folder,
    regenerate,
    state_of,
    write_suite,
)
from hardware.cell import Cell
from hardware.detection import detect
from hardware.errors import BrokenInput, ModelError, OutputError
from hardware.target import Target
from hardware.testing.suite_file import is_edited, read_suite

NAME = "test_bert.py"


def suite_text(rule: str = "a.rule", model_type: str = "bert", target: str = "cpu") -> str:
    recipe = read_recipe(SHIPPED / "5.5.4" / f"{model_type}.json")
    return render(recipe, Cell(model=model_type, task=recipe.task, target=Target.parse(target)), [rule])


OLD, NEW = suite_text("an.old.rule"), suite_text("a.new.rule")
MINE = OLD.replace("def make_model", "# my own remark\ndef make_model")


def again(_: object) -> str:
    return NEW


@pytest.mark.parametrize(
    ("present", "state"),
    [(None, "new"), (NEW, "current"), (OLD, "changed"), (MINE, "edited"), ("", "edited"), ("x = 1\n", "edited")],
)
def test_the_state_of_a_file(tmp_path, present, state):
    if present is not None:
        (tmp_path / NAME).write_text(present)
    assert state_of(tmp_path / NAME, NEW) == state


def test_a_file_that_is_not_utf8_counts_as_a_persons(tmp_path):
    (tmp_path / NAME).write_bytes(OLD.encode() + b"# \xff\n")
    assert state_of(tmp_path / NAME, NEW) is SuiteState.EDITED
    assert write_suite(tmp_path, NAME, NEW) is SuiteState.EDITED
    assert b"\xff" in (tmp_path / NAME).read_bytes()


@pytest.mark.parametrize("present", [None, OLD])
def test_a_suite_that_nobody_edited_is_written(tmp_path, present):
    if present is not None:
        (tmp_path / NAME).write_text(present)
    write_suite(tmp_path, NAME, NEW)
    assert (tmp_path / NAME).read_bytes() == NEW.encode()
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize(
    "mine", [MINE, "", "x = 1\n", OLD.replace("# generated", "# was generated"), OLD + "\n# more\n"]
)
def test_a_suite_that_a_person_edited_stays_unless_forced(tmp_path, mine):
    path = tmp_path / NAME
    path.write_text(mine)
    assert write_suite(tmp_path, NAME, NEW) is SuiteState.EDITED
    assert path.read_text() == mine
    assert write_suite(tmp_path, NAME, NEW, force=True) is SuiteState.EDITED
    assert path.read_text() == NEW


def test_a_current_suite_is_not_touched(tmp_path):
    path = tmp_path / NAME
    write_suite(tmp_path, NAME, NEW)
    os.utime(path, (1, 1))
    assert write_suite(tmp_path, NAME, NEW, force=True) is SuiteState.CURRENT
    assert path.stat().st_mtime == 1


def test_windows_line_ends_are_no_edit_that_is_lost(tmp_path):
    path = tmp_path / NAME
    path.write_bytes(MINE.replace("\n", "\r\n").encode())
    assert write_suite(tmp_path, NAME, NEW) is SuiteState.EDITED


def test_a_folder_that_cannot_be_written_is_an_error_that_names_the_option(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="--output-dir"):
        prepare_folder(tmp_path / "file" / "suites")
    with pytest.raises(OutputError, match="--output-dir"):
        write_suite(tmp_path / "nowhere", NAME, NEW)


def test_a_prepared_folder_lets_plain_pytest_record_evidence(tmp_path):
    prepare_folder(tmp_path / "a" / "b")
    assert "hardware.testing.pytest_plugin" in (tmp_path / "a" / "b" / "conftest.py").read_text()


def test_a_persons_conftest_stays(tmp_path):
    (tmp_path / "conftest.py").write_text("# mine\n")
    prepare_folder(tmp_path)
    assert (tmp_path / "conftest.py").read_text() == "# mine\n"


def test_each_suite_of_a_folder_is_compared_and_nothing_else(tmp_path):
    write_suite(tmp_path, "test_a_current.py", NEW)
    write_suite(tmp_path, "test_b_changed.py", OLD)
    (tmp_path / "test_c_edited.py").write_text(MINE)
    (tmp_path / "test_d_own.py").write_text("def test_mine():\n    assert True\n")
    (tmp_path / "helper.py").write_text("x = 1\n")
    prepare_folder(tmp_path)
    compared, texts = compare_folder(tmp_path, again)
    assert [(one.path.name, one.state) for one in compared] == [
        ("test_a_current.py", "current"),
        ("test_b_changed.py", "changed"),
        ("test_c_edited.py", "edited"),
    ]
    assert set(texts) == {one.path for one in compared}


def test_a_suite_that_nothing_would_generate_any_more_is_an_orphan_with_the_reason(tmp_path):
    def gone(_: object) -> str:
        raise ModelError("'bert' is no model type")

    write_suite(tmp_path, NAME, OLD)
    (compared,), texts = compare_folder(tmp_path, gone)
    assert compared.state is SuiteState.ORPHAN
    assert "no model type" in compared.reason
    assert texts == {}


def test_a_suite_that_does_not_parse_is_a_persons_with_the_reason(tmp_path):
    (tmp_path / "test_a.py").write_text("def (\n")
    (tmp_path / "test_b.py").write_bytes(b"\xff\xfe\x00")
    write_suite(tmp_path, "test_c.py", NEW)
    compared, texts = compare_folder(tmp_path, again)
    assert [one.state for one in compared] == ["edited", "edited", "current"]
    assert all("is no Python" in one.reason for one in compared[:2])
    assert len(texts) == 1


def test_comparing_changes_nothing(tmp_path):
    (tmp_path / NAME).write_text(MINE)
    write_suite(tmp_path, "test_old.py", OLD)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    compare_folder(tmp_path, again)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(BrokenInput, match="no folder of suites"):
        compare_folder(tmp_path / "none", again)


def test_a_suite_is_regenerated_from_what_it_says_of_itself(tmp_path):
    path = tmp_path / NAME
    path.write_text(suite_text(target="openvino:NPU"))
    suite = read_suite(path)
    assert suite is not None
    text = regenerate(suite, detect())
    assert not is_edited(text)
    path.write_text(text)
    assert read_suite(path).cell == suite.cell  # type: ignore[union-attr]


def test_a_checkpoints_suite_cannot_be_regenerated_and_says_what_to_do(tmp_path):
    path = Path(tmp_path / NAME)
    path.write_text('CELL = "my-bert/fill-mask/cpu/float32"\nSUBJECT = "checkpoint"\n')
    suite = read_suite(path)
    assert suite is not None
    with pytest.raises(ModelError, match="--model FOLDER"):
        regenerate(suite, detect())
