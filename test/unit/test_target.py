"""Targets parse from their text, print back, and refuse what is no target."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.errors import UsageError
from hardware.target import Target

TEXTS = ("cpu", "cuda:1", "openvino:NPU", "openvino:GPU.1", "webgpu:native", "cuda:0")


@pytest.mark.parametrize("text", TEXTS)
def test_a_target_prints_what_it_was_parsed_from(text):
    assert str(Target.parse(text)) == text


def test_parts_are_told_apart():
    assert Target.parse("cuda:1") == Target(name="cuda", index=1)
    assert Target.parse("openvino:GPU.1") == Target(name="openvino", variant="GPU", index=1)
    assert Target.parse("cuda:0").index == 0


@pytest.mark.parametrize(
    "text",
    ["", " cpu", "cpu ", "cpu\n", "CPU", "cuda:", "cuda:-1", "cuda:1:2", "../cpu", "cuda:99999", "a" * 40, "é"],
)
def test_what_is_no_target_is_refused_with_examples(text):
    with pytest.raises(UsageError, match=r"is not a target.*openvino:NPU"):
        Target.parse(text)


def test_the_kind_keeps_the_variant_and_drops_the_index():
    assert str(Target.parse("openvino:GPU.1").kind) == "openvino:GPU"
    assert Target.parse("cuda:1").kind == Target.parse("cuda:0").kind == Target.parse("cuda")


@given(st.text(max_size=20))
def test_any_text_parses_and_prints_back_the_same_target_or_is_refused(text):
    try:
        target = Target.parse(text)
    except UsageError:
        return
    assert Target.parse(str(target)) == target
