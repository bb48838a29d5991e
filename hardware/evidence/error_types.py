"""The names of what can be wrong: one list, which evidence, rules, project files and findings share."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

FILE = Path(__file__).with_name("error_types.toml")


@functools.cache
def _data() -> Mapping[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def facts_of_error_types() -> Mapping[str, Mapping[str, Any]]:
    """What the data file says of each error type by name, in its order."""
    return MappingProxyType(_data()["type"])


def known_error_types() -> tuple[str, ...]:
    """The names of all error types, in the order of the data file."""
    return tuple(_data()["type"])


@functools.cache
def _by_exception() -> Mapping[str, str]:
    facts = facts_of_error_types()
    return {cls: name for name in facts for cls in facts[name].get("exceptions", ())}


def type_of_exception(error: BaseException) -> str:
    """The error type that an exception's class, or one that it is made from, stands for; empty where none does."""
    return next((_by_exception()[cls.__name__] for cls in type(error).__mro__ if cls.__name__ in _by_exception()), "")


def current_name(name: str) -> str:
    """What an error type is called now; a name that older lines carry becomes it, any other stays as it is."""
    return str(_data()["alias"].get(name, name))
