"""Libraries of vendors that are opened once: on the first question, until they are given back."""

from __future__ import annotations

import threading
from abc import abstractmethod
from dataclasses import dataclass

from ..machine import Library
from .base import DriverState, LibraryState

OPENING = "opening"
"""The question that is no function of the library: the state of library and driver, and why it doesn't start."""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What came of starting a library; `reason` is empty when the door is open."""

    library: LibraryState
    driver: DriverState
    reason: str = ""


class OpenedOnce(Library):
    """A library that remembers what came of starting it. `_lock` is held while it is started and given back."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._opening: Opening | None = None

    def _open(self) -> Opening:
        with self._lock:
            if self._opening is None:
                self._opening = self._start()
            return self._opening

    @abstractmethod
    def _start(self) -> Opening:
        """Load and start the library."""

    @staticmethod
    def _told(opening: Opening) -> list[str]:
        """The answer to `OPENING`, as plain data."""
        return [str(opening.library), str(opening.driver), opening.reason]


def opening_of(library: Library) -> Opening:
    """The state of a library and its driver; missing where it wasn't there when the machine was recorded."""
    told = library.ask(OPENING)
    if told.value is None:
        return Opening(library=LibraryState.MISSING, driver=DriverState.UNKNOWN, reason=told.reason)
    library_state, driver, reason = told.value
    return Opening(library=LibraryState(library_state), driver=DriverState(driver), reason=reason)
