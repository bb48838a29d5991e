"""The structure of the product, read from its source: imports, processes, names, sizes, contracts, data files."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import jsonschema

from hardware.backends.base import BaseBackend
from hardware.backends.factory import backend_class, built_in_targets
from hardware.cell import PRECISIONS
from hardware.evidence.versions import RELEASE
from hardware.target import Target
from hardware.testing.tolerances import load_tolerances, tolerance_for

ROOT = Path(__file__).parents[2]
PACKAGES = ("hardware", "generators", "reports", "hwcompat")
HEAVY = (
    *("torch", "transformers", "openvino", "optimum", "nncf", "duckdb", "pandas", "jsonschema", "pynvml", "onnx"),
    *("onnxruntime", "scipy", "sklearn", "ray", "fsspec", "s3fs", "diffusers", "playwright"),
)
LONGEST_FILE, LONGEST_FUNCTION = 400, 60


def product_files() -> list[Path]:
    inside = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [*inside, *sorted(ROOT.glob("*.py"))]


def files_of_tests() -> list[Path]:
    """All test files but the golden suites, which are output."""
    return [path for path in sorted((ROOT / "test").rglob("test_*.py")) if "suites" not in path.parts]


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


STARTING = {"subprocess", "multiprocessing", "pty", "popen2"}
STARTING_CALL = re.compile(
    r"os\.(fork|forkpty|exec\w*|posix_spawn\w*|spawn\w+|system|popen)|asyncio\.create_subprocess_\w+"
    r"|(.*\.)?ProcessPoolExecutor"
)
MAY_START = {
    "hardware/process.py": "it is what starts child processes",
    "hwcompat/plugins/fleet/lab_remote.py": "its text is sent to a lab machine that has none of our code",
    "hwcompat/plugins/fleet/ray_node.py": "it is sent by value to a Ray node that has none of our code",
}
"""The product files that may start a process themselves, each with the reason."""


def _starts_processes(tree: ast.AST) -> bool:
    """Whether code imports a module that starts processes, or names a function that does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = str(node.module)
            names = [module.partition(".")[0], *(f"{module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Name | ast.Attribute):
            names = [ast.unparse(node)]
        else:
            continue
        if any(name in STARTING or STARTING_CALL.fullmatch(name) for name in names):
            return True
    return False


def test_one_module_starts_child_processes() -> None:
    """So that limits, deadlines and ends have one implementation."""
    starting = {name_of(path) for path in product_files() if _starts_processes(tree_of(path))}
    assert starting == set(MAY_START)


def test_a_module_that_starts_processes_is_seen() -> None:
    lines = [
        "import subprocess",
        "from subprocess import run",
        "import multiprocessing.connection",
        "from os import fork",
        "import os; os.execvp('x', ['x'])",
        "import asyncio; asyncio.create_subprocess_exec('x')",
        "from concurrent.futures import ProcessPoolExecutor",
    ]
    assert [line for line in lines if not _starts_processes(ast.parse(f"def work():\n    {line}"))] == []


def test_hardware_imports_itself_relatively_so_that_it_can_travel_alone() -> None:
    wrong = [
        f"{name_of(path)}:{node.lineno}"
        for path in sorted((ROOT / "hardware").rglob("*.py"))
        for node in ast.walk(tree_of(path))
        for name in _absolute_imports(node)
        if name.partition(".")[0] in PACKAGES and name not in ("hwcompat", "hwcompat.checkout", "hwcompat.cli")
    ]
    assert wrong == []


def _absolute_imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [] if node.level else [str(node.module)]
    return [one.name for one in node.names] if isinstance(node, ast.Import) else []


def _ends_the_process(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise) and node.exc:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return ast.unparse(raised) == "SystemExit"
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("exit", "quit", "sys.exit")


def _is_command(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any("command" in ast.unparse(one) for one in node.decorator_list)


def test_only_command_lines_end_the_process() -> None:
    """A module may below `if __name__ == "__main__"` and in a function that is a command."""
    wrong = []
    for path in product_files():
        body = tree_of(path).body
        allowed = [n for n in body if _is_command(n) or (isinstance(n, ast.If) and "__name__" in ast.unparse(n.test))]
        inside = {id(inner) for node in allowed for inner in ast.walk(node)}
        ends = [node for node in ast.walk(tree_of(path)) if _ends_the_process(node) and id(node) not in inside]
        wrong += [f"{name_of(path)}:{node.lineno}" for node in ends]  # type: ignore[attr-defined]
    assert wrong == []


def test_modules_and_classes_have_one_name_each() -> None:
    """No name of a module or of a class means two things. Names with a leading underscore are free."""
    inside = [path for path in product_files() if path.parent != ROOT]
    modules = Counter(path.stem for path in inside if not path.stem.startswith("_"))
    classes = Counter(
        node.name
        for path in inside
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in (modules + classes).items() if count > 1] == []


IMPORT_EACH = """
import importlib, sys
names, heavy = eval(sys.stdin.read())
for name in names:
    before = set(heavy) & set(sys.modules)
    try:
        importlib.import_module(name)
    except Exception as error:
        print(name, repr(error))
    if brought := set(heavy) & set(sys.modules) - before:
        print(name, "imports", *sorted(brought))
"""


def _wrong_imports(names: Sequence[str], heavy: Sequence[str] = HEAVY) -> list[str]:
    """The modules that can't be imported, and those that are the first to import something heavy."""
    return _python(IMPORT_EACH, repr((list(names), list(heavy))))


def _python(code: str, answer: str = "") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], input=answer, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.splitlines()


def _modules() -> Iterator[str]:
    for path in product_files():
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] != "__main__":
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_importing_any_module_imports_nothing_heavy() -> None:
    """One process imports all: there is no circle among imports (`make lint`), so the order doesn't matter."""
    assert _wrong_imports(list(_modules())) == []


def test_the_commands_start_without_numpy() -> None:
    commands = ["run_test_generation", "hardware_compatibility_reporter", "hwcompat.cli.main_program"]
    assert _wrong_imports(commands, ["numpy"]) == []


def test_a_module_that_imports_something_heavy_is_seen() -> None:
    found = _wrong_imports(["hardware.cell", "pandas", "no_such_module"])
    assert [line.split()[0] for line in found] == ["pandas", "no_such_module"]


def test_generating_a_suite_whose_recipe_is_known_imports_no_framework(tmp_path: Path) -> None:
    code = f"""
import runpy, sys
sys.argv = ["hwcompat", "generate", "--model", "bert", "--device", "cpu", "--output-dir", {str(tmp_path)!r}]
try:
    runpy.run_module("hwcompat", run_name="__main__")
except SystemExit as error:
    assert error.code == 0, error.code
print([name for name in {HEAVY!r} if name in sys.modules and name != 'pynvml'])  # detection asks the driver
"""
    assert _python(code)[-1] == "[]"
    assert list(tmp_path.glob("test_*.py"))


def test_a_backends_file_obeys_the_contract_without_its_runtime() -> None:
    wrong = []
    for name in built_in_targets():
        backend = backend_class(name)
        holds = {
            "its file has its name": backend.BACKEND_NAME == name == backend.__module__.rpartition(".")[2],
            "it is a whole backend": issubclass(backend, BaseBackend) and not backend.__abstractmethods__,
            "it names packages": backend.EXPIRES_ON
            and all(isinstance(one, str) and one for one in backend.EXPIRES_ON),
            "its abilities are known": {"generate", "backward", "save", "calls"} >= backend.CAN,
            "its precisions are known": "float32" in backend.PRECISIONS
            and set(backend.PRECISIONS) <= set(PRECISIONS),
            "it has tolerances": all(tolerance_for(Target(name=name), one).limit > 0 for one in backend.PRECISIONS),
        }
        wrong += [f"{name}: {what}" for what, true in holds.items() if not true]
    assert wrong == []
    assert all(entry.reason.strip() for entry in load_tolerances())


def test_names_of_targets_get_no_further() -> None:
    """A fact about a target stands in its own file; others ask its class. The CPU is the host, which all may name,
    and an importer names the target that its source measured."""
    names = frozenset(built_in_targets()) - {"cpu"}
    found = set()
    for path in (one for one in product_files() if one.parent not in (ROOT, ROOT / "hardware/evidence/importers")):
        own = {path.stem} if path.parent == ROOT / "hardware" / "backends" else set()
        texts = {n.value for n in ast.walk(tree_of(path)) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        if texts & names - own:
            found.add(name_of(path))
    assert len(found) <= 34, f"ask the backend's class instead of comparing its name; these name one: {sorted(found)}"


def test_every_data_file_parses_and_every_schema_is_one() -> None:
    found = [
        path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.suffix in (".toml", ".json")
    ]
    parsed = {
        path: (tomllib if path.suffix == ".toml" else json).loads(path.read_text(encoding="utf-8")) for path in found
    }
    assert len(parsed) > 10
    assert [name_of(path) for path, value in parsed.items() if not value] == []
    schemas = [value for path, value in parsed.items() if path.parent.name == "schemas"]
    assert schemas
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)
    ids = [schema["$id"] for schema in schemas if "$id" in schema]
    assert len(ids) == len(set(ids))


def test_no_file_and_no_function_is_too_long() -> None:
    wrong = []
    for path in product_files():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION:
                wrong.append(f"{name_of(path)}: {node.name} has over {LONGEST_FUNCTION} lines")
        if (lines := path.read_text(encoding="utf-8").count("\n")) > LONGEST_FILE:
            wrong.append(f"{name_of(path)} has {lines} lines")
    assert wrong == []


def test_what_is_public_is_described_and_named_as_no_test_and_no_catch_all() -> None:
    """Commands are described by their help."""
    wrong = []
    for path in product_files():
        tree = tree_of(path)
        own = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")]
        bare = [node.name for node in own if not ast.get_docstring(node) and not _is_command(node)]
        if tree.body and not ast.get_docstring(tree):
            bare.append("the module")
        wrong += [f"{name_of(path)}: {name} has no docstring" for name in bare]
        wrong += [
            f"{name_of(path)}: rename {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and re.match(r"Test|\w*(Manager|Helper|Utils?)$", node.name)
        ]
    assert wrong == []


def _asserts(node: ast.AST, helpers: set[str]) -> bool:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assert):
            return True
        if isinstance(inner, ast.Call):
            called = ast.unparse(inner.func)
            last = called.rpartition(".")[2]
            if last in ("raises", "warns", "fail", "validate") or last.startswith("assert_") or called in helpers:
                return True
    return False


