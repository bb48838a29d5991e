"""Values out of what tools print: each function gives `None` (or nothing) where the text isn't what was expected."""

from __future__ import annotations

import json
import math
import re
from typing import Any

LARGEST = 2**63 - 1
"""No size, count or temperature is larger; a text that says more is broken."""


def whole(value: Any) -> int | None:
    """A whole number that isn't negative, out of a number or a text that holds nothing else."""
    found = fraction(value)
    return int(found) if found is not None and 0 <= found <= LARGEST and found == int(found) else None


def fraction(value: Any) -> float | None:
    """A finite number, out of a number or a text that holds nothing else. A decimal comma counts as a point."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value.strip().replace(",", ".") if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def percent(value: Any) -> float | None:
    """A number from 0 to 100."""
    found = fraction(value)
    return found if found is not None and 0 <= found <= 100 else None


def parsed(text: str | None) -> Any:
    """What a JSON text holds; `None` where it is none."""
    try:
        return json.loads(text or "")
    except (ValueError, RecursionError):
        return None


def table(value: Any) -> dict[str, Any]:
    """A table of a JSON text; empty where it is something else."""
    return value if isinstance(value, dict) else {}


def tables(value: Any) -> list[dict[str, Any]]:
    """The tables of a list of a JSON text. One table that stands alone is a list of one, as PowerShell writes it."""
    if isinstance(value, dict):
        return [value]
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def words(value: Any) -> str:
    """A text of a JSON text without blanks around it; empty where it is something else."""
    return value.strip() if isinstance(value, str) else ""


def after(label: str, text: str) -> str | None:
    """What follows `label` on its line."""
    found = re.search(rf"^[^\S\n]*{re.escape(label)}[^\S\n]*(\S[^\n]*)$", text, re.MULTILINE)
    return found[1].strip() if found else None
