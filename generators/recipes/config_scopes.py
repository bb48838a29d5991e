"""Read a configuration and its parts, the meaning of their attributes (roles.toml), and exceptions of model types
(overrides/*.toml: one entry per type, each with its reason)."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hwcompat.generators.models.catalog import installed_version
from hwcompat.hardware.errors import BrokenInput, ModelError

_FOLDER = Path(__file__).parent / "overrides"
_KEYS = frozenset({"reason", "like", "parts", "config", "inputs", "left_out", "not_asked", "refused"})
_TAKEN_OVER = ("config", "inputs")
_OPTIONAL = frozenset({"padding", "decoding"})


@functools.cache
def roles() -> Mapping[str, Mapping[str, Any]]:
    """Return roles.toml: names of configuration attributes and of parameters by their meaning."""
    with (Path(__file__).parent / "roles.toml").open("rb") as file:
        return tomllib.load(file)


def arguments_of(config: Any) -> tuple[str, ...]:
    """Return the constructor arguments of a configuration, a dataclass (5.x) or not (4.x)."""
    if dataclasses.is_dataclass(config):
        return tuple(f.name for f in dataclasses.fields(config) if f.init)
    return tuple(p for p in inspect.signature(type(config).__init__).parameters if p not in ("self", "kwargs"))


def declared_parts(config_class: Any) -> Mapping[str, Any]:
    """Return the declared classes of a configuration's parts by attribute name. Some of 4.x have a backbone of any
    type, known only from an instance."""
    found = getattr(config_class, "sub_configs", None)
    return found if isinstance(found, Mapping) else {}


def children(config: Any) -> dict[str, Any]:
    """Return the sub-configurations of a configuration by attribute name."""
    names = declared_parts(type(config)) or vars(config)
    found = {name: getattr(config, name, None) for name in names}
    return {name: child for name, child in found.items() if hasattr(child, "to_dict")}


def attribute_of(config: Any, *names: str) -> Any:
    """Return the first of these attributes that a configuration or one of its parts has, or None."""
    for scope in tree(config):
        for name in names:
            value = getattr(scope, name, None)
            if value is not None:
                return value
    return None


def known_of(config: Any, what: str, *names: str) -> list[Any]:
    """Return these attributes of a configuration or its parts. Raises `ModelError` if one is missing."""
    values = [attribute_of(config, name) for name in names]
    if None in values:
        raise ModelError(
            f"the shape of the {what} of {config.model_type} is unknown",
            why=f"its configuration has no {' and '.join(names)}",
        )
    return values


def text_config(config: Any) -> Any:
    """Return the part of a configuration that has the vocabulary: itself, or its `text_config`."""
    return next((c for c in tree(config) if getattr(c, "vocab_size", None)), config)


def tree(config: Any) -> Iterator[Any]:
    """Yield a configuration and all its parts, the outer ones first."""
    yield config
    for child in children(config).values():
        yield from tree(child)


def role_of(config: Any, role: str) -> dict[str, Any]:
    """Return the attributes of `config` with this role that the constructor takes and that are set."""
    values = {name: getattr(config, name, None) for name in arguments_of(config) if name in roles()["config"][role]}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def whole_numbers(values: Mapping[str, Any]) -> dict[str, int]:
    """Return the values that are positive whole numbers."""
    return {k: v for k, v in values.items() if isinstance(v, int) and v > 0}


def stages(values: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the values that are lists with a number for each stage."""
    lists = {k: list(v) for k, v in values.items() if isinstance(v, list | tuple) and v}
    return {k: v for k, v in lists.items() if all(isinstance(one, int) and one > 0 for one in v)}


def numbers(values: Mapping[str, Any]) -> list[int]:
    """Return all whole numbers, also those in lists."""
    return [*whole_numbers(values).values(), *(one for stages in stages(values).values() for one in stages)]


def token_ids(config: Any) -> dict[str, int]:
    """Return special tokens by attribute name: constructor arguments that end in `_token_id` or `_token_index`."""
    values = {name: getattr(config, name, None) for name in arguments_of(config)}
    return {
        name: value
        for name, value in values.items()
        if name.endswith(("_token_id", "_token_index")) and isinstance(value, int) and value >= 0
    }


def unset_places(config: Any) -> list[str]:
    """Return the placeholder tokens of images or sounds that the constructor takes but its defaults leave out."""
    names = [name for name in arguments_of(config) if name in roles()["config"]["place_tokens"]]
    return [name for name in names if getattr(config, name, None) is None]


def special_tokens(config: Any) -> frozenset[int]:
    """Return the ids of all special tokens in a configuration tree."""
    return frozenset(value for scope in tree(config) for value in token_ids(scope).values())


def default_of(config: Any) -> Any:
    """Return an object of the same class with its defaults; `config` if it has no defaults."""
    return config if getattr(config, "has_no_defaults_at_init", False) else readable(type(config)())


