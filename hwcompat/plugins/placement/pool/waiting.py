"""Whether a thread that waits for others can ever go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Blockers = Callable[[], set[int]]
"""The threads, by identity, any of which may end a wait. Asked anew each time, since it changes."""


class Waits:
    """Which thread waits for which, so that a wait that could never end is an error instead."""

    def __init__(self) -> None:
        self._of: dict[int, list[Blockers]] = {}

    @contextmanager
    def waiting(self, thread: int, blockers: Blockers) -> Iterator[None]:
        """Note that `thread` waits. A thread can wait in two places: a signal's handler may ask the pool too."""
        self._of.setdefault(thread, []).append(blockers)
        try:
            yield
        finally:
            waits = self._of[thread]
            waits.remove(blockers)
            if not waits:
                del self._of[thread]

    def can_end(self, thread: int, blockers: set[int]) -> bool:
        """Whether a thread that runs can be reached from those that `thread` would wait for.

        One that waits itself is followed to those that it waits for; one that waits for no one in particular runs.
        """
        met = {thread}
        to_see = list(blockers - met)
        while to_see:
            one = to_see.pop()
            if one in met:
                continue
            met.add(one)
            waits = self._of.get(one)
            following: set[int] = set().union(*(ask() for ask in waits)) if waits else set()
            if not following:
                return True
            to_see += following - met
        return False

    def forget_others(self, thread: int) -> None:
        """Keep the waits of one thread: after a fork there is no other."""
        self._of = {one: waits for one, waits in self._of.items() if one == thread}
