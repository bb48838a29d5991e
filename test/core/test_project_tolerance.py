"""A repository's own tolerance: it counts if it was stated, is shown with its reason, and makes no cell high."""

from __future__ import annotations

from collections.abc import Mapping

from judged_cells import CELL, PLAN, ask, line

from generators.compatibility.verdict import Level, Verdict
from hardware.testing.checks import comparing_checks
from hardware.testing.tolerances import loosest_limit, tolerance_for, too_wide
from reports.reason_text import texts

WIDE, NARROW = 1e-4, 1e-6
STATED = {"tolerance": "0.0001 of hwcompat.toml: sums in another order"}


def ask_with(error: float, held_to: float, own_limit: float | None, conditions: Mapping[str, str] = {}) -> Verdict:
    compared, others = {"max_rel_error": error, "tolerance": held_to}, {"max_rel_error": None, "tolerance": None}
    of = {one: compared if one in comparing_checks() else others for one in PLAN}
    return ask([line(one, conditions=dict(conditions), **of[one]) for one in PLAN], own_limit=own_limit)


def test_a_wider_tolerance_is_medium_at_most_with_its_reason() -> None:
    for error in (5e-5, 1e-6):
        verdict = ask_with(error, WIDE, WIDE, STATED)
        assert verdict.level is Level.MEDIUM
        assert f"tolerance: {STATED['tolerance']}" in texts(verdict.conditions)
        verdict = ask_with(error, WIDE, None, STATED)
        assert verdict.level is Level.UNKNOWN, "without the project file, the product's tolerance counts"
        found = [one for one in verdict.reasons if one.code == "wide_tolerance"]
        (reason,) = [one for one in found if one.text("check") == "matches_reference"]
        assert (reason.parameters["limit"], reason.parameters["today"]) == (WIDE, 2e-5)
    verdict = ask_with(5e-5, WIDE, WIDE)
    assert verdict.level is Level.MEDIUM, "evidence that doesn't state its wide tolerance is no better for it"
    assert [one.parameters for one in verdict.conditions if one.code == "unexplained_tolerance"] == [{"limit": WIDE}]


def test_a_narrower_tolerance_lowers_nothing_and_what_was_held_to_more_does_not_meet_it() -> None:
    assert ask_with(1e-7, NARROW, NARROW).level is Level.HIGH
    assert ask_with(1e-7, NARROW, None).level is Level.HIGH
    assert ask_with(1e-7, 2e-5, NARROW).level is Level.UNKNOWN


def test_a_limit_is_too_wide_long_before_it_hides_a_doubled_attention() -> None:
    assert too_wide() == 2 * loosest_limit()
    assert tolerance_for(CELL.target, "bfloat16").limit < too_wide() < 0.5
