"""Whole numbers among a model's outputs, as codes and matches are: which of them hang on a last digit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..compare import Array, is_whole, others, scale_of
from .measurement import Outputs

_SHAKES = 4
"""How often inputs are shaken to find them."""


def with_whole_numbers_of(want: Outputs, got: Mapping[str, Array]) -> dict[str, Array] | None:
    """`got` with the whole numbers of `want`, None where it has none of those."""
    whole = {name: array for name, array in want.arrays.items() if is_whole(array) and name in got}
    return {**got, **whole} if whole else None


def are_undecided(
    got: Mapping[str, Array], want: Outputs, reference: Callable[[Mapping[str, Array]], Outputs], size: float
) -> bool:
    """Whether all whole numbers of `got` that aren't those of `want` change in float64 too, where the inputs move by
    `size` of their scale: either code is right where two lie equally near."""
    different = {
        name: others(got[name], array, want.masks.get(name))
        for name, array in want.arrays.items()
        if is_whole(array) and name in got
    }
    for seed in range(_SHAKES):
        shaken = reference(_shaken(want.inputs, size, seed)).arrays
        different = {name: there & (shaken[name] == want.arrays[name]) for name, there in different.items()}
    return not any(there.any() for there in different.values())


def _shaken(inputs: Mapping[str, Array], size: float, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        name: (array + size * scale_of(array) * rng.standard_normal(array.shape)).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for name, array in inputs.items()
    }
