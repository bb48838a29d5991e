"""The structure that the architecture promises, read from the source: floors, sizes, contracts, tests that assert."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import jsonschema
import pytest

from hardware.backends.factory import built_in_targets
from hardware.evidence.versions import RELEASE
from hardware.testing.tolerances import load_tolerances

ROOT = Path(__file__).parents[2]
FLOORS = ("hardware", "generators", "reports", "hwcompat")
DOORS = ("run_test_generation.py", "hardware_compatibility_reporter.py", "hardware/__main__.py")
FORBIDDEN = {
    "hardware": {"generators", "reports", "hwcompat", "benchmarks", "test"},
    "generators": {"reports", "hwcompat", "benchmarks", "test"},
    "reports": {"hwcompat", "benchmarks", "test"},
    "hwcompat": {"benchmarks", "test"},
}
HEAVY = (
    "torch",
    "transformers",
    "openvino",
    "optimum",
    "nncf",
    "duckdb",
    "pandas",
    "jsonschema",
    "pynvml",
    "onnx",
    "onnxruntime",
    "scipy",
    "sklearn",
    "ray",
    "fsspec",
    "s3fs",
    "diffusers",
    "playwright",
)
ABILITIES = {"generate", "backward", "save"}
LONGEST_FILE, LONGEST_FUNCTION = 400, 60


def product_files() -> list[Path]:
    """All Python files of the product."""
    inside = [path for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))]
    return [*inside, *(path for path in sorted(ROOT.glob("*.py")))]


def files_of_tests() -> list[Path]:
    """All test files but the golden suites, which are output."""
    return [path for path in sorted((ROOT / "test").rglob("test_*.py")) if "suites" not in path.parts]


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """First parts of the modules that are imported absolutely, with how many dots a relative import has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0], node.level


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_imports_only_from_floors_below_it(floor: str) -> None:
    wrong = [
        f"{name_of(path)} imports {module}"
        for path in sorted((ROOT / floor).rglob("*.py"))
        for module, level in imported(tree_of(path))
        if level == 0 and module in FORBIDDEN[floor]
    ]
    assert not wrong


STARTING = {"subprocess", "multiprocessing", "pty", "popen2"}
STARTING_CALLS = r"os\.(fork|forkpty|exec\w*|posix_spawn\w*|spawn\w+|system|popen)|asyncio\.create_subprocess_\w+"
MAY_START = {
    "hardware/process.py": "it is what starts child processes",
    "hwcompat/plugins/fleet/lab_remote.py": "its text is sent to a lab machine, where nothing of ours is",
    "hwcompat/plugins/fleet/ray_node.py": "it is sent to a Ray node by value, where nothing of ours is",
}
"""The product files that may start a process themselves, each with the reason."""


