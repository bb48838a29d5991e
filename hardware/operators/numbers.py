"""Compare the results of one operator with float64: relative to the scale, in units in the last place, and special
numbers one by one."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..compare import Array, Comparison, is_whole
from ..errors import UsageError
from ..model.calls import torch_dtype
from .call import Call, rounded
from .called_by_models import POSITIONS

_FILE = Path(__file__).with_name("limits.toml")

NOT_COMPARED = frozenset(
    {
        *("aten.rand", "aten.randn", "aten.randint", "aten.randn_like", "aten.multinomial"),
        *("aten.empty", "aten.empty_like", "aten.new_empty"),
    }
)
"""Operators with random or uninitialized results: only their shapes are compared."""


@dataclass(frozen=True, kw_only=True)
class OperatorLimit:
    """The largest error of an operator relative to its scale in a precision, with the reason. `is_coarse` if a
    standard lets it be off further than the precision."""

    precision: str
    limit: float
    reason: str
    is_coarse: bool = False


@functools.cache
def _limits() -> Mapping[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def limit_of(operator: str, precision: str, target: str = "", coarse: str = "") -> OperatorLimit:
    """Return the limit of an operator that a target computes in a precision. `coarse` names functions in its graph
    that the target's standard allows to be off further; a few operators are such functions themselves. Raises
    `UsageError` if operators aren't tested in the precision."""
    entries = [OperatorLimit(**one) for one in _limits()["limit"]]
    found = next((one for one in entries if one.precision == precision), None)
    if found is None:
        known = ", ".join(one.precision for one in entries)
        raise UsageError(f"operators aren't tested in {precision}", fix=f"Precisions: {known}.")
    wider, inside, allowed = (_limits()[name] for name in ("wider", "inside", "coarse"))
    if operator in wider["operators"]:
        found = replace(found, limit=wider["factor"] * found.limit, reason=f"{found.reason}; {wider['reason']}")
    if target in inside["targets"] and operator in inside["operators"]:
        found = replace(found, limit=inside["factor"] * found.limit, reason=inside["reason"])
    if coarse or (target in allowed["targets"] and operator in allowed["operators"]):
        found = replace(found, is_coarse=True)
        if allowed["limit"] > found.limit:
            found = replace(found, limit=allowed["limit"], reason=allowed["reason"])
    return found


def limit_inside(precision: str) -> float:
    """Return the limit of functions of several steps whose steps and inputs are rounded to a precision."""
    return float(_limits()["inside"]["factor"] * limit_of("", precision).limit)


def keeps_subnormals(target: str) -> bool:
    """Return whether the results of subnormal numbers are defined on a target: not if it may take them for 0."""
    return target not in _limits()["flushed"]["targets"]


def is_unordered(operator: str) -> bool:
    """Return whether two passes of an operator may differ within the limit, because sums have no fixed order."""
    return operator in _limits()["unordered"]["operators"]


@dataclass(frozen=True, kw_only=True)
class Apart:
    """How far results are from the reference: relative to the scale, absolute, and in units in the last place."""

    comparison: Comparison
    ulp: float


def apart(got: Mapping[str, Array], want: Mapping[str, Array], precision: str, what: str) -> Apart:
    """Return the largest difference of results by name. Another shape, another whole number, and NaN or infinity in
    another place are infinite differences. `what` names the call in messages."""
    relative = absolute = ulp = 0.0
    for name, reference in want.items():
        actual = got.get(name)
        if actual is None or actual.shape != reference.shape:
            shape = None if actual is None else actual.shape
            return _infinite(f"{name} of {what}: shape {shape} instead of {reference.shape}")
        if is_whole(reference):
            if not _same_whole(actual, reference, precision):
                return _infinite(f"{name} of {what}: {np.count_nonzero(actual != reference)} whole numbers differ")
            continue
        actual, reference = _in_range(actual, reference, precision)
        if not _same_signs(actual, reference):
            return _infinite(f"{name} of {what}: NaN or infinity in other places")
        known = np.isfinite(reference)
        if not known.any():
            continue
        difference = np.abs(actual[known] - reference[known])
        # Below its smallest normal number a precision has fewer digits, and none below its smallest.
        scale = max(float(np.abs(reference[known]).max()), _finfo(precision).smallest_normal)
        worst = float(difference.max())
        absolute, relative = max(absolute, worst), max(relative, worst / scale)
        ulp = max(ulp, float((difference / _unit(reference[known], precision)).max()))
    return Apart(comparison=Comparison(max_rel_error=relative, max_abs_error=absolute, worst=what), ulp=ulp)


