"""The benchmark of mutants: faults are made where they are said to be, and only what a test saw counts as killed."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.mutants.code.copies import Copy
from benchmarks.mutants.code.covering import Covering
from benchmarks.mutants.code.drawing import ROOT, CodeMutant, frozen
from benchmarks.mutants.code.killing import ask, ask_again
from benchmarks.mutants.code.operators import OPERATORS
from benchmarks.mutants.deceits.__main__ import Deceit, Result
from benchmarks.mutants.page import page
from benchmarks.mutants.results import Outcome

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


def test_each_operator_makes_its_faults_and_the_rest_of_the_text_stays() -> None:
    assert set(MADE) == set(OPERATORS)
    for name, operator in OPERATORS.items():
        text, parse = (CODE, ast.parse) if operator.suffix == ".py" else (DATA, tomllib.loads)
        edits = list(operator.sites(text))
        made = [text[: edit.start] + edit.text + text[edit.end :] for edit in edits]
        assert len(made) == len(MADE[name]), name
        for one, edit in zip(made, edits, strict=True):
            assert parse(one) != parse(text)
            assert len(one) - len(text) == len(edit.text) - (edit.end - edit.start)
        assert [wanted for wanted in MADE[name] if not any(wanted in one for one in made)] == [], name
    assert {edit.where for edit in OPERATORS["filter_gone"].sites(CODE)} == {"chosen"}
    assert [edit.where for edit in OPERATORS["level_raised"].sites(DATA)] == ["one", "two"]


def mutant(**changes: object) -> CodeMutant:
    values = {"name": "rules-01", "area": "rules", "side": "rules", "operator": "comparison_turned", "nth": 0}
    values |= {"file": "code.py", "where": "guarded", "old": "==", "new": "!="}
    return CodeMutant(**{**values, **changes})


def test_a_mutant_finds_its_site_where_lines_moved_and_is_made_for_a_while_only(tmp_path: Path) -> None:
    moved = "import os\n\n" + CODE
    assert mutant().line(moved) == CODE[: CODE.index("value == LIMIT")].count("\n") + 3
    assert "value != LIMIT" in (mutant().made(moved) or "")
    for changes in ({"where": "gone"}, {"nth": 1}, {"old": "is"}):
        assert mutant(**changes).made(CODE) is mutant(**changes).line(CODE) is None
    (tmp_path / "tree").mkdir()
    path = tmp_path / "tree" / "code.py"
    path.write_text(CODE)
    with Copy(tmp_path).with_fault(mutant()) as line:
        assert "value != LIMIT" in path.read_text()
        assert line is not None
    assert path.read_text() == CODE
    with Copy(tmp_path).with_fault(mutant(file="not-there.py")) as line:
        assert line is None


def test_there_are_255_frozen_in_every_area_and_all_find_their_site() -> None:
    mutants = frozen()
    assert len({one.name for one in mutants}) == len(mutants) == 255
    assert min(Counter(one.area for one in mutants).values()) >= 20
    gone = [one.name for one in mutants if one.made((ROOT / one.file).read_text()) is None]
    assert not gone, "their sites were rewritten: point them at the same fault in the code as it is now"


def test_the_page_counts_what_lives_and_what_is_no_proof_as_not_killed() -> None:
    code = {"bench": "code", "side": "rules", "operator": "and_or"}
    model = {"bench": "models", "side": "model", "operator": "", "site": "d"}
    text = page(
        [
            Outcome(**code, site="a", status="killed", by="test/unit/test_a.py::b"),
            Outcome(**code, site="b", status="survived", why="rules-02"),
            Outcome(bench="deceits", side="suite", operator="o", site="c", status="no effect"),
            *(Outcome(**model, status=status) for status in ("clean", "false alarm")),
        ]
    )
    assert "\n\n1 of 3 (33.3%) mutants are killed; 1 of 2 clean runs raise an alarm.\n\n" in text
    survivors = text.partition("## Survivors")[2]
    assert "rules-02: b" in survivors
    assert "no effect" in survivors
    for level, basis, took_effect, status in (
        ("high", "measured", True, "survived"),
        ("medium", "measured", True, "survived"),
        ("high", "expired", True, "killed"),
        ("none", "measured", True, "killed"),
        ("none", "measured", False, "no effect"),
    ):
        deceit = Deceit(name="d", side="suite", model="bert")
        found = Result(deceit=deceit, took_effect=took_effect, level=level, basis=basis, reason="", seconds=0.0)
        assert found.status == status, (level, basis, took_effect)


CHANCE = """
from pathlib import Path

def test_chance():
    note = Path(__file__).with_name("note")
    there = note.exists()
    note.touch()
    assert there

def test_sight():
    assert False
"""


def test_a_test_that_fails_once_has_seen_nothing(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    (copy.folder / "test").mkdir(parents=True)
    (copy.folder / "test" / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (copy.folder / "test" / "test_it.py").write_text(CHANCE, encoding="utf-8")
    (copy.folder / "it.py").write_text("x = 1 == 1\n", encoding="utf-8")
    one = mutant(name="it-01", file="it.py", where="the module")
    tests = [f"test/test_it.py::test_{name}" for name in ("chance", "sight")]
    answer = ask(copy, one, Covering({"it.py": {"1": [0, 1]}}, {}, tests), ())
    assert (answer.status, answer.by) == ("killed", tests[1])
    assert [ask_again(copy, one, f"test/test_it.py::test_{name}").status for name in ("sight", "gone")] == [
        "killed",
        "gone",
    ]
    with pytest.raises(RuntimeError, match="of other tests"):
        ask(copy, one, Covering({"it.py": {"1": [0]}}, {}, ["test/test_it.py::test_gone"]), ())
