"""`ModelFigures`: plain numbers of a model for a plan, and the division of its layers into stages."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ModelFigures:
    """Bytes of parameters in the planned dtype, and what the splits must divide.

    `layers` are the bytes of each layer, `before` and `after` those before the first (embeddings) and after the last
    (norm, head); a tied parameter counts in both, since both stages hold it. The `split_` figures are the shares of
    these that a tensor split divides; every rank holds the rest whole. `divided` names what a tensor split divides
    (`attention heads`: 32). `tensor_plan` names the source of that plan, empty for none, and `no_tensor` why there is
    none; `no_pipeline` why the layers can't be stages. `batch` is that of the inputs split over `data`; None if none
    is planned.
    """

    name: str
    dtype: str
    parameters: int
    layers: tuple[int, ...]
    before: int
    after: int
    split_layers: tuple[int, ...]
    split_before: int = 0
    split_after: int = 0
    divided: Mapping[str, int] = field(default_factory=dict)
    tensor_plan: str = ""
    no_tensor: str = ""
    no_pipeline: str = ""
    batch: int | None = None

    def part_bytes(self, first: int, stop: int, tensor: int) -> int:
        """Return the bytes of one rank of a stage with layers [first, stop), split by `tensor`."""
        whole = sum(self.layers[first:stop])
        split = sum(self.split_layers[first:stop])
        if first == 0:
            whole, split = whole + self.before, split + self.split_before
        if stop == len(self.layers):
            whole, split = whole + self.after, split + self.split_after
        return whole - split + -(-split // tensor)

    @property
    def total_bytes(self) -> int:
        """Bytes on one device."""
        return self.part_bytes(0, len(self.layers), 1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"divided": dict(self.divided)}


def cut(figures: ModelFigures, tensor: int, room: Sequence[float]) -> tuple[tuple[int, int], ...]:
    """Return layers [first, stop) of each stage; `room` has the bytes on each device of a stage.

    The largest used share of a device's memory is minimal; of equal divisions, the one that leaves more layers to
    later stages. There must be at least as many layers as stages.
    """
    count, stages = len(figures.layers), len(room)

    @functools.cache
    def best(stage: int, first: int) -> tuple[float, tuple[int, ...]]:
        """Return the smallest largest share of this stage and later ones, and where each of them stops."""
        if stage == stages - 1:
            return share(stage, first, count), (count,)
        found: tuple[float, tuple[int, ...]] = (math.inf, ())
        for stop in range(first + 1, count - (stages - stage - 1) + 1):
            own = share(stage, first, stop)
            if found[1] and own > found[0]:
                break  # more layers only increase the use of this stage
            rest, stops = best(stage + 1, stop)
            if not found[1] or max(own, rest) < found[0]:
                found = max(own, rest), (stop, *stops)
        return found

    def share(stage: int, first: int, stop: int) -> float:
        return figures.part_bytes(first, stop, tensor) / max(1.0, room[stage])

    stops = best(0, 0)[1]
    return tuple(zip((0, *stops[:-1]), stops, strict=True))
