"""Graphs with known answers: what they give in an arithmetic that is known."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.backends._onnx_probe import SIZE, overflows, precision_of, values_to_copy, write_overflow


def _in_tf32(values):
    """Rounded to ten bits of mantissa, with float32's exponent."""
    return ((values.view(np.uint32) + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)


def _in_bfloat16(values):
    return ((values.view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def _in_float16(values):
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


@pytest.mark.parametrize(
    ("arithmetic", "name"),
    [
        (lambda values: values, "float32"),
        (_in_float16, "float16"),
        (lambda values: np.minimum(_in_float16(values), 131_008), "float16"),  # as HTP has it: no infinity
        (_in_tf32, "tf32"),
        (_in_bfloat16, "bfloat16"),
        (lambda values: np.round(values * 4) / 4, "unknown"),
    ],
    ids=["float32", "float16", "float16 without infinity", "tf32", "bfloat16", "coarser than all"],
)
def test_an_arithmetic_is_told_by_what_it_loses(arithmetic, name):
    assert precision_of(arithmetic(values_to_copy()).astype(np.float32)) == name


def test_a_product_beyond_float16_tells_what_is_rounded_to_float16_from_what_is_kept_in_float32(tmp_path):
    pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    file = tmp_path / "model.onnx"
    write_overflow(file)
    values = np.full((SIZE, SIZE), 300, np.float16)
    with np.errstate(over="ignore"):
        (rounded,) = ReferenceEvaluator(str(file)).run(None, {"values": values})
    assert rounded.dtype == np.float16
    assert overflows(rounded)
    kept = np.sqrt(values.astype(np.float32) @ (300 * np.eye(SIZE, dtype=np.float32))).astype(np.float16)
    assert not overflows(kept)
