"""Suites on disk: a person's edits are never lost, and what regenerating would change is listed exactly.

The same request again: nothing is generated, and nothing counts as unchanged that isn't.
Reading what a suite says of itself: never by importing it, and never believing what isn't a suite.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from golden_suites import recipe_of
from recorded_machines import XEON, computer

from generators.suites.manifest import generation_key, remember, what_is_there
from generators.suites.render import render
from generators.suites.suite_files import (
    SuiteState,
    compare_folder,
    compare_suites,
    prepare_folder,
    regenerate,
    state_of,
    write_suite,
)
from hardware.cell import Cell
from hardware.detection import HardwareInfo, detect
from hardware.errors import BrokenInput, ModelError, OutputError
from hardware.target import Target
from hardware.testing.suite_file import is_edited, read_suite

NAME = "test_bert.py"


def suite_text(rule: str = "a.rule", target: str = "cpu") -> str:
    recipe = recipe_of("bert")
    return render(recipe, Cell(model="bert", task=recipe.task, target=Target.parse(target)), [rule])


OLD, NEW = suite_text("an.old.rule"), suite_text("a.new.rule")
MINE = OLD.replace("def make_model", "# my own remark\ndef make_model")


@pytest.fixture(scope="module")
def machine() -> HardwareInfo:
    return detect(computer(XEON))


def again(_: object) -> str:
    return NEW


def test_only_what_a_person_edited_stays_unless_it_is_forced(tmp_path):
    new, old = NEW.encode(), OLD.encode()
    edited = [b"", b"x = 1\n", old.replace(b"# generated", b"# was generated"), old + b"\n# more\n"]
    edited += [MINE.encode(), MINE.replace("\n", "\r\n").encode(), old + b"# \xff\n"]
    path = tmp_path / NAME
    for present, state in [(None, "new"), (new, "current"), (old, "changed"), *((one, "edited") for one in edited)]:
        path.unlink(missing_ok=True)
        if present is not None:
            path.write_bytes(present)
        assert state_of(path, NEW) == state
        assert write_suite(tmp_path, NAME, NEW) == state
        assert path.read_bytes() == (present if state == "edited" else new)
        assert write_suite(tmp_path, NAME, NEW, force=True) == ("edited" if state == "edited" else "current")
        assert path.read_bytes() == new
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_current_suite_is_not_touched(tmp_path):
    path = tmp_path / NAME
    write_suite(tmp_path, NAME, NEW)
    os.utime(path, (1, 1))
    assert write_suite(tmp_path, NAME, NEW, force=True) is SuiteState.CURRENT
    assert path.stat().st_mtime == 1


def test_a_folder_that_cannot_be_written_is_an_error_that_names_the_option(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="--output-dir"):
        prepare_folder(tmp_path / "file" / "suites")
    with pytest.raises(OutputError, match="--output-dir"):
        write_suite(tmp_path / "nowhere", NAME, NEW)


def test_a_prepared_folder_lets_plain_pytest_record_evidence_and_keeps_a_persons_conftest(tmp_path):
    conftest = tmp_path / "a" / "b" / "conftest.py"
    prepare_folder(conftest.parent)
    assert "hwcompat.hardware.testing.pytest_plugin" in conftest.read_text()
    conftest.write_text("# mine\n")
    prepare_folder(conftest.parent)
    assert conftest.read_text() == "# mine\n"


def test_each_suite_of_a_folder_is_compared_and_nothing_is_changed(tmp_path):
    write_suite(tmp_path, "test_a_current.py", NEW)
    write_suite(tmp_path, "test_b_changed.py", OLD)
    (tmp_path / "test_c_edited.py").write_text(MINE)
    (tmp_path / "test_d_own.py").write_text("def test_mine():\n    assert True\n")
    (tmp_path / "test_e_broken.py").write_text("def (\n")
    (tmp_path / "test_f_binary.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "helper.py").write_text("x = 1\n")
    prepare_folder(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    compared, texts = compare_folder(tmp_path, again)
    assert [(one.path.name, one.state) for one in compared] == [
        ("test_a_current.py", "current"),
        ("test_b_changed.py", "changed"),
        ("test_c_edited.py", "edited"),
        ("test_e_broken.py", "edited"),
        ("test_f_binary.py", "edited"),
    ]
    assert ["is not valid Python" in one.reason for one in compared] == [False] * 3 + [True] * 2
    assert set(texts) == {one.path for one in compared[:3]}
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(BrokenInput, match="isn't a folder of suites"):
        compare_folder(tmp_path / "none", again)


def test_a_suite_that_would_not_be_generated_any_more_is_an_orphan_with_the_reason(tmp_path):
    def gone(_: object) -> str:
        raise ModelError("'bert' is no model type")

    write_suite(tmp_path, NAME, OLD)
    (compared,), texts = compare_folder(tmp_path, gone)
    assert compared.state is SuiteState.ORPHAN
    assert "no model type" in compared.reason
    assert texts == {}


def test_suites_that_are_planned_and_not_there_are_new(tmp_path):
    planned = {"test_a.py": OLD, "test_b.py": NEW}
    write_suite(tmp_path, "test_a.py", OLD)
    state = compare_suites(tmp_path, again, planned=planned)
    assert state.exit_code == 1
    assert sum(line.startswith("new ") for line in state.lines) == 1
    assert compare_suites(tmp_path, again, planned=planned, update=True).exit_code == 0
    assert compare_suites(tmp_path, again, planned=planned).exit_code == 0


def test_a_suite_is_regenerated_from_what_it_says_of_itself(tmp_path, machine):
    path = tmp_path / NAME
    path.write_text(suite_text(target="openvino:NPU"))
    suite = read_suite(path)
    assert suite is not None
    text = regenerate(suite, machine)
    assert not is_edited(text)
    path.write_text(text)
    assert read_suite(path).cell == suite.cell  # type: ignore[union-attr]


def test_a_checkpoints_suite_cannot_be_regenerated_and_says_what_to_do(tmp_path, machine):
    path = Path(tmp_path / NAME)
    path.write_text('CELL = "my-bert/fill-mask/cpu/float32"\nSUBJECT = "checkpoint"\n')
    suite = read_suite(path)
    assert suite is not None
    with pytest.raises(ModelError, match="--model FOLDER"):
        regenerate(suite, machine)


ASKED = {"request": [["bert"], ["cpu"]]}
MACHINE = {"host": {"system": "Linux"}, "memory": {"total_bytes": 8, "available_bytes": 3}}


@pytest.mark.parametrize("change", ["none", "key", "edited", "deleted", "manifest"])
def test_what_was_written_is_found_again_unless_anything_differs(tmp_path, monkeypatch, change):
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))
    suite = tmp_path / "test_a.py"
    suite.write_text("a = 1\n")
    remember(tmp_path, "key", {"test_a.py": "(high, predicted)"}, ["no suite for b"])
    if change == "edited":
        suite.write_text("a = 2\n")
    elif change == "deleted":
        suite.unlink()
    elif change == "manifest":
        next((tmp_path / "cache" / "generated").iterdir()).write_text("{broken")
    found = what_is_there(tmp_path, "other" if change == "key" else "key")
    assert found == (({"test_a.py": "(high, predicted)"}, ["no suite for b"]) if change == "none" else None)


def test_the_key_follows_request_machine_recipes_and_templates_but_not_free_memory(tmp_path):
    recipes, templates = tmp_path / "recipes", tmp_path / "templates"
    for folder, name in ((recipes, "bert.json"), (templates, "suite.py.j2")):
        folder.mkdir()
        (folder / name).write_text("{}")

    def key(asked=ASKED, machine=MACHINE, own=None):
        return generation_key(asked, machine, [recipes], own)

    before = key()
    assert key() == key(machine={**MACHINE, "memory": {"total_bytes": 8, "available_bytes": 1}}) == before
    assert key(asked={"request": [["gpt2"], ["cpu"]]}) != before
    assert key(machine={**MACHINE, "host": {"system": "Darwin"}}) != before
    assert key(own=templates) != before
    os.utime(recipes / "bert.json", ns=(1, 1))  # a file of the same size counts by its time
    touched = key()
    (recipes / "bert.json").write_text("{ }")
    os.utime(recipes / "bert.json", ns=(1, 1))
    assert len({before, touched, key()}) == 3


SUITE = """\
import nothing_that_exists
from transformers import BertConfig, BertForMaskedLM

