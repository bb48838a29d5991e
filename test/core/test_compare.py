"""The comparison that every verdict rests on: what isn't a finite number, or isn't there, never agrees."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hardware.compare import ReferenceNotFinite, compare

WANT = np.arange(12, dtype=np.float64).reshape(2, 3, 2)
NOT_FINITE = (math.nan, math.inf, -math.inf)


def changed(value: float, where: tuple[int, ...] = (1, 2, 1)) -> np.ndarray:
    got = WANT.copy()
    got[where] = value
    return got


def test_equal_outputs_have_no_error_and_a_difference_is_told_in_units_of_the_scale():
    assert compare({"a": WANT}, {"a": WANT}).max_rel_error == 0.0
    found = compare({"a": WANT + 0.5}, {"a": WANT})
    assert found.max_abs_error == pytest.approx(0.5)
    assert found.max_rel_error == pytest.approx(0.5 / WANT.std())
    assert found.worst == "a"


def test_a_number_that_is_not_finite_is_an_infinite_error_in_any_output():
    for value in NOT_FINITE:
        for where in ((0, 0, 0), (1, 2, 1)):
            found = compare({"a": changed(value, where)}, {"a": WANT})
            assert found.max_rel_error == found.max_abs_error == math.inf
            assert not found.finite
            assert "NaN or infinity" in str(found)
    # max(0.0, nan) is 0.0: a running maximum that meets NaN second would keep the good number.
    outputs = {"good": WANT, "bad": changed(math.nan)}
    for order in (("good", "bad"), ("bad", "good")):
        found = compare({n: outputs[n] for n in order}, dict.fromkeys(order, WANT))
        assert found.max_rel_error == math.inf
        assert found.worst.startswith("bad")


def test_a_reference_that_is_not_finite_or_empty_stops_the_comparison():
    for value in (math.nan, math.inf):
        for got in (WANT, changed(value)):
            with pytest.raises(ReferenceNotFinite, match="in a"):
                compare({"a": got}, {"a": changed(value)})
    with pytest.raises(ReferenceNotFinite):
        compare({"a": WANT}, {"a": WANT}, masks={"a": np.zeros((2, 3), dtype=int)})
    with pytest.raises(ReferenceNotFinite):
        compare({"a": np.zeros((0, 2))}, {"a": np.zeros((0, 2))})


def test_what_is_ruled_out_must_be_ruled_out_on_both_sides_and_the_rest_is_compared():
    ruled_out = changed(-math.inf)
    assert compare({"a": ruled_out}, {"a": ruled_out}).max_rel_error == 0.0
    for got, want in ((WANT, ruled_out), (ruled_out, WANT), (changed(-math.inf, (0, 0, 0)), ruled_out)):
        assert compare({"a": got}, {"a": want}).max_rel_error == math.inf
    wrong = ruled_out.copy()
    wrong[0, 1, 1] += 1.0
    assert compare({"a": wrong}, {"a": ruled_out}).max_abs_error == 1.0
    with pytest.raises(ReferenceNotFinite, match="in a"):
        compare({"a": np.full(3, -math.inf)}, {"a": np.full(3, -math.inf)})


def test_another_shape_is_an_infinite_error_even_where_it_would_broadcast():
    for shape in ((2, 3, 1), (2, 3), (1, 2, 3, 2), (2, 2, 3), ()):
        found = compare({"a": np.zeros(shape)}, {"a": WANT})
        assert found.max_rel_error == math.inf
        assert "shape" in found.worst


def test_a_missing_output_is_an_infinite_error_if_it_is_required_or_the_only_one():
    assert compare({}, {"a": WANT}, required=["a"]).worst == "a"
    assert compare({"a": WANT}, {}, required=["a"]).max_rel_error == math.inf
    assert compare({"b": WANT}, {"a": WANT, "b": WANT}, required=["b", "a"]).max_rel_error == math.inf
    assert compare({}, {}).max_rel_error == math.inf
    assert compare({"a": WANT}, {"b": WANT}).max_rel_error == math.inf
    assert compare({"a": WANT, "x": changed(math.nan)}, {"a": WANT, "y": WANT}, required=["a"]).max_rel_error == 0.0


def test_positions_that_mean_nothing_are_not_compared_and_the_others_are():
    mask = np.array([[1, 1, 1], [1, 1, 0]])
    assert compare({"a": changed(math.nan)}, {"a": WANT}, masks={"a": mask}).max_rel_error == 0.0
    assert compare({"a": WANT}, {"a": changed(math.nan)}, masks={"a": mask}).max_rel_error == 0.0
    assert compare({"a": changed(99.0, (1, 1, 0))}, {"a": WANT}, masks={"a": mask}).max_rel_error > 1
    # A text's mask over an output in which an image's positions follow: those count.
    text = np.array([[1, 0], [1, 1]])
    got = WANT.copy()
    got[0, 1] = 99.0
    assert compare({"a": got}, {"a": WANT}, masks={"a": text}).max_rel_error == 0.0
    assert compare({"a": changed(99.0)}, {"a": WANT}, masks={"a": text}).max_abs_error == 88.0


def test_a_constant_reference_still_tells_a_difference():
    """It has no spread, so that its magnitude stands in; one of zeros has neither."""
    assert compare({"a": np.ones(4) * 1.001}, {"a": np.ones(4)}).max_rel_error == pytest.approx(1e-3)
    assert compare({"a": np.ones(4) * 1e-6}, {"a": np.zeros(4)}).max_rel_error > 1
    assert compare({"a": np.ones(4)}, {"a": np.ones(4)}).max_rel_error == 0.0


def test_half_precision_is_compared_in_float64():
    got = np.array([65504.0, -65504.0], dtype=np.float16)
    assert math.isfinite(compare({"a": got}, {"a": -got.astype(np.float64)}).max_rel_error)


NUMBERS = arrays.arrays(np.float64, (2, 3), elements=st.floats(-1e6, 1e6))


@settings(max_examples=30)
@given(NUMBERS, NUMBERS)
def test_the_error_is_zero_only_for_equal_arrays(got, want):
    found = compare({"a": got}, {"a": want})
    assert (found.max_rel_error == 0.0) == bool((got == want).all())
    assert found.max_rel_error >= 0.0


@settings(max_examples=30)
@given(arrays.arrays(np.float64, (2, 3)), NUMBERS)
def test_no_array_of_any_numbers_agrees_unless_it_is_finite(got, want):
    found = compare({"a": got}, {"a": want})
    assert not math.isnan(found.max_rel_error)
    assert math.isfinite(found.max_abs_error) <= bool(np.isfinite(got).all())