def _starts_processes(path: Path) -> bool:
    """Whether a file imports a module that starts processes, or names a function that does."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import) and STARTING & {alias.name.partition(".")[0] for alias in node.names}:
            return True
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            if (node.module or "").partition(".")[0] in STARTING or any(map(_is_starting_call, names)):
                return True
        if isinstance(node, ast.Name | ast.Attribute):
            text = ast.unparse(node)
            if _is_starting_call(text) or text.endswith("ProcessPoolExecutor"):
                return True
    return False


def _is_starting_call(name: str) -> bool:
    return re.fullmatch(STARTING_CALLS, name) is not None or name == "concurrent.futures.ProcessPoolExecutor"


def test_one_module_starts_child_processes() -> None:
    """So that limits, deadlines and ends are one implementation."""
    starting = {name_of(path) for path in product_files() if _starts_processes(path)}
    assert starting - MAY_START.keys() == set()
    assert MAY_START.keys() - starting == set(), "an exception that is no longer needed"


@pytest.mark.parametrize(
    "line",
    [
        "import subprocess",
        "from subprocess import run",
        "import multiprocessing.connection",
        "from os import fork",
        "import os; os.execvp('x', ['x'])",
        "import asyncio; asyncio.create_subprocess_exec('x')",
        "from concurrent.futures import ProcessPoolExecutor",
    ],
)
def test_a_module_that_starts_processes_is_seen(tmp_path: Path, line: str) -> None:
    (tmp_path / "starts.py").write_text(f"def work():\n    {line}\n", encoding="utf-8")
    assert _starts_processes(tmp_path / "starts.py")


def test_what_is_known_of_models_is_known_without_making_recipes() -> None:
    wrong = [
        name_of(path)
        for path in sorted((ROOT / "generators" / "models").rglob("*.py"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("generators.recipes")
    ]
    assert not wrong


def test_hardware_imports_itself_relatively_so_that_it_can_travel_alone() -> None:
    wrong = [
        name_of(path)
        for path in sorted((ROOT / "hardware").rglob("*.py"))
        if ("hardware", 0) in imported(tree_of(path))
    ]
    assert not wrong


def test_no_relative_import_leaves_its_floor() -> None:
    wrong = []
    for path in (p for floor in FLOORS for p in (ROOT / floor).rglob("*.py")):
        depth = len(path.relative_to(ROOT).parts) - 1
        wrong += [name_of(path) for _, level in imported(tree_of(path)) if level > depth]
    assert not wrong


def _ends_the_process(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise):
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return isinstance(raised, ast.Name) and raised.id == "SystemExit"
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Name):
        return called.id in ("exit", "quit")
    return isinstance(called, ast.Attribute) and called.attr == "exit" and ast.unparse(called.value) == "sys"


def test_only_front_doors_end_the_process() -> None:
    """A module that is a command line of its own may, below `if __name__ == "__main__"` or in its command."""
    wrong = []
    for path in product_files():
        tree = tree_of(path)
        below = [n for n in tree.body if isinstance(n, ast.If) and "__name__" in ast.unparse(n.test)]
        commands = [n for n in tree.body if isinstance(n, ast.FunctionDef) and "command" in _decorators(n)]
        allowed = {id(inner) for node in (*below, *commands) for inner in ast.walk(node)}
        wrong += [
            f"{name_of(path)}:{node.lineno}"  # type: ignore[attr-defined]
            for node in ast.walk(tree)
            if _ends_the_process(node) and id(node) not in allowed
        ]
    assert not wrong


def _decorators(node: ast.FunctionDef) -> str:
    return " ".join(ast.unparse(decorator) for decorator in node.decorator_list)


# What nearly every module needs is there before, to save time; it brings nothing heavy, or every module would.
IN_A_CHILD_OF_ITS_OWN = """
import click, concurrent.futures, importlib, importlib.metadata, jinja2, json, os, sys, tomllib
names, heavy = json.load(sys.stdin)
for name in names:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
            came = [one for one in heavy if one in sys.modules]
        except BaseException as error:
            came = [repr(error)]
        os.write(writer, json.dumps([name, came]).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        print(answer.read().decode(), flush=True)
    os.waitpid(child, 0)
"""


def what_comes_with(names: Sequence[str], folder: Path) -> dict[str, list[str]]:
    """For each module what of `HEAVY` its import brings, or how it fails: in a child that imports nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CHILD_OF_ITS_OWN],
        input=json.dumps([list(names), list(HEAVY)]),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_importing_any_module_brings_nothing_heavy(tmp_path: Path) -> None:
    names = []
    for path in (p for floor in FLOORS for p in sorted((ROOT / floor).rglob("*.py"))):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] != "__main__":
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    found = what_comes_with(names, tmp_path)
    assert list(found) == names
    assert {name: came for name, came in found.items() if came} == {}


@pytest.mark.parametrize(
    "name", ["run_test_generation", "hardware_compatibility_reporter", "hardware.hardware_commands"]
)
def test_a_commands_start_waits_for_no_numpy(name: str) -> None:
    code = f"import sys, {name}; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_module_that_brings_something_heavy_is_seen(tmp_path: Path) -> None:
    (tmp_path / "brings_much.py").write_text("import pandas\n", encoding="utf-8")
    (tmp_path / "falls.py").write_text("import no_such_module\n", encoding="utf-8")
    found = what_comes_with(["hardware.cell", "brings_much", "falls"], tmp_path)
    assert found["hardware.cell"] == []
    assert "pandas" in found["brings_much"]
    assert "no_such_module" in found["falls"][0]