def _same_whole(actual: Array, reference: Array, precision: str) -> bool:
    """Whether whole numbers are equal. Those that a graph returns as floating-point numbers may have been rounded to
    the precision that the target computes in."""
    if np.array_equal(actual, reference):
        return True
    return not is_whole(actual) and np.array_equal(actual, rounded(reference, precision))


def special_apart(got: Mapping[str, Array], want: Mapping[str, Array], precision: str, what: str) -> Apart:
    """Return the largest difference relative to each number, for results of special numbers. A subnormal number that
    became zero is off by 1."""
    found = apart(got, want, precision, what)
    if math.isinf(found.comparison.max_rel_error):
        return found
    relative = absolute = 0.0
    smallest = _finfo(precision).smallest_normal * _finfo(precision).eps
    for name, reference in want.items():
        if is_whole(reference):
            continue
        actual, expected = _in_range(got[name], reference, precision)
        known = np.isfinite(expected)
        difference = np.maximum(np.abs(actual[known] - expected[known]) - smallest, 0.0)
        if difference.size:
            absolute = max(absolute, float(difference.max()))
            relative = max(relative, float((difference / np.maximum(np.abs(expected[known]), smallest)).max()))
    return Apart(comparison=Comparison(max_rel_error=relative, max_abs_error=absolute, worst=what), ulp=found.ulp)


def by_position(operator: str, call: Call, first: Array | None, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return results in which positions of the first input are replaced by the numbers there.

    What is no position in the input becomes NaN.
    """
    name = f"output_{POSITIONS.get(operator, -1)}"
    found = dict(arrays)
    if name not in found or first is None or not first.ndim:
        return found
    axis = _axis(operator, call)
    given = found[name].astype(np.float64)
    positions = np.where(given == np.floor(given), given, -1).astype(np.int64)
    values = first.astype(np.float64)
    if axis is None:
        values, positions = values.ravel(), positions.ravel()
    elif positions.ndim < values.ndim:
        positions = np.expand_dims(positions, axis)
    length = values.shape[axis or 0]
    inside = (positions >= 0) & (positions < length)
    taken = np.take_along_axis(values, np.where(inside, positions, 0), axis or 0) if length else positions * 1.0
    found[name] = np.where(inside, taken, np.nan)
    return found


def _axis(operator: str, call: Call) -> int | None:
    """Return the axis of a call, None if it goes over all elements."""
    import torch

    schema = getattr(getattr(torch.ops.aten, operator.partition(".")[2]), call.overload)._schema
    for number, argument in enumerate(schema.arguments):
        if argument.name == "dim":
            given = call.arguments[number] if number < len(call.arguments) else argument.default_value
            return None if given is None else int(given)
    return None


def _in_range(actual: Array, reference: Array, precision: str) -> tuple[Array, Array]:
    """Return both in float64, the reference rounded to the precision, whose smallest number is minus infinity here as
    in the target's arrays (`to_arrays`). A larger number that the target returned in a wider dtype stays."""
    actual, reference = np.asarray(actual, np.float64), np.asarray(reference, np.float64)
    nearest = rounded(reference, precision)
    nearest = np.where(nearest == _finfo(precision).min, -np.inf, nearest)
    beyond = np.isinf(nearest) & np.isfinite(reference) & np.isfinite(actual)
    saturated = beyond & (np.sign(actual) == np.sign(reference)) & (np.abs(actual) >= _finfo(precision).max)
    reference = np.where(saturated & (np.abs(actual) < np.abs(reference)), actual, reference)
    return actual, np.where(beyond, reference, np.where(np.isfinite(nearest), reference, nearest))


def _same_signs(actual: Array, reference: Array) -> bool:
    return all(np.array_equal(where(actual), where(reference)) for where in (np.isnan, np.isposinf, np.isneginf))


def _unit(reference: Array, precision: str) -> Array:
    """Return the distance between neighbors of a precision at each number."""
    info = _finfo(precision)
    _, exponent = np.frexp(np.maximum(np.abs(reference), info.smallest_normal))
    unit: Array = np.ldexp(info.eps, exponent - 1)
    return unit


def _finfo(precision: str) -> Any:
    import torch

    return torch.finfo(torch_dtype(precision))


def _infinite(worst: str) -> Apart:
    return Apart(comparison=Comparison(max_rel_error=math.inf, max_abs_error=math.inf, worst=worst), ulp=math.inf)