def _helpers(path: Path) -> set[str]:
    """Functions that assert, of a file and of the modules of tests that it imports from."""
    functions = [n for n in tree_of(path).body if isinstance(n, ast.FunctionDef) and not n.name.startswith("test_")]
    found: set[str] = set()
    for node in (n for n in tree_of(path).body if isinstance(n, ast.ImportFrom) and not n.level):
        for folder in (path.parent, ROOT / "test" / "support"):
            if (module := folder / f"{node.module}.py").is_file():
                found |= {alias.name for alias in node.names} & _helpers(module)
    while more := {n.name for n in functions if n.name not in found and _asserts(n, found)}:
        found |= more
    return found


def test_tests_are_functions_that_assert_in_files_of_their_own_names() -> None:
    """Pytest imports test files by their names alone."""
    wrong = []
    for path in files_of_tests():
        helpers = _helpers(path)
        for node in tree_of(path).body:
            is_test = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            if (is_test and not _asserts(node, helpers)) or (
                isinstance(node, ast.ClassDef) and node.name[:4] == "Test"
            ):
                wrong.append(f"{name_of(path)}: {node.name}")  # type: ignore[attr-defined]
    names = Counter(path.name for path in files_of_tests())
    assert wrong + [name for name, count in names.items() if count > 1] == []
    assert not list((ROOT / "test").rglob("__init__.py"))


def test_the_version_in_evidence_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "hardware.evidence.versions.RELEASE"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", RELEASE)
