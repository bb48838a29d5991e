"""Errors say what, why and what to do, on one line, whatever text a user put in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware import errors
from hardware.errors import HwCompatError, did_you_mean, echo


def test_a_message_has_what_why_and_fix_in_this_order():
    assert str(HwCompatError("it broke", why="it was old", fix="Buy another.")) == (
        "it broke: it was old. Buy another."
    )
    assert str(HwCompatError("it broke")) == "it broke"
    assert str(HwCompatError("it broke", fix="Mend it.")) == "it broke. Mend it."


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("HwCompatError", 3),
        ("UsageError", 4),
        ("BrokenInput", 4),
        ("OutputError", 4),
        ("ModelError", 4),
        ("ModelMissing", 1),
        ("ModelRefused", 1),
        ("NothingMatched", 5),
        ("BackendUnavailable", 1),
        ("BrokenPlugin", 3),
        ("OutOfMemory", 1),
        ("WouldDeadlock", errors.WouldDeadlock.exit_code),
    ],
)
def test_each_class_owns_the_documented_exit_code(name, code):
    assert getattr(errors, name)("x").exit_code == code


def test_every_error_class_has_a_code_in_this_file():
    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and name[0] != "_"}
    own = {name for name in classes if issubclass(getattr(errors, name), Exception)}
    assert own == {
        "HwCompatError",
        "UsageError",
        "NothingMatched",
        "BrokenInput",
        "ModelRefused",
        "OutputError",
        "ModelError",
        "ModelMissing",
        "BackendUnavailable",
        "BrokenPlugin",
        "OutOfMemory",
        "WouldDeadlock",
    }


@given(st.text(max_size=300))
def test_an_echoed_text_is_short_and_printable(text):
    assert echo(text).isprintable()
    assert len(echo(text)) <= 80


def test_an_echo_hides_nothing_of_an_ordinary_name():
    assert echo("bert") == "'bert'"
    assert echo("a\x1b[31mb") == r"'a\x1b[31mb'"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("brt", "Did you mean 'bert'?"), ("BERT", "Did you mean 'bert'?"), ("zzzzzz", ""), ("b" * 10_000, "")],
)
def test_did_you_mean_offers_what_is_close_and_nothing_else(name, hint):
    assert did_you_mean(name, ["bert", "gpt2"]) == hint
