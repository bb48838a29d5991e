"""Mutants of our own code: operators find their sites, frozen ones theirs again, and what became of them is told."""

from __future__ import annotations

import ast
import json
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.mutants.code import __main__ as command
from benchmarks.mutants.code import killing
from benchmarks.mutants.code.copies import Copy
from benchmarks.mutants.code.covering import Covering, beside
from benchmarks.mutants.code.drawing import ROOT, CodeMutant, frozen
from benchmarks.mutants.code.killing import Answer, Status, ask, ask_again
from benchmarks.mutants.code.operators import OPERATORS
from benchmarks.mutants.deceits.__main__ import Deceit, Result
from benchmarks.mutants.page import page
from benchmarks.mutants.results import Outcome
from hardware.errors import BrokenInput

CODE = '''"""A docstring with == in it."""
LIMIT = 2


def guarded(value: int, names: list[str]) -> bool:
    if value < 0 and names:
        raise ValueError("no")
    print(value)
    return value == LIMIT


def chosen(names: list[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name != "ä")


def found(name: str) -> str | None:
    return Outcome.FAILED if name is not None else None
'''
DATA = """[[rule]]
id = "one"
level = "low"
limit = 2e-5
of = ["a", "b"]

[[rule]]
id = "two"
at_most = "none"
"""
MADE = {
    "guard_never": ["if False:"],
    "guard_always": ["if True:"],
    "comparison_turned": ["value >= 0", "value != LIMIT", 'name == "ä"', "name is None"],
    "and_or": ["value < 0 or names"],
    "error_swallowed": ["names:\n        pass"],
    "call_dropped": ["    pass\n    return"],
    "called_better": ["Outcome.PASSED"],
    "filter_gone": ["in names if True)"],
    "answer_fixed": ["return True", "return False", "return None"],
    "item_lost": ['return (tuple(name for name in names if name != "ä"))[:-1]'],
    "number_tenfold": ["LIMIT = 20"],
    "table_lost": ["", ""],
    "level_raised": ['level = "high"', 'at_most = "high"'],
    "number_loosened": ["limit = 0.0002"],
    "list_narrowed": ['of = ["a"]'],
}


@pytest.mark.parametrize("name", OPERATORS)
def test_each_operator_makes_its_faults_and_the_rest_of_the_text_stays(name):
    text = CODE if OPERATORS[name].suffix == ".py" else DATA
    edits = list(OPERATORS[name].sites(text))
    assert len(edits) == len(MADE[name])
    for edit in edits:
        made = text[: edit.start] + edit.text + text[edit.end :]
        assert made != text
        assert any(one in made for one in MADE[name])
        assert len(made) - len(text) == len(edit.text) - (edit.end - edit.start)
        _ = ast.parse(made) if text is CODE else tomllib.loads(made)
    wanted = {one for one in MADE[name] if one}
    seen = {one for edit in edits for one in wanted if one in text[: edit.start] + edit.text + text[edit.end :]}
    assert seen == wanted


def test_a_site_is_named_by_its_function_or_table():
    (edit,) = OPERATORS["number_tenfold"].sites(CODE)
    assert edit.where == "the module"
    assert {edit.where for edit in OPERATORS["filter_gone"].sites(CODE)} == {"chosen"}
    assert [edit.where for edit in OPERATORS["table_lost"].sites(DATA)] == ["one", "two"]
    assert [edit.where for edit in OPERATORS["level_raised"].sites(DATA)] == ["one", "two"]


def mutant(**changes) -> CodeMutant:
    values = {
        "name": "rules-01",
        "area": "rules",
        "side": "rules",
        "operator": "comparison_turned",
        "file": "code.py",
        "where": "guarded",
        "nth": 0,
        "old": "==",
        "new": "!=",
    }
    return CodeMutant(**{**values, **changes})


def test_a_mutant_finds_its_site_where_lines_have_moved():
    moved = "import os\n\n" + CODE
    assert mutant().line(moved) == CODE[: CODE.index("value == LIMIT")].count("\n") + 3
    assert "value != LIMIT" in (mutant().made(moved) or "")


