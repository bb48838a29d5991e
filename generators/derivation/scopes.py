"""A configuration and its parts, and what the names of their attributes mean (roles.toml)."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hardware.errors import ModelError


@functools.cache
def roles() -> Mapping[str, Mapping[str, Any]]:
    """roles.toml: names of configuration attributes and of parameters by what they mean."""
    with (Path(__file__).parent / "roles.toml").open("rb") as file:
        return tomllib.load(file)


def arguments_of(config: Any) -> tuple[str, ...]:
    """What the constructor of a configuration takes, whether it is a dataclass (5.x) or not (4.x)."""
    if dataclasses.is_dataclass(config):
        return tuple(f.name for f in dataclasses.fields(config) if f.init)
    return tuple(p for p in inspect.signature(type(config).__init__).parameters if p not in ("self", "kwargs"))


def declared_parts(config_class: Any) -> Mapping[str, Any]:
    """The classes of a configuration's parts by attribute name, as far as its class says. Some of 4.x tell of their
    backbone by instance only: it may be of any type."""
    found = getattr(config_class, "sub_configs", None)
    return found if isinstance(found, Mapping) else {}


def children(config: Any) -> dict[str, Any]:
    """The sub-configurations of a configuration by attribute name."""
    names = declared_parts(type(config)) or vars(config)
    found = {name: getattr(config, name, None) for name in names}
    return {name: child for name, child in found.items() if hasattr(child, "to_dict")}


def attribute_of(config: Any, *names: str) -> Any:
    """The first of these that a configuration or one of its parts has; None where none does."""
    for scope in tree(config):
        for name in names:
            value = getattr(scope, name, None)
            if value is not None:
                return value
    return None


def known_of(config: Any, what: str, *names: str) -> list[Any]:
    """These attributes of a configuration or its parts. Raises `ModelError` where one isn't there."""
    values = [attribute_of(config, name) for name in names]
    if None in values:
        raise ModelError(
            f"the shape of the {what} of {config.model_type} is not known",
            why=f"its configuration has no {' and '.join(names)}",
        )
    return values


def text_config(config: Any) -> Any:
    """The part of a configuration that holds the vocabulary: itself, or its `text_config`."""
    return next((c for c in tree(config) if getattr(c, "vocab_size", None)), config)


def tree(config: Any) -> Iterator[Any]:
    """A configuration and all its parts, the outer ones first."""
    yield config
    for child in children(config).values():
        yield from tree(child)


def role_of(config: Any, role: str) -> dict[str, Any]:
    """The attributes of `config` with this role that the constructor takes and that are set."""
    values = {name: getattr(config, name, None) for name in arguments_of(config) if name in roles()["config"][role]}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def whole_numbers(values: Mapping[str, Any]) -> dict[str, int]:
    """Those that are positive whole numbers."""
    return {k: v for k, v in values.items() if isinstance(v, int) and v > 0}


def stages(values: Mapping[str, Any]) -> dict[str, list[int]]:
    """Those that are lists with a number for each stage."""
    lists = {k: list(v) for k, v in values.items() if isinstance(v, list | tuple) and v}
    return {k: v for k, v in lists.items() if all(isinstance(one, int) and one > 0 for one in v)}


def numbers(values: Mapping[str, Any]) -> list[int]:
    """All whole numbers, those of lists too."""
    return [*whole_numbers(values).values(), *(one for stages in stages(values).values() for one in stages)]


def token_ids(config: Any) -> dict[str, int]:
    """Special tokens by attribute name: what the constructor takes that ends in `_token_id` or `_token_index`."""
    values = {name: getattr(config, name, None) for name in arguments_of(config)}
    return {
        name: value
        for name, value in values.items()
        if name.endswith(("_token_id", "_token_index")) and isinstance(value, int) and value >= 0
    }


def unset_places(config: Any) -> list[str]:
    """Tokens that keep places for an image or a sound, which the constructor takes but its defaults leave out."""
    names = [name for name in arguments_of(config) if name in roles()["config"]["place_tokens"]]
    return [name for name in names if getattr(config, name, None) is None]


def special_tokens(config: Any) -> frozenset[int]:
    """The ids of all special tokens in a configuration tree."""
    return frozenset(value for scope in tree(config) for value in token_ids(scope).values())


def default_of(config: Any) -> Any:
    """An object of the same class as its constructor makes it by itself; `config` where it has no defaults."""
    return config if getattr(config, "has_no_defaults_at_init", False) else readable(type(config)())


def readable(config: Any) -> Any:
    """`config`, all of whose attributes can be read: transformers 5.2x refuses to say those that differ by layer, as
    a head's width may, unless it is told that the value of the other layers is meant."""
    for scope in tree(config):
        if getattr(scope, "is_heterogeneous", False):
            scope.allow_global_per_layer_attribute_access = True
    return config
