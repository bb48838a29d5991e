"""overrides/*.toml: where the rules don't fit a model type. One entry a type, each with its reason."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from generators.models.catalog import installed_version
from hardware.errors import BrokenInput

from .scopes import default_of, roles

_FOLDER = Path(__file__).parent / "overrides"
_KEYS = frozenset({"reason", "like", "parts", "config", "inputs", "left_out", "not_asked", "refused"})
_TAKEN_OVER = ("config", "inputs")
_CANNOT_BE_ASKED = frozenset({"padding", "decoding"})


@functools.cache
def all_overrides() -> Mapping[str, Mapping[str, Any]]:
    """Every entry by model type, with what those that it is `like` say of `config` and `inputs`.

    Raises `BrokenInput` where a type stands in two files, an entry says something that nothing reads or gives no
    reason, or likeness has no end.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(_FOLDER.glob("*.toml")):
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        if twice := sorted(found.keys() & entries.keys()):
            raise BrokenInput(f"{', '.join(twice)} stands in {path.name} and in another file of overrides")
        found |= entries
    for name, entry in found.items():
        _require_known(name, entry)
    return {name: _with_likes(name, found) for name in found}


def _require_known(name: str, entry: Mapping[str, Any]) -> None:
    if unknown := sorted(entry.keys() - _KEYS):
        raise BrokenInput(f"the overrides of {name} say something unknown", why=", ".join(unknown))
    if not entry.keys() & {"reason", "refused"}:
        raise BrokenInput(f"the overrides of {name} have no reason")
    not_asked = set(entry.get("not_asked", ()))
    if not not_asked <= _CANNOT_BE_ASKED:
        raise BrokenInput(f"the overrides of {name} leave out a check that is required")
    if not_asked and "left_out" not in entry:
        raise BrokenInput(f"the overrides of {name} leave out a check and don't say why")


def _with_likes(name: str, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The entry of `name` over those that it is like, the furthest first."""
    chain = [name]
    while like := entries[chain[-1]].get("like"):
        if like in chain or like not in entries:
            raise BrokenInput(f"{name} is like {like}, which {'is like it' if like in chain else 'has no entry'}")
        chain.append(like)
    merged = {
        what: {key: value for one in reversed(chain) for key, value in entries[one].get(what, {}).items()}
        for what in _TAKEN_OVER
    }
    return {**entries[name], **{what: told for what, told in merged.items() if told}}


def overrides(model_type: str, task: str = "") -> Mapping[str, Any]:
    """The entry of a model type: that for a task where there is one (`blip@visual-question-answering`), else that for
    the installed version of transformers (`dbrx@4.57`); empty where it has none."""
    found = all_overrides()
    version = ".".join(installed_version().split(".")[:2])
    keys = (f"{model_type}@{task}", f"{model_type}@{version}", model_type)
    return next((found[key] for key in keys if key in found), {})


def overridden(
    arguments: Mapping[str, Any], changes: Mapping[str, Any], config: Any, whole: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`arguments` with the values of an entry, less those that the constructor of `config` sets by itself.

    A table changes a sub-configuration, where there is one of that name, and is a literal elsewhere. `whole` are the
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
        ):  # a known class may be asked for by name
            del changed[key]
    return {key: value for key, value in changed.items() if key in changes or not _is_outdated(key, value, changes)}


def _is_outdated(name: str, value: Any, changes: Mapping[str, Any]) -> bool:
    """Whether this lists the kinds of other layers than as many as an entry asks for: without it, the constructor
    counts them anew."""
    wanted = next((changes[one] for one in roles()["config"]["layers"] if one in changes), None)
    is_list = name in roles()["config"]["layer_kinds"] and isinstance(value, list)
    return is_list and wanted is not None and len(value) != wanted


def _referred(value: Any, arguments: Mapping[str, Any], config: Any, whole: Mapping[str, Any]) -> Any:
    """A literal of an entry, or for "@name" the tiny value of another attribute ("@part.name" of a part)."""
    if not (isinstance(value, str) and value.startswith("@")):
        return value
    scope, _, name = value[1:].rpartition(".")
    if scope:
        arguments, config = whole.get(scope, {}), getattr(config, scope, None)
    return arguments.get(name, getattr(config, name, None))
