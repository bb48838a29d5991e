"""What of a graph file's outputs is compared: parts with a scale of their own, and no entries that only mask."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from ..compare import Array

Arrays = Mapping[str, Array]
Part = tuple[str, int, int, int]
"""A part of an output: its name, an axis, and the first and the last index along it (the last isn't included)."""
Parts = Mapping[str, Part]
NO_PARTS: Parts = MappingProxyType({})

_EPSILON = float(np.finfo(np.float32).eps)
_FILL = -1e4
"""The smallest in magnitude of the numbers with which graphs mask entries; others are -65504 and -1e9."""
_FAR = 200
"""How many times as large as any other entry a masked one is at least: 50 is an extreme logit."""
_ALIKE = 0.01
"""How much masked entries differ at most, relative to their magnitude: scores are added to them."""


def with_parts(arrays: Arrays, parts: Parts) -> dict[str, Array]:
    """Return outputs, and their `parts` as outputs of their own by the parts' names."""
    found = dict(arrays)
    for name, (output, axis, first, last) in parts.items():
        whole = arrays.get(output)
        if whole is not None and whole.ndim > axis and whole.shape[axis] >= last:
            found[name] = whole.take(range(first, last), axis)
    return found


def masked_alike(got: Arrays, want: Arrays) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return both with minus infinity for entries that `want` masks with a large negative number."""
    filled, masked = dict(got), dict(want)
    for name, array in want.items():
        border = border_of(array)
        if border is not None and name in got and got[name].dtype.kind == "f":
            filled[name] = np.where(got[name] <= border, -np.inf, got[name])
            masked[name] = np.where(array <= border, -np.inf, array)
    return filled, masked


def border_of(array: Array) -> float | None:
    """Return the number below which entries only mask others; None if there are none such."""
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else np.zeros(0)
    lowest = float(finite.min(initial=0.0))
    if lowest > _FILL:
        return None
    low, rest = finite[finite <= lowest / 2], finite[finite > lowest / 2]
    if not rest.size or np.ptp(low) > -_ALIKE * lowest or np.abs(rest).max() * _FAR > -lowest:
        return None
    return lowest / 2


def shaken(array: Array, seed: int) -> Array:
    """Return floating-point numbers that are larger or smaller by one unit in the last place of float32."""
    if array.dtype.kind != "f":
        return array
    signs = np.random.default_rng(seed).choice((-_EPSILON, _EPSILON), array.shape)
    moved: Array = (array * (1 + signs)).astype(array.dtype)
    return moved
