"""How far two sets of outputs are apart, as a number that can be trusted.

The error is the largest absolute difference over the scale of the reference. What isn't finite is an infinite
error; a reference that isn't finite stops the comparison, because `max(0.0, nan)` is 0.0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Outputs = Mapping[str, Array]

_SMALLEST_SCALE = 1e-12


class ReferenceNotFinite(ValueError):
    """The reference itself holds NaN or infinity: nothing can be concluded from it."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Result of `compare`: errors relative to the output's scale and absolute, and the output that is worst."""

    max_rel_error: float
    max_abs_error: float
    worst: str

    def __str__(self) -> str:
        return f"{self.max_rel_error:.2e} of the output's scale (absolute {self.max_abs_error:.2e}, in {self.worst})"


def compare(
    got: Outputs,
    want: Outputs,
    *,
    masks: Mapping[str, Array] | None = None,
    required: Iterable[str] = (),
) -> Comparison:
    """Compare `got` with `want` (arrays by output name).

    Every output that both have is compared, and each of `required` must be there. `masks` gives, for an output
    of shape (batch, length, ...), a 0/1 array (batch, length) of the positions that mean something; positions
    behind those, as an image has them behind its text, mean something too. Raises
    `ReferenceNotFinite`; a missing output, another shape or a number that isn't finite is an infinite error.
    """
    names = [name for name in want if name in got or name in set(required)]
    missing = [name for name in required if name not in want or name not in got]
    if missing or not names:
        return Comparison(max_rel_error=math.inf, max_abs_error=math.inf, worst=(missing or ["nothing"])[0])
    worst = Comparison(max_rel_error=-1.0, max_abs_error=-1.0, worst="")
    for name in names:
        one = _compare_one(name, got[name], want[name], (masks or {}).get(name))
        if one.max_rel_error > worst.max_rel_error:
            worst = one
    return worst


def _compare_one(name: str, got: Array, want: Array, mask: Array | None) -> Comparison:
    reference = np.asarray(want, dtype=np.float64)
    if got.shape != reference.shape:
        return Comparison(max_rel_error=math.inf, max_abs_error=math.inf, worst=f"{name} (shape {got.shape})")
    actual = np.asarray(got, dtype=np.float64)
    if mask is not None:
        keep = covering(mask, reference)
        actual, reference = actual[keep], reference[keep]
    if reference.size == 0 or not np.isfinite(reference).all():
        raise ReferenceNotFinite(f"the reference is empty or not finite in {name}: nothing can be concluded")
    if not np.isfinite(actual).all():
        return Comparison(max_rel_error=math.inf, max_abs_error=math.inf, worst=f"{name} (not finite)")
    absolute = float(np.abs(actual - reference).max())
    scale = scale_of(reference)
    return Comparison(max_rel_error=absolute / scale, max_abs_error=absolute, worst=name)


def scale_of(reference: Array) -> float:
    """What errors are relative to: the standard deviation; of a number alone or repeated, which has none, its
    magnitude."""
    spread = reference.std() if np.ptp(reference) else np.abs(reference).max()
    return max(float(spread), _SMALLEST_SCALE)


def masks_of(masked_by: Mapping[str, str], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The masks that `compare` takes: by output, 1 where a position means something.

    `masked_by` names the input that is the mask, for an output that has several positions for each of the mask's
    (a step's return, state and action) with their number behind it: `attention_mask * 3`; for one that has those of
    an image in front of the text's with their number before it: `17 + attention_mask`.
    """
    found = {}
    for output, named in masked_by.items():
        before, _, rest = named.rpartition(" + ")
        name, _, times = rest.partition(" * ")
        if name in inputs:
            mask = inputs[name].repeat(int(times or 1), axis=1)
            found[output] = np.pad(mask, ((0, 0), (int(before or 0), 0)), constant_values=1)
    return found


def covering(mask: Array, array: Array) -> npt.NDArray[np.bool_]:
    """`mask` as booleans over the first two axes of `array`, true behind its own last position."""
    missing = max(0, array.shape[1] - mask.shape[1])
    return np.pad(mask.astype(bool), ((0, 0), (0, missing)), constant_values=True)


def compare_gradients(got: Outputs, want: Outputs) -> Comparison:
    """Compare all gradients of a model (arrays by parameter name) as one vector.

    The error is the larger of two: the distance relative to the length of `want`, and the largest difference
    relative to its largest element. Gradients are mostly small with a few large elements, so that a standard
    deviation is no scale for them. Raises `ReferenceNotFinite`; other names or shapes are an infinite error.
    """
    names = sorted(want)
    if sorted(got) != names or any(got[name].shape != want[name].shape for name in names) or not names:
        return Comparison(max_rel_error=math.inf, max_abs_error=math.inf, worst="gradients (other parameters)")
    distance = length = largest = largest_wanted = 0.0
    for name in names:  # one at a time: all gradients of a large model at once would take its memory several times
        actual, reference = (np.asarray(one[name], dtype=np.float64).ravel() for one in (got, want))
        if not np.isfinite(reference).all():
            raise ReferenceNotFinite(f"the reference gradient of {name} is not finite: nothing can be concluded")
        if not np.isfinite(actual).all():
            return Comparison(max_rel_error=math.inf, max_abs_error=math.inf, worst="gradients (not finite)")
        difference = actual - reference
        distance += float(difference @ difference)
        length += float(reference @ reference)
        largest = max(largest, float(np.abs(difference).max(initial=0.0)))
        largest_wanted = max(largest_wanted, float(np.abs(reference).max(initial=0.0)))
    if largest_wanted == 0.0:
        raise ReferenceNotFinite("the reference gradients are zero: nothing can be concluded")
    relative = max(math.sqrt(distance / length) if length else math.inf, largest / largest_wanted)
    return Comparison(max_rel_error=relative, max_abs_error=largest, worst="gradients")
