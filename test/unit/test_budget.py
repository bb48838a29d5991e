"""The budget of lines and words: what is counted, and that too much fails."""

from __future__ import annotations

import pytest

from benchmarks import budget
from benchmarks.budget import Part, read_budget, rooms, too_large

CODE = Part(name="code", what="lines", limit=3, goal=1, files=["*.py"], not_files=["test/*"], reason="so")
WORDS = Part(name="pages", what="words", limit=9, goal=1, files=["docs/*.md"], reason="so")


def test_files_are_counted_by_folder_and_pages_that_a_command_made_are_not(tmp_path):
    files = {
        "a/b/c.py": "1\n2\n",
        "a/b/d.py": "3\n",
        "test/x.py": "4\n",
        "docs/hand.md": "two words",
        "docs/made.md": "# Page\n\nMade by `python -m x`.\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [(one.name, one.files, one.count) for one in rooms(CODE, [*files], tmp_path)] == [("a/b", 2, 3)]
    assert [(one.name, one.count) for one in rooms(WORDS, [*files], tmp_path)] == [("docs", 2)]


def test_a_part_beyond_its_limit_fails_and_says_by_how_much(monkeypatch, capsys):
    assert too_large(CODE, 3) == ""
    assert too_large(CODE, 5).startswith("code: 5 lines, 2 over the limit of 3.")
    monkeypatch.setattr(budget, "read_budget", lambda: (Part(**{**vars(CODE), "limit": 0}),))
    assert budget.main() == 1
    assert "over the limit of 0" in capsys.readouterr().err


def test_each_limit_has_a_reason(tmp_path):
    assert {one.name for one in read_budget()} == {"product", "tests", "benchmarks", "documentation"}
    (tmp_path / "budget.toml").write_text(
        '[code]\nwhat = "lines"\nlimit = 1\ngoal = 1\nfiles = ["*.py"]\nreason = " "\n'
    )
    with pytest.raises(ValueError, match="code has no reason"):
        read_budget(tmp_path / "budget.toml")
