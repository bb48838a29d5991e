"""Catalog of what the installed transformers can build: model types, configuration classes and classes by task.

It is read from the source of the library's auto mappings without importing it, because an import takes seconds.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.util
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hwcompat.hardware.errors import BrokenInput, ModelError, did_you_mean, echo

_CONFIGS = "CONFIG_MAPPING_NAMES"
_CLASS = re.compile(r"^class (\w+)\(", re.MULTILINE)
_PROCESSORS = {
    "text": "TOKENIZER_MAPPING_NAMES",
    "image": "IMAGE_PROCESSOR_MAPPING_NAMES",
    "video": "VIDEO_PROCESSOR_MAPPING_NAMES",
    "audio": "FEATURE_EXTRACTOR_MAPPING_NAMES",
}


@dataclass(frozen=True, kw_only=True)
class TaskEntry:
    """One line of tasks.toml: an auto mapping and its task."""

    mapping: str
    task: str
    auto_class: str
    outputs: tuple[str, ...]
    generate: str
    labels: bool = False
    images: int = 1
    choices: int = 1
    reads_end: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    first_for: tuple[str, ...] = ()
    not_for: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TaskClass:
    """A task of a model type and its class; `auto_class` is empty if there is none."""

    task: str
    auto_class: str
    model_class: str
    entry: TaskEntry


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """The auto mappings of one version: configuration class by type, model class by mapping and type."""

    version: str
    configs: Mapping[str, str]
    mappings: Mapping[str, Mapping[str, str]]
    library: str = "transformers"

    @property
    def model_types(self) -> tuple[str, ...]:
        """Every model type, in alphabetical order."""
        return tuple(sorted(self.configs))

    def config_class(self, model_type: str) -> str:
        """Return the configuration class (`BertConfig` for `bert`). Raises `ModelError` for an unknown type."""
        if model_type not in self.configs:
            raise ModelError(
                f"{echo(model_type)} isn't a model type of transformers {self.version}",
                fix=did_you_mean(model_type, self.configs),
            )
        return self.configs[model_type]

    def tasks_of(self, model_type: str) -> tuple[TaskClass, ...]:
        """Return the tasks of a type, the primary one first; empty for a part of other models that has no class.

        A second name of a type (nougat is a vision-encoder-decoder) that no mapping of classes names has the classes
        of the types with the same configuration, as transformers itself looks them up.
        """
        named = self.names_of(model_type)
        found = {}
        for entry in task_entries():
            classes = self.mappings.get(entry.mapping, {})
            model_class = next((classes[t] for t in named if t in classes), None)
            if model_class and entry.task not in found and model_type not in entry.not_for:
                found[entry.task] = TaskClass(
                    task=entry.task, auto_class=entry.auto_class, model_class=model_class, entry=entry
                )
        return tuple(sorted(found.values(), key=lambda one: model_type not in one.entry.first_for))

    def tasks_of_class(self, model_class: str) -> tuple[TaskEntry, ...]:
        """Return the tasks that a class is mapped for, in order of priority."""
        return tuple(e for e in task_entries() if model_class in self.mappings.get(e.mapping, {}).values())

    def types_of_class(self, model_class: str) -> tuple[str, ...]:
        """Return the model types that a class is mapped for."""
        types = {t for m in self.mappings.values() for t, name in m.items() if name == model_class}
        return tuple(sorted(types & set(self.configs)))

    def names_of(self, model_type: str) -> tuple[str, ...]:
        """Return the type, then the others with its configuration class. Raises `ModelError` for an unknown type."""
        config_class = self.config_class(model_type)
        return (model_type, *(t for t, c in self.configs.items() if c == config_class and t != model_type))

    def whole_of(self, model_type: str) -> str | None:
        """Return the type that this one is a part of (`voxtral` for `voxtral_encoder`): the longest name that its own
        begins with, or None."""
        begins = [t for t in self.configs if t != model_type and model_type.startswith((f"{t}_", f"{t}-"))]
        return max(begins, key=len, default=None)

    def modalities(self, model_type: str) -> frozenset[str]:
        """Return the modalities (`text`, `image`, `video`, `audio`) for which the type has a processor."""
        return frozenset(kind for kind, name in _PROCESSORS.items() if model_type in self.mappings.get(name, {}))


@functools.cache
def installed_version() -> str:
    """Return the installed version of transformers from its metadata. Raises `ModelError` if it isn't installed."""
    try:
        return importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelError(
            "models can't be looked up",
            why="transformers isn't installed",
            fix="Install it with: pip install -r requirements.txt",
        ) from error


