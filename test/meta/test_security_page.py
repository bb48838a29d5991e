"""docs/SECURITY.md names a file for each defense and a test that shows it: all of them exist."""

from __future__ import annotations

import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "SECURITY.md").read_text(encoding="utf-8")
TEST = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
FILE = re.compile(r"`((?:hardware|generators|reports|hwcompat|test|benchmarks|templates)/[\w./-]+\.\w+)`")


@functools.cache
def _functions_of(name: str) -> set[str]:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "test").glob(f"*/{name}"))
    return set(re.findall(r"(?m)^def (test_\w+)\(", text))


def test_every_test_and_every_file_that_is_named_is_there() -> None:
    tests, files = TEST.findall(PAGE), FILE.findall(PAGE)
    assert len(tests) > 50
    assert len(files) > 30
    assert [f"{file}::{test}" for file, test in tests if test not in _functions_of(file)] == []
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_every_defense_has_its_file_and_its_test() -> None:
    for heading, defense, shown in (("Defenses", 1, 2), ("Inputs", 2, 3)):
        (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
        lines = [line for line in section.splitlines() if line.startswith("|")]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
        assert len(rows) > 10
        assert [row[0] for row in rows if not FILE.search(row[defense]) or not TEST.search(row[shown])] == []
