"""Outputs of whole numbers are the same or not; and what a target that gives everything leaves out is an error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from hardware.compare import compare
from hardware.testing.measurement import Ambiguous
from hardware.testing.model_test import ModelTest

VALUES = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)}


class Codes(torch.nn.Module):
    """Rounds what it is given to codes, `coarse` or with a border where one number lies."""

    def __init__(self, spoil: Callable[[dict[str, Any]], object] = lambda _: None) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.spoil = spoil

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        result: dict[str, Any] = {"values": x * self.scale, "codes": (4 * x).round().to(torch.int64)}
        if x.dtype == torch.float32:
            self.spoil(result)
        return result


def case_of(spoil: Callable[[dict[str, Any]], object], values: dict[str, Any] = VALUES) -> ModelTest:
    cell = "bert/fill-mask/cpu/float32"
    return ModelTest(cell, lambda: Codes(spoil), values, gain=None, outputs=("values",))


@pytest.fixture(autouse=True)
def own_references(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path))


def error_of(spoil: Callable[[dict[str, Any]], object]) -> float:
    with case_of(spoil) as case:
        return case.error(case.run(VALUES), case.reference(VALUES))


def test_right_codes_have_no_error_and_do_not_hide_that_of_numbers() -> None:
    assert error_of(lambda _: None) < 1e-6
    assert error_of(lambda result: result["values"].mul_(1.5)) > 0.1


@pytest.mark.parametrize("change", [lambda codes: codes.zero_(), lambda codes: codes[0, :1].add_(1)])
def test_another_code_is_an_infinite_error_however_near(change: Callable[[Any], object]) -> None:
    assert error_of(lambda result: change(result["codes"])) == math.inf


def test_what_a_target_leaves_out_that_gives_everything_is_an_infinite_error() -> None:
    assert error_of(lambda result: result.pop("codes")) == math.inf


def test_a_code_that_hangs_on_the_last_digit_shows_nothing() -> None:
    between = {"x": np.array([[0.125, 0.9, -0.6, 0.3]], dtype=np.float32)}

    def other(result: dict[str, Any]) -> None:
        result["codes"][0, 0] = 1

    with case_of(other, between) as case, pytest.raises(Ambiguous, match="codes"):
        case.error(case.run(between), case.reference(between))
    with case_of(lambda result: result["codes"].add_(1), between) as case:
        assert case.error(case.run(between), case.reference(between)) == math.inf


def test_masked_codes_mean_nothing() -> None:
    want, got = {"codes": np.array([[1, 2, 3]])}, {"codes": np.array([[1, 2, 9]])}
    assert compare(got, want).max_rel_error == math.inf
    assert compare(got, want, masks={"codes": np.array([[1, 1, 0]])}).max_rel_error == 0.0
    assert compare(got, want, masks={"codes": np.array([[0, 0, 1]])}).max_rel_error == math.inf


def test_recorded_numbers_are_measured_against_the_scale_that_was_recorded() -> None:
    with case_of(lambda result: result["values"].mul_(1000)) as case:
        assert case.recorded_error("values", {(0, 0): -1.0}, 2.0) == pytest.approx(999 / 2)
        kept = case.take_measurement().comparison
    assert kept is not None
    assert kept.max_rel_error == pytest.approx(999 / 2)
