"""Determine family, architecture and traits of a model type; the facts are in architectures.toml."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from .catalog import Catalog, config_defaults, load_catalog
from .model_libraries import AnyCatalog

UNKNOWN = "unknown"


@functools.cache
def architecture_data() -> Mapping[str, Any]:
    """Return the content of architectures.toml."""
    with (Path(__file__).parent / "architectures.toml").open("rb") as file:
        return tomllib.load(file)


def shape_of(model_type: str, task: str, catalog: AnyCatalog) -> tuple[str, str, str]:
    """Return family, architecture and confidence of a type whose primary task is `task`."""
    if catalog.library in architecture_data()["library"]:
        return (*architecture_data()["library"][catalog.library], "high")
    return _shape_by_mappings(model_type, task, load_catalog())


def _shape_by_mappings(model_type: str, task: str, catalog: Catalog) -> tuple[str, str, str]:
    for exception in architecture_data()["exception"]:
        if exception["model_type"] == model_type:
            return (*exception["is"], "high")
    if task in architecture_data()["task"]:
        return (*architecture_data()["task"][task], "high")
    if processed := _shape_by_processors(catalog.modalities(model_type)):
        return (*processed, "medium")
    for other in catalog.tasks_of(model_type):
        if other.task in architecture_data()["task"]:
            return (*architecture_data()["task"][other.task], "medium")
    defaults = config_defaults(model_type)
    for attribute, shape in architecture_data()["attribute"].items():
        if attribute in defaults:
            return (*shape, "medium")
    for word, shape in architecture_data()["part"].items():
        if word in re.split(r"[-_]", model_type):
            return (*shape, "low")
    for whole in filter(None, map(catalog.whole_of, catalog.names_of(model_type))):
        if found := _shape_of_part(whole, catalog):
            return (*found, "low")
    return "other", UNKNOWN, "low"


def _shape_of_part(whole: str, catalog: Catalog) -> tuple[str, str] | None:
    """Return the shape of a part whose name doesn't say what it reads: by the processors of the `whole` beside text,
    else by its task if that is of one kind."""
    if processed := _shape_by_processors(catalog.modalities(whole) - {"text"}):
        return processed
    tasks = catalog.tasks_of(whole)
    family, architecture = architecture_data()["task"].get(tasks[0].task if tasks else "", ("", ""))
    return (family, architecture) if family in ("audio", "vision") else None


def _shape_by_processors(kinds: Set[str]) -> tuple[str, str] | None:
    """Return family and architecture of a model with processors of these kinds, or None if no line matches."""
    for line in architecture_data()["modality"]:
        if set(line["kinds"]) <= kinds:
            family, architecture = line["is"]
            return family, architecture
    return None


def traits_of(model_type: str, given: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Return the traits of a type's configuration, in alphabetical order.

    `given` is a checkpoint's own configuration, with its nested parts.
    """
    defaults = config_defaults(model_type) if model_type in load_catalog().configs else {}
    traits = _shown(_merged(defaults, given or {}))
    traits |= {trait for trait, types in architecture_data()["traits_of_type"].items() if model_type in types}
    return tuple(sorted(traits))


def _merged(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**defaults, **given}
    for key, value in given.items():
        if isinstance(value, Mapping) and isinstance(defaults.get(key), Mapping):
            merged[key] = _merged(defaults[key], value)
    return merged


def _shown(config: Mapping[str, Any]) -> set[str]:
    signs = architecture_data()["traits"]

    def shows(sign: str) -> bool:
        values = [config.get(attribute) for attribute in signs[sign]]
        return any(v is True or (isinstance(v, int | float) and v > 1) for v in values)

    traits = {trait for trait in ("mixture-of-experts", "state-space") if shows(trait)}
    if ("state-space" in traits or shows("recurrence")) and shows("attention"):
        traits |= {"hybrid"}
    parts = [_shown(part) for part in config.values() if isinstance(part, Mapping)]
    return traits.union(*parts)
