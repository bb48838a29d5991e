"""Values from texts of any content: what isn't a sensible value is None, and nothing raises."""

from __future__ import annotations

import functools
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_LARGEST = 2**63 - 1
_MOST_PROCESSORS = 2**14


@functools.cache
def data_file(path: Path) -> dict[str, Any]:
    """Return a TOML or JSON file of this package, read once."""
    text = path.read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    return found


def whole(value: object, *, least: int = 0, most: int = _LARGEST) -> int | None:
    """Return an integer from `least` to `most`, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    if isinstance(value, float) and number != value:
        return None
    return number if least <= number <= most else None


def decimal(value: object, *, least: float = 0.0, most: float = 1e15) -> float | None:
    """Return a finite number from `least` to `most`, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and least <= number <= most else None


def text(value: object) -> str | None:
    """Return a stripped text; None if it is empty or no text."""
    return (value.strip() or None) if isinstance(value, str) else None


def words(value: object) -> str:
    """Return a stripped text; empty if it is no text."""
    return text(value) or ""


def after(label: str, text: str) -> str | None:
    """Return the text after `label` on its line."""
    found = re.search(rf"^[^\S\n]*{re.escape(label)}[^\S\n]*(\S[^\n]*)$", text, re.MULTILINE)
    return found[1].strip() if found else None


def from_json(written: str | None) -> Any:
    """Return the value of a JSON text, or None if it is invalid."""
    try:
        return json.loads(written) if written else None
    except (ValueError, RecursionError):
        return None


def table(value: object) -> dict[str, Any]:
    """Return `value` if it is a table, else an empty one."""
    return dict(value) if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    """Return `value` if it is a list, else an empty one."""
    return list(value) if isinstance(value, list | tuple) else []


def tables(value: object) -> list[dict[str, Any]]:
    """Return the tables of a list; a single table counts as a list of one, as PowerShell prints it."""
    if isinstance(value, Mapping):
        return [dict(value)]
    return [dict(one) for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def inside(value: object, *keys: str) -> Any:
    """Return the value under `keys` in nested tables; None if one is missing."""
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def numbers_of(listed: str | None) -> tuple[int, ...]:
    """Return the numbers of a text such as `0-3,8`, at most 16,384; invalid parts are left out."""
    numbers: list[int] = []
    for part in (listed or "").split(","):
        first, _, last = part.strip().partition("-")
        low, high = whole(first), whole(last or first)
        if low is None or high is None or high - low >= _MOST_PROCESSORS:
            continue
        numbers.extend(range(low, high + 1))
        if len(numbers) > _MOST_PROCESSORS:
            return tuple(numbers[:_MOST_PROCESSORS])
    return tuple(numbers)


def pairs(lines: Iterable[str], separator: str = ":") -> dict[str, str]:
    """Return `key: value` lines as a table with the first value of each key."""
    found: dict[str, str] = {}
    for line in lines:
        key, middle, value = line.partition(separator)
        if middle:
            found.setdefault(key.strip(), value.strip())
    return found


def first_number(written: str | None) -> float | None:
    """Return the first decimal number in a text such as `16.0 GT/s PCIe`."""
    match = re.search(r"\d+(?:\.\d+)?", written or "")
    return decimal(match[0]) if match else None