@pytest.mark.parametrize("changes", [{"where": "gone"}, {"nth": 1}, {"old": "is"}])
def test_one_whose_site_was_rewritten_is_gone(changes):
    assert mutant(**changes).made(CODE) is None
    assert mutant(**changes).line(CODE) is None


def test_a_fault_is_made_for_a_while_only(tmp_path):
    (tmp_path / "tree").mkdir()
    path = tmp_path / "tree" / "code.py"
    path.write_text(CODE)
    with Copy(tmp_path).with_fault(mutant()) as line:
        assert "value != LIMIT" in path.read_text()
        assert line is not None
    assert path.read_text() == CODE
    with Copy(tmp_path).with_fault(mutant(file="not-there.py")) as line:
        assert line is None


def test_there_are_255_frozen_in_every_area_and_most_still_find_their_site():
    mutants = frozen()
    assert len({one.name for one in mutants}) == len(mutants) == 255
    assert min(Counter(one.area for one in mutants).values()) >= 20
    assert {one.operator for one in mutants} == set(OPERATORS)
    there = [one for one in mutants if Path(ROOT / one.file).is_file() and one.made((ROOT / one.file).read_text())]
    assert len(there) >= 245, "too many sites were rewritten: the list says little of the code as it is"


def test_the_page_counts_what_lives_and_what_is_no_proof_as_not_killed():
    found = [
        Outcome(
            bench="code", side="rules", operator="and_or", site="a", status="killed", by="test/unit/test_a.py::b"
        ),
        Outcome(bench="code", side="rules", operator="and_or", site="b", status="survived", why="rules-02"),
        Outcome(bench="deceits", side="suite", operator="o", site="c", status="no effect"),
        Outcome(bench="models", side="model", operator="", site="d", status="clean"),
        Outcome(bench="models", side="model", operator="", site="d", status="false alarm"),
    ]
    text = page(found)
    assert "**1 of 3 (33.3%) mutants are killed; 1 of 2 clean runs raise an alarm.**" in text
    assert "| code    | test/unit/test_a.py |         1 |" in text
    survivors = text.partition("## Survivors")[2]
    assert "rules-02: b" in survivors
    assert "no effect" in survivors


def test_a_table_is_put_to_the_tests_of_the_python_beside_it():
    tests = {"a/rules.py": {"1": [0], "2": []}, "a/b/deep.py": {"1": [1]}, "c.py": {"1": [2]}}
    covering = Covering(tests, {"t.py::slow": 2.0}, ["t.py::slow", "t.py::deep", "t.py::other"])
    assert covering.beside("a/b/one.toml") == ["t.py::deep", "t.py::slow"]
    assert covering.ran("a/b/one.toml", 1)
    assert covering.ran("a/rules.py", 2), "as its module was imported"
    assert not covering.ran("a/rules.py", 3)


def test_what_some_tests_cover_is_measured_anew_and_the_rest_stays():
    before = {
        "tests": {"a.py": {"1": [0, 1], "2": []}},
        "names": ["t.py::old", "u.py::other"],
        "seconds": {"t.py::old": 1.0, "u.py::other": 2.0},
        "in_children": {"a.py": {"1": ["t.py", "u.py"]}},
    }
    found = {
        "tests": {"a.py": {"2": [0]}},
        "names": ["t.py::new"],
        "seconds": {"t.py::new": 3.0},
        "in_children": {"a.py": {"3": ["t.py"]}},
    }
    both = beside(before, found, ["t.py"])
    covering = Covering(both["tests"], both["seconds"], both["names"], both["in_children"])
    assert covering.of("a.py", 1) == ["u.py::other"]
    assert covering.of("a.py", 2) == ["t.py::new"]
    assert [covering.in_children("a.py", line) for line in (1, 3)] == [["u.py"], ["t.py"]]
    assert covering.seconds("t.py::new") == 3.0


