"""The list of held-out types is what the hash says of all types that are known, and nobody's choice."""

from __future__ import annotations

from generators.compatibility.prediction_scores import held_out, is_held_out
from generators.models.model_libraries import known_types


def test_the_list_is_what_the_hash_says_of_all_known_types():
    assert held_out() == {name for name in known_types() if is_held_out(name)}


def test_about_a_third_is_held_out():
    assert 0.28 < len(held_out()) / len(known_types()) < 0.38
