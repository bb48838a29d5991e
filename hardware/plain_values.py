"""Dataclasses as plain JSON values, and back, by the names of their fields; tables as pandas DataFrames."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import HwCompatError

if TYPE_CHECKING:
    import pandas

_T = TypeVar("_T")


def data_frame(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> pandas.DataFrame:
    """Return rows as a DataFrame with these columns, enumerations as text.

    Raises `HwCompatError` if pandas isn't installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise HwCompatError("no table can be made", why="pandas isn't installed", fix="pip install pandas") from error
    plain = [[str(value) if isinstance(value, StrEnum) else value for value in map(row.get, columns)] for row in rows]
    return pandas.DataFrame(plain, columns=list(columns))


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields; none for any other type."""
    return typing.get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}


def json_values(value: Any) -> Any:
    """Return the plain JSON values of a dataclass."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: json_values(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): json_values(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(item) for item in value]
    return str(value) if isinstance(value, Enum) else value


def from_values(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """Return a dataclass from what `json_values` made of it, also with `inf` as text. Expects values that fit."""
    found: _T = _of(kind, values)
    return found


def _of(kind: Any, value: Any) -> Any:
    outer, inner = typing.get_origin(kind), typing.get_args(kind)
    if outer in (types.UnionType, typing.Union):
        return None if value is None else _of(next(one for one in inner if one is not type(None)), value)
    if kinds := _hints(kind):
        return kind(**{name: _of(kinds[name], one) for name, one in value.items()})
    if outer is tuple:
        each = inner[:1] * len(value) if ... in inner else inner
        return tuple(_of(one, item) for one, item in zip(each, value, strict=True))
    if inner and isinstance(value, Mapping):
        return {name: _of(inner[1], one) for name, one in value.items()}
    if inner and isinstance(value, list):
        return [_of(inner[0], one) for one in value]
    return kind(value) if isinstance(kind, type) and issubclass(kind, (Enum, float)) else value
