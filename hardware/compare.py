"""The error between two sets of outputs.

The error is the largest absolute difference divided by the scale of the reference. Values that aren't finite are an
infinite error, and a reference that isn't finite raises, because `max(0.0, nan)` is 0.0. Minus infinity marks an
entry that a model masks: both sides must mask the same entries, and the others are compared. Integers, such as
matches and codes, are equal or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .output_masks import covering

Array = npt.NDArray[Any]
Outputs = Mapping[str, Array]

_SMALLEST_SCALE = 1e-12


def is_whole(array: Array) -> bool:
    """Return whether an array holds integers or booleans, to which no tolerance applies."""
    return array.dtype.kind in "iub"


def is_meant(array: Array) -> bool:
    """Return for each entry whether it is finite or masked."""
    if is_whole(array):
        return True
    return bool((np.isfinite(array) | np.isneginf(array)).all())


class ReferenceNotFinite(ValueError):
    """The reference holds NaN or infinity, so that nothing can be compared with it."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result of `compare`: the largest error relative to the output's scale, the absolute error, and the worst
    output.

    `finite` is False if that output holds NaN or infinity and the reference doesn't. `unit` says in messages what
    `max_rel_error` is relative to.
    """

    max_rel_error: float
    max_abs_error: float
    worst: str
    finite: bool = True
    unit: str = "of the output's scale"

    def __str__(self) -> str:
        if not self.finite:
            return f"inf: the device returned NaN or infinity in {self.worst}, but the reference is finite"
        return f"{self.max_rel_error:.2e} {self.unit} (absolute {self.max_abs_error:.2e}, in {self.worst})"


def _infinite(worst: str) -> Comparison:
    """Return the result for outputs that can't be compared."""
    return Comparison(max_rel_error=math.inf, max_abs_error=math.inf, worst=worst)


def not_finite(worst: str) -> Comparison:
    """Return the result for an output of the device that holds NaN or infinity."""
    return replace(_infinite(worst), finite=False)


def compare(
    got: Outputs,
    want: Outputs,
    *,
    masks: Mapping[str, Array] | None = None,
    required: Iterable[str] = (),
    scales: Mapping[str, float] | None = None,
) -> Comparison:
    """Compare `got` with `want` (arrays by output name).

    Every output that both have is compared, and each of `required` must exist. `masks` gives, for an output of shape
    (batch, length, ...), a 0/1 array (batch, length) of the valid positions; positions beyond the mask, such as those
    of an image after its text, are valid. A missing output, another shape or a value that isn't finite is an infinite
    error. `scales` replace the scales of the reference. Raises `ReferenceNotFinite` if the reference isn't finite.
    """
    names = [name for name in want if name in got or name in set(required)]
    missing = [name for name in required if name not in want or name not in got]
    if missing or not names:
        return _infinite((missing or ["nothing"])[0])
    worst = Comparison(max_rel_error=-1.0, max_abs_error=-1.0, worst="")
    for name in names:
        one = _compare_one(name, got[name], want[name], (masks or {}).get(name), (scales or {}).get(name))
        if one.max_rel_error > worst.max_rel_error:
            worst = one
    return worst


def _compare_one(name: str, got: Array, want: Array, mask: Array | None, scale: float | None) -> Comparison:
    if got.shape != want.shape:
        return _infinite(f"{name} (shape {got.shape})")
    if is_whole(want):
        count = np.count_nonzero(others(got, want, mask))
        if not count:
            return Comparison(max_rel_error=0.0, max_abs_error=0.0, worst=name)
        return _infinite(f"{name} ({count} of {want.size} differ)")
    reference = np.asarray(want, dtype=np.float64)
    actual = np.asarray(got, dtype=np.float64)
    if mask is not None:
        keep = covering(mask, reference)
        actual, reference = actual[keep], reference[keep]
    ruled_out = np.isneginf(reference)
    if not np.array_equal(ruled_out, np.isneginf(actual)):
        return not_finite(name)
    actual, reference = actual[~ruled_out], reference[~ruled_out]
    if reference.size == 0 or not np.isfinite(reference).all():
        raise ReferenceNotFinite(f"the reference is empty or not finite in {name}: nothing can be compared")
    if not np.isfinite(actual).all():
        return not_finite(name)
    absolute = float(np.abs(actual - reference).max())
    scale = scale or scale_of(reference)
    return Comparison(max_rel_error=absolute / scale, max_abs_error=absolute, worst=name)


def others(got: Array, want: Array, mask: Array | None) -> Array:
    """Return where two arrays of integers differ at valid positions: booleans of the shape of `want`."""
    different: Array = got != want
    if mask is None:
        return different
    keep = covering(mask, want)
    return different & keep.reshape(*keep.shape, *[1] * (want.ndim - keep.ndim))


def scale_of(reference: Array) -> float:
    """Return the scale of errors: the standard deviation of the unmasked entries, or their magnitude if all are
    equal."""
    reference = reference[~np.isneginf(reference)]
    spread = reference.std() if np.ptp(reference) else np.abs(reference).max()
    return max(float(spread), _SMALLEST_SCALE)


def compare_gradients(got: Outputs, want: Outputs) -> Comparison:
    """Compare all gradients of a model (arrays by parameter name) as one vector.

    The error is the larger of two: the distance divided by the norm of `want`, and the largest difference divided by
    its largest element. A standard deviation isn't used because most gradients are small and few are large. Other
    names or shapes are an infinite error. Raises `ReferenceNotFinite` if a reference isn't finite.
    """
    names = sorted(want)
    if sorted(got) != names or any(got[name].shape != want[name].shape for name in names) or not names:
        return _infinite("gradients (other parameters)")
    distance = length = largest = largest_wanted = 0.0
    for name in names:  # one at a time: all gradients of a large model would take several times its memory
        actual, reference = (np.asarray(one[name], dtype=np.float64).ravel() for one in (got, want))
        if not np.isfinite(reference).all():
            raise ReferenceNotFinite(f"the reference gradient of {name} is not finite: nothing can be compared")
        if not np.isfinite(actual).all():
            return not_finite("gradients")
        difference = actual - reference
        distance += float(difference @ difference)
        length += float(reference @ reference)
        largest = max(largest, float(np.abs(difference).max(initial=0.0)))
        largest_wanted = max(largest_wanted, float(np.abs(reference).max(initial=0.0)))
    if largest_wanted == 0.0:
        raise ReferenceNotFinite("the reference gradients are zero: nothing can be compared")
    relative = max(math.sqrt(distance / length) if length else math.inf, largest / largest_wanted)
    return Comparison(max_rel_error=relative, max_abs_error=largest, worst="gradients")