CELL = "bert/fill-mask/cpu/float32"
WEIGHTS = "tiny"
ARCHITECTURE = "encoder-only"
CONFIG_HASH = "abc"


def make_model():
    raise SystemExit("must never run")


def test_builds(case):
    pass


def test_backward(case):
    pass
"""
OTHERS = (b"", b"x = 1\n", b"CELL = 3\n", b"CELL = f'{1}'\n", b"def test_mine(): pass\n")
BROKEN = (
    *(b"def (", b"\xff\xfe\x00", b"x = 1\0", b"CELL = 'bert'\n", b"CELL = '../../x/y/z'\n", b"(" * 5000),
    b"x = " + b"-" * 100_000 + b"1\n",
)


def test_a_suite_is_read_without_running_it(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text(SUITE)
    found = read_suite(path)
    assert found is not None
    assert found.cell.id == "bert/fill-mask/cpu/float32"
    assert found.checks == ("builds", "backward")
    assert (found.subject, found.architecture, found.config_hash) == ("tiny", "encoder-only", "abc")
    assert found.model_revision is None
    assert found.library_names == ("BertConfig", "BertForMaskedLM")
    planned = found.planned({"level": "high"})
    assert (planned.suite, planned.checks) == ("test_x.py", found.checks)  # the file, and not its folder
    assert planned.verdict == {"level": "high"}
    path.write_text(SUITE + "\n")
    after = read_suite(path)
    assert after is not None
    assert found.suite_hash != after.suite_hash


def test_a_persons_own_test_file_is_no_suite_and_a_broken_suite_is_named(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    for data in OTHERS:
        path.write_bytes(data)
        assert read_suite(path) is None, data
    for data in BROKEN:
        path.write_bytes(data)
        with pytest.raises(BrokenInput, match=r"the suite test_x\.py"):
            read_suite(path)
