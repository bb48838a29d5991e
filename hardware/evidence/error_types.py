"""The names of error types, which evidence, rules, project files and findings share."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..values import data_file

FILE = Path(__file__).with_name("error_types.toml")

NUMBERS_CHANGED = "upgrade_changed_numbers"
"""The error type of recorded numbers that the installed version of the library doesn't compute."""


def facts_of_error_types() -> Mapping[str, Mapping[str, Any]]:
    """Return the facts in the data file about each error type, by name and in order."""
    return MappingProxyType(data_file(FILE)["type"])


def known_error_types() -> tuple[str, ...]:
    """Return the names of all error types in the order of the data file."""
    return tuple(data_file(FILE)["type"])


@functools.cache
def _by_exception() -> Mapping[str, str]:
    facts = facts_of_error_types()
    return {cls: name for name in facts for cls in facts[name].get("exceptions", ())}


def type_of_exception(error: BaseException) -> str:
    """Return the error type of an exception's class or of one of its base classes, or an empty text."""
    return next((_by_exception()[cls.__name__] for cls in type(error).__mro__ if cls.__name__ in _by_exception()), "")


def former_names() -> tuple[str, ...]:
    """Return the names that error types had before."""
    return tuple(data_file(FILE)["alias"])


def current_name(name: str) -> str:
    """Return today's name of an error type: older lines may contain a former one."""
    return str(data_file(FILE)["alias"].get(name, name))
