"""What docs/reference/python.md lists exists, has types and docstrings, and each package says that it is typed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_listed_is_typed_and_described() -> None:
    listed = re.findall(r"(?m)^::: ([\w.]+)$", (ROOT / "docs/reference/python.md").read_text(encoding="utf-8"))
    assert len(listed) > 20
    assert [lack for name in listed for lack in _lacking(_found(name), name)] == []
    packages = ("hardware", "generators", "reports", "hwcompat")
    assert [one for one in packages if not (ROOT / one / "py.typed").is_file()] == []


def _found(name: str) -> ast.AST:
    """The module of a name, or the class in it."""
    path = _path(name)
    if path.is_file():
        return ast.parse(path.read_text(encoding="utf-8"))
    module, _, own = name.rpartition(".")
    tree = ast.parse(_path(module).read_text(encoding="utf-8"))
    return next(one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == own)


def _path(module: str) -> Path:
    """The file of a module in the checkout, where the packages lie beside `hwcompat`."""
    beside = re.sub(r"^hwcompat\.(?=(hardware|generators|reports)\.)", "", module)
    path = ROOT / beside.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_name(f"{path.name}.py")


def _lacking(one: ast.AST, name: str) -> Iterator[str]:
    """What a module, a class or a function and all that is public in it lack."""
    if not name.endswith(".__init__") and ast.get_docstring(one) is None:  # type: ignore[arg-type]
        yield f"{name} has no docstring"
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
