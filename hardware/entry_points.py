"""What installed packages bring to this one, by the entry points that they declare; they are read once a process."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

OURS = "hwcompat."
"""What the names of our groups begin with."""


@functools.cache
def _is_any_declared() -> bool:
    """Whether a package anywhere declares an entry point of ours. Most machines have none, and the library that reads
    them takes longer than a whole inventory."""
    for place in sys.path:
        with contextlib.suppress(OSError):  # what isn't a folder declares nothing
            for entry in os.listdir(place or "."):
                if entry.endswith((".dist-info", ".egg-info")):
                    with contextlib.suppress(OSError):
                        if OURS in Path(place, entry, "entry_points.txt").read_text(errors="replace"):
                            return True
    return False


@functools.cache
def _all() -> Any:  # Python 3.11 gives another type than later ones, with the same `select`
    import importlib.metadata

    return importlib.metadata.entry_points()


def entry_points(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name. Loads none."""
    return {point.name: point for point in _all().select(group=group)} if _is_any_declared() else {}
