"""Run a type's suite on the CPU and find which branches of the modeling code its compared passes enter.

Needs coverage.py, whose report names the branches of each function. Imports torch and transformers.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import inspect
import json
import re
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwcompat.generators.models.recipe import SHIPPED, Recipe
from hwcompat.generators.models.recipe_store import folders
from hwcompat.generators.recipes.argument_calls import MASKS
from hwcompat.generators.recipes.build_model import filled_model
from hwcompat.generators.suites.render import checks_of, render
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.files import write_whole

_ROOTS = ("__init__", "forward", "prepare_inputs_for_generation")
"""Methods from which a model's code is reached: all that they name in the same file is."""
_OTHER_DEVICES = "FlashAttention"
"""A word in the names of classes that run on other devices than the CPU alone."""
_LEFT_OUT = Path(__file__).with_name("left_out.toml")
_TELL_NOTHING = ("self", "config", "torch", "isinstance", "len", "getattr", "hasattr")

Branch = tuple[int, int]
"""The line of a condition or loop, and the line that follows."""


@dataclass(frozen=True, kw_only=True)
class CodeBranches:
    """The branches of the code of a model, by file and function: those that passes `took`, and those `missing`; and
    the number of those `left_out` for each reason.

    Counted are the branches (ways on from a condition or a loop) of functions that the model's forward passes and
    decoding can reach, and of the constructors of its modules, without those that only raise. A part that is a type
    of its own is counted there: of a type are the files in its folder.
    """

    took: Mapping[str, Mapping[str, frozenset[Branch]]]
    missing: Mapping[str, Mapping[str, frozenset[Branch]]]
    left_out: Mapping[str, int]

    def to_recipe(self) -> dict[str, Any]:
        """Return the entry of a recipe: numbers, and each missing way by the names in its condition."""
        entered = sum(len(ways) for functions in self.took.values() for ways in functions.values())
        missing = {
            f"{Path(file).stem}.{name}": sorted({way_of(tree_of(file), branch) for branch in ways})
            for file, functions in self.missing.items()
            for name, ways in functions.items()
            if ways
        }
        count = sum(len(ways) for functions in self.missing.values() for ways in functions.values())
        return {"entered": entered, "of": entered + count, "missing": missing, "left_out": dict(self.left_out)}


def branches_of(recipe: Recipe) -> CodeBranches:
    """Return the branches that the compared checks of a recipe's suite enter. Raises `ModelError` if its model can't
    be built any more."""
    model = filled_model(recipe)
    classes = classes_of(model)
    given = inspect.signature(model.forward).parameters.keys()
    kinds = {spec["kind"] for spec in recipe.inputs.values()}
    traits = {"decodes"} if recipe.generate != "none" else {"unmasked"} if not kinds & MASKS else set()
    report = _report(recipe, sorted(classes))
    took: dict[str, dict[str, frozenset[Branch]]] = {}
    missing: dict[str, dict[str, frozenset[Branch]]] = {}
    reasons: list[str] = []
    for file, own in classes.items():
        tree, functions = tree_of(file), report.get(file, {})
        refusals, parts = _refusals(tree), _types_of_their_own(file, {recipe.model_type, _type_of(type(model))})
        for name in _reached(tree, own) & set(functions):
            if name.partition(".")[0] in parts:
                continue
            took.setdefault(file, {})[name] = frozenset(map(tuple, functions[name]["executed_branches"]))
            left = set()
            for branch in map(tuple, functions[name]["missing_branches"]):
                if branch[1] in refusals:
                    continue
                reason = reason_to_leave_out(tree, name, branch, given, traits)
                left |= set() if reason else {branch}
                reasons += [reason] if reason else []
            missing.setdefault(file, {})[name] = frozenset(left)
    return CodeBranches(took=took, missing=missing, left_out=dict(sorted(Counter(reasons).items())))


def classes_of(model: Any) -> dict[str, set[str]]:
    """Return the names of the classes of a model by the file that defines them: those in the folder of its own type,
    or all if there are none in it."""
    found: dict[str, set[str]] = {}
    for cls in {cls for module in model.modules() for cls in type(module).__mro__}:
        if cls.__module__.startswith(("transformers.models.", "diffusers.models.", "diffusers.pipelines.")):
            found.setdefault(str(Path(inspect.getfile(cls)).resolve()), set()).add(cls.__qualname__)
    folder = Path(inspect.getfile(type(model))).resolve().parent
    return {file: names for file, names in found.items() if Path(file).parent == folder} or found


def _type_of(cls: Any) -> str:
    """Return the model type that a class of models states, which may be that of the one it was copied from."""
    return getattr(getattr(cls, "config_class", None), "model_type", "")


