"""Graphs with known answers: what they give in an arithmetic that is known."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.backends._onnx_probe import SIZE, overflows, write_overflow


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
