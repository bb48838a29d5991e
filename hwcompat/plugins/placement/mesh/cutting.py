"""Where a pipeline is cut: contiguous layers for each stage, so that the fullest device is as empty as it can be."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from .figures import ModelFigures


def cut(figures: ModelFigures, tensor: int, room: Sequence[float]) -> tuple[tuple[int, int], ...]:
    """Layers [first, stop) of each stage, one stage for each entry of `room`: bytes on each device of that stage.

    The largest share of a device's room that is used is as small as any cut makes it; of cuts that are equal in that,
    the one that leaves the later stages more. There must be at least as many layers as stages.
    """
    count, stages = len(figures.layers), len(room)

    @functools.cache
    def best(stage: int, first: int) -> tuple[float, tuple[int, ...]]:
        """The smallest largest share of this stage and those behind it, and where each of them stops."""
        if stage == stages - 1:
            return share(stage, first, count), (count,)
        found: tuple[float, tuple[int, ...]] = (math.inf, ())
        for stop in range(first + 1, count - (stages - stage - 1) + 1):
            own = share(stage, first, stop)
            if found[1] and own > found[0]:
                break  # more layers only make this stage fuller
            rest, stops = best(stage + 1, stop)
            if not found[1] or max(own, rest) < found[0]:
                found = max(own, rest), (stop, *stops)
        return found

    def share(stage: int, first: int, stop: int) -> float:
        return figures.part_bytes(first, stop, tensor) / max(1.0, room[stage])

    stops = best(0, 0)[1]
    return tuple(zip((0, *stops[:-1]), stops, strict=True))
