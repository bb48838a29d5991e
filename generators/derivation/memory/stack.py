"""`Stack`: a model of many equal layers, reckoned from three shallow ones.

Weights, caches and activations of a forward pass grow evenly with the number of equal layers, and all that grows is
there at once behind the last of them; so does what a model of any depth takes at its peak. That three depths lie on a
line is checked; where they don't, and for training, whose peak may move, the whole model is run.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from generators.compatibility.memory.estimate import Anatomy, MemoryEstimate, MemoryRequest
from generators.derivation.scopes import role_of, tree
from generators.models.inputs import Specs

from .estimate import Skeleton

if TYPE_CHECKING:
    import torch

_LEAST_LAYERS = 16
"""Models that are less deep are run as they are."""
_LONGEST_PERIOD = 6
_ON_A_LINE = 1e-3
"""How far three depths may be off a line, as a share of the deepest one's memory."""


class Stack:
    """A model that `make` builds from a configuration."""

    def __init__(self, config: Any, make: Callable[[Any], torch.nn.Module]) -> None:
        self._config, self._make = config, make
        self._depth, self._depths = depths_of(config)

    @functools.cached_property
    def whole(self) -> Skeleton:
        """The model in its full depth."""
        return Skeleton(lambda: self._make(copy.deepcopy(self._config)))

    @functools.cached_property
    def _shallow(self) -> list[Skeleton]:
        configs = [with_layers(self._config, self._depth, depth) for depth in self._depths]
        return [Skeleton(functools.partial(self._make, config)) for config in configs]

    @property
    def least(self) -> Skeleton:
        """The model in the smallest depth that is looked at: it takes the same inputs."""
        return self._shallow[0] if self._depths else self.whole

    def estimate(self, request: MemoryRequest, specs: Specs, lengths: Sequence[int]) -> MemoryEstimate:
        """As `Skeleton.estimate`."""
        if self._depths and request.mode != "training":
            found = [one.estimate(request, specs, lengths) for one in self._shallow]
            if on_a_line([one.total for one in found]):
                parts = {name: self._at_depth([one.parts[name] for one in found]) for name in found[0].parts}
                return MemoryEstimate(request=request, **parts)
        return self.whole.estimate(request, specs, lengths)

    def anatomy(self) -> Anatomy:
        """As `Skeleton.anatomy`."""
        if not self._depths:
            return self.whole.anatomy()
        found = [vars(one.anatomy()) for one in self._shallow]
        if not on_a_line([one["parameters"] for one in found]):
            return self.whole.anatomy()
        return Anatomy(**{name: self._at_depth([one[name] for one in found]) for name in found[0]})

    def _at_depth(self, values: Sequence[int]) -> int:
        first, last = self._depths[0], self._depths[-1]
        a_layer = (values[-1] - values[0]) / (last - first)
        return round(values[-1] + a_layer * (self._depth - last))


def on_a_line(values: Sequence[int]) -> bool:
    """Whether three values at even distances lie on a line."""
    first, middle, last = values
    return abs(first + last - 2 * middle) <= _ON_A_LINE * last


def depths_of(config: Any) -> tuple[int, tuple[int, ...]]:
    """How many layers the deepest stacks of a configuration have, and three smaller numbers of layers to reckon from;
    none where the model isn't deep, has stacks of other depths, or layers that don't repeat."""
    counts = {
        value for scope in tree(config) for value in role_of(scope, "layers").values() if isinstance(value, int)
    }
    deep = [count for count in counts if count >= _LEAST_LAYERS]
    if len(deep) != 1:
        return max(counts, default=0), ()
    depth = deep[0]
    lists = [one for scope in tree(config) for one in _lists(scope, depth).values()]
    for period in range(1, _LONGEST_PERIOD + 1):
        repeats = all(one[place] == one[place % period] for one in lists for place in range(depth))
        step = period if period > 1 else 2
        if repeats and depth % period == 0 and depth > 3 * step:
            return depth, (step, 2 * step, 3 * step)
    return depth, ()


def _lists(scope: Any, depth: int) -> dict[str, list[Any]]:
    return {n: list(one) for n, one in vars(scope).items() if isinstance(one, list | tuple) and len(one) == depth}


def with_layers(config: Any, depth: int, wanted: int) -> Any:
    """A copy of a configuration with `wanted` layers in the stacks of `depth`."""
    shallow = copy.deepcopy(config)
    for scope in tree(shallow):
        for name, one in _lists(scope, depth).items():
            setattr(scope, name, one[:wanted])
        for name, value in role_of(scope, "layers").items():
            if value == depth:
                setattr(scope, name, wanted)
    return shallow