@functools.cache
def task_entries() -> tuple[TaskEntry, ...]:
    """Return the lines of tasks.toml in order."""
    return tuple(_task_entry(line) for line in _task_data()["entry"])


def _task_entry(line: Mapping[str, Any]) -> TaskEntry:
    values: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in line.items()}
    return TaskEntry(**values)


@functools.cache
def _task_data() -> Mapping[str, Any]:
    with (Path(__file__).parent / "tasks.toml").open("rb") as file:
        return tomllib.load(file)


def _with_unmapped(
    mappings: Mapping[str, Mapping[str, str]], types: Mapping[str, str]
) -> dict[str, Mapping[str, str]]:
    """Return the mappings with the classes of tasks.toml added that no mapping of transformers names."""
    found = dict(mappings)
    for line in _task_data()["class"]:
        name, model_type = line["mapping"], line["model_type"]
        if model_type in types and model_type not in found.get(name, {}):
            found[name] = MappingProxyType({**found.get(name, {}), model_type: line["model_class"]})
    return found


def _class_name(node: ast.expr) -> str | None:
    """Return the class that a literal names: a string, or the first string in a tuple or dict."""
    match node:
        case ast.Constant(value=str(name)):
            return name
        case ast.IfExp(body=body):
            return _class_name(body)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            return next(filter(None, map(_class_name, parts)), None)
    return None


def _pairs(node: ast.expr | None) -> dict[str, str]:
    """Return the names of classes by key of `OrderedDict([(key, value), ...])`, a dict, or a list of pairs."""
    if isinstance(node, ast.Call):
        node = node.args[0] if node.args else None
    pairs: list[tuple[ast.expr | None, ast.expr]] = []
    if isinstance(node, ast.Dict):
        pairs = list(zip(node.keys, node.values, strict=True))
    elif isinstance(node, ast.List | ast.Tuple):
        pairs = [(e.elts[0], e.elts[1]) for e in node.elts if isinstance(e, ast.Tuple) and len(e.elts) == 2]
    found = {}
    for key, value in pairs:
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and (name := _class_name(value)):
            found[key.value] = name
    return found


def read_mappings(source: str) -> dict[str, dict[str, str]]:
    """Return each `..._NAMES = OrderedDict(...)` of a module's text with the additions of `..._NAMES.update(...)`,
    also to mappings of another module. Raises `SyntaxError`."""
    found: dict[str, dict[str, str]] = {}
    statements: list[Any] = list(ast.parse(source).body)
    while statements:
        statement = statements.pop(0)
        if isinstance(statement, ast.If | ast.Try):
            statements[:0] = [*statement.body, *statement.orelse]
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        name = getattr(targets[0], "id", "")
        if isinstance(statement, ast.Assign | ast.AnnAssign) and name.endswith("_NAMES"):
            pairs = _pairs(statement.value)
            if pairs:
                found[name] = pairs
        match statement:
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update"), args=[added])
            ) if name.endswith("_NAMES"):
                pairs = found.get(added.id, {}) if isinstance(added, ast.Name) else _pairs(added)
                found[name] = found.get(name, {}) | pairs
    return found


