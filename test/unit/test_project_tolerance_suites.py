"""A repository's own tolerance in a suite that runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hardware.backends.factory import backend_class
from hardware.testing import measurement
from hardware.testing.model_test import ModelTest

WIDE, NARROW = 1e-4, 1e-6
STATED = {"tolerance": "0.0001 of hwcompat.toml: sums in another order"}


def test_a_suites_own_limit_is_used_and_recorded_on_its_own_target(monkeypatch: pytest.MonkeyPatch) -> None:
    def case(limit: float, target: str = "cpu") -> ModelTest:
        more: dict[str, Any] = {"tolerance": limit, "tolerance_reason": "hwcompat.toml: sums in another order"}
        inputs = {"input": np.ones((2, 3), dtype=np.float32)}
        return ModelTest(f"bert/fill-mask/{target}/float32", object, inputs, gain=1.0, outputs=("output",), **more)

    own = case(WIDE)
    assert own.tolerance == own.take_measurement().tolerance == WIDE
    assert own.facts()["conditions"] == STATED
    narrow = case(NARROW)
    assert (narrow.tolerance, narrow.facts()["conditions"]) == (NARROW, {})
    monkeypatch.setattr(backend_class("cuda"), "unavailable", lambda _self: "not here")
    monkeypatch.setattr(measurement, "active", True)
    elsewhere = case(WIDE, "cuda")
    assert elsewhere.tolerance == 2e-5
    assert "tolerance" not in elsewhere.facts()["conditions"]
