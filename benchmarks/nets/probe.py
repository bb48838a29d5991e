"""The child process that queries the product: `python -P probe.py lines|names ROOT ANSWERS`, with requests on
standard input.

`lines` runs many command lines in one process, because importing the product takes longer than most answers.
`names` describes public names. Both write JSON to the file ANSWERS. Only the standard library is used here.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import json
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

PRODUCT = ("hardware", "generators", "reports", "hwcompat")
"""Packages whose members count; members inherited from other packages don't."""


def answer(root: Path, line: list[str]) -> list[Any]:
    """Run one command line as `__main__`; return its exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if line[0] == "-m":
                sys.argv = line[1:]
                runpy.run_module(line[1], run_name="__main__", alter_sys=True)
            else:
                sys.argv = [str(root / line[0]), *line[1:]]
                runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
            code = 3
    number = 0 if code is None else code if isinstance(code, int) else 1
    return [number, out.getvalue(), err.getvalue()]


def parameters(thing: Any) -> str | None:
    """Return the parameter names of a callable: `=` after one with a default, `*` before keyword-only ones."""
    try:
        found = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return None
    texts: list[str] = []
    for one in found:
        if one.kind is one.KEYWORD_ONLY and not any(text.startswith("*") for text in texts):
            texts.append("*")
        stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        texts.append(f"{stars}{one.name}{'=' if one.default is not one.empty else ''}")
    return ", ".join(texts)


def members(owner: type) -> dict[str, Any]:
    """Return the public members of a class with its annotated fields, without those of other packages."""
    found: dict[str, Any] = {}
    for base in owner.__mro__:
        if base.__module__.partition(".")[0] not in PRODUCT:
            continue
        fields = dict.fromkeys(inspect.get_annotations(base), "field")
        for name, value in (fields | dict(vars(base))).items():
            if not name.startswith("_") or name in ("_setup_environment", "_check_availability", "_get_device_info"):
                found.setdefault(name, described(getattr(owner, name, value) if callable(value) else value))
    return found


def described(thing: Any) -> dict[str, Any]:
    """Return whether an object is callable, and its parameters."""
    if isinstance(thing, (staticmethod, classmethod)):
        thing = thing.__func__
    if inspect.isclass(thing):
        return {"kind": "class"}
    if callable(thing):
        return {"kind": "function", "parameters": parameters(thing)}
    return {"kind": "value"}


def named(module: str, name: str) -> dict[str, Any]:
    """Describe a public name and its members by name; a missing name has the reason."""
    try:
        thing = getattr(importlib.import_module(module), name)
    except Exception as error:
        return {"": {"kind": f"missing: {type(error).__name__}"}}
    found = {"": described(thing)}
    if inspect.isclass(thing):
        found |= members(thing)
        if "__init__" in vars(thing) and vars(thing)["__init__"].__module__.partition(".")[0] in PRODUCT:
            found[""] = {"kind": "class", "parameters": parameters(thing)}
    return found


def main() -> None:
    """Answer all requests of standard input."""
    what, root, answers = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    questions = json.load(sys.stdin)
    with answers.open("w", encoding="utf-8") as file:
        for question in questions:
            found = answer(root, question) if what == "lines" else named(*question)
            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
