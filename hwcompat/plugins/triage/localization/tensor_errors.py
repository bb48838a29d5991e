"""Errors of tensors relative to their scale in the reference, without what rounding explains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from hwcompat.hardware.compare import Array, ReferenceNotFinite, compare, is_whole, scale_of

_ROUNDINGS = 4
"""The tolerance of a sum, in units in the last place of its largest term."""
_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "tf32": 2.0**-10, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def padding_of(inputs: Mapping[str, Array]) -> tuple[Array, ...]:
    """Return the masks (batch, length) among a model's inputs that rule a position out, as booleans."""
    masks = (one.astype(bool) for name, one in inputs.items() if name.endswith("mask") and one.ndim == 2)
    return tuple(one for one in masks if one.any() and not one.all())


def outputs_error(
    got: Mapping[str, Array], want: Mapping[str, Array], masks: Mapping[str, Array], required: Iterable[str] = ()
) -> float:
    """Return the error of a model's outputs by `compare`; infinite if the reference isn't finite."""
    try:
        return compare(got, want, masks=masks, required=required).max_rel_error
    except ReferenceNotFinite:
        return math.inf


def error_of(
    got: Array,
    want: Array,
    *,
    precision: str,
    tolerance: float,
    largest: float = 0.0,
    padding: Sequence[Array] = (),
    finite: bool = False,
) -> float | None:
    """Return the largest difference over the scale of `want`; infinite for another shape, NaN and other integers.

    If the spread of `want` is below the rounding error of its terms (`largest` is the largest number that it was
    computed from), that error is the scale, so that cancellation is no fault. Positions of `padding` are skipped;
    with `finite` NaN there counts as an error too, because it spreads. None if the reference isn't finite or nothing
    is left.
    """
    if got.shape != want.shape:
        return math.inf
    numbers = want.dtype.kind == got.dtype.kind == "f"
    if finite and numbers and np.isnan(got[~np.isnan(want)]).any():
        return math.inf
    keep = unpadded(want.shape, padding)
    if keep is not None:
        got, want = got[keep], want[keep]
    if want.size == 0:
        return None
    if is_whole(want) or is_whole(got):
        return 0.0 if np.array_equal(got, want) else math.inf
    got, want = _numbers(got), _numbers(want)
    out = np.isneginf(want)
    if not np.isfinite(want[~out]).all():
        return None
    if not np.array_equal(out, np.isneginf(got)) or not np.isfinite(got[~out]).all():
        return math.inf
    got, want = got[~out], want[~out]
    if want.size == 0:
        return 0.0
    largest = max(largest, float(np.abs(want).max()))
    rounding = _ROUNDINGS * _EPSILON.get(precision, 2.0**-23) * largest
    return float(np.abs(got - want).max()) / max(scale_of(want), rounding / tolerance)


def _numbers(array: Array) -> Array:
    """Return float64, with minus infinity for a dtype's smallest number, which masks use."""
    if array.dtype.kind != "f":
        return np.asarray(array, dtype=np.float64)
    smallest = np.finfo(array.dtype).min
    return np.where(array <= smallest, -np.inf, array).astype(np.float64)


def unpadded(shape: tuple[int, ...], padding: Sequence[Array]) -> Array | None:
    """Return which entries of a tensor of this shape aren't padding; None if all may count."""
    for mask in padding:
        batch, length = mask.shape
        if shape[:2] == mask.shape:
            view = mask.reshape(batch, length, *[1] * (len(shape) - 2))
        elif len(shape) > 2 and (shape[0], shape[2]) == mask.shape:
            view = mask.reshape(batch, 1, length, *[1] * (len(shape) - 3))
        elif len(shape) >= 1 and shape[0] == batch * length:
            view = mask.reshape(batch * length, *[1] * (len(shape) - 1))
        else:
            continue
        return np.broadcast_to(view, shape)
    return None
