"""overrides/*.toml: where the rules don't fit a model type. One entry a type, each with its reason."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hardware.errors import BrokenInput

from .scopes import default_of

_FOLDER = Path(__file__).parent / "overrides"


@functools.cache
def all_overrides() -> Mapping[str, Mapping[str, Any]]:
    """Every entry by model type. Raises `BrokenInput` where a type stands in two files."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted(_FOLDER.glob("*.toml")):
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        if twice := sorted(found.keys() & entries.keys()):
            raise BrokenInput(f"{', '.join(twice)} stands in {path.name} and in another file of overrides")
        found |= entries
    return found


def overrides(model_type: str) -> Mapping[str, Any]:
    """The entry of a model type, empty where it has none."""
    return all_overrides().get(model_type, {})


def overridden(
    arguments: Mapping[str, Any], changes: Mapping[str, Any], config: Any, whole: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`arguments` with the values of an entry, less those that the constructor of `config` sets by itself.

    A table changes a sub-configuration, where there is one of that name, and is a literal elsewhere. `whole` are the
    arguments around a sub-configuration's.
    """
    changed = dict(arguments)
    alone = config if whole is None or config is None else default_of(config)
    whole = changed if whole is None else whole
    for key, value in changes.items():
        default = getattr(config, key, None)
        if isinstance(value, Mapping) and (key in changed or hasattr(default, "to_dict")):
            changed[key] = overridden(changed.get(key, {}), value, default, whole)
        else:
            changed[key] = _referred(value, changed, config, whole)
        if (
            changed[key] == getattr(alone, key, None) and key != "model_type"
        ):  # a known class may be asked for by name
            del changed[key]
    return changed


def _referred(value: Any, arguments: Mapping[str, Any], config: Any, whole: Mapping[str, Any]) -> Any:
    """A literal of an entry, or for "@name" the tiny value of another attribute ("@part.name" of a part)."""
    if not (isinstance(value, str) and value.startswith("@")):
        return value
    scope, _, name = value[1:].rpartition(".")
    if scope:
        arguments, config = whole.get(scope, {}), getattr(config, scope, None)
    return arguments.get(name, getattr(config, name, None))
