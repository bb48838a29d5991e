"""What installed packages bring to this one, by the entry points that they declare; they are read once a process."""

from __future__ import annotations

import functools
import importlib.metadata
from typing import Any


@functools.cache
def _all() -> Any:  # Python 3.11 gives another type than later ones, with the same `select`
    return importlib.metadata.entry_points()


def entry_points(group: str) -> dict[str, importlib.metadata.EntryPoint]:
    """The entry points of a group by name. Loads none."""
    return {point.name: point for point in _all().select(group=group)}