def _types_of_their_own(file: str, own: Collection[str]) -> set[str]:
    """Return the classes of a file that are models of another type with a recipe; `own` are names of its type."""
    types = {path.stem for name in folders() for path in (SHIPPED / name).glob("*.json")} - set(own)
    found = set()
    for node in tree_of(file).body:
        if isinstance(node, ast.ClassDef):
            stated = _type_of(getattr(_module_of(file), node.name, None))
            found |= {node.name} if stated in types else set()
    return found


@functools.cache
def _module_of(file: str) -> Any:
    """Return the loaded module of a file, which has its name."""
    loaded = ((one, Path(getattr(one, "__file__", None) or "")) for one in list(sys.modules.values()))
    return next(one for one, path in loaded if path.name == Path(file).name and str(path.resolve()) == file)


@functools.cache
def _rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(_LEFT_OUT.read_text(encoding="utf-8"))["rule"]
    return found


def reason_to_leave_out(
    tree: ast.Module, function: str, branch: Branch, given: Collection[str], traits: Collection[str]
) -> str:
    """Return why no pass of this model on a CPU takes a branch; empty if one can."""
    way = way_of(tree, branch)
    name = function.rpartition(".")[2]
    for rule in _rules():
        if (
            rule.get("only", "") in ("", *traits)
            and re.fullmatch(rule["function"], name)
            and re.search(rule["way"], way)
        ):
            return str(rule["reason"])
    test = condition_at(tree, branch[0])
    argument = _only_argument(test) if _is_for_given(tree, test, branch) else ""
    if argument in _optional_at(tree, branch[0]) - set(given) - _passed(tree):
        return "needs an argument that the model's forward pass doesn't name"
    return ""


def _optional_at(tree: ast.Module, line: int) -> set[str]:
    """Return the arguments with a default of the function that has a line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or node.lineno):
            named = node.args.args[len(node.args.args) - len(node.args.defaults) :]
            return {one.arg for one in (*named, *node.args.kwonlyargs)}
    return set()


def _is_for_given(tree: ast.Module, test: ast.expr | None, branch: Branch) -> bool:
    """Return whether a way is taken if the argument that a condition compares with None is given."""
    goes_in = way_of(tree, branch).endswith(": true")
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot) is goes_in


def _only_argument(test: ast.expr | None) -> str:
    """Return the name in `name is None` or `name is not None`; empty for other conditions."""
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and len(test.ops) == 1:
        compared = test.comparators[0]
        if isinstance(compared, ast.Constant) and compared.value is None:
            return test.left.id
    return ""


@functools.cache
def _passed(tree: ast.Module) -> set[str]:
    """Return the names of arguments that some call in a file computes instead of passing them on."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    forwards = {
        node.name: one
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for one in node.body
        if isinstance(one, ast.FunctionDef) and one.name == "forward"
    }
    modules = _modules(tree, forwards)
    found = set()
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            called = getattr(call.func, "attr", getattr(call.func, "id", ""))
            may_be = [one for one in functions if one.name == called] or modules.get(called, [])
            given = [pair for one in may_be for pair in zip(_arguments(one), call.args, strict=False)]
            given += [(one.arg, one.value) for one in call.keywords if one.arg]
            found |= {name for name, value in given if not _passes_on(name, value)}
    return found


def _modules(tree: ast.Module, forwards: Mapping[str, ast.FunctionDef]) -> dict[str, list[ast.FunctionDef]]:
    """Return the forward passes that attributes and loop variables of a file may call, by name, such as `layer` after
    `self.layers = ModuleList(Layer(...) ...)` and `for layer in self.layers`."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            made = [forwards[name] for name in names_in(node.value) if name in forwards]
            found.setdefault(node.targets[0].attr, []).extend(made)
    for node in ast.walk(tree):
        if isinstance(node, ast.For):
            made = [one for name in names_in(node.iter) for one in found.get(name, ())]
            for name in names_in(node.target):
                found.setdefault(name, []).extend(made)
    return found


def _arguments(function: ast.FunctionDef) -> list[str]:
    return [one.arg for one in function.args.args if one.arg != "self"]


def _passes_on(name: str, value: ast.expr) -> bool:
    """Return whether an argument is given None or the variable of its own name."""
    if isinstance(value, ast.Constant):
        return value.value is None
    return isinstance(value, ast.Name) and value.id == name


@contextlib.contextmanager
def recorded_branches(files: Iterator[str] | list[str]) -> Iterator[Any]:
    """Record the branches that are taken in files inside; yields coverage.py's object."""
    import coverage

    found = coverage.Coverage(branch=True, include=list(files), data_file=None, config_file=False, messages=False)
    with found.collect():
        yield found


