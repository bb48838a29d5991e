"""The libraries whose models are tested: transformers, whose model types come first, and diffusers.

Each has a catalog behind one small interface; who has a model type in hand asks `catalog_of`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from packaging.version import Version

from hardware.errors import ModelError

from .catalog import TaskClass, TaskEntry, load_catalog
from .diffusion import INSTALL, LIBRARY, DiffusionCatalog, installed_diffusers, pipeline_mappings
from .recipe import SHIPPED


class AnyCatalog(Protocol):
    """What is asked of a library: its types with their configuration classes, and the tasks and classes of each."""

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
    """The version of diffusers that recipes count for: the installed one, else the newest that any ship for."""
    shipped = [path.name.removeprefix(f"{LIBRARY}-") for path in SHIPPED.glob(f"{LIBRARY}-*")]
    return installed_diffusers() or max(shipped, key=Version, default="")


@functools.cache
def diffusion_catalog() -> DiffusionCatalog:
    """The families of the installed diffusers, else those whose recipes ship."""
    known: dict[str, dict[str, str]] = {}
    if not installed_diffusers():
        for path in sorted((SHIPPED / f"{LIBRARY}-{diffusers_version()}").glob("*.json")):
            recipe = json.loads(path.read_text(encoding="utf-8"))
            known.setdefault(recipe["model_type"], {})[recipe["task"]] = recipe["model_class"]
    return DiffusionCatalog(version=diffusers_version(), mappings=pipeline_mappings(), known=MappingProxyType(known))


def catalog_of(model_type: str) -> AnyCatalog:
    """The catalog that knows a type, transformers' where both or none do."""
    transformers = load_catalog()
    if model_type not in transformers.configs and model_type in diffusion_catalog().configs:
        return diffusion_catalog()
    return transformers


def is_known(model_type: str) -> bool:
    """Whether any library knows a type."""
    return model_type in catalog_of(model_type).configs


def known_types() -> tuple[str, ...]:
    """The types of all libraries, those of transformers first."""
    return (*load_catalog().configs, *diffusion_catalog().configs)


def usable_types() -> tuple[str, ...]:
    """The types of the libraries that are installed, in alphabetical order within each."""
    return (*load_catalog().model_types, *(diffusion_catalog().model_types if installed_diffusers() else ()))


def lacking(library: str) -> str:
    """What is missing before models of a library can run here, and the command; empty where it is installed."""
    return f"diffusers isn't installed. {INSTALL}" if library == LIBRARY and not installed_diffusers() else ""


def require(library: str) -> None:
    """Raises `ModelError` with the command that installs a library that isn't here."""
    if library == LIBRARY and not installed_diffusers():
        raise ModelError(
            "no recipe of a diffusion model can be derived", why="diffusers isn't installed", fix=INSTALL
        )