@functools.cache
def load_catalog() -> Catalog:
    """Return the catalog of the installed transformers. Raises `ModelError` if it can't be read."""
    version = installed_version()
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        raise ModelError("models can't be looked up", why="only the metadata of transformers was found")
    folder = Path(spec.origin).parent / "models" / "auto"
    mappings: dict[str, Mapping[str, str]] = {}
    for path in sorted(folder.glob("*.py")):
        try:
            source = path.read_text(encoding="utf-8")
            if "_NAMES" in source:
                for name, pairs in read_mappings(source).items():  # a mapping in several modules is merged
                    mappings[name] = MappingProxyType({**mappings.get(name, {}), **pairs})
        except (OSError, ValueError, SyntaxError) as error:
            raise BrokenInput(f"{path.name} of transformers {version} can't be read", why=str(error)) from error
    if _CONFIGS not in mappings:
        raise ModelError(
            f"the models of transformers {version} can't be listed",
            why=f"models/auto has no {_CONFIGS}",
            fix="Install a version from 4.57 to 5.23.",
        )
    mappings = _with_unmapped(mappings, mappings[_CONFIGS])
    return Catalog(version=version, configs=mappings[_CONFIGS], mappings=MappingProxyType(mappings))


def _config_file(model_type: str) -> Path | None:
    """Return the source file that defines a type's configuration class, or None if it can't be found."""
    catalog = load_catalog()
    name = catalog.config_class(model_type)
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        return None
    models = Path(spec.origin).parent / "models"
    module = model_type.replace("-", "_")
    likely = models / module / f"configuration_{module}.py"
    if likely.is_file() and f"class {name}(" in likely.read_text(encoding="utf-8"):
        return likely
    return _config_classes(models).get(name)


def source_names(model_type: str) -> tuple[tuple[str, str], ...]:
    """Return the folders and modules that a type's files may be in, the likeliest first: by its own name, then by the
    module of its configuration (`openai` for `openai-gpt`). Raises `ModelError` for an unknown type."""
    own = model_type.replace("-", "_")
    path = _config_file(model_type)
    defined = [] if path is None else [(path.parent.name, path.stem.removeprefix("configuration_"))]
    return tuple(dict.fromkeys([(own, own), *defined]))


@functools.cache
def _config_classes(models: Path) -> Mapping[str, Path]:
    """Return the module of each class in configuration modules; the first of two counts, and deprecated types of 4.x
    come last. Used only for classes that aren't where their name suggests, because the listing is slow."""
    found: dict[str, Path] = {}
    for pattern in ("*/configuration_*.py", "deprecated/*/configuration_*.py"):
        for path in sorted(models.glob(pattern)):
            for name in _CLASS.findall(path.read_text(encoding="utf-8")):
                found.setdefault(name, path)
    return MappingProxyType(found)


@functools.cache
def config_defaults(model_type: str) -> Mapping[str, Any]:
    """Return the literal defaults of a type's configuration by attribute, read from its source.

    Both styles are read: annotated class attributes (5.x) and arguments of `__init__` (4.x). A nested configuration
    of the same file is a mapping of its defaults. Only literals are kept; the result is empty if the source can't be
    found. Raises `ModelError` for an unknown type.
    """
    path = _config_file(model_type)
    if path is None:
        return MappingProxyType({})
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    return MappingProxyType(_class_defaults(load_catalog().config_class(model_type), classes))


def _class_defaults(name: str, classes: Mapping[str, ast.ClassDef]) -> dict[str, Any]:
    pairs: list[tuple[str, ast.expr | None]] = []
    nested: list[tuple[str, str]] = []
    for node in classes[name].body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            pairs.append((node.target.id, node.value))
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "sub_configs":
            nested = _parts(node.value)
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            arguments = [*node.args.args, *node.args.kwonlyargs]
            plain = node.args.defaults
            missing = [None] * (len(node.args.args) - len(plain))
            defaults: list[ast.expr | None] = [*missing, *plain, *node.args.kw_defaults]
            pairs += [(a.arg, d) for a, d in zip(arguments, defaults, strict=True)]
    found = {key: value.value for key, value in pairs if isinstance(value, ast.Constant)}
    return found | {key: _class_defaults(part, classes) for key, part in nested if part in classes and part != name}


def _parts(node: ast.expr) -> list[tuple[str, str]]:
    """Return the names of nested configurations and of their classes, as in `{"text_config": TextConfig}`."""
    if not isinstance(node, ast.Dict):
        return []
    pairs = zip(node.keys, node.values, strict=True)
    return [(str(k.value), v.id) for k, v in pairs if isinstance(k, ast.Constant) and isinstance(v, ast.Name)]
