"""`Lease`: the promise that a resource stays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from hardware.errors import UsageError

from .state import Entry

T = TypeVar("T")

Ending = Callable[[Entry, int], None]
"""What a lease's end calls, with the resource and the thread that asked for it."""


class Lease(Generic[T]):
    """A resource that stays as long as this does: until `release`, or the end of the `with` block."""

    def __init__(self, entry: Entry, release: Ending, forget: Ending) -> None:
        self._release = release
        self._forget = forget
        self._entry: Entry | None = entry
        self._thread = threading.get_ident()

    @property
    def resource(self) -> T:
        """What is leased. Raises `UsageError` after the release."""
        entry = self._entry
        if entry is None:
            raise UsageError("the lease has ended", fix="Use the resource inside of its `with` block.")
        resource: T = entry.resource
        return resource

    def release(self) -> None:
        """Give it back; again is harmless. Any thread may."""
        entry, self._entry = self._entry, None
        if entry is not None:
            self._release(entry, self._thread)

    def __enter__(self) -> T:
        return self.resource

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        # May run at any moment, under the pool's lock too: the pool takes it up at its next call.
        if self._entry is not None:
            self._forget(self._entry, self._thread)
