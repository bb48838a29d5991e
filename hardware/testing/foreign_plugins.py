"""Find plugins and conftest.py files that pytest loaded beside a suite and that could change what its checks mean.

Isolated suites load none. In a plain run of pytest, results beside an unknown plugin or conftest.py don't count.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

NAME = "conftest.py"

GENERATED = frozenset(
    {
        "5f989e3246a197d780d49aca1a08bc18a4042b066eaee2e0bbea21c02e569009",
        "e633850d5df00500879b1b9e72c993a4fc7e8bbc0836a1c759e3d2d028cf7c18",
        "226846ed2baf630d5d7d71a8139b7ab13117ef6f08963782c47e44682f798f6e",
        "8ce032cd20b6eb1483d87ea7c7d7f1b23d302e21417ad2233342b7f372bb2ab1",
        "3f3c853a85dcac1c5de7f21d6d38be5d0a9b1337c3d48f18f4081bd5190248f2",
    }
)
"""SHA-256 of each text that `templates/suite_conftest.py.j2` has had, newest first: folders keep theirs."""

HARMLESS_PLUGINS = frozenset(
    {
        *("anyio", "hypothesis", "platformdirs", "faker", "typeguard", "syrupy", "pytest-mock", "pytest-asyncio"),
        *("pytest-xdist", "pytest-timeout", "pytest-randomly", "pytest-order", "pytest-split", "pytest-benchmark"),
        *("pytest-cov", "pytest-html", "pytest-metadata", "pytest-json-report", "allure-pytest", "pytest-sugar"),
        *("pytest-rich", "pytest-clarity", "pytest-instafail", "pytest-github-actions-annotate-failures"),
    }
)
"""Distributions whose plugins distribute, time, order or report tests without changing outcomes. Plugins that repeat
failed tests, such as pytest-rerunfailures, aren't among them."""

_OURS = ("_pytest", "pytest", "hwcompat.hardware.testing")
_IMPORTS = frozenset({*sys.stdlib_module_names, "pytest", "numpy", "torch", "transformers", "diffusers"})
"""Modules that a harmless conftest.py may import: the standard library, and what suites import themselves."""
_FIXTURES = frozenset({"case", "fixture", "pytest", "request", "tmp_path", "tmp_path_factory"})
"""Fixtures that suites use and names that define fixtures: a conftest.py that redefines one changes checks."""


def unknown_plugins(manager: pytest.PytestPluginManager) -> tuple[str, ...]:
    """Return the loaded plugins, sorted, that are neither pytest's, nor ours, nor known to be harmless.

    Modules are loaded by `-p NAME`, `PYTEST_PLUGINS` or `pytest_plugins`, distributions by their entry points. Such a
    plugin can change any outcome. For conftest.py files see `strange_conftests`.
    """
    installed = {id(plugin): _plain(dist.project_name) for plugin, dist in manager.list_plugin_distinfo()}
    found = set()
    for plugin in manager.get_plugins():
        if (name := installed.get(id(plugin))) is not None:
            found |= {name} - HARMLESS_PLUGINS
        elif isinstance(plugin, ModuleType) and not _is_known(plugin):
            found.add(plugin.__name__)
    return tuple(sorted(found))


def _plain(distribution: str) -> str:
    return distribution.lower().replace("_", "-")


def _is_known(module: ModuleType) -> bool:
    name = module.__name__
    in_package = any(name == known or name.startswith(f"{known}.") for known in _OURS)
    return in_package or Path(getattr(module, "__file__", None) or "").name == NAME


def strange_conftests(suite: Path) -> tuple[Path, ...]:
    """Return the loaded conftest.py files that may change what checks of the suite at `suite` mean.

    First those beside and above it, nearest first, then those of other folders, whose hooks apply to the whole
    session. The generated file is harmless, and so is one without hooks, without autouse fixtures, without fixtures
    that suites use, and without calls on import. Isolated suites have none. pytest forgets the module of one
    conftest.py when it loads the next; the folder stays on Python's path.
    """
    loaded = {Path(name).resolve() for name in _files_of_modules() if Path(name).name == NAME}
    if not loaded:
        return ()
    folders = {Path(name).resolve() for name in sys.path if name}
    above = [folder / NAME for folder in suite.resolve().parents]
    near = [one for one in above if one in loaded or one.parent in folders]
    return tuple(one for one in dict.fromkeys([*near, *sorted(loaded)]) if _is_strange(one))


def _files_of_modules() -> list[str]:
    # Not getattr: some libraries' modules import when they are asked for what they don't have.
    found = (getattr(module, "__dict__", {}).get("__file__") for module in list(sys.modules.values()))
    return [name for name in found if isinstance(name, str)]


def _is_strange(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        text = path.read_text(encoding="utf-8")
        return digest_of_text(text) not in GENERATED and not is_harmless(text)
    except (OSError, UnicodeDecodeError):
        return True


def digest_of_text(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_harmless(text: str) -> bool:
    """Whether a conftest.py with this text can't change what checks mean; the text isn't executed."""
    try:
        return not any(_may_interfere(node) for node in _run_when_imported(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _run_when_imported(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run on import: all but the bodies of functions and plain fixtures."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = [one for one in child.decorator_list if not _is_plain_fixture(one)]
            yield from (ast.Call(func=one, args=[], keywords=[]) for one in decorators)
            yield from _run_when_imported(child.args)
            yield from _run_when_imported(ast.Expression(body=child.returns)) if child.returns else ()
        elif isinstance(child, ast.Lambda):
            yield from _run_when_imported(child.args)
        else:
            yield from _run_when_imported(child)


def _is_plain_fixture(decorator: ast.AST) -> bool:
    """Whether a decorator is `pytest.fixture` without arguments that make it autouse or rename it."""
    if isinstance(decorator, ast.Call):
        plain = all(keyword.arg in ("scope", "params", "ids") for keyword in decorator.keywords)
        inner = any(isinstance(node, ast.Call) for one in decorator.keywords for node in ast.walk(one.value))
        return plain and not inner and not decorator.args and _is_plain_fixture(decorator.func)
    return ast.unparse(decorator) in ("pytest.fixture", "fixture")


def _may_interfere(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name.startswith(("pytest_", "__")) or node.name in _FIXTURES
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] not in _IMPORTS for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        named = any((alias.asname or alias.name).startswith(("pytest_", "*")) for alias in node.names)
        return named or bool(node.level) or (node.module or "").partition(".")[0] not in _IMPORTS
    if isinstance(node, ast.Name):
        return isinstance(node.ctx, ast.Store) and node.id.startswith("pytest_")
    if isinstance(node, ast.Attribute | ast.Subscript):
        return not isinstance(node.ctx, ast.Load)  # it changes another module's object
    return isinstance(node, ast.Call | ast.Await | ast.ClassDef | ast.Match)
