"""When Python looks for garbage: not while libraries are imported or reports are made,
whose objects stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_collecting() -> Iterator[None]:
    """For making much that stays: nothing is collected in this block. Python's search for cycles among what a report
    makes of a large folder, which holds none, takes up to a third of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def uncollected() -> Iterator[None]:
    """For importing much: nothing is collected in this block, and what there is at its end is never looked at again.

    torch and transformers leave about a million objects. Looking through them while they become more is a fifth of
    the time that importing them takes; afterwards each whole collection would take a quarter of a second, and pytest
    asks for five at the end of a session.
    """
    with not_collecting():
        try:
            yield
        finally:
            gc.freeze()
