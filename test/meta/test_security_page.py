"""docs/SECURITY.md names a file for each defence and a test that shows it: all of them are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "SECURITY.md").read_text(encoding="utf-8")
TEST = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
FILE = re.compile(r"`((?:hardware|generators|reports|hwcompat|test|benchmarks|templates)/[\w./-]+\.\w+)`")


def rows(heading: str) -> list[list[str]]:
    """The cells of each row of the table below a heading, without the head."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def functions_of(name: str) -> set[str]:
    (path,) = (ROOT / "test").rglob(name)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_test_that_is_named_is_there():
    named = TEST.findall(PAGE)
    assert len(named) > 50
    assert [f"{file}::{test}" for file, test in named if test not in functions_of(file)] == []


def test_every_file_that_is_named_is_there():
    named = FILE.findall(PAGE)
    assert len(named) > 30
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(("heading", "defence", "shown"), [("What defends", 1, 2), ("Inputs", 2, 3)])
def test_every_defence_has_its_file_and_its_test(heading, defence, shown):
    found = rows(heading)
    assert len(found) > 10
    assert [row[0] for row in found if not FILE.search(row[defence])] == []
    assert [row[0] for row in found if not TEST.search(row[shown])] == []
