"""The part of a suite that builds its model, as it stands there: a person reads the same code in both."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hardware.errors import UsageError

_START = "make_model"
_OF_CHECKPOINTS = frozenset({"load_checkpoint", "checkpoint_folder"})


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """`imports` and `code` that define `make_model`. `checkpoint` is the class whose weights are somebody's own; then
    there is no code."""

    imports: tuple[str, ...]
    code: str
    checkpoint: str = ""


def model_source(text: str) -> ModelSource:
    """What `make_model` of a suite needs, and nothing else.

    Raises `UsageError` where it needs a package that isn't a public library of models.
    """
    tree = ast.parse(text)
    defined = {name: node for node in tree.body for name in _names_of(node)}
    wanted = [_START]
    taken: dict[int, ast.stmt] = {}
    while wanted:
        node = defined.get(wanted.pop())
        if node is None or id(node) in taken:
            continue
        taken[id(node)] = node
        wanted += [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
    nodes = sorted(taken.values(), key=lambda node: node.lineno)
    used = {one.id for node in nodes for one in ast.walk(node) if isinstance(one, ast.Name)}
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    if used & _OF_CHECKPOINTS:
        library = [node for node in imports if _package(node) == "transformers"]
        returned = ast.unparse(tree.body[tree.body.index(defined[_START])]).partition("load_checkpoint(")[2]
        return ModelSource(
            imports=tuple(_narrowed(node, used) for node in library), code="", checkpoint=returned.partition(",")[0]
        )
    for node in imports:
        if (package := _package(node)) not in ("transformers", "diffusers", "copy", "torch"):
            raise UsageError(
                "no script can stand alone for this model",
                why=f"it is made by {package}, which isn't a public library of models",
                fix="The failing suite itself is the shortest way to show it.",
            )
    code = [_segment(text, node) for node in nodes if node not in imports]
    return ModelSource(imports=tuple(_narrowed(node, used) for node in imports), code="\n\n\n".join(code))


def _names_of(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)
    elif isinstance(node, ast.Assign):
        yield from (one.id for one in node.targets if isinstance(one, ast.Name))
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name


def _package(node: ast.Import | ast.ImportFrom) -> str:
    module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
    return (module or "").partition(".")[0]


def _narrowed(node: ast.Import | ast.ImportFrom, used: set[str]) -> str:
    if isinstance(node, ast.Import):
        return ast.unparse(node)
    names = [alias.name for alias in node.names if (alias.asname or alias.name) in used]
    return f"from {node.module} import {', '.join(names)}"


def _segment(text: str, node: ast.stmt) -> str:
    return "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])
