"""Tables as pandas DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from .errors import HwCompatError

if TYPE_CHECKING:
    import pandas


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
