"""Priorities of model types: `high` is listed in priority.toml, the others are read from the installed libraries."""

from __future__ import annotations

import ast
import functools
import importlib.util
import tomllib
from collections.abc import Iterable
from pathlib import Path

PRIORITIES = ("high", "medium", "low", "all")

_REGISTER = "register_in_tasks_manager"


def types_of_priority(priority: str | None) -> tuple[str, ...]:
    """Return the model types of a priority that have a class, in the order of `priority.toml` or by name."""
    if priority is None:
        return ()
    from .model_libraries import catalog_of, usable_types

    with_class = [name for name in usable_types() if catalog_of(name).tasks_of(name)]
    high = [name for name in _high() if name in with_class]
    medium = [name for name in with_class if name in (openvino_exporters() or ()) and name not in high]
    low = [name for name in with_class if name not in high and name not in medium]
    parts = {"high": high, "medium": medium, "low": low, "all": [*high, *medium, *low]}
    return tuple(parts[priority])


@functools.cache
def _high() -> tuple[str, ...]:
    with Path(__file__).with_name("priority.toml").open("rb") as file:
        return tuple(tomllib.load(file)["high"])


@functools.cache
def openvino_exporters() -> frozenset[str] | None:
    """Return the model types with an OpenVINO exporter in optimum-intel, read from its source without importing it.

    Return None if it isn't installed.
    """
    package = importlib.util.find_spec("optimum")
    for folder in (package.submodule_search_locations or ()) if package else ():
        source = Path(folder, "exporters/openvino/model_configs.py")
        if source.is_file():
            return frozenset(_registered(ast.parse(source.read_text(encoding="utf-8"))))
    return None


def _registered(tree: ast.Module) -> Iterable[str]:
    """Yield the first argument of each decorator that registers an exporter; types may have hyphens there."""
    for node in tree.body:
        for call in getattr(node, "decorator_list", ()):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == _REGISTER and call.args:
                name = call.args[0]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield name.value
                    yield name.value.replace("-", "_")
