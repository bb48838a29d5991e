"""A repository's own tolerance: it counts where it was stated, is said with its reason, and makes no cell high."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from judged_cells import CELL, PLAN, ask, line

from generators.compatibility.verdict import Level, Verdict
from hardware.backends.factory import backend_class
from hardware.testing import measurement
from hardware.testing.checks import comparing_checks
from hardware.testing.model_test import ModelTest
from hardware.testing.tolerances import loosest_limit, tolerance_for, too_wide
from reports.reason_text import texts

WIDE, NARROW = 1e-4, 1e-6
COMPARED = "matches_reference"
STATED = {"tolerance": "0.0001 of hwcompat.toml: sums in another order"}


def ask_with(
    error: float, held_to: float, own_limit: float | None, conditions: dict[str, str] | None = None
) -> Verdict:
    limits = {"max_rel_error": error, "tolerance": held_to}
    none = dict.fromkeys(limits)
    lines = [
        line(one, conditions=conditions or {}, **(limits if one in comparing_checks() else none)) for one in PLAN
    ]
    return ask(lines, own_limit=own_limit)


@pytest.mark.parametrize("error", [5e-5, 1e-6])
def test_a_wider_tolerance_is_medium_at_most_with_its_reason(error):
    verdict = ask_with(error, WIDE, WIDE, STATED)
    assert verdict.level is Level.MEDIUM
    assert "tolerance: 0.0001 of hwcompat.toml: sums in another order" in texts(verdict.conditions)


@pytest.mark.parametrize("error", [5e-5, 1e-6])
def test_without_the_project_file_the_products_tolerance_counts(error):
    verdict = ask_with(error, WIDE, None, STATED)
    assert verdict.level is Level.UNKNOWN
    (reason,) = [one for one in verdict.reasons if one.code == "wide_tolerance" and one.text("check") == COMPARED]
    assert (reason.parameters["limit"], reason.parameters["today"]) == (WIDE, 2e-5)


def test_a_narrower_tolerance_lowers_nothing_and_what_was_held_to_more_does_not_meet_it():
    assert ask_with(1e-7, NARROW, NARROW).level is Level.HIGH
    assert ask_with(1e-7, NARROW, None).level is Level.HIGH
    assert ask_with(1e-7, 2e-5, NARROW).level is Level.UNKNOWN


def test_evidence_that_keeps_silent_about_its_wide_tolerance_is_no_better_for_it():
    verdict = ask_with(5e-5, WIDE, WIDE)
    assert verdict.level is Level.MEDIUM
    assert [one.parameters for one in verdict.conditions if one.code == "unexplained_tolerance"] == [{"limit": WIDE}]


def test_a_limit_is_too_wide_long_before_it_hides_a_doubled_attention():
    assert too_wide() == 2 * loosest_limit()
    assert tolerance_for(CELL.target, "bfloat16").limit < too_wide() < 0.5


# Where a suite runs


def case(cell: str = "bert/fill-mask/cpu/float32", **own: Any) -> ModelTest:
    def linear() -> Any:
        import torch

        return torch.nn.Linear(3, 3)

    return ModelTest(cell, linear, {"input": np.ones((2, 3), dtype=np.float32)}, gain=1.0, outputs=("output",), **own)


def test_the_suites_limit_is_the_one_that_is_used_and_recorded():
    own = case(tolerance=WIDE, tolerance_reason="hwcompat.toml: sums in another order")
    assert own.tolerance == WIDE
    assert own.take_measurement().tolerance == WIDE
    assert own.facts()["conditions"] == STATED


def test_a_narrower_limit_is_used_and_is_no_condition():
    own = case(tolerance=NARROW, tolerance_reason="hwcompat.toml: we want it")
    assert own.tolerance == NARROW
    assert own.facts()["conditions"] == {}


def test_on_another_target_than_the_cells_the_limit_does_not_count(monkeypatch):
    monkeypatch.setattr(backend_class("cuda"), "unavailable", lambda _self: "not here")
    monkeypatch.setattr(measurement, "active", True)
    own = case("bert/fill-mask/cuda/float32", tolerance=WIDE, tolerance_reason="hwcompat.toml: x")
    assert own.tolerance == 2e-5
    assert "tolerance" not in own.facts()["conditions"]