def _report(recipe: Recipe, files: list[str]) -> dict[str, Mapping[str, Any]]:
    """Run the compared checks of a suite, and return coverage.py's report of the functions of these files."""
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as name:
        with recorded_branches(files) as found:
            for check in _checks(recipe, Path(name)):
                with contextlib.suppress(Exception):  # a failed check is the suite's to report
                    check()
        written = Path(name) / "report.json"
        found.json_report(outfile=str(written), include=files)
        report = json.loads(written.read_text(encoding="utf-8"))["files"]
    return {str(Path(file).resolve()): one["functions"] for file, one in report.items()}


def _checks(recipe: Recipe, folder: Path) -> Iterator[Callable[[], None]]:
    """Yield the compared checks of a recipe's suite on the CPU as functions without arguments."""
    cell = Cell.parse(f"{recipe.model_type}/{recipe.task}/cpu/float32")
    file = folder / "measured_suite.py"
    write_whole(file, render(recipe, cell, ()))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    suite = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(suite)
    opened = inspect.unwrap(suite.case)()
    given = {"case": next(opened), "tmp_path": folder}
    for check in checks_of(recipe, cell):
        function = getattr(suite, f"test_{check.name}")
        wanted = {name: given[name] for name in inspect.signature(function).parameters}
        if check.compares:
            yield functools.partial(function, **wanted)
    next(opened, None)


@functools.cache
def tree_of(file: str) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def _refusals(tree: ast.Module) -> set[int]:
    """Return the lines of a file at which a branch begins that only raises or warns, or that is for a setting that
    isn't text, which no configuration file can hold (an activation as a function)."""
    return {
        body[0].lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        for body in (node.body, node.orelse)
        if body and (isinstance(body[-1], ast.Raise) or all(map(_only_warns, body)) or _is_no_text(node, body))
    }


def _is_no_text(node: ast.If, body: list[ast.stmt]) -> bool:
    return body is node.orelse and re.fullmatch(r"isinstance\(.*act\w*, str\)", ast.unparse(node.test)) is not None


def _only_warns(node: ast.stmt) -> bool:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    return ast.unparse(node.value.func).startswith(("logger.", "warnings."))


def _reached(tree: ast.Module, classes: set[str]) -> set[str]:
    """Return the functions of a file, `function` or `Class.method`, that the roots of some of its classes reach.
    What a reached function names in the file is reached: functions, classes by their roots, methods by their name,
    and tables of them."""
    bodies: dict[str, ast.AST] = {}
    tables: dict[str, ast.AST] = {}
    roots: dict[str, list[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            bodies[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            tables |= {one.id: node for one in targets if isinstance(one, ast.Name)}
        elif isinstance(node, ast.ClassDef):
            own = {f"{node.name}.{one.name}": one for one in node.body if isinstance(one, ast.FunctionDef)}
            bodies |= own
            roots[node.name] = [name for name in own if name.rpartition(".")[2] in _ROOTS]
    roots = {name: own for name, own in roots.items() if _OTHER_DEVICES not in name}
    waiting = [name for cls in classes for name in roots.get(cls, ())]
    live = set(classes)
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        inside = list(ast.walk(bodies.get(name) or tables[name]))
        names = {node.id for node in inside if isinstance(node, ast.Name)}
        attributes = {node.attr for node in inside if isinstance(node, ast.Attribute)}
        live |= names & roots.keys()
        waiting += [one for cls in names & roots.keys() for one in roots[cls]]
        waiting += [one for one in (*bodies, *tables) if one in names]
        waiting += [one for one in bodies if one.rpartition(".")[0] in live and one.rpartition(".")[2] in attributes]
    return reached - tables.keys()


def condition_at(tree: ast.Module, line: int) -> ast.expr | None:
    """Return the condition, or what is looped over, of the statement at a line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.For) and node.lineno == line:
            return node.iter if isinstance(node, ast.For) else node.test
    return None


def way_of(tree: ast.Module, branch: Branch) -> str:
    """Return the names in a condition and the way that is never taken, such as `sliding_window: true`."""
    line, to = branch
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.For) and node.lineno == line:
            goes_in = to == node.body[0].lineno
            test = condition_at(tree, line)
            words = ("some", "none") if isinstance(node, ast.For) else ("true", "false")
            return f"{', '.join(names_in(test)) or 'a constant'}: {words[not goes_in]}"
    return f"line {line} to {to}"


def names_in(test: ast.AST | None) -> list[str]:
    """Return the names, attributes and words in an expression that tell something, each once."""
    found: list[str] = []
    for node in ast.walk(test) if test is not None else ():
        if isinstance(node, ast.Attribute | ast.Name):
            found.append(node.attr if isinstance(node, ast.Attribute) else node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return list(dict.fromkeys(name for name in found if name not in _TELL_NOTHING))
