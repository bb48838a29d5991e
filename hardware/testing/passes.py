"""Forward passes of a suite, timed, and what they leave to the host: asked once for each set of inputs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ..backends._torch import TorchRunnable
from ..backends._trace import host_products
from .reference import digest_of

if TYPE_CHECKING:
    from ..backends.base import Runnable
    from ..compare import Array


class WatchedPasses:
    """The models of one case on their target, and what is known of their passes."""

    def __init__(self) -> None:
        self._seen: WeakKeyDictionary[Runnable, dict[str, Mapping[str, int]]] = WeakKeyDictionary()

    def run(
        self, runnable: Runnable, inputs: Mapping[str, Array]
    ) -> tuple[dict[str, Array], float, Mapping[str, int]]:
        """Outputs, milliseconds, and the operators by name that such a pass leaves to the host.

        What a runtime says of itself isn't all: torch is watched while a model of another runtime runs once more. The
        first time, it may still export, which torch does on the host.
        """
        started = time.perf_counter()
        outputs = runnable(**inputs)
        took = (time.perf_counter() - started) * 1e3
        seen = self._seen.setdefault(runnable, {})
        values = digest_of(inputs)
        if values not in seen:
            own = isinstance(runnable, TorchRunnable)
            beside = {} if own else host_products(lambda: runnable(**inputs))
            seen[values] = {**beside, **runnable.left_to_host(inputs)}
        return outputs, took, seen[values]
