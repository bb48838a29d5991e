"""Tolerances: the most specific one counts, and none is made up."""

from __future__ import annotations

import pytest

from hardware.errors import UsageError
from hardware.evidence.record import COARSE
from hardware.target import Target
from hardware.testing import tolerances
from hardware.testing.tolerances import Tolerance, load_tolerances, loosest_limit, tolerance_for


def test_every_tolerance_states_a_reason_and_a_limit_that_can_fail():
    assert load_tolerances()
    for entry in load_tolerances():
        assert len(entry.reason) > 20, entry
        assert 0 < entry.limit < 0.5, entry


def test_no_two_entries_speak_of_the_same():
    keys = [(entry.target, entry.precision, entry.coarse) for entry in load_tolerances()]
    assert len(keys) == len(set(keys))


def test_half_precision_is_looser_than_float32():
    cpu = Target.parse("cpu")
    assert tolerance_for(cpu, "float32").limit < tolerance_for(cpu, "float16").limit
    assert tolerance_for(cpu, "float16").limit < tolerance_for(cpu, "bfloat16").limit <= loosest_limit()


@pytest.mark.parametrize(
    ("target", "limit"), [("openvino:NPU", 3.0), ("openvino:NPU.1", 3.0), ("openvino", 2.0), ("cpu", 1.0)]
)
def test_the_most_specific_entry_counts(monkeypatch, target, limit):
    entries = tuple(
        Tolerance(target=name, precision="float32", limit=number, reason="for this test")
        for name, number in (("*", 1.0), ("openvino", 2.0), ("openvino:NPU", 3.0))
    )
    monkeypatch.setattr(tolerances, "load_tolerances", lambda: entries)
    assert tolerance_for(Target.parse(target), "float32").limit == limit


def test_a_precision_without_a_tolerance_is_refused_instead_of_guessed():
    with pytest.raises(UsageError, match="no tolerance is stated for int4 on cpu"):
        tolerance_for(Target.parse("cpu"), "int4")


def test_what_a_standard_lets_be_coarse_counts_only_where_a_run_says_so():
    webgpu, coarse = Target.parse("webgpu"), {COARSE: "sin, cos"}
    assert tolerance_for(webgpu, "float32").limit == tolerance_for(Target.parse("cpu"), "float32").limit
    assert tolerance_for(webgpu, "float32", coarse).limit == 1e-3
    assert tolerance_for(Target.parse("webgpu:native"), "float32", coarse).limit == 1e-3
    assert tolerance_for(Target.parse("webnn"), "float32", coarse) == tolerance_for(Target.parse("cpu"), "float32")
    assert tolerance_for(webgpu, "float32", {COARSE: "tanh"}) == tolerance_for(webgpu, "float32")
    assert tolerance_for(webgpu, "float16", coarse) == tolerance_for(webgpu, "float16")
