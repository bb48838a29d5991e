"""What docs/reference/python.md lists is there, typed and described, and says so to whoever checks types."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LISTED = re.findall(r"(?m)^::: ([\w.]+)$", (ROOT / "docs/reference/python.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", LISTED)
def test_what_is_listed_is_typed_and_described(name: str) -> None:
    assert list(_lacking(*_found(name))) == []


@pytest.mark.parametrize("floor", ["hardware", "generators", "reports", "hwcompat"])
def test_each_floor_says_that_it_is_typed(floor: str) -> None:
    assert (ROOT / floor / "py.typed").is_file()


def _found(name: str) -> tuple[ast.AST, str]:
    """The module of a name, or the class in it."""
    path = ROOT / f"{name.replace('.', '/')}.py"
    if path.is_file():
        return ast.parse(path.read_text(encoding="utf-8")), name
    module, _, own = name.rpartition(".")
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    return next(one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == own), name


def _lacking(one: ast.AST, name: str) -> Iterator[str]:
    """What a module, a class or a function and all that is public in it lack."""
    if not name.endswith(".__init__") and ast.get_docstring(one) is None:  # type: ignore[arg-type]
        yield f"{name} says nothing of itself"
    if isinstance(one, ast.FunctionDef):
        own = one.args
        several = [every for every in (own.vararg, own.kwarg) if every]
        for each in (*own.posonlyargs, *own.args, *own.kwonlyargs, *several):
            if each.annotation is None and each.arg not in ("self", "cls"):
                yield f"{name}: {each.arg} has no type"
        if one.returns is None:
            yield f"{name} has no type of what it returns"
        return
    for part in one.body:  # type: ignore[attr-defined]
        if isinstance(part, ast.FunctionDef | ast.ClassDef) and (part.name[0] != "_" or part.name == "__init__"):
            yield from _lacking(part, f"{name}.{part.name}")