def readable(config: Any) -> Any:
    """Return `config` with all attributes readable: transformers 5.2x refuses to read attributes that differ by
    layer, such as a head's width, unless the value of the other layers is requested."""
    for scope in tree(config):
        if getattr(scope, "is_heterogeneous", False):
            scope.allow_global_per_layer_attribute_access = True
    return config


@functools.cache
def all_overrides() -> Mapping[str, Mapping[str, Any]]:
    """Return all entries by model type, including `config` and `inputs` of the entries that they are `like`.

    Raises `BrokenInput` if a type is in two files, if an entry has an unknown key or no reason, or if `like` is
    circular.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(_FOLDER.glob("*.toml")):
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        if twice := sorted(found.keys() & entries.keys()):
            raise BrokenInput(f"{path.name} and another file of overrides both have {', '.join(twice)}")
        found |= entries
    for name, entry in found.items():
        _require_known(name, entry)
    return {name: _with_likes(name, found) for name in found}


def _require_known(name: str, entry: Mapping[str, Any]) -> None:
    if unknown := sorted(entry.keys() - _KEYS):
        raise BrokenInput(f"the overrides of {name} have unknown keys", why=", ".join(unknown))
    if not entry.keys() & {"reason", "refused"}:
        raise BrokenInput(f"the overrides of {name} have no reason")
    not_asked = set(entry.get("not_asked", ()))
    if not not_asked <= _OPTIONAL:
        raise BrokenInput(f"the overrides of {name} skip a check that is required")
    if not_asked and "left_out" not in entry:
        raise BrokenInput(f"the overrides of {name} skip a check without a reason")


def _with_likes(name: str, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the entry of `name` over those that it is like, the most distant first."""
    chain = [name]
    while like := entries[chain[-1]].get("like"):
        if like in chain or like not in entries:
            raise BrokenInput(
                f"{name} is like {like}, which {'refers back to it' if like in chain else 'has no entry'}"
            )
        chain.append(like)
    merged = {
        what: {key: value for one in reversed(chain) for key, value in entries[one].get(what, {}).items()}
        for what in _TAKEN_OVER
    }
    return {**entries[name], **{what: values for what, values in merged.items() if values}}


def overrides(model_type: str, task: str = "") -> Mapping[str, Any]:
    """Return the entry of a model type: that for a task (`blip@visual-question-answering`), else that for the
    installed version of transformers (`dbrx@4.57`), else the type's; empty if there is none."""
    found = all_overrides()
    version = ".".join(installed_version().split(".")[:2])
    keys = (f"{model_type}@{task}", f"{model_type}@{version}", model_type)
    return next((found[key] for key in keys if key in found), {})


def overridden(
    arguments: Mapping[str, Any], changes: Mapping[str, Any], config: Any, whole: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return `arguments` with the values of an entry, without those that the constructor of `config` sets itself.

    A table changes a sub-configuration of that name, if there is one, and is a literal otherwise. `whole` are the
    arguments around a sub-configuration's.
    """
    changed = dict(arguments)
    alone = default_of(config) if whole is not None and hasattr(config, "to_dict") else config
    whole = changed if whole is None else whole
    for key, value in changes.items():
        default = getattr(config, key, None)
        if isinstance(value, Mapping) and (key in changed or hasattr(default, "to_dict")):
            changed[key] = overridden(changed.get(key, {}), value, default, whole)
        else:
            changed[key] = _referred(value, changed, config, whole)
        if (
            changed[key] == getattr(alone, key, None) and key != "model_type"
        ):  # a known class may be requested by name
            del changed[key]
    return {key: value for key, value in changed.items() if key in changes or not _is_outdated(key, value, changes)}


def _is_outdated(name: str, value: Any, changes: Mapping[str, Any]) -> bool:
    """Return whether a list of layer kinds has another length than an entry asks for: without it, the constructor
    computes a new one."""
    wanted = next((changes[one] for one in roles()["config"]["layers"] if one in changes), None)
    is_list = name in roles()["config"]["layer_kinds"] and isinstance(value, list)
    return is_list and wanted is not None and len(value) != wanted


def _referred(value: Any, arguments: Mapping[str, Any], config: Any, whole: Mapping[str, Any]) -> Any:
    """Return a literal of an entry, or for "@name" the tiny value of another attribute ("@part.name" of a part)."""

    def look_up(name_of: str) -> Any:
        scope, _, name = name_of.rpartition(".")
        given, owner = (whole.get(scope, {}), getattr(config, scope, None)) if scope else (arguments, config)
        return given.get(name, getattr(owner, name, None))

    return referred(value, look_up)


def referred(value: Any, look_up: Callable[[str], Any]) -> Any:
    """Return a literal of overrides/*.toml, or for "@name" the result of `look_up`, also in lists."""
    if isinstance(value, list):
        return [referred(one, look_up) for one in value]
    return look_up(value[1:]) if isinstance(value, str) and value.startswith("@") else value
