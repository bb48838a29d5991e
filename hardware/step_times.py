"""Whether speed is measured (`hardware/testing/speed_measurement.py`), and how long the steps of loading a model
took in this process: `export` and `compile`, in milliseconds. An export from the cache takes none."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_MEASURE = "HWCOMPAT_MEASURE"
"""The variable that makes the recorder measure if it is `1`. Child processes inherit it."""

SPEED = "measurement of speed"
"""The step of a child that measures after its last check: how it ends then says nothing about the checks,
none of which can have this name."""

_times: dict[str, float] = {}
_running: list[str] = []
listeners: list[Callable[[str], None]] = []
"""Called with the current step, and with an empty string after it. The parent records the step if a suite dies."""


def measure_speed() -> None:
    """Let suites that this process and its children run from now on be measured."""
    os.environ[_MEASURE] = "1"


def is_measured() -> bool:
    """Whether suites of this process are measured."""
    return os.environ.get(_MEASURE) == "1"


@contextmanager
def timed_step(step: str) -> Iterator[None]:
    """Add the time of this block to a step. A step inside of another is part of it: exports compile to verify."""
    _running.append(step)
    _notify()
    started = time.perf_counter()
    try:
        yield
    finally:
        _running.pop()
        _notify()
        if not _running:
            _times[step] = _times.get(step, 0.0) + 1e3 * (time.perf_counter() - started)


def _notify() -> None:
    for listener in listeners:
        listener(_running[0] if _running else "")


def take_steps() -> dict[str, float]:
    """Return the milliseconds of each step since the last call."""
    taken = dict(_times)
    _times.clear()
    return taken
