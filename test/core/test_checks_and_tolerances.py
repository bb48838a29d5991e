"""Which checks a suite gets, and the tolerance of each target and precision.

A repository's own tolerance: it counts if it was stated, is shown with its reason, and makes no cell high.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from judged_cells import CELL, PLAN, ask, line

from generators.compatibility.verdict import Level, Verdict
from generators.suites.render import TEMPLATES
from hardware.backends.factory import backend_class, built_in_targets
from hardware.errors import UsageError
from hardware.evidence.record import COARSE
from hardware.target import Target
from hardware.testing import tolerances
from hardware.testing.checks import all_checks, applicable_checks, comparing_checks, core_checks
from hardware.testing.tolerances import Tolerance, load_tolerances, loosest_limit, rounding, tolerance_for, too_wide
from reports.reason_text import texts

EVERYTHING = frozenset({"generate", "backward", "save"})


def names(generates="none", has_mask=True, can=EVERYTHING, has_cache=True) -> set[str]:
    found = applicable_checks(generates=generates, has_mask=has_mask, has_cache=has_cache, can=can)
    return {check.name for check in found}


def test_a_suite_has_the_checks_of_its_task_and_of_its_targets_abilities():
    decoding = {"generates_like_reference", "cache_matches"}
    assert names("causal") - names("none") >= decoding
    assert names("seq2seq") - names("none") >= decoding
    assert names("causal") - names("causal", has_cache=False) == {"cache_matches"}
    assert {"backward", "save_reload"} <= names()
    assert "backward" not in names(can=frozenset({"save", "generate"}))
    assert "save_reload" not in names(can=frozenset({"backward"}))
    assert "cache_matches" not in names("causal", can=frozenset())
    assert names() - names(has_mask=False) >= {"honours_mask"}
    every = {"builds", "matches_reference", "matches_recorded", "runs_natively"}
    for name, generates, mask in itertools.product(built_in_targets(), ("none", "causal", "seq2seq"), (True, False)):
        assert every <= names(generates, mask, backend_class(name).CAN), name


def test_core_checks_need_no_ability_and_each_check_has_a_template():
    assert core_checks() == {check.name for check in all_checks() if check.core} != set()
    assert not core_checks() & {check.name for check in all_checks() if check.can}
    templates = {path.name.removesuffix(".py.j2") for path in (TEMPLATES / "checks").iterdir()}
    assert templates == {check.name for check in all_checks()}


def test_every_tolerance_is_stated_once_with_a_reason_and_a_limit_that_can_fail():
    entries = load_tolerances()
    keys = {(entry.target, entry.precision, entry.coarse) for entry in entries}
    assert len(keys) == len(entries) > 0
    assert not [entry for entry in entries if len(entry.reason) <= 20 or not 0 < entry.limit < 0.5]
    cpu = [tolerance_for(Target.parse("cpu"), one).limit for one in ("float32", "float16", "bfloat16")]
    assert cpu[0] < cpu[1] < cpu[2] <= loosest_limit()
    for precision in ("float32", "bfloat16"):
        own = tolerance_for(Target(name="tpu", variant="xla-cpu"), precision)
        assert own == tolerance_for(Target(name="cpu"), precision)
    with pytest.raises(UsageError, match="no tolerance for int4 on cpu"):
        tolerance_for(Target.parse("cpu"), "int4")
    allowed = rounding()
    assert 0 < allowed.least < 1 < allowed.spread < allowed.most
    assert allowed.sums == 4, "as the limit in float32 is to the error that a recipe may have"
    assert allowed.reason


def test_the_most_specific_tolerance_counts(monkeypatch):
    entries = tuple(
        Tolerance(target=name, precision="float32", limit=number, reason="for this test")
        for name, number in (("*", 1.0), ("openvino", 2.0), ("openvino:NPU", 3.0))
    )
    monkeypatch.setattr(tolerances, "load_tolerances", lambda: entries)
    limits = {"openvino:NPU": 3.0, "openvino:NPU.1": 3.0, "openvino": 2.0, "cpu": 1.0}
    assert {name: tolerance_for(Target.parse(name), "float32").limit for name in limits} == limits


def test_a_coarse_function_of_a_standard_counts_only_where_a_run_states_it():
    webgpu, coarse = Target.parse("webgpu"), {COARSE: "sin, cos"}
    cpu = tolerance_for(Target.parse("cpu"), "float32")
    assert tolerance_for(webgpu, "float32").limit == cpu.limit
    assert tolerance_for(webgpu, "float32", coarse).limit == 1e-3
    assert tolerance_for(Target.parse("webgpu:native"), "float32", coarse).limit == 1e-3
    assert tolerance_for(Target.parse("webnn"), "float32", coarse) == cpu
    assert tolerance_for(webgpu, "float32", {COARSE: "tanh"}) == tolerance_for(webgpu, "float32")
    assert tolerance_for(webgpu, "float16", coarse) == tolerance_for(webgpu, "float16")


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
