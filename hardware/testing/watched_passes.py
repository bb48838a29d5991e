"""Forward passes of a suite: for each set of inputs first a profiled pass, then a timed one as users run it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ..backends._torch import TorchRunnable
from ..backends._trace import host_products
from .reference import digest_of

if TYPE_CHECKING:
    from ..backends.base import Runnable
    from ..compare import Array


@dataclass(frozen=True, kw_only=True)
class SuitePass:
    """Outputs of a pass and its milliseconds; the outputs of the profiled pass of the same inputs, None if it ran
    before; and the operators by name that such a pass leaves to the host."""

    outputs: dict[str, Array]
    latency_ms: float
    watched: dict[str, Array] | None
    left: Mapping[str, int]


class WatchedPasses:
    """The models of one case on their target, and what is known of their passes."""

    def __init__(self) -> None:
        self._seen: WeakKeyDictionary[Runnable, dict[str, Mapping[str, int]]] = WeakKeyDictionary()

    def run(self, runnable: Runnable, inputs: Mapping[str, Array]) -> SuitePass:
        """Run a pass; before it, if these inputs are new, a profiled one. A runtime may leave its device when it
        isn't profiled, or compute differently when it is: the outputs of both are compared. A runtime's own record is
        incomplete, so that torch is profiled while a model of another runtime runs."""
        seen = self._seen.setdefault(runnable, {})
        values = digest_of(inputs)
        watched = None
        if values not in seen:
            watched, seen[values] = (None, {}) if runnable.on_host else _watched(runnable, inputs)
        started = time.perf_counter()
        outputs = runnable(**inputs)
        took = (time.perf_counter() - started) * 1e3
        return SuitePass(outputs=outputs, latency_ms=took, watched=watched, left=seen[values])


def _watched(runnable: Runnable, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], Mapping[str, int]]:
    if isinstance(runnable, TorchRunnable):
        return runnable.watched(inputs)
    runnable.prepare(inputs)  # torch exports on the host
    found: list[tuple[dict[str, Array], Mapping[str, int]]] = []
    beside = host_products(lambda: found.append(runnable.watched(inputs)))
    outputs, left = found[-1]
    return outputs, {**beside, **left}
