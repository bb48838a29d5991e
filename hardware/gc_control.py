"""Context managers that pause Python's garbage collection while many lasting objects are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_collecting() -> Iterator[None]:
    """Pause garbage collection in this block. For a report of a large folder, whose objects have no cycles, the
    search for them takes up to a third of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause garbage collection in this block, and exclude all objects that exist at its end from later collections.

    torch and transformers create about a million objects. Collecting while they are imported takes a fifth of the
    import time, and each full collection afterwards a quarter of a second; pytest runs five at the end of a session.
    """
    with not_collecting():
        try:
            yield
        finally:
            gc.freeze()
