"""Libraries whose models are tested: transformers, whose model types take precedence, and diffusers.

Each has a catalog with the same small interface; `catalog_of` returns the one that knows a model type. The families
of pipelines and the parts of the installed diffusers are read from its source without importing it. Without
diffusers, the families are those of the shipped recipes.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from packaging.version import Version

from hwcompat.hardware.command_names import as_runnable
from hwcompat.hardware.errors import BrokenInput, ModelError, did_you_mean, echo

from .catalog import TaskClass, TaskEntry, load_catalog
from .recipe import SHIPPED

LIBRARY = "diffusers"
INSTALL = "Install it with: pip install 'hwcompat[diffusion]'"
RECONSTRUCTION = "image-reconstruction"
"""The task of a family's autoencoder; all other tasks belong to its denoiser."""
_MAPPING = re.compile(r"AUTO_[A-Z0-9]+_PIPELINES_MAPPING")
_OUTER = frozenset({"Optional", "Union", "List", "Tuple", "list", "tuple", "None"})


class AnyCatalog(Protocol):
    """A library's catalog: its types with their configuration classes, and the tasks and classes of each."""

    @property
    def library(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def configs(self) -> Mapping[str, str]: ...
    @property
    def model_types(self) -> tuple[str, ...]: ...
    def config_class(self, model_type: str) -> str: ...
    def tasks_of(self, model_type: str) -> tuple[TaskClass, ...]: ...
    def tasks_of_class(self, model_class: str) -> tuple[TaskEntry, ...]: ...
    def types_of_class(self, model_class: str) -> tuple[str, ...]: ...


@functools.cache
def diffusers_version() -> str:
    """Return the diffusers version whose recipes are used: the installed one, else the newest with recipes."""
    shipped = [path.name.removeprefix(f"{LIBRARY}-") for path in SHIPPED.glob(f"{LIBRARY}-*")]
    return installed_diffusers() or max(shipped, key=Version, default="")


@functools.cache
def diffusion_catalog() -> DiffusionCatalog:
    """Return the families of the installed diffusers, else those with shipped recipes."""
    known: dict[str, dict[str, str]] = {}
    if not installed_diffusers():
        for path in sorted((SHIPPED / f"{LIBRARY}-{diffusers_version()}").glob("*.json")):
            recipe = json.loads(path.read_text(encoding="utf-8"))
            known.setdefault(recipe["model_type"], {})[recipe["task"]] = recipe["model_class"]
    return DiffusionCatalog(version=diffusers_version(), mappings=pipeline_mappings(), known=MappingProxyType(known))


def catalog_of(model_type: str) -> AnyCatalog:
    """Return the catalog that knows a type; that of transformers if both or none do."""
    transformers = load_catalog()
    if model_type not in transformers.configs and model_type in diffusion_catalog().configs:
        return diffusion_catalog()
    return transformers


def is_known(model_type: str) -> bool:
    """Return whether a library knows a type."""
    return model_type in catalog_of(model_type).configs


def known_types() -> tuple[str, ...]:
    """Return the types of all libraries, those of transformers first."""
    return (*load_catalog().configs, *diffusion_catalog().configs)


def usable_types() -> tuple[str, ...]:
    """Return the types of the installed libraries, in alphabetical order within each."""
    return (*load_catalog().model_types, *(diffusion_catalog().model_types if installed_diffusers() else ()))


def lacking(library: str) -> str:
    """Return what is missing before models of a library can run here, with the command; empty if it is installed."""
    missing = library == LIBRARY and not installed_diffusers()
    return as_runnable(f"diffusers isn't installed. {INSTALL}") if missing else ""


def require(library: str) -> None:
    """Raise `ModelError` with the install command if a library isn't installed."""
    if library == LIBRARY and not installed_diffusers():
        raise ModelError("diffusion models have no recipe", why="diffusers isn't installed", fix=INSTALL)


@functools.cache
def _data() -> Mapping[str, Any]:
    with Path(__file__).with_name("diffusion.toml").open("rb") as file:
        return tomllib.load(file)


@functools.cache
def diffusion_entries() -> tuple[tuple[str, TaskEntry], ...]:
    """Return the lines of diffusion.toml in order: the part that each tests, and the line as an entry."""
    return tuple(
        (
            line["part"],
            TaskEntry(
                mapping=line["mapping"],
                task=line["task"],
                auto_class=line["auto_class"],
                outputs=("sample",),
                generate="none",
            ),
        )
        for line in _data()["entry"]
    )


@dataclass(frozen=True, kw_only=True)
class DiffusionCatalog:
    """The pipeline families of one version: the pipeline class by mapping and family. `mappings` is empty without
    diffusers; the class of each task is then in `known`."""

    version: str
    mappings: Mapping[str, Mapping[str, str]]
    known: Mapping[str, Mapping[str, str]]
    library: str = LIBRARY

    @property
    def configs(self) -> Mapping[str, str]:
        """All families; none has a configuration class, because a part is built from plain arguments."""
        return MappingProxyType(dict.fromkeys([*dict.fromkeys(_families(self.mappings)), *self.known], ""))

    @property
    def model_types(self) -> tuple[str, ...]:
        """Every family, in alphabetical order."""
        return tuple(sorted(self.configs))

    def config_class(self, model_type: str) -> str:
        """Return the empty string. Raises `ModelError` for an unknown family."""
        if model_type not in self.configs:
            raise ModelError(
                f"{echo(model_type)} isn't a pipeline of diffusers {self.version}",
                fix=did_you_mean(model_type, self.configs),
            )
        return ""

    def tasks_of(self, model_type: str) -> tuple[TaskClass, ...]:
        """Return the tasks of a family: its pipelines' steps, done by the denoiser, then the autoencoder alone."""
        self.config_class(model_type)
        found = []
        for part, entry in diffusion_entries():
            name = self.known.get(model_type, {}).get(entry.task) or self._class_of(part, model_type, entry.mapping)
            if name:
                found.append(TaskClass(task=entry.task, auto_class=entry.auto_class, model_class=name, entry=entry))
        return tuple(found)

    def _class_of(self, part: str, model_type: str, mapping: str) -> str:
        """Return the class of a part in the family's pipeline of a mapping, else in the family's first pipeline."""
        own = model_type.removeprefix(f"{LIBRARY}-")
        pipelines = [
            classes[own] for name, classes in self.mappings.items() if own in classes and mapping in ("", name)
        ]
        return _parts_of(pipelines[0]).get(part, "") if pipelines else ""

    def tasks_of_class(self, model_class: str) -> tuple[TaskEntry, ...]:
        """Return the tasks that a class does in any family, in order of priority."""
        done = {one.task for name in self.configs for one in self.tasks_of(name) if one.model_class == model_class}
        return tuple(entry for _, entry in diffusion_entries() if entry.task in done)

    def types_of_class(self, model_class: str) -> tuple[str, ...]:
        """Return the families that a class is a part of."""
        return tuple(n for n in self.model_types if model_class in (one.model_class for one in self.tasks_of(n)))

    def modalities(self, model_type: str) -> frozenset[str]:
        """Return none: a step takes embeddings and latents, which the denoiser's inputs describe."""
        return frozenset()


def _families(mappings: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the names of families; one that is also a model type of transformers is prefixed with the library."""
    theirs = load_catalog().configs
    for names in mappings.values():
        yield from (f"{LIBRARY}-{name}" if name in theirs else name for name in names)


@functools.cache
def denoised(model_type: str, task: str) -> str:
    """Return the family whose denoiser does a task; empty for an autoencoder's task, which families share."""
    return "" if task == RECONSTRUCTION else model_type


@functools.cache
def installed_diffusers() -> str:
    """Return the installed version of diffusers from its metadata; empty if it isn't installed."""
    try:
        return importlib.metadata.version(LIBRARY)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _package() -> Path | None:
    spec = importlib.util.find_spec(LIBRARY)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _source(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BrokenInput(f"{path.name} of diffusers can't be read", why=str(error)) from error


@functools.cache
def pipeline_mappings() -> Mapping[str, Mapping[str, str]]:
    """Return the pipeline classes of the installed diffusers by mapping and family; empty without it."""
    package = _package() if installed_diffusers() else None
    return read_pipelines(_source(package / "pipelines" / "auto_pipeline.py")) if package else {}


def read_pipelines(source: str) -> dict[str, dict[str, str]]:
    """Return each `AUTO_..._PIPELINES_MAPPING` of a module's text with later additions. Raises `SyntaxError`."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Assign):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Name) and _MAPPING.fullmatch(target.id):
            pairs = (e.elts for e in ast.walk(node.value) if isinstance(e, ast.Tuple) and len(e.elts) == 2)
            found.setdefault(target.id, {}).update(
                {str(k.value): v.id for k, v in pairs if isinstance(k, ast.Constant) and isinstance(v, ast.Name)}
            )
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            name, key, value = target.value.id, target.slice, node.value
            if _MAPPING.fullmatch(name) and isinstance(key, ast.Constant) and isinstance(value, ast.Name):
                found.setdefault(name, {})[str(key.value)] = value.id
    return found


@functools.cache
def _parts_of(pipeline: str) -> Mapping[str, str]:
    """Return the class of each part of a pipeline, from its constructor's annotations; empty if it isn't found."""
    for path in sorted(_imported_from().get(pipeline, Path()).glob("*.py")):
        if f"\nclass {pipeline}(" in (source := _source(path)):
            return read_parts(source, pipeline)
    return {}


@functools.cache
def _imported_from() -> Mapping[str, Path]:
    """Return the folder of each pipeline's module, from the imports of auto_pipeline.py."""
    package = _package()
    if package is None:
        return {}
    tree = ast.parse(_source(package / "pipelines" / "auto_pipeline.py"))
    imports = [
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
    ]
    return {
        alias.name: package / "pipelines" / str(node.module).replace(".", "/")
        for node in imports
        for alias in node.names
    }


def read_parts(source: str, pipeline: str) -> dict[str, str]:
    """Return the annotated class of each part of a pipeline, from a module's text.

    Only the text up to the end of the constructor is parsed, because pipelines are long and numerous.
    """
    begin = source.index(f"\nclass {pipeline}(") + 1
    own = source[begin : _or_end(source.find("\nclass ", begin), source)]
    maker = own.find("    def __init__(")
    if maker < 0:
        return {}
    end = min(_or_end(own.find(text, maker + 1), own) for text in ("\n    def ", "\n    @"))
    (function,) = [
        n for n in ast.walk(ast.parse(own[:end])) if isinstance(n, ast.FunctionDef) and n.name == "__init__"
    ]
    annotated = {a.arg: _class_in(a.annotation) for a in (*function.args.args, *function.args.kwonlyargs)}
    found = {}
    for part, names in _data()["part"].items():
        if known := next((annotated[name] for name in names if annotated.get(name)), ""):
            found[part] = known
    return found


def _or_end(place: int, text: str) -> int:
    return place if place >= 0 else len(text)


def _class_in(annotation: ast.expr | None) -> str:
    """Return the first class that an annotation names, as in `Optional[UNet2DConditionModel]`."""
    names = [n.id for n in ast.walk(annotation) if isinstance(n, ast.Name)] if annotation is not None else []
    return next((name for name in names if name not in _OUTER), "")