def test_generating_a_suite_whose_recipe_is_known_imports_no_framework(tmp_path: Path) -> None:
    code = f"""
import runpy, sys
sys.argv = ["run_test_generation.py", "--model", "bert", "--device", "cpu", "--output-dir", {str(tmp_path)!r}]
try:
    runpy.run_path("run_test_generation.py", run_name="__main__")
except SystemExit as error:
    assert error.code == 0, error.code
print([name for name in {HEAVY!r} if name in sys.modules and name != 'pynvml'])  # detection asks the driver
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert list(tmp_path.glob("test_*.py"))


@pytest.mark.parametrize("name", built_in_targets())
def test_a_backends_file_obeys_the_contract_without_its_runtime(name: str) -> None:
    from hardware.backends.base import BaseBackend
    from hardware.backends.factory import backend_class
    from hardware.cell import PRECISIONS

    tree = tree_of(ROOT / "hardware" / "backends" / f"{name}.py")
    named = [
        ast.literal_eval(node.value)
        for outer in tree.body
        if isinstance(outer, ast.ClassDef)
        for node in outer.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "BACKEND_NAME"
    ]
    assert named == [name]
    backend = backend_class(name)
    assert issubclass(backend, BaseBackend)
    assert not backend.__abstractmethods__
    assert backend.EXPIRES_ON
    assert all(isinstance(package, str) and package for package in backend.EXPIRES_ON)
    assert backend.CAN <= ABILITIES
    assert "float32" in backend.PRECISIONS
    assert set(backend.PRECISIONS) <= set(PRECISIONS)


def test_every_precision_that_a_backend_offers_has_a_tolerance_with_a_reason() -> None:
    from hardware.backends.factory import backend_class
    from hardware.target import Target
    from hardware.testing.tolerances import tolerance_for

    assert all(entry.reason.strip() for entry in load_tolerances())
    for name in built_in_targets():
        for precision in backend_class(name).PRECISIONS:
            assert tolerance_for(Target(name=name), precision).limit > 0


def test_every_data_file_parses() -> None:
    found = [path for floor in FLOORS for path in (ROOT / floor).rglob("*") if path.suffix in (".toml", ".json")]
    assert len(found) > 10
    for path in found:
        text = path.read_text(encoding="utf-8")
        parsed = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        assert parsed, name_of(path)


def test_every_schema_is_one_and_names_itself_once() -> None:
    schemas = [json.loads(path.read_text()) for floor in FLOORS for path in (ROOT / floor).rglob("schemas/*.json")]
    assert schemas
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)
    ids = [schema["$id"] for schema in schemas if "$id" in schema]
    assert len(ids) == len(set(ids))


def test_no_file_and_no_function_is_too_long() -> None:
    wrong = []
    for path in product_files():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > LONGEST_FILE:
            wrong.append(f"{name_of(path)} has {lines} lines")
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    wrong.append(f"{name_of(path)}: {node.name} has {length} lines")
    assert not wrong


def test_every_module_says_what_it_is_for() -> None:
    wrong = [name_of(path) for path in product_files() if tree_of(path).body and not ast.get_docstring(tree_of(path))]
    assert not wrong


def test_every_public_function_and_class_says_what_it_does() -> None:
    """Methods that fulfil a contract are told by the contract."""
    wrong = [
        f"{name_of(path)}: {node.name}"
        for path in product_files()
        for node in tree_of(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
        and not (isinstance(node, ast.FunctionDef) and "command" in _decorators(node))
    ]
    assert not wrong


def test_no_product_class_looks_like_a_test_or_a_catch_all() -> None:
    wrong = [
        f"{name_of(path)}: {node.name}"
        for path in product_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
        and (node.name.startswith("Test") or node.name.endswith(("Manager", "Helper", "Utils", "Util")))
    ]
    assert not wrong


def _asserts(node: ast.AST, helpers: set[str]) -> bool:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assert):
            return True
        if isinstance(inner, ast.Call):
            called = ast.unparse(inner.func)
            last = called.rpartition(".")[2]
            if last in ("raises", "warns", "fail") or last.startswith("assert_") or last == "validate":
                return True
            if called in helpers:
                return True
    return False


def _helpers(path: Path) -> set[str]:
    """Functions that assert, of a file and of the modules beside it that it imports from."""
    functions = [n for n in tree_of(path).body if isinstance(n, ast.FunctionDef) and not n.name.startswith("test_")]
    imports = [n for n in tree_of(path).body if isinstance(n, ast.ImportFrom) and not n.level]
    found: set[str] = set()
    for node in imports:
        if (module := path.parent / f"{node.module}.py").is_file():
            found |= {alias.name for alias in node.names} & _helpers(module)
    while more := {n.name for n in functions if n.name not in found and _asserts(n, found)}:
        found |= more
    return found


def test_every_test_asserts_something() -> None:
    wrong = []
    for path in files_of_tests():
        functions = [n for n in tree_of(path).body if isinstance(n, ast.FunctionDef)]
        helpers = _helpers(path)
        wrong += [
            f"{name_of(path)}: {node.name}"
            for node in functions
            if node.name.startswith("test_") and not _asserts(node, helpers)
        ]
    assert not wrong


def test_tests_are_functions_and_no_test_folder_is_a_package() -> None:
    classes = [
        f"{name_of(path)}: {node.name}"
        for path in files_of_tests()
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test")
    ]
    assert not classes
    assert not list((ROOT / "test").rglob("__init__.py"))


def test_names_of_test_files_are_unique_because_pytest_imports_them_by_name() -> None:
    names = [path.name for path in files_of_tests()]
    assert sorted(set(names)) == sorted(names)


def test_the_version_in_evidence_is_that_of_the_project():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in told["project"]["dynamic"]
    assert told["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "hardware.evidence.versions.RELEASE"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", RELEASE)