def answer(name: str, status: Status) -> Answer:
    return Answer(mutant=name, status=status)


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ((Status.KILLED, Status.HUNG, Status.GONE), 0),
        ((Status.KILLED, Status.KILLED, Status.SURVIVED), 1),
        ((Status.KILLED, Status.GONE, Status.GONE), 1),
    ],
)
def test_what_was_seen_once_has_to_be_seen_again(tmp_path, monkeypatch, statuses, code):
    names = [one.name for one in frozen()[:3]]
    rows = [{"mutant": name, "status": "killed", "by": "test/unit/test_a.py::test_b"} for name in names]
    rows.append({"mutant": frozen()[3].name, "status": "killed", "by": "test/device/test_a.py::test_b"})
    path = tmp_path / "found.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    asked = []

    def answers(judge: object, order: list[CodeMutant]) -> list[Answer]:
        asked.extend(one.name for one in order)
        return [answer(name, status) for name, status in zip(names, statuses, strict=True)]

    monkeypatch.setattr(command, "_answers", answers)
    assert command.again.callback(results=path, drawn=24) == code
    assert sorted(asked) == sorted(names), "tests of whole runs take too long"
    path.write_text("no JSON", encoding="utf-8")
    with pytest.raises(BrokenInput, match=r"'found.jsonl' isn't what `run` writes"):
        command.again.callback(results=path, drawn=24)


def test_files_of_whole_runs_are_not_asked_where_only_near_tests_are(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(killing, "_run", lambda copy, tests, *_, **__: asked.append(list(tests)) or killing._Ended())
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "code.py").write_text(CODE)
    line = mutant().line(CODE)
    covering = Covering(
        {"code.py": {str(line): [0]}}, {}, ["t.py::near"], {"code.py": {str(line): ["test/whole.py"]}}
    )
    for near in (True, False):
        assert ask(Copy(tmp_path), mutant(), covering, ("test/other.py",), near=near).status == "survived"
    assert asked == [["t.py::near"], ["t.py::near"], ["test/whole.py"], ["test/other.py"]]


@pytest.mark.parametrize(
    ("level", "basis", "took_effect", "status"),
    [
        ("high", "measured", True, "survived"),
        ("medium", "measured", True, "survived"),
        ("high", "expired", True, "killed"),
        ("none", "measured", True, "killed"),
        ("none", "measured", False, "no effect"),
    ],
)
def test_a_deceit_lives_where_its_cell_is_said_to_work_here(level, basis, took_effect, status):
    deceit = Deceit(name="d", side="suite", model="bert")
    found = Result(deceit=deceit, took_effect=took_effect, level=level, basis=basis, reason="", seconds=0.0)
    assert found.status == status


CHANCE = """
from pathlib import Path

def test_chance():
    note = Path(__file__).with_name("note")
    there = note.exists()
    note.touch()
    assert there

def test_sight():
    assert {sight}
"""


@pytest.mark.parametrize(
    ("sight", "status"), [("False", "killed"), pytest.param("True", "survived", marks=pytest.mark.extended)]
)
def test_a_test_that_fails_once_has_seen_nothing(tmp_path, sight, status):
    copy = Copy(tmp_path)
    (copy.folder / "test").mkdir(parents=True)
    (copy.folder / "test" / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (copy.folder / "test" / "test_it.py").write_text(CHANCE.format(sight=sight), encoding="utf-8")
    (copy.folder / "it.py").write_text("x = 1 == 1\n", encoding="utf-8")
    mutant = CodeMutant(
        name="it-01",
        area="it",
        side="it",
        operator="comparison_turned",
        file="it.py",
        where="the module",
        nth=0,
        old="==",
        new="!=",
    )
    tests = ["test/test_it.py::test_chance", "test/test_it.py::test_sight"]
    answer = ask(copy, mutant, Covering({"it.py": {"1": [0, 1]}}, {}, tests), ())
    again = [ask_again(copy, mutant, f"test/test_it.py::test_{name}").status for name in ("sight", "gone")]
    assert again == [status, "gone"]
    with pytest.raises(RuntimeError, match="of other tests"):
        ask(copy, mutant, Covering({"it.py": {"1": [0]}}, {}, ["test/test_it.py::test_gone"]), ())
    with pytest.raises(RuntimeError, match="of other tests"):
        ask(copy, mutant, Covering({}, {}, [], {"it.py": {"1": ["test/test_gone.py"]}}), ())
    assert answer.status == status
    assert answer.by == ("test/test_it.py::test_sight" if status == "killed" else "")
